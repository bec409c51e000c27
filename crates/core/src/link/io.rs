//! What the link is told, and what it asks for.

use alloc::string::String;
use alloc::vec::Vec;

use crate::event::{Cause, OutOfMemory, Renewing, Seen, Status, Usage, What};
use crate::ids::LinkId;
use crate::server::stop::Step;

/// What the link is called and runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Its id.
    pub link: LinkId,
    /// The server's name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The directory that it runs in.
    pub cwd: String,
    /// Whether `mainstay why` and the other commands find it. They do not where there is no place for its events.
    pub listed: bool,
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
    /// Somebody or something wants the end. A signal to the shim, or its death, need not be the client's wish: the link
    /// decides.
    Stop(Cause),
    /// A newcomer wants the server that is kept: is it fit? [`Link::judged`](super::Link::judged) tells.
    Newcomer {
        /// A file of the server's code that has changed since the server was started.
        changed: Option<String>,
    },
    /// A client has come back: its pipes are in the place of those that were let go.
    Reattached,
    /// Somebody or something wants another generation, or none for now.
    Renew(Renewing),
    /// A stranger has signalled the shim, and perhaps the server, too.
    Check,
    /// What [`Output::Measure`] asked for.
    Measured {
        /// Processor time of the tree so far.
        cpu_ms: u64,
        /// Whether a debugger holds one of them.
        traced: bool,
    },
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
    /// Whether memory had run out.
    pub out_of_memory: Option<OutOfMemory>,
    /// Who of its tree still holds both its stdin and its stdout.
    pub holders: Holders,
    /// Whether nobody is left of the tree.
    pub tree_empty: bool,
}

/// Who holds the pipes of a server process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// Nobody holds both.
    Nobody,
    /// A server that was started by what has ended, or a helper.
    Somebody {
        /// What all of them have written so far, wherever to, in bytes; none if that is not known.
        written: Option<u64>,
    },
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
    /// Look how much processor time the tree has used.
    Measure,
    /// Let go of the client's pipes once what is queued has been written.
    ReleaseClient,
    /// Let go of the client's pipes now: the client wants no more.
    DropClient,
    /// Let go of the client's pipes now, and let a client that comes back find us.
    Linger,
    /// Be found no more.
    LingerOver,
    /// Write this down.
    Tell(What),
    /// All is done: leave with this code.
    Finish(u8),
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It passes as it came.
    Pass,
    /// The link has taken it: it is held within the link, or needs to go nowhere.
    Consumed,
    /// Nothing of it was noted: it is to be shown again later.
    Later,
    /// The link has taken it, and what goes in its place is in the outputs, before anything that follows it.
    Replaced,
    /// A long line: its pieces are to be shown as they come, and go nowhere by themselves.
    Gather,
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
    /// The replayed opening, or what follows it, has been unanswered for too long.
    ReplaySilent,
    /// The next generation is due.
    Respawn,
    /// A server that was given up is tried once more.
    Trial,
    /// A server that is to be replaced has had its time.
    Drained,
    /// A question, or the answer to one, is due.
    Health,
    /// Nobody has needed the server for long enough.
    Idle,
    /// A request has taken too long.
    Deadline,
    /// The opening can be answered from the record.
    Instant,
    /// An EOF that comes now is no wish of the client's any more, or nobody came back in time.
    Linger,
}
