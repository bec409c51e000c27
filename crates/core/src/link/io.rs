//! The inputs and outputs of the link.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::event::{Cause, OutOfMemory, RestartReason, Seen, Status, Usage, What};
use mainstay_protocol::ids::LinkId;

use crate::server::stop::Step;

/// The name of the link, and what it runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Names the link in events and file names.
    pub link: LinkId,
    /// The server's name, as users know it.
    pub name: String,
    /// The server's command.
    pub argv: Vec<String>,
    /// The server's working directory.
    pub cwd: String,
    /// Whether `mainstay why` and the other commands can find the link. They cannot if no directory for its events
    /// could be opened.
    pub listed: bool,
}

/// An input.
#[derive(Clone, Debug)]
pub enum Input {
    /// A generation was started.
    Started,
    /// A generation could not be started.
    StartFailed {
        /// What went wrong.
        problem: String,
        /// How to repair it.
        hint: String,
        /// The exit code to use.
        code: u8,
    },
    /// The server process ended, and everything it wrote has been read.
    Exited(Exited),
    /// No process holds the server's stdout.
    StdoutClosed {
        /// Whether the tree is empty.
        tree_empty: bool,
    },
    /// The tree is empty, or SIGKILL was sent to all and these processes are left.
    TreeEmpty {
        /// Processes that ended since the ladder began.
        ended: u32,
        /// Processes that could not be ended.
        left: Vec<Seen>,
    },
    /// The client closed our stdin.
    ClientEof,
    /// A reason to end the link. A signal to the shim, or its death, need not be the client's wish: the link decides.
    Stop(Cause),
    /// A newcomer wants the kept server: is it fit? [`Link::judged`](super::Link::judged) has the answer.
    Newcomer {
        /// A file of the server's code that has changed since the server was started.
        changed: Option<String>,
    },
    /// A client has come back: its pipes replace those that were released.
    Reattached,
    /// A reason to replace the server, or to put it to rest.
    Renew(RestartReason),
    /// A process other than the client has signalled the shim, and perhaps the server too.
    Check,
    /// The answer to [`Output::Measure`].
    Measured {
        /// Processor time of the tree so far.
        cpu_ms: u64,
        /// Whether a debugger holds a process of the tree.
        traced: bool,
    },
    /// Time has passed.
    Tick,
}

/// How the server process ended.
#[derive(Clone, Debug)]
pub struct Exited {
    /// The pid of the server process.
    pub pid: i32,
    /// How it ended.
    pub status: Status,
    /// The resources that it used.
    pub usage: Usage,
    /// The last bytes of its stderr.
    pub stderr_tail: Vec<String>,
    /// Whether the machine or the cgroup was out of memory.
    pub out_of_memory: Option<OutOfMemory>,
    /// Which processes of its tree still hold both its stdin and its stdout.
    pub holders: Holders,
    /// Whether the tree is empty.
    pub tree_empty: bool,
}

/// Which processes hold the pipes of a server process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// No process holds both.
    None,
    /// A server that the ended process had started, or a helper.
    Others {
        /// How many bytes they have written so far, to any file; none if that is not known.
        written: Option<u64>,
    },
}

/// An output: what the shell has to do.
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
    /// Measure the processor time of the tree.
    Measure,
    /// Release the client's pipes once everything queued is written.
    ReleaseClient,
    /// Release the client's pipes now: the client wants no more.
    DropClient,
    /// Release the client's pipes now, and let a client that comes back find this link.
    Linger,
    /// Let no client find this link.
    LingerOver,
    /// Write this event.
    Tell(What),
    /// Everything is done: exit with this code.
    Finish(u8),
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The line is forwarded unchanged.
    Pass,
    /// The link has taken the line: it holds it, or the line goes nowhere.
    Consumed,
    /// Nothing of the line was noted: show it again later.
    Later,
    /// The link has taken the line. Its replacement is in the outputs, before anything that follows the line.
    Replaced,
    /// A long line: its pieces are shown as they come and are not forwarded by themselves.
    Gather,
}

/// Why the link wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The next step of the stop ladder.
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
    /// A probe, or the answer to one, is due.
    Health,
    /// The server has been idle for long enough.
    Idle,
    /// A request has taken too long.
    Deadline,
    /// The opening can be answered from the cache.
    Instant,
    /// From now on an EOF is not taken as the client's wish to end, or no client came back in time.
    Linger,
}
