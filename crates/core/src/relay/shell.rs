//! What the relay asks of the program around it: bytes without waiting, a few facts about pipes, and an eye for what passes.

use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::frames::Side;
use mainstay_protocol::message::frame::Frame;

use crate::link::Route;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// Nothing ever.
    End,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// The sink took this many bytes, at least one.
    Took(usize),
    /// The sink has no room now.
    Full,
    /// No reader is left.
    Broken,
}

/// The keeper, or a simulation of its surroundings. Nothing here waits.
pub trait Shell {
    /// Reads from the client's pipe.
    fn read_client(&mut self, into: &mut [u8]) -> Read;

    /// Reads from the server's stdout.
    fn read_server(&mut self, into: &mut [u8]) -> Read;

    /// Writes to the client's pipe.
    fn write_client(&mut self, bytes: &[u8]) -> Wrote;

    /// Writes to the server's stdin.
    fn write_server(&mut self, bytes: &[u8]) -> Wrote;

    /// False while lines of the client must wait, because what may answer them is not loaded yet.
    fn client_may_speak(&self) -> bool;

    /// True if no process is left that could write to the client's pipe. Asked while bytes are in it that we have no room for.
    fn client_hung_up(&self) -> bool;

    /// True if the server's stdin has no reader and bytes are left in it.
    fn server_left_unread(&self) -> bool;

    /// Takes the bytes out of the server's stdin that no process can read now; `None` while a process may still read
    /// them.
    fn take_unread(&mut self) -> Option<Vec<u8>>;

    /// True if each message is wanted by [`saw`](Self::saw); if not, the fast path reports to [`passed`](Self::passed) only.
    fn watched(&self) -> bool;

    /// A whole line went on by the fast path.
    fn passed(&mut self, now: Moment, from: Side, frame: &Frame<'_>);

    /// Something of a message was seen.
    fn saw(&mut self, now: Moment, generation: u32, sight: Sight<'_>);
}

/// What the relay saw of a message.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// A whole line, and what became of it.
    Line {
        /// The side that wrote it.
        from: Side,
        /// What it is.
        frame: &'a Frame<'a>,
        /// The line.
        bytes: &'a [u8],
        /// What became of it.
        route: Route,
    },
    /// The beginning of a line that is longer than we hold.
    LongBegins {
        /// The side that wrote it.
        from: Side,
        /// What it is, as far as that is known.
        frame: Option<&'a Frame<'a>>,
        /// What is there of it.
        bytes: &'a [u8],
        /// What becomes of it.
        route: Route,
    },
    /// The end of such a line.
    LongEnds {
        /// The side that wrote it.
        from: Side,
        /// What it was.
        frame: &'a Frame<'a>,
        /// It went on as it came.
        passed: bool,
    },
    /// A line of ours is queued.
    Ours {
        /// The side that gets it.
        to: Side,
        /// The line.
        line: &'a [u8],
    },
    /// All that the last line brought about is queued.
    Settled,
    /// Lines that the dead server has not read are the link's again.
    Unread(&'a [u8]),
    /// The client gets what is queued, and then no more.
    Releasing,
    /// The client has left in the middle of a line that the server has half of.
    TornAtServer,
    /// What was last written to the client of the server's lines is noted.
    Delivered,
    /// What was last written to the client of our own lines is noted.
    OursDelivered,
}
