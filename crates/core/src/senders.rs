//! What a signal to the shim or to the keeper means, by its sender.
//!
//! | sender | meaning |
//! |---|---|
//! | the client, a process above it, mainstay itself, the kernel, a process outside this container | the client may want the end |
//! | init or a manager of sessions | the end: a logout or a shutdown |
//! | any other process: a stranger | the client did not ask. The signal is ignored and counted; a second one from the same stranger within [`INSIST_MS`] is the end |
//!
//! A descendant of the client is a stranger, too: it is the shell of an agent's tool more often than a helper of the client, and a client
//! that wants the end also closes stdin, ends itself, or sends SIGKILL.
//!
//! A `pkill` has a new pid each time. The same stranger is therefore the same program of the same user; a sender that ended before
//! it could be seen counts as any program.

use alloc::string::String;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Origin, Relation, Signal};
use mainstay_protocol::limits::INSIST_MS;

/// What is to be done about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The client may want the end: its other acts tell.
    MaybeEnd,
    /// The sender wants the end, and is obeyed.
    End,
    /// The client did not ask: the process that was signalled stays.
    Ignore {
        /// How many it has ignored by now, this one included.
        count: u32,
    },
}

/// The strangers that have signalled one process of ours.
#[derive(Debug, Default)]
pub struct Senders {
    last: Option<(Moment, Stranger)>,
    ignored: u32,
}

#[derive(Debug)]
struct Stranger {
    uid: u32,
    program: Option<String>,
}

impl Senders {
    /// Judges one signal. `near` says whether a pid is, or was, that of the client or of a process above it.
    pub fn judge(
        &mut self,
        now: Moment,
        signal: &Signal,
        near: impl FnOnce(i32) -> bool,
    ) -> Meaning {
        match signal.origin() {
            Origin::Kernel | Origin::Outside => return Meaning::MaybeEnd,
            Origin::Kill | Origin::Thread | Origin::Claim => {}
        }
        match signal.relation {
            Some(
                Relation::Client | Relation::AboveClient | Relation::SessionLeader | Relation::Ours,
            ) => return Meaning::MaybeEnd,
            // The kernel signs with a dead parent's pid what that parent wished for its children.
            None if near(signal.sender) => return Meaning::MaybeEnd,
            Some(Relation::BelowClient | Relation::Other) | None => {}
        }
        if manages_sessions(signal) {
            return Meaning::End;
        }
        let stranger = Stranger {
            uid: signal.uid,
            program: signal.comm.clone(),
        };
        let insists = self
            .last
            .as_ref()
            .is_some_and(|(at, before)| now.ms_since(*at) <= INSIST_MS && before.may_be(&stranger));
        self.last = Some((now, stranger));
        if insists {
            return Meaning::End;
        }
        self.ignored = self.ignored.saturating_add(1);
        Meaning::Ignore {
            count: self.ignored,
        }
    }
}

impl Stranger {
    fn may_be(&self, other: &Self) -> bool {
        let differs = |(a, b): (&String, &String)| a != b;
        let programs = self.program.as_ref().zip(other.program.as_ref());
        self.uid == other.uid && !programs.is_some_and(differs)
    }
}

fn manages_sessions(signal: &Signal) -> bool {
    let comm = signal.comm.as_deref().unwrap_or_default();
    signal.sender == 1 || MANAGERS.contains(&comm)
}

/// Short names of those that end sessions, besides init.
const MANAGERS: [&str; 4] = ["systemd", "systemd-logind", "elogind", "elogind-daemon"];

#[cfg(test)]
mod tests {
    //! guards: A signal of the client is obeyed at once; one of a stranger only the second time.

    use super::*;
    use Meaning::{End, Ignore, MaybeEnd};

    fn from(sender: i32, comm: &str, relation: Relation) -> Signal {
        Signal {
            number: 15,
            sender,
            uid: 1_000,
            comm: Some(comm.into()),
            relation: Some(relation),
            ..Signal::default()
        }
    }

    fn gone(sender: i32) -> Signal {
        Signal {
            comm: None,
            relation: None,
            gone: true,
            ..from(sender, "", Relation::Other)
        }
    }

    fn first(signal: &Signal) -> Meaning {
        Senders::default().judge(Moment(0), signal, |pid| pid == 40)
    }

    #[test]
    fn three_senders_have_three_meanings() {
        let kernel = Signal {
            code: 128,
            ..gone(0)
        };
        for (signal, meaning) in [
            (from(40, "claude", Relation::Client), MaybeEnd),
            (from(39, "zsh", Relation::AboveClient), MaybeEnd),
            (from(38, "bash", Relation::SessionLeader), MaybeEnd),
            (from(37, "mcp-keeper", Relation::Ours), MaybeEnd),
            (kernel, MaybeEnd),
            (gone(0), MaybeEnd),
            // A parent that has died and whose children were to be told of it.
            (gone(40), MaybeEnd),
            (from(1, "tini", Relation::Other), End),
            (from(900, "systemd", Relation::Other), End),
            (from(901, "systemd-logind", Relation::Other), End),
            (from(70, "pkill", Relation::Other), Ignore { count: 1 }),
            (from(70, "bash", Relation::BelowClient), Ignore { count: 1 }),
            (gone(70), Ignore { count: 1 }),
        ] {
            assert_eq!(first(&signal), meaning, "{signal:?}");
        }
    }

    /// Each of these comes after a `pkill` of uid 1000, so many milliseconds later.
    #[test]
    fn the_same_stranger_is_obeyed_the_second_time() {
        let other_user = Signal {
            uid: 0,
            ..from(71, "pkill", Relation::Other)
        };
        for (signal, later_ms, meaning) in [
            (from(71, "pkill", Relation::Other), 0, End),
            (from(71, "pkill", Relation::BelowClient), 2_000, End),
            (gone(71), 500, End),
            (
                from(71, "pkill", Relation::Other),
                2_001,
                Ignore { count: 2 },
            ),
            (
                from(71, "killall", Relation::Other),
                10,
                Ignore { count: 2 },
            ),
            (other_user, 10, Ignore { count: 2 }),
        ] {
            let mut senders = Senders::default();
            let pkill = from(70, "pkill", Relation::Other);
            assert_eq!(
                senders.judge(Moment(0), &pkill, |_| false),
                Ignore { count: 1 }
            );
            let later = Moment(0).after_ms(later_ms);
            let judged = senders.judge(later, &signal, |_| false);
            assert_eq!(judged, meaning, "{later_ms} ms later: {signal:?}");
        }
    }

    #[test]
    fn the_client_between_two_strangers_changes_nothing() {
        let mut senders = Senders::default();
        let pkill = from(70, "pkill", Relation::Other);
        let client = from(40, "claude", Relation::Client);
        let mut judge = |ms, signal| senders.judge(Moment(0).after_ms(ms), signal, |_| false);
        assert_eq!(judge(0, &pkill), Ignore { count: 1 });
        assert_eq!(judge(10, &client), MaybeEnd);
        assert_eq!(judge(20, &pkill), End);
    }
}
