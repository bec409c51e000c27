//! Why the server's own answer will not come.

use alloc::string::String;

use crate::event::Losses;
use crate::event::{RestartReason, Status};

/// Why the server's own answer will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why<'a> {
    /// The command could not be started.
    StartFailed {
        /// The command.
        argv: &'a [String],
        /// What went wrong.
        problem: &'a str,
        /// How to repair it.
        hint: &'a str,
    },
    /// The server ended.
    ServerExit {
        /// The server's name.
        name: &'a str,
        /// How it ended.
        status: Status,
        /// The last lines of its stderr.
        stderr_tail: &'a [String],
        /// Whether a new generation takes over.
        restarted: bool,
        /// Whether an earlier generation died of this very request, too.
        poisoned: bool,
        /// How often it was started before it was given up; 0 or 1 if that says nothing.
        tries: u32,
        /// Whether the user's commands can find the server.
        listed: bool,
    },
    /// The server has died, or could not be started, too often.
    Abandoned {
        /// The server's name.
        name: &'a str,
        /// What happened within the window.
        losses: Losses,
        /// The window.
        window_ms: u64,
        /// How the last one came about.
        last: &'a str,
        /// The last lines of its stderr.
        stderr_tail: &'a [String],
        /// The watched file whose change stops it from starting, if that is the reason.
        changed: Option<&'a str>,
        /// After how long it is tried once more; 0: never.
        probe_ms: u64,
        /// Whether a server may have begun with the request before.
        sent: bool,
        /// Whether the user's commands can find the server.
        listed: bool,
    },
    /// The generation was replaced before it had answered.
    Renewed {
        /// The server's name.
        name: &'a str,
        /// Why.
        why: &'a RestartReason,
    },
    /// The time limit of the user is over.
    Deadline {
        /// The server's name.
        name: &'a str,
        /// How long it took.
        ms: u64,
    },
    /// The server cannot go on with the client's session.
    Differs {
        /// The server's name.
        name: &'a str,
        /// In what it differs.
        what: &'a str,
    },
    /// Our keeper was killed, and the server was ended with it.
    KeeperLost {
        /// The server's name.
        name: &'a str,
    },
    /// The server has not said anything since it was started; it is left running.
    OpeningSilent {
        /// The server's name.
        name: &'a str,
        /// How long it has been silent.
        ms: u64,
        /// The command.
        argv: &'a [String],
    },
    /// The server ended while the request was on its way to it.
    Lost {
        /// The server's name.
        name: &'a str,
    },
    /// The server's answer is longer than we can hold.
    TooLong {
        /// The server's name.
        name: &'a str,
    },
    /// A user ended the server with `mainstay stop`.
    Asked {
        /// The server's name.
        name: &'a str,
    },
    /// The lease of the server is over.
    LeaseEnded {
        /// The server's name.
        name: &'a str,
        /// Which lease, and why.
        what: &'a str,
    },
    /// The client is going, and the server is being stopped.
    ClientStopping {
        /// The server's name.
        name: &'a str,
    },
}
