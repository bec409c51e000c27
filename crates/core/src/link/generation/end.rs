//! The way down: a server ends, its tree is empty, the link itself ends.
//!
//! Every end of a server comes to [`Generation::server_gone`]. What follows is decided there, the [`Death`] is settled, and
//! the life moves on.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Parting, Seen, StartFailed, Status, What};

use super::Generation;
use crate::link::attachment::Attachment;
use crate::link::closing::Closing;
use crate::link::death::Death;
use crate::link::exchange::Exchange;
use crate::link::io::{About, Exited, Output};
use crate::link::state::{Because, GivenUp, Life, Settling, Then};
use crate::link::swapping::Swapping;
use crate::verdict::sent_by_another_process;

impl Generation {
    /// True if a server that ended like this was ended by a signal of ours.
    pub fn sent(&self, status: Status) -> bool {
        self.life.ladder().is_some_and(|ladder| ladder.sent(status))
    }

    // A server ends.

    /// The process that we started has ended.
    pub fn exited(
        &mut self,
        now: Moment,
        exited: Exited,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        match &mut self.life {
            Life::Up(up) if up.is_launcher(&exited) => up.launcher_left(exited),
            Life::Up(_) | Life::Swapping(_) | Life::Closing(_) => {
                self.server_gone(now, exited, at, ex);
            }
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {}
        }
    }

    /// No process holds the server's stdout.
    pub fn stdout_closed(
        &mut self,
        now: Moment,
        tree_empty: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        let Some(up) = self.life.up() else {
            return self.followers_gone(now, tree_empty, at, ex);
        };
        match up.take_left() {
            Some(exited) => {
                let exited = Exited {
                    tree_empty,
                    ..exited
                };
                self.server_gone(now, exited, at, ex);
            }
            // It cannot answer any request: end it.
            None => at.stop(now, Cause::ServerExit, self, ex),
        }
    }

    /// On the way down, the processes that served on after their launcher had left are gone, too.
    fn followers_gone(
        &mut self,
        now: Moment,
        tree_empty: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        if let Some(exited) = self.life.left().cloned() {
            let exited = Exited {
                tree_empty,
                ..exited
            };
            self.server_gone(now, exited, at, ex);
        }
    }

