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
use crate::limits::EXPLAIN_MS;
use crate::link::attachment::Attachment;
use crate::link::exchange::Exchange;
use crate::link::io::{About, Exited, Output};
use crate::link::state::{
    Because, Client, Closing, GivenUp, Life, Server, Settling, Swapping, Then, TreeState, Up,
};
use crate::server::stop::{Ladder, Standing};

/// The exit code that tells of a SIGKILL.
const KILLED: u8 = 128 + 9;

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
        let kept = death.settling.map_or(0, |settling| ex.settle(&settling));
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
            ex.tell(What::Junk(junk));
        }
        let ending = self.ladder().map(|ladder| ladder.ending(now));
        ex.tell(What::Exit(Exit {
            generation: ex.session().generation(),
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
        let server = match &self.life {
            Life::Swapping(swapping) => &swapping.server,
            Life::Closing(closing) => &closing.server,
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => return,
        };
        if let Server::Left(exited) = server {
            let exited = Exited {
                tree_empty,
                ..exited.clone()
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
        let goes_on = self.goes_on(at.attached(), ex.session().opened());
        match &self.life {
            Life::Up(_) if goes_on && is_death => self.died(now, exited, ex),
            Life::Swapping(Swapping {
                then: Then::Undecided { .. },
                ..
            }) if !is_death => {
                self.close_swapping(now, &Cause::ServerExit, true, ex);
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
        let then = match trial {
            Some(trial) => {
                let losses = trial.losses.with_death();
                Then::Abandon(self.given_up(now, losses, last, tail.clone()))
            }
            None => self.after_death(now, now.ms_since(since), last, tail.clone(), ex),
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
        let since = match &self.life {
            Life::Up(Up { since, .. }) | Life::Closing(Closing { since, .. }) => *since,
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => now,
        };
        let Exited {
            status, tree_empty, ..
        } = exited;
        let opened = ex.session().opened();
        let because = Because::ServerExit {
            status,
            stderr_tail: exited.stderr_tail.clone(),
            restarted: false,
            tries: if opened { 0 } else { self.tries + 1 },
        };
        let ordered = match &self.life {
            Life::Closing(Closing {
                because: ordered @ (Because::Asked | Because::LeaseEnded { .. }),
                ..
            }) => Some(ordered.clone()),
            Life::Closing(_)
            | Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
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
                closing.code = status.exit_code();
                closing.server = Server::Gone;
                explain &= matches!(closing.because, Because::Leaving);
                if let Because::Leaving = closing.because {
                    closing.because = because;
                }
                if let (TreeState::Descending(ladder), false) = (&mut closing.tree, tree_empty) {
                    ex.outbox().step(ladder.server_left(now));
                }
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
                let tree = if tree_empty {
                    TreeState::Empty
                } else {
                    TreeState::Descending(ladder)
                };
                self.close(now, tree, status.exit_code(), because, Server::Gone, ex);
                ex.outbox().step(step.filter(|_| !tree_empty));
            }
        }
        if explain {
            self.explain(now);
        } else {
            self.release_client(ex);
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
        match core::mem::replace(&mut self.life, Life::Resting) {
            Life::Closing(closing) => self.closing_tree_empty(now, closing, ended, left, ex),
            Life::Swapping(swapping) => self.swapping_tree_empty(now, swapping, ended, left, ex),
            life @ (Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished) => self.life = life,
        }
    }

    fn closing_tree_empty(
        &mut self,
        now: Moment,
        mut closing: Closing,
        ended: u32,
        left: Vec<Seen>,
        ex: &mut Exchange<'_>,
    ) {
        let tree = core::mem::replace(&mut closing.tree, TreeState::Empty);
        if let TreeState::Descending(ladder) = tree {
            if let Server::Up = closing.server {
                // Not even the kill ended it: the teardown names it, and what it owes will not come.
                closing.server = Server::Gone;
                closing.code = KILLED;
                let because = core::mem::replace(&mut closing.because, Because::Stopping);
                let death = Death {
                    since: closing.since,
                    exited: None,
                    settling: Some(Settling::All(because)),
                    of_itself: false,
                    link_goes_on: false,
                };
                self.settle_death(now, death, ex);
            }
            ex.tell(What::Teardown(ladder.finish(ended, left, now)));
        }
        self.life = Life::Closing(closing);
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
            ex.tell(What::Teardown(teardown));
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
        let goes_on = self.goes_on(attached, ex.session().opened());
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
                let (ladder, step) = Ladder::begin(cause, standing, &self.limits, now);
                self.close(now, TreeState::Descending(ladder), 0, because, server, ex);
                ex.outbox().step(step);
                if !client_wants_more {
                    self.drop_client(ex);
                }
            }
            Life::Closing(closing) => {
                if !client_wants_more {
                    closing.explain = None;
                    if let TreeState::Descending(ladder) = &mut closing.tree {
                        ex.outbox().step(ladder.drained(now));
                    }
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
            Life::Swapping(_) => self.close_swapping(now, &cause, client_wants_more, ex),
            Life::Absent { .. } | Life::Waiting { .. } | Life::Resting | Life::Abandoned(_) => {
                // What was asked for is not wanted any more.
                ex.outbox().withdraw_spawn();
                let because = Because::of(&cause);
                ex.settle(&Settling::All(because.clone()));
                let code = self.code;
                self.close(now, TreeState::Empty, code, because, Server::Gone, ex);
                if !client_wants_more {
                    self.drop_client(ex);
                }
            }
            Life::Finished => {}
        }
    }

    /// The link ends while a generation is on its way down: that way becomes the link's own.
    fn close_swapping(
        &mut self,
        now: Moment,
        cause: &Cause,
        client_wants_more: bool,
        ex: &mut Exchange<'_>,
    ) {
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
            ex.settle(&Settling::All(because.clone()));
        }
        let code = self.code;
        let tree = TreeState::Descending(ladder);
        self.close(now, tree, code, because, server, ex);
        if let Life::Closing(closing) = &mut self.life {
            closing.since = since;
        }
        if !client_wants_more {
            self.drop_client(ex);
        }
    }

    fn close(
        &mut self,
        now: Moment,
        tree: TreeState,
        code: u8,
        because: Because,
        server: Server,
        ex: &mut Exchange<'_>,
    ) {
        debug_assert!(!self.is_finished(), "the end begins once");
        ex.session_mut().set_stopping();
        let since = self.up_since().unwrap_or(now);
        self.life = Life::Closing(Closing {
            since,
            tree,
            explain: None,
            code,
            because,
            client: Client::Reading,
            server,
        });
    }

    /// A killed keeper had begun the end, or its server was kept for a client that was away: its guard has ended the tree.
    pub fn close_after_keeper(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        let (because, gone) = (Because::Stopping, Server::Gone);
        self.close(now, TreeState::Empty, KILLED, because, gone, ex);
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
        ex.tell(What::StartFailed(StartFailed {
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
        ex.settle(&Settling::All(because.clone()));
        // It may be refused before it was tried.
        ex.outbox().withdraw_spawn();
        self.close(now, TreeState::Empty, code, because, Server::Gone, ex);
        self.explain(now);
    }

    /// The server cannot go on with the session: those who still ask are told why.
    pub fn set_differing(&mut self, because: Because) {
        if let Life::Closing(closing) = &mut self.life {
            closing.because = because;
        }
    }

    /// The end is explained to a client that asks in vain, for a while.
    fn explain(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = Some(now.after_ms(EXPLAIN_MS));
        }
    }

    /// The client has heard why the server does not come, or listens no more.
    pub fn explained(&mut self) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = None;
        }
    }

    fn release_client(&mut self, ex: &mut Exchange<'_>) {
        if self.lets_client_go() {
            ex.outbox().push(Output::ReleaseClient);
        }
    }

    fn drop_client(&mut self, ex: &mut Exchange<'_>) {
        if self.lets_client_go() {
            ex.outbox().push(Output::DropClient);
        }
    }

    fn lets_client_go(&mut self) -> bool {
        match &mut self.life {
            Life::Closing(closing) => {
                core::mem::replace(&mut closing.client, Client::Released) == Client::Reading
            }
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => false,
        }
    }

    /// The client's pipes were let go before the end began.
    pub fn client_released_before(&mut self, ex: &mut Exchange<'_>) {
        self.lets_client_go();
        ex.outbox().withdraw_release();
    }

    /// Whether the client has closed its end and waits for what it had asked before.
    pub fn awaits_last_answers(&self) -> bool {
        match &self.life {
            Life::Closing(Closing {
                tree: TreeState::Descending(ladder),
                client: Client::Reading,
                ..
            }) => ladder.drains(),
            Life::Closing(_)
            | Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => false,
        }
    }

    /// A client that has closed its end has all that it waits for: the server need not be waited for.
    pub fn drained_if_answered(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if let Life::Closing(closing) = &mut self.life
            && !ex.requests().answers_due()
            && let TreeState::Descending(ladder) = &mut closing.tree
        {
            ex.outbox().step(ladder.drained(now));
        }
    }

    pub fn finish_if_done(&mut self, ex: &mut Exchange<'_>) {
        if let Life::Closing(Closing {
            tree: TreeState::Empty,
            explain: None,
            code,
            server: Server::Gone,
            ..
        }) = &self.life
        {
            let code = *code;
            debug_assert!(
                ex.requests().is_empty(),
                "each request has its answer at the end"
            );
            self.release_client(ex);
            ex.session_mut().set_finished();
            ex.outbox().finish(code);
            self.life = Life::Finished;
        }
    }
}
