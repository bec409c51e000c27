//! The ends: of a generation, and of the link.
//!
//! Whatever ends a generation, [`Generation::settle_death`] is where that is settled, from the client's requests to our own.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Generation;
use crate::clock::Moment;
use crate::event::{Cause, Exit, Parting, Seen, StartFailed, What};
use crate::link::attachment::Attachment;
use crate::link::closing::Closing;
use crate::link::exchange::Exchange;
use crate::link::io::{About, Exited, Output};
use crate::link::state::{Because, GivenUp, Life, Server, Settling, Swapping, Then};
use crate::server::stop::{Ladder, Standing};

/// The end of a generation, with all that has to be settled.
struct Death {
    /// Since when it was up.
    since: Moment,
    /// How its process ended; none if not even the kill ended it.
    exited: Option<Exited>,
    /// What becomes of the client's requests; none if that is settled with what follows.
    settling: Option<Settling>,
    /// It has ended of itself while the client lives, so that a request may be to blame.
    of_itself: bool,
    /// Whether the link goes on without it.
    link_goes_on: bool,
}

impl Generation {
    /// Settles the death of a generation, whichever way it came: the one place where that is done. How many requests were
    /// in flight.
    fn settle_death(&mut self, now: Moment, death: Death, ex: &mut Exchange<'_>) -> u32 {
        let in_flight = ex.in_flight();
        // 1. A legacy server that has died of `server/discover` is answered for.
        if death.of_itself {
            ex.answer_discover();
        }
        // 2. Each request in flight is answered, or kept for the next generation.
        let kept = death
            .settling
            .map_or(0, |settling| ex.owed().settle(&settling));
        // 3. The death is told.
        if let Some(exited) = death.exited {
            self.tell_exit(now, death.since, exited, in_flight, kept, ex);
        }
        // 4. What the dead server asked the client is taken back, and what we asked it is void.
        if death.link_goes_on {
            ex.server_gone();
        }
        in_flight
    }

    fn tell_exit(
        &mut self,
        now: Moment,
        since: Moment,
        exited: Exited,
        in_flight: u32,
        kept: u32,
        ex: &mut Exchange<'_>,
    ) {
        self.code = exited.status.exit_code();
        // The lines since the last event are told, so that the sum is right.
        if let Some(junk) = self.junk.rest() {
            ex.owed().tell(What::Junk(junk));
        }
        let ending = self.ladder().map(|ladder| ladder.ending(now));
        let generation = ex.session().generation();
        ex.owed().tell(What::Exit(Exit {
            generation,
            pid: exited.pid,
            status: exited.status,
            uptime_ms: now.ms_since(since),
            usage: exited.usage,
            in_flight,
            kept,
            ending,
            out_of_memory: exited.out_of_memory,
            stderr_tail: exited.stderr_tail,
            standing: None,
        }));
    }

