//! What the link is told, and what it asks for.

use alloc::string::String;
use alloc::vec::Vec;

use crate::event::{Cause, Seen, Status, Usage, What};
use crate::server::stop::Step;

/// What the link is called and runs.
#[derive(Clone, Debug)]
pub struct About {
    /// The server's name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The directory that it runs in.
    pub cwd: String,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A generation was started.
    Started,
    /// It could not be.
    StartFailed {
        /// What went wrong.
        problem: String,
        /// How to mend it.
        hint: String,
        /// The exit code to leave with.
        code: u8,
    },
    /// The server process ended, and all that it wrote has been read.
    Exited(Exited),
    /// Nobody holds the server's stdout any more.
    StdoutClosed {
        /// Whether nobody is left of the tree.
        tree_empty: bool,
    },
    /// Nobody is left of the tree (or the kill rung is through, with these left).
    TreeEmpty {
        /// Processes that ended since the ladder began.
        ended: u32,
        /// Who could not be ended.
        left: Vec<Seen>,
    },
    /// The client closed our stdin.
    ClientEof,
    /// Somebody or something wants the end.
    Stop(Cause),
    /// Time has passed.
    Tick,
}

/// How the server process ended.
#[derive(Clone, Debug)]
pub struct Exited {
    /// The server process.
    pub pid: i32,
    /// How it ended.
    pub status: Status,
    /// What it used.
    pub usage: Usage,
    /// Its last words.
    pub stderr_tail: Vec<String>,
    /// Whether somebody of its tree still holds both its stdin and its stdout.
    pub served_on: bool,
    /// Whether nobody is left of the tree.
    pub tree_empty: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Start the next generation.
    Spawn,
    /// Write this line of ours to the client, between two lines.
    ToClient(Vec<u8>),
    /// Write this line of ours to the server, between two lines.
    ToServer(Vec<u8>),
    /// Say this on the client's stderr.
    Say(String),
    /// A step of the stop ladder.
    Stop(Step),
    /// Let go of the client's pipes once what is queued has been written.
    ReleaseClient,
    /// Let go of the client's pipes now: the client wants no more.
    DropClient,
    /// Write this down.
    Tell(What),
    /// All is done: leave with this code.
    Finish(u8),
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It goes on as it came.
    Forward,
    /// It goes nowhere.
    Drop,
    /// Not now: ask again later.
    Hold,
}

/// Why the link wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The next rung of the ladder.
    Rung,
    /// A server that cannot be started has been explained for long enough.
    Explained,
    /// The opening request has been unanswered for too long.
    OpeningSilent,
    /// The replayed opening has been unanswered for too long.
    GreetingSilent,
}
