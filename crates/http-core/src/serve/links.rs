//! The links to servers: the lines that wait for each, the bytes that came from it, and what it is used for.
//!
//! Invariant: a link that is used for nothing is closing, and no line is sent on it.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::frame::{Id, Kind};
use mainstay_protocol::message::lines::{Line, Lines};

use super::outputs::{Output, Outputs};
use super::server_queue::{NextLine, ServerQueue};
use super::words::{self, Code};

/// What a link is used for: which machine hears what its server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The server of one session.
    Session(u64),
    /// A server that sessions of the legacy era share.
    Shared,
    /// A server for all clients of the modern era.
    Modern,
    /// Nothing: it is closing.
    Unused,
}

/// A link.
#[derive(Debug)]
struct Link {
    queue: ServerQueue,
    lines: Lines,
    role: Role,
    path: u64,
}

/// All links, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Links {
    open: BTreeMap<u64, Link>,
}

impl Links {
    pub fn start(&mut self, link: u64, path: u64, role: Role, out: &mut Outputs) {
        let held = Link {
            queue: ServerQueue::new(),
            lines: Lines::new(HELD_LINE_BYTES),
            role,
            path,
        };
        self.open.insert(link, held);
        out.push(Output::Start { link, path });
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn contains(&self, link: u64) -> bool {
        self.open.contains_key(&link)
    }

    pub fn role(&self, link: u64) -> Option<Role> {
        Some(self.open.get(&link)?.role)
    }

    pub fn path(&self, link: u64) -> Option<u64> {
        Some(self.open.get(&link)?.path)
    }

    /// Whether lines are taken for this link.
    pub fn is_open(&self, link: u64) -> bool {
        self.open
            .get(&link)
            .is_some_and(|held| held.queue.is_open())
    }

    /// Whether a new request has to wait until lines were written.
    pub fn is_full(&self, link: u64) -> bool {
        let held = self.open.get(&link);
        held.is_some_and(|held| !held.queue.has_room())
    }

    pub fn send(&mut self, link: u64, line: Vec<u8>, out: &mut Outputs) {
        if let Some(held) = self.open.get_mut(&link)
            && held.queue.send(line)
        {
            out.push(Output::Write(link));
        }
    }

    /// The next line to write. A link that is not known is closed.
    pub fn next_line(&mut self, link: u64) -> NextLine {
        let held = self.open.get_mut(&link);
        held.map_or(NextLine::Close, |held| held.queue.next_line())
    }

    /// So many bytes were written: whether there is room for a request again, and was none before.
    pub fn written(&mut self, link: u64, bytes: usize) -> bool {
        let Some(held) = self.open.get_mut(&link) else {
            return false;
        };
        let full = !held.queue.has_room();
        held.queue.written(bytes);
        full && held.queue.has_room()
    }

    /// The server reads no more. That the link has ended is reported later.
    pub fn abandon(&mut self, link: u64, out: &mut Outputs) {
        if let Some(held) = self.open.get_mut(&link) {
            held.queue.abandon();
            out.push(Output::Write(link));
        }
    }

    /// The pipe is closed as soon as everything is written.
    pub fn close(&mut self, link: u64, out: &mut Outputs) {
        if let Some(held) = self.open.get_mut(&link) {
            held.role = Role::Unused;
            held.queue.close();
            out.push(Output::Write(link));
        }
    }

    /// The link has ended: what it was used for.
    pub fn remove(&mut self, link: u64) -> Option<Role> {
        Some(self.open.remove(&link)?.role)
    }

    /// Takes the splitter of a link out, so that other machines can hear its lines; [`Links::put_lines`] puts it back.
    pub fn take_lines(&mut self, link: u64) -> Option<Lines> {
        let held = self.open.get_mut(&link)?;
        let empty = Lines::new(HELD_LINE_BYTES);
        Some(core::mem::replace(&mut held.lines, empty))
    }

    pub fn put_lines(&mut self, link: u64, lines: Lines) {
        if let Some(held) = self.open.get_mut(&link) {
            held.lines = lines;
        }
    }

    /// Bytes that wait for servers.
    pub fn bytes(&self) -> usize {
        self.open.values().map(|held| held.queue.bytes()).sum()
    }

    /// All links, with what they are used for.
    pub fn roles(&self) -> impl Iterator<Item = (u64, Role)> {
        self.open.iter().map(|(link, held)| (*link, held.role))
    }

    /// States what holds after each step.
    pub fn check(&self) {
        for held in self.open.values() {
            held.queue.check();
            debug_assert!(
                held.role != Role::Unused || !held.queue.is_open(),
                "an unused link is open"
            );
        }
    }
}

/// The line, or an error in the place of an answer that is too long. Other lines that are too long are dropped.
pub(super) fn whole_or_error(line: Line<'_>) -> Option<Cow<'_, [u8]>> {
    let long = match line {
        Line::Whole(line) => return Some(line),
        Line::TooLong(scanner) => scanner,
    };
    let frame = long.frame();
    match (frame.kind, frame.id) {
        (Kind::Response | Kind::Error, Id::Token(id)) => {
            let message =
                "the server's answer is larger than 16 MiB, which is more than can be passed on";
            let answer = words::error(Some(id), Code::Internal, message, None);
            Some(Cow::Owned(answer))
        }
        (
            Kind::Response
            | Kind::Error
            | Kind::Request
            | Kind::Notification
            | Kind::Batch
            | Kind::Blank
            | Kind::Junk,
            _,
        ) => None,
    }
}