    /// The server is gone. Either another generation may follow, or the link ends.
    fn server_gone(
        &mut self,
        now: Moment,
        exited: Exited,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        if at.away() {
            // A client that comes back could not use the next generation.
            at.part(now, Parting::ServerEnded, ex);
            self.gone_with_link(now, exited, ex);
            self.client_released_before(ex);
            return;
        }
        let is_death = self.is_death(exited.status, ex.session().spoken());
        let goes_on = self.restarts.goes_on(at.attached(), ex.session().opened());
        match &self.life {
            Life::Up(_) if goes_on && is_death => self.died(now, exited, ex),
            Life::Swapping(swapping) if swapping.is_undecided() && !is_death => {
                self.close_swapping(&Cause::ServerExit, ex);
                self.gone_with_link(now, exited, ex);
            }
            Life::Swapping(_) => self.gone_in_swap(now, exited, ex),
            Life::Up(_)
            | Life::Closing(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => self.gone_with_link(now, exited, ex),
        }
    }

    /// Whether this is the death of a server at all. A command that ends before it was asked anything is no server,
    /// unless another process ended it.
    fn is_death(&self, status: Status, spoken: bool) -> bool {
        spoken || (sent_by_another_process(status) && !self.sent(status))
    }

    /// The server that was up has died while the client lives.
    fn died(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let Some(up) = self.life.up() else { return };
        self.knows_probes = up.knows_probes();
        let (since, trial, tree_empty) = (up.since(), up.take_trial(), exited.tree_empty);
        let then = self.died_of_itself(now, since, trial, exited, ex);
        let (swapping, step) = Swapping::after_death(now, since, tree_empty, then, &self.limits);
        self.life = Life::Swapping(swapping);
        ex.outbox().step(step);
    }

    /// The server that a swap waits for is gone.
    fn gone_in_swap(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let Life::Swapping(swapping) = &mut self.life else {
            return;
        };
        let (since, tree_empty) = (swapping.since(), exited.tree_empty);
        let then = if swapping.is_undecided() {
            let trial = swapping.take_trial();
            Some(self.died_of_itself(now, since, trial, exited, ex))
        } else {
            let ladder = swapping.ladder();
            let death = Death::swapped(since, exited, Some(ladder.ending(now)), ladder.cause());
            self.settle(now, death, ex);
            None
        };
        // Behind the end that was told: what the rest of the tree is sent did not reach the server.
        if let Life::Swapping(swapping) = &mut self.life {
            ex.outbox()
                .step(swapping.server_gone(now, tree_empty, then));
        }
    }

    /// Decides what follows a death that no decision of ours led to, and settles it.
    fn died_of_itself(
        &mut self,
        now: Moment,
        since: Moment,
        trial: Option<Box<GivenUp>>,
        exited: Exited,
        ex: &mut Exchange<'_>,
    ) -> Then {
        let last = match exited.out_of_memory {
            Some(cause) => format!("{} ({cause})", exited.status),
            None => exited.status.to_string(),
        };
        let (up_ms, tail) = (now.ms_since(since), exited.stderr_tail.clone());
        let then = match trial {
            Some(trial) => self.restarts.after_trial(now, &trial, last, tail),
            None => self
                .restarts
                .after_death(now, up_ms, last, tail, ex.session()),
        };
        let ending = self.life.ladder().map(|ladder| ladder.ending(now));
        let death = Death::of_itself(since, exited, ending, &then);
        self.settle(now, death, ex);
        then
    }

    /// The server is gone, and no other follows.
    fn gone_with_link(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let (since, ordered) = match &self.life {
            Life::Up(up) => (up.since(), None),
            Life::Closing(closing) => (closing.since(), closing.ordered().cloned()),
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => (now, None),
        };
        let Exited {
            status, tree_empty, ..
        } = exited;
        let opened = ex.session().opened();
        let because = Because::ServerExit {
            status,
            stderr_tail: exited.stderr_tail.clone(),
            restarted: false,
            tries: if opened {
                0
            } else {
                self.restarts.tries_with_this()
            },
        };
        let ending = self.life.ladder().map(|ladder| ladder.ending(now));
        let told = ordered.unwrap_or_else(|| because.clone());
        let death = Death::with_link(since, exited, ending, told);
        let asked = self.settle(now, death, ex) > 0;
        // A client whose probe just failed may ask again in the other era; one that never asked is about to.
        let mut explain = !opened && (asked || !status.success());
        let code = status.exit_code();
        if let Some(closing) = self.life.closing() {
            let (awaited, step) = closing.server_gone(now, code, because, tree_empty);
            explain &= awaited;
            ex.outbox().step(step);
        } else {
            let (closing, step) =
                Closing::after_death(now, since, code, because, tree_empty, &self.limits);
            self.close(closing, ex);
            ex.outbox().step(step);
        }
        if let Some(closing) = self.life.closing() {
            if explain {
                closing.explain(now);
            } else {
                closing.release_client(ex.outbox());
            }
        }
    }

    /// Has a death settled; how many requests were in flight.
    fn settle(&mut self, now: Moment, death: Death, ex: &mut Exchange<'_>) -> u32 {
        self.code = death.exit_code().unwrap_or(self.code);
        death.settle(now, &mut self.junk, ex)
    }

    // A tree is empty.

    /// No process is left of the tree, or the kill is through and these are left.
    pub fn tree_empty(
        &mut self,
        now: Moment,
        ended: u32,
        left: Vec<Seen>,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        self.followers_gone(now, true, at, ex);
        match core::mem::replace(&mut self.life, Life::Resting) {
            Life::Swapping(swapping) => self.swap_over(now, swapping, ended, left, ex),
            life @ Life::Closing(_) => {
                self.life = life;
                self.closing_tree_empty(now, ended, left, ex);
            }
            life @ (Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished) => self.life = life,
        }
    }

    fn swap_over(
        &mut self,
        now: Moment,
        swapping: Swapping,
        ended: u32,
        left: Vec<Seen>,
        ex: &mut Exchange<'_>,
    ) {
        let over = swapping.tree_empty(now, ended, left);
        if let Some(teardown) = over.teardown {
            ex.owed().tell(What::Teardown(teardown));
        }
        if let Some(cause) = over.immortal {
            // Not even the kill ended it: what it owed will not come.
            let death = Death::immortal_in_swap(over.since, &cause);
            self.settle(now, death, ex);
        }
        self.proceed(now, over.then, ex);
    }

    fn closing_tree_empty(
        &mut self,
        now: Moment,
        ended: u32,
        left: Vec<Seen>,
        ex: &mut Exchange<'_>,
    ) {
        let Some(closing) = self.life.closing() else {
            return;
        };
        let since = closing.since();
        let Some(empty) = closing.tree_empty(now, ended, left) else {
            return;
        };
        if let Some(because) = empty.immortal {
            // Not even the kill ended it: the teardown names it, and what it owes will not come.
            let death = Death::immortal_with_link(since, because);
            self.settle(now, death, ex);
        }
        ex.owed().tell(What::Teardown(empty.teardown));
    }

    // The link ends.

    /// The link is to end for this cause, and nothing is kept.
    pub fn stop(&mut self, now: Moment, cause: Cause, attached: bool, ex: &mut Exchange<'_>) {
        let wants_more = client_wants_more(&cause);
        let goes_on = self.restarts.goes_on(attached, ex.session().opened());
        match &mut self.life {
            // It cannot serve any client, but the client lives.
            Life::Up(up) if cause == Cause::ServerExit && goes_on => {
                let trial = up.take_trial();
                return self.swap(now, cause, Then::Undecided { trial }, ex);
            }
            Life::Up(up) => {
                let owing = cause == Cause::ClientEof && ex.requests().answers_due();
                let (closing, step) = Closing::begin(now, up, cause, owing, &self.limits);
                self.close(closing, ex);
                ex.outbox().step(step);
            }
            Life::Closing(closing) => {
                if !wants_more {
                    closing.explained();
                    ex.outbox().step(closing.drained(now));
                }
            }
            // It concerns a generation that is on its way down, or gone.
            Life::Swapping(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
                if cause == Cause::ServerExit =>
            {
                return;
            }
            Life::Swapping(_) => self.close_swapping(&cause, ex),
            Life::Absent { .. } | Life::Waiting { .. } | Life::Resting | Life::Abandoned(_) => {
                // The start that was asked for is not wanted.
                ex.outbox().withdraw_spawn();
                let because = Because::of(&cause);
                ex.owed().settle(&Settling::All(because.clone()));
                let code = self.code;
                self.close(Closing::without_tree(now, code, because), ex);
            }
            Life::Finished => return,
        }
        if !wants_more && let Some(closing) = self.life.closing() {
            closing.drop_client(ex.outbox());
        }
    }

    /// The link ends while a generation is on its way down: that way becomes the link's own.
    fn close_swapping(&mut self, cause: &Cause, ex: &mut Exchange<'_>) {
        let life = core::mem::replace(&mut self.life, Life::Resting);
        let Life::Swapping(swapping) = life else {
            self.life = life;
            return;
        };
        let because = Because::of(cause);
        if swapping.is_over() {
            // No server is left to answer what was kept.
            ex.owed().settle(&Settling::All(because.clone()));
        }
        self.close(swapping.into_closing(self.code, because), ex);
    }

    fn close(&mut self, closing: Closing, ex: &mut Exchange<'_>) {
        debug_assert!(!self.is_finished(), "the end begins once");
        ex.session_mut().set_stopping();
        self.life = Life::Closing(closing);
    }

    /// A killed keeper had begun the end, or its server was kept for a client that was away: its guard has ended the tree.
    /// No generation follows, so what is left in flight is answered.
    pub fn close_after_keeper(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        ex.owed().settle(&Settling::All(Because::KeeperLost));
        self.close(Closing::after_keeper(now), ex);
        self.finish_if_done(ex);
    }

    /// The first generation, or a later one, could not be started.
    pub fn start_failed(
        &mut self,
        now: Moment,
        problem: String,
        hint: String,
        code: u8,
        ex: &mut Exchange<'_>,
    ) {
        let About {
            name, argv, cwd, ..
        } = ex.about().clone();
        let mut words = format!("mainstay: cannot start `{name}`: {problem}");
        if !hint.is_empty() {
            words.push_str("\nhint: ");
            words.push_str(&hint);
        }
        ex.outbox().push(Output::Say(words));
        ex.owed().tell(What::StartFailed(StartFailed {
            argv,
            cwd,
            problem: problem.clone(),
            hint: hint.clone(),
        }));
        if ex.session().generation() > 0 && ex.session().opened() {
            self.not_started_again(now, &problem, ex);
            return;
        }
        let because = Because::StartFailed { problem, hint };
        ex.owed().settle(&Settling::All(because.clone()));
        // It may be refused before it was tried.
        ex.outbox().withdraw_spawn();
        let mut closing = Closing::without_tree(now, code, because);
        closing.explain(now);
        self.close(closing, ex);
    }

    /// The client's pipes were let go before the end began.
    pub fn client_released_before(&mut self, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.life.closing() {
            closing.client_released_before(ex.outbox());
        }
    }

    /// A client that has closed its end has all that it waits for: the server need not be waited for.
    pub fn drained_if_answered(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.life.closing()
            && !ex.requests().answers_due()
        {
            ex.outbox().step(closing.drained(now));
        }
    }

    pub fn finish_if_done(&mut self, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.life.closing()
            && let Some(code) = closing.done()
        {
            debug_assert!(
                ex.requests().is_empty(),
                "each request has its answer at the end"
            );
            closing.release_client(ex.outbox());
            ex.session_mut().set_finished();
            ex.outbox().finish(code);
            self.life = Life::Finished;
        }
    }
}

/// Whether a client may still read what the link says after it was ended for this cause.
fn client_wants_more(cause: &Cause) -> bool {
    match cause {
        Cause::ClientEof
        | Cause::Asked
        | Cause::ServerExit
        | Cause::Restart(_)
        | Cause::Differs
        | Cause::LeaseEnded(_) => true,
        Cause::ClientGone
        | Cause::ClientDeaf
        | Cause::ShimSignal { .. }
        | Cause::ShimKilled
        | Cause::KeeperSignal { .. }
        | Cause::StartFailed
        | Cause::KeeperLost => false,
    }
}