    /// The process that we started has ended.
    pub fn exited(
        &mut self,
        now: Moment,
        exited: Exited,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        match &mut self.life {
            // A launcher that ends well while others serve on has only done its part.
            Life::Up(up) if exited.status.success() && up.may_serve_on(exited.holders) => {
                up.left = Some(exited);
            }
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

    /// No process holds the server's stdout any more.
    pub fn stdout_closed(
        &mut self,
        now: Moment,
        tree_empty: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        match &mut self.life {
            Life::Up(up) => match up.left.take() {
                Some(exited) => {
                    let exited = Exited {
                        tree_empty,
                        ..exited
                    };
                    self.server_gone(now, exited, at, ex);
                }
                // It can answer no request any more: help it to end.
                None => at.stop(now, Cause::ServerExit, self, ex),
            },
            Life::Swapping(_) | Life::Closing(_) => self.followers_gone(now, tree_empty, at, ex),
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {}
        }
    }

    /// The processes that served on after the one that we started had left are gone, too.
    fn followers_gone(
        &mut self,
        now: Moment,
        tree_empty: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        let left = match &self.life {
            Life::Swapping(swapping) => swapping.left(),
            Life::Closing(closing) => closing.left(),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        };
        if let Some(exited) = left.cloned() {
            let exited = Exited {
                tree_empty,
                ..exited
            };
            self.server_gone(now, exited, at, ex);
        }
    }

    fn server_gone(
        &mut self,
        now: Moment,
        exited: Exited,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        if at.away() {
            at.part(now, Parting::ServerEnded, ex);
            self.gone_for_good(now, exited, ex);
            self.client_released_before(ex);
            return;
        }
        let is_death = self.is_death(exited.status, ex.session().spoken());
        let goes_on = self.restarts.goes_on(at.attached(), ex.session().opened());
        match &self.life {
            Life::Up(_) if goes_on && is_death => self.died(now, exited, ex),
            Life::Swapping(Swapping {
                then: Then::Undecided { .. },
                ..
            }) if !is_death => {
                self.close_swapping(&Cause::ServerExit, true, ex);
                self.gone_for_good(now, exited, ex);
            }
            Life::Swapping(_) => self.gone_in_swap(now, exited, ex),
            Life::Up(_)
            | Life::Closing(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => self.gone_for_good(now, exited, ex),
        }
    }

    /// The generation that is up has died while the client lives.
    fn died(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &mut self.life else { return };
        let (since, trial) = (up.since, up.trial.take());
        let tree_empty = exited.tree_empty;
        let then = self.died_of_itself(now, since, trial, exited, ex);
        let (ladder, step) = Ladder::begin(Cause::ServerExit, Standing::Left, &self.limits, now);
        self.life = Life::Swapping(Swapping {
            since,
            ladder,
            server: Server::Gone,
            quiet: tree_empty,
            then,
        });
        // An empty tree is only to be confirmed.
        ex.outbox().step(step.filter(|_| !tree_empty));
    }

    /// Decides what follows a death that no other decision of ours led to, and settles it.
    fn died_of_itself(
        &mut self,
        now: Moment,
        since: Moment,
        trial: Option<Box<GivenUp>>,
        exited: Exited,
        ex: &mut Exchange<'_>,
    ) -> Then {
        let (status, tail) = (exited.status, exited.stderr_tail.clone());
        let last = match exited.out_of_memory {
            Some(cause) => format!("{status} ({cause})"),
            None => status.to_string(),
        };
        let (up_ms, words) = (now.ms_since(since), tail.clone());
        let then = match trial {
            Some(trial) => self.restarts.after_trial(now, &trial, last, words),
            None => self
                .restarts
                .after_death(now, up_ms, last, words, ex.session()),
        };
        let settling = match &then {
            Then::Abandon(given_up) => Settling::Abandoned(given_up.clone().into()),
            Then::Undecided { .. } | Then::Respawn { .. } | Then::Rest => Settling::Keep {
                because: Because::ServerExit {
                    status,
                    stderr_tail: tail.clone(),
                    restarted: true,
                    tries: 0,
                },
                poisoned: Some(Because::Poisoned {
                    status,
                    stderr_tail: tail,
                }),
            },
        };
        let death = Death {
            since,
            exited: Some(exited),
            settling: Some(settling),
            of_itself: true,
            link_goes_on: true,
        };
        self.settle_death(now, death, ex);
        then
    }

    /// The process that a swap waits for is gone.
    fn gone_in_swap(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let Life::Swapping(swapping) = &mut self.life else {
            return;
        };
        let since = swapping.since;
        // Others of the tree have been on their way down with it.
        let alone = !matches!(swapping.server, Server::Left(_));
        swapping.server = Server::Gone;
        let tree_empty = exited.tree_empty;
        if let Then::Undecided { trial } = &mut swapping.then {
            let trial = trial.take();
            swapping.quiet = alone && tree_empty;
            let then = self.died_of_itself(now, since, trial, exited, ex);
            if let Life::Swapping(swapping) = &mut self.life {
                swapping.then = then;
            }
        } else {
            let because = match swapping.ladder.cause() {
                Cause::Renewal(why) => Because::Renewed(why.clone()),
                Cause::ClientEof
                | Cause::ClientGone
                | Cause::ClientDeaf
                | Cause::ShimSignal { .. }
                | Cause::ShimKilled
                | Cause::KeeperSignal { .. }
                | Cause::Asked
                | Cause::ServerExit
                | Cause::StartFailed
                | Cause::KeeperLost
                | Cause::Differs
                | Cause::LeaseEnded(_) => Because::ServerExit {
                    status: exited.status,
                    stderr_tail: exited.stderr_tail.clone(),
                    restarted: true,
                    tries: 0,
                },
            };
            let death = Death {
                since,
                exited: Some(exited),
                settling: Some(Settling::Keep {
                    because,
                    poisoned: None,
                }),
                of_itself: false,
                link_goes_on: true,
            };
            self.settle_death(now, death, ex);
        }
        // Behind the end that was told: what the rest of the tree is sent did not reach the server.
        if let (false, Life::Swapping(swapping)) = (tree_empty, &mut self.life) {
            ex.outbox().step(swapping.ladder.server_left(now));
        }
    }

    /// The server is gone, and no other follows.
    fn gone_for_good(&mut self, now: Moment, exited: Exited, ex: &mut Exchange<'_>) {
        let (since, ordered) = match &self.life {
            Life::Up(up) => (up.since, None),
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
        let death = Death {
            since,
            exited: Some(exited),
            settling: Some(Settling::All(ordered.unwrap_or_else(|| because.clone()))),
            of_itself: false,
            link_goes_on: false,
        };
        let asked = self.settle_death(now, death, ex) > 0;
        // A client whose probe just failed may ask again in the other era; one that never asked is about to.
        let mut explain = !opened && (asked || !status.success());
        match &mut self.life {
            Life::Closing(closing) => {
                let (awaited, step) =
                    closing.server_gone(now, status.exit_code(), because, tree_empty);
                explain &= awaited;
                ex.outbox().step(step);
            }
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {
                let (ladder, step) =
                    Ladder::begin(Cause::ServerExit, Standing::Left, &self.limits, now);
                let code = status.exit_code();
                if tree_empty {
                    self.close(Closing::without_tree(now, code, because), ex);
                } else {
                    let gone = Server::Gone;
                    self.close(Closing::descending(since, ladder, code, because, gone), ex);
                    ex.outbox().step(step);
                }
            }
        }
        let Some(closing) = self.closing() else {
            return;
        };
        if explain {
            closing.explain(now);
        } else {
            closing.release_client(ex.outbox());
        }
    }

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
        if self.closing().is_some() {
            self.closing_tree_empty(now, ended, left, ex);
            return;
        }
        match core::mem::replace(&mut self.life, Life::Resting) {
            Life::Swapping(swapping) => self.swapping_tree_empty(now, swapping, ended, left, ex),
            life @ (Life::Absent { .. }
            | Life::Up(_)
            | Life::Closing(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished) => self.life = life,
        }
    }

    fn closing_tree_empty(
        &mut self,
        now: Moment,
        ended: u32,
        left: Vec<Seen>,
        ex: &mut Exchange<'_>,
    ) {
        let Some(closing) = self.closing() else {
            return;
        };
        let since = closing.since();
        let Some(empty) = closing.tree_empty(now, ended, left) else {
            return;
        };
        if let Some(because) = empty.immortal {
            // Not even the kill ended it: the teardown names it, and what it owes will not come.
            let death = Death {
                since,
                exited: None,
                settling: Some(Settling::All(because)),
                of_itself: false,
                link_goes_on: false,
            };
            self.settle_death(now, death, ex);
        }
        ex.owed().tell(What::Teardown(empty.teardown));
    }

    fn swapping_tree_empty(
        &mut self,
        now: Moment,
        swapping: Swapping,
        ended: u32,
        left: Vec<Seen>,
        ex: &mut Exchange<'_>,
    ) {
        let cause = swapping.ladder.cause().clone();
        if !swapping.quiet || !left.is_empty() {
            let teardown = swapping.ladder.finish(ended, left, now);
            ex.owed().tell(What::Teardown(teardown));
        }
        if let Server::Up = &swapping.server {
            // Not even the kill ended it: what it owed will not come.
            let settling = match cause {
                Cause::Renewal(why) => Some(Settling::Keep {
                    because: Because::Renewed(why),
                    poisoned: None,
                }),
                // It is given up, and its requests with it.
                Cause::ClientEof
                | Cause::ClientGone
                | Cause::ClientDeaf
                | Cause::ShimSignal { .. }
                | Cause::ShimKilled
                | Cause::KeeperSignal { .. }
                | Cause::Asked
                | Cause::ServerExit
                | Cause::StartFailed
                | Cause::KeeperLost
                | Cause::Differs
                | Cause::LeaseEnded(_) => None,
            };
            let death = Death {
                since: swapping.since,
                exited: None,
                settling,
                of_itself: false,
                link_goes_on: true,
            };
            self.settle_death(now, death, ex);
        }
        self.proceed(now, swapping.then, ex);
    }

    // The end of the link.

    /// The link is to end for this cause, and nothing is kept.
    pub fn stop(&mut self, now: Moment, cause: Cause, attached: bool, ex: &mut Exchange<'_>) {
        let client_wants_more = match &cause {
            Cause::ClientEof
            | Cause::Asked
            | Cause::ServerExit
            | Cause::Renewal(_)
            | Cause::Differs
            | Cause::LeaseEnded(_) => true,
            Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::KeeperLost => false,
        };
        let goes_on = self.restarts.goes_on(attached, ex.session().opened());
        match &mut self.life {
            // It can serve no client any more, but the client lives.
            Life::Up(up) if cause == Cause::ServerExit && goes_on => {
                let trial = up.trial.take();
                self.swap(now, cause, Then::Undecided { trial }, ex);
            }
            Life::Up(up) => {
                let server = up.left.take().map_or(Server::Up, Server::Left);
                let because = Because::of(&cause);
                let owing = cause == Cause::ClientEof && ex.requests().answers_due();
                let standing = if owing { Standing::Owing } else { Standing::Up };
                let since = up.since;
                let (ladder, step) = Ladder::begin(cause, standing, &self.limits, now);
                self.close(Closing::descending(since, ladder, 0, because, server), ex);
                ex.outbox().step(step);
                if !client_wants_more {
                    self.drop_client(ex);
                }
            }
            Life::Closing(closing) => {
                if !client_wants_more {
                    closing.explained();
                    ex.outbox().step(closing.drained(now));
                    self.drop_client(ex);
                }
            }
            // It concerns a generation that is on its way down, or gone.
            Life::Swapping(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
                if cause == Cause::ServerExit => {}
            Life::Swapping(_) => self.close_swapping(&cause, client_wants_more, ex),
            Life::Absent { .. } | Life::Waiting { .. } | Life::Resting | Life::Abandoned(_) => {
                // What was asked for is not wanted any more.
                ex.outbox().withdraw_spawn();
                let because = Because::of(&cause);
                ex.owed().settle(&Settling::All(because.clone()));
                let code = self.code;
                self.close(Closing::without_tree(now, code, because), ex);
                if !client_wants_more {
                    self.drop_client(ex);
                }
            }
            Life::Finished => {}
        }
    }

    /// The link ends while a generation is on its way down: that way becomes the link's own.
    fn close_swapping(&mut self, cause: &Cause, client_wants_more: bool, ex: &mut Exchange<'_>) {
        let life = core::mem::replace(&mut self.life, Life::Resting);
        let Life::Swapping(swapping) = life else {
            self.life = life;
            return;
        };
        let Swapping {
            since,
            ladder,
            server,
            ..
        } = swapping;
        let because = Because::of(cause);
        if let Server::Gone = server {
            // No server is left to answer what was kept.
            ex.owed().settle(&Settling::All(because.clone()));
        }
        let code = self.code;
        self.close(
            Closing::descending(since, ladder, code, because, server),
            ex,
        );
        if !client_wants_more {
            self.drop_client(ex);
        }
    }

    fn close(&mut self, closing: Closing, ex: &mut Exchange<'_>) {
        debug_assert!(!self.is_finished(), "the end begins once");
        ex.session_mut().set_stopping();
        self.life = Life::Closing(closing);
    }

    fn closing(&mut self) -> Option<&mut Closing> {
        match &mut self.life {
            Life::Closing(closing) => Some(closing),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        }
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

    /// The server cannot go on with the session: requests that still come are told why.
    pub fn set_differing(&mut self, because: Because) {
        if let Some(closing) = self.closing() {
            closing.set_because(because);
        }
    }

    /// The client has heard why the server does not come, or listens no more.
    pub fn explained(&mut self) {
        if let Some(closing) = self.closing() {
            closing.explained();
        }
    }

    fn drop_client(&mut self, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.closing() {
            closing.drop_client(ex.outbox());
        }
    }

    /// The client's pipes were let go before the end began.
    pub fn client_released_before(&mut self, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.closing() {
            closing.client_released_before(ex.outbox());
        }
    }

    /// Whether the client has closed its end and waits for what it had asked before.
    pub fn awaits_last_answers(&mut self) -> bool {
        let closing = self.closing();
        closing.is_some_and(|closing| closing.awaits_last_answers())
    }

    /// A client that has closed its end has all that it waits for: the server need not be waited for.
    pub fn drained_if_answered(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.closing()
            && !ex.requests().answers_due()
        {
            ex.outbox().step(closing.drained(now));
        }
    }

    pub fn finish_if_done(&mut self, ex: &mut Exchange<'_>) {
        if let Some(closing) = self.closing()
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
