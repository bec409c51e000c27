//! One direction of the data: a buffer, a scanner, and the lines between them.
//!
//! Bytes come in at the end, are routed line by line, and go out from the start. A line of up to 64 KiB is routed whole;
//! a longer one is forwarded as it comes. A full buffer is back-pressure: nothing is read until something was written.
//!
//! Invariants: `start ≤ routed ≤ scanned ≤ end`; what is routed is never looked at again; no allocation.

use std::io;
use std::task::Poll;

use mainstay_core::limits::WHOLE_LINE_BYTES;
use mainstay_core::link::Route;
use mainstay_core::message::frame::{Fed, Frame, Scanner};
use mainstay_os::memory;
use mainstay_os::record::{Inbox, Marks};

use super::port::Port;

/// How much may wait for a sink while more is read.
const AHEAD_BYTES: usize = WHOLE_LINE_BYTES / 2;

/// What the pump shows to whoever decides.
#[derive(Clone, Copy)]
pub enum Show<'a> {
    /// A whole line.
    Line(&'a Frame<'a>, &'a [u8]),
    /// The beginning of a line that is too long to be held, and what is there of it: may it go on?
    Cut(Option<&'a Frame<'a>>, &'a [u8]),
    /// More is known of a long line that is on its way.
    Known(&'a Frame<'a>),
    /// The end of a long line that went on.
    CutEnd(&'a Frame<'a>),
    /// The end of a long line that went nowhere, and that nobody knew before.
    DropEnd(&'a Frame<'a>),
    /// A piece of a long line that is gathered.
    Piece(&'a [u8]),
    /// The end of such a line.
    GatherEnd(&'a Frame<'a>),
}

/// Whoever decides what becomes of the lines.
pub trait Way {
    /// How many bytes of lines at the start of these go on without a decision.
    fn pass(&mut self, lines: &[u8]) -> usize;

    /// What becomes of a line, or of a part of one.
    fn decide(&mut self, show: Show<'_>) -> Route;
}

/// Where the bytes lie.
pub enum Room {
    /// In this process.
    Own(&'static mut [u8]),
    /// In the record, which outlives this process.
    Recorded(Inbox),
}

/// What a line that is longer than the buffer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// There is none.
    No,
    /// It goes on.
    Forward {
        /// Whether whoever decides knows who it is.
        known: bool,
    },
    /// It goes nowhere.
    Drop {
        /// Whether whoever decides knows who it is.
        known: bool,
    },
    /// Whoever decides gathers its pieces.
    Gather,
}

/// What is known of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It may have more.
    Flows,
    /// It had nothing more when it was last asked.
    Dry,
    /// It has ended.
    Ended,
}

/// One direction.
pub struct Pump {
    room: Room,
    scanner: Scanner,
    at: Marks,
    scanned: usize,
    cut: Cut,
    /// The line that comes next was held: it is shown again.
    held: bool,
    source: Source,
    /// The last byte that the sink took ended no line.
    torn: bool,
}

impl Pump {
    /// An empty pump with a buffer of its own.
    pub fn own() -> io::Result<Self> {
        Ok(Self::over(Room::Own(memory::buffer(2 * WHOLE_LINE_BYTES)?)))
    }

    /// A pump over the record: what a killed keeper had read and not yet routed is still there. `mid_line`: the
    /// rest of a line whose beginning is lost follows.
    pub fn recorded(inbox: Inbox, mid_line: bool) -> Self {
        let mut pump = Self::over(Room::Recorded(inbox));
        if let Room::Recorded(inbox) = &mut pump.room {
            pump.at = inbox.recover();
            pump.at.start = pump.at.routed;
            pump.scanned = pump.at.routed as usize;
        }
        if mid_line {
            pump.cut = Cut::Drop { known: false };
            pump.scanner = Scanner::within_a_line();
        }
        pump
    }

    fn over(room: Room) -> Self {
        Self {
            room,
            scanner: Scanner::new(),
            at: Marks::default(),
            scanned: 0,
            cut: Cut::No,
            held: false,
            source: Source::Flows,
            torn: false,
        }
    }

    /// Whether the source has ended.
    pub fn ended(&self) -> bool {
        self.source == Source::Ended
    }

    /// Whether the source had nothing more when it was last asked, and all that it gave has been passed on.
    pub fn dry(&self) -> bool {
        self.source != Source::Flows && self.flushed() && !self.lines_wait()
    }

    /// Whether whole lines are here that nobody has been shown yet: after one that is replaced, the next waits for its turn.
    pub fn lines_wait(&self) -> bool {
        let fresh = &self.room.bytes()[self.scanned..self.at.end as usize];
        !self.held && fresh.contains(&b'\n')
    }

    /// The source is to be asked once more before it counts as dry.
    pub fn look_again(&mut self) {
        if self.source == Source::Dry {
            self.source = Source::Flows;
        }
    }

    /// Whether nothing more is read for now: there is no room, or enough waits to be written. Who reads ahead of a slow
    /// sink wakes once more for each piece, and has it in the cache no more when it is written.
    pub fn full(&self) -> bool {
        self.at.end as usize == self.room.bytes().len()
            || (self.at.routed - self.at.start) as usize >= AHEAD_BYTES
    }

    /// Whether everything that was routed has been written.
    pub fn flushed(&self) -> bool {
        self.at.start == self.at.routed
    }

    /// Whether the beginning of a line is gone already, wherever it went.
    pub fn within_a_line(&self) -> bool {
        self.cut != Cut::No
    }

    /// Whether a line is half forwarded.
    pub fn mid_line(&self) -> bool {
        matches!(self.cut, Cut::Forward { .. })
    }

    /// Whether the sink has taken a part of a line only: its rest is here.
    pub fn torn(&self) -> bool {
        self.torn && !self.flushed()
    }

    /// Whether there is a line that waits to be shown again.
    pub fn holds(&self) -> bool {
        self.held
    }

    /// Reads once; whether there was anything (or the end).
    pub fn fill(&mut self, from: &Port) -> io::Result<bool> {
        if self.ended() || self.full() {
            return Ok(false);
        }
        let end = self.at.end as usize;
        match from.poll_read(&mut self.bytes_mut()[end..]) {
            Poll::Pending => {
                self.source = Source::Dry;
                Ok(false)
            }
            Poll::Ready(Ok(0)) => {
                self.source = Source::Ended;
                Ok(true)
            }
            Poll::Ready(Ok(len)) => {
                self.source = Source::Flows;
                if len >= WHOLE_LINE_BYTES {
                    from.widen();
                }
                self.at.end += len as u32;
                self.keep();
                Ok(true)
            }
            Poll::Ready(Err(error)) => {
                self.source = Source::Ended;
                Err(error)
            }
        }
    }

    /// Shows every line that is there until one is held; whether anything moved.
    pub fn route(&mut self, way: &mut impl Way) -> bool {
        let before = (self.at, self.scanned);
        self.held = false;
        loop {
            if self.cut == Cut::No
                && self.scanner.between_lines()
                && let Some((line_end, route)) = self.usual_lines(way)
            {
                if !self.line_goes(line_end, route) {
                    break;
                }
                continue;
            }
            let (scanned, end) = (self.scanned, self.at.end as usize);
            if scanned == end {
                // A long line that was held may be wanted now.
                self.part_of_a_line(way);
                break;
            }
            // The room and the scanner are apart, so that a line can be scanned where it lies.
            let Self { room, scanner, .. } = self;
            match scanner.feed(&room.bytes()[scanned..end]) {
                Fed::Line { used } => {
                    let route = self.whole_line(scanned + used, way);
                    if !self.line_goes(scanned + used, route) {
                        break;
                    }
                }
                Fed::Partial => {
                    self.scanned = end;
                    self.part_of_a_line(way);
                    break;
                }
            }
        }
        self.keep();
        before != (self.at, self.scanned)
    }

    /// Lines that can be known at a glance and go on, one after another; where the first ends that does not go on, and what
    /// becomes of it.
    fn usual_lines(&mut self, way: &mut impl Way) -> Option<(usize, Route)> {
        let lines = &self.room.bytes()[..self.at.end as usize];
        let mut from = self.scanned + way.pass(&lines[self.scanned..]);
        let stopped = loop {
            let Some((frame, used)) = Frame::at_a_glance(&lines[from..]) else {
                break None;
            };
            match way.decide(Show::Line(&frame, &lines[from..from + used])) {
                Route::Forward => from += used,
                route @ (Route::Drop | Route::Instead | Route::Gather | Route::Hold) => {
                    break Some((from + used, route));
                }
            }
        };
        self.scanned = from;
        self.at.routed = from as u32;
        stopped
    }

    /// The source has ended: a last line without newline is shown if it is a whole message, and gets its newline. Not
    /// before every other line has been shown.
    pub fn finish(&mut self, way: &mut impl Way) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        if self.cut != Cut::No || self.held || routed == end || self.lines_wait() {
            return;
        }
        let buffer = self.room.bytes_mut();
        let whole = serde_json::from_slice::<serde::de::IgnoredAny>(&buffer[routed..end]).is_ok();
        if !whole || end == buffer.len() {
            self.forget_partial();
            return;
        }
        buffer[end] = b'\n';
        self.at.end += 1;
        self.route(way);
    }

    /// Writes what was routed, until nothing is left or the sink is full; how many bytes.
    pub fn drain(&mut self, to: &Port) -> io::Result<usize> {
        let mut written = 0;
        while self.at.start < self.at.routed {
            let (start, routed) = (self.at.start as usize, self.at.routed as usize);
            match to.poll_write(&self.room.bytes()[start..routed]) {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) => {
                    written += len;
                    self.at.start += len as u32;
                    self.torn = self.room.bytes()[self.at.start as usize - 1] != b'\n';
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if written > 0 {
            self.make_room();
        }
        Ok(written)
    }

    /// What was routed and not written yet.
    pub fn unsent(&self) -> &[u8] {
        &self.room.bytes()[self.at.start as usize..self.at.routed as usize]
    }

    /// What was read and not routed yet, from the beginning of a line on.
    pub fn fresh(&self) -> &[u8] {
        match self.cut {
            Cut::No => &self.room.bytes()[self.at.routed as usize..self.at.end as usize],
            Cut::Forward { .. } | Cut::Drop { .. } | Cut::Gather => &[],
        }
    }

    /// Forgets what was routed: the sink is gone.
    pub fn discard_routed(&mut self) {
        self.torn = false;
        self.at.start = self.at.routed;
        self.make_room();
    }

    /// Nothing is on its way: the buffer's memory is given back until it is needed again.
    pub fn give_back(&mut self) {
        if self.at.end > 0 {
            return;
        }
        match &mut self.room {
            Room::Own(bytes) => memory::give_back(bytes),
            Room::Recorded(inbox) => inbox.give_back(),
        }
    }

    /// The source died in the middle of a line: its rest will never come.
    pub fn forget_partial(&mut self) {
        let end = self.at.end as usize;
        self.at.end = self.at.routed;
        self.scanned = self.at.routed as usize;
        self.scanner = Scanner::new();
        self.cut = Cut::No;
        self.held = false;
        self.clear_to(end);
    }

    /// The sink is gone, and another one follows: what was routed to it is void, and so is the rest of a line that it has
    /// the beginning of.
    pub fn sink_lost(&mut self) {
        if let Cut::Forward { known } = self.cut {
            self.cut = Cut::Drop { known };
        }
        self.discard_routed();
    }

    /// The source is gone, and another one follows.
    pub fn source_lost(&mut self) {
        self.forget_partial();
        self.source = Source::Flows;
    }

    /// What somebody else has read from the source before us. There is room for it: nothing else is on its way.
    pub fn preload(&mut self, bytes: &[u8]) {
        let end = self.at.end as usize;
        let Some(room) = self.bytes_mut().get_mut(end..end + bytes.len()) else {
            return;
        };
        room.copy_from_slice(bytes);
        self.at.end += bytes.len() as u32;
        self.keep();
    }

    /// Shows the line that the scanner has found, which ends at `line_end`.
    fn whole_line(&self, line_end: usize, way: &mut impl Way) -> Route {
        let start = self.at.routed as usize;
        let frame = self.scanner.frame();
        match self.cut {
            Cut::No => way.decide(Show::Line(&frame, &self.room.bytes()[start..line_end])),
            Cut::Forward { known } => {
                if !known {
                    way.decide(Show::Known(&frame));
                }
                way.decide(Show::CutEnd(&frame));
                Route::Forward
            }
            Cut::Drop { known } => {
                if !known {
                    way.decide(Show::DropEnd(&frame));
                }
                Route::Drop
            }
            Cut::Gather => {
                way.decide(Show::Piece(&self.room.bytes()[start..line_end]));
                way.decide(Show::GatherEnd(&frame));
                Route::Instead
            }
        }
    }

    /// The line that ends at `line_end` goes its way; `false` if nothing more is to be shown for now.
    fn line_goes(&mut self, line_end: usize, route: Route) -> bool {
        self.scanned = line_end;
        match route {
            Route::Forward => self.at.routed = line_end as u32,
            Route::Drop => self.remove(line_end),
            Route::Instead | Route::Gather => {
                self.cut = Cut::No;
                self.remove(line_end);
                return false;
            }
            Route::Hold => {
                // It is scanned again when it is shown again.
                self.scanned = self.at.routed as usize;
                self.scanner = Scanner::new();
                self.held = true;
                return false;
            }
        }
        self.cut = Cut::No;
        true
    }

    /// All that is there is the beginning or the middle of a line.
    fn part_of_a_line(&mut self, way: &mut impl Way) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        match self.cut {
            Cut::No if end - routed >= WHOLE_LINE_BYTES => {
                let frame = self.scanner.begun();
                let known = self.scanner.known().is_some();
                let junk = self.scanner.certain_junk();
                let route = if junk {
                    Route::Drop
                } else {
                    way.decide(Show::Cut(frame.as_ref(), &self.room.bytes()[routed..end]))
                };
                if let (true, Some(frame), Route::Forward) = (known, &frame, route) {
                    way.decide(Show::Known(frame));
                }
                match route {
                    Route::Forward => {
                        self.cut = Cut::Forward { known };
                        self.at.routed = self.at.end;
                    }
                    Route::Drop | Route::Instead => {
                        self.cut = Cut::Drop { known: false };
                        self.remove(end);
                    }
                    Route::Gather => {
                        self.cut = Cut::Gather;
                        way.decide(Show::Piece(&self.room.bytes()[routed..end]));
                        self.remove(end);
                    }
                    // Nothing is forwarded; the full buffer makes the source wait.
                    Route::Hold => {}
                }
            }
            Cut::No => {}
            Cut::Forward { known } => {
                if let (false, Some(frame)) = (known, self.scanner.known()) {
                    way.decide(Show::Known(&frame));
                    self.cut = Cut::Forward { known: true };
                }
                self.at.routed = self.at.end;
            }
            Cut::Drop { .. } => self.remove(end),
            Cut::Gather => {
                way.decide(Show::Piece(&self.room.bytes()[routed..end]));
                self.remove(end);
            }
        }
    }

    /// Takes the bytes from `routed` to `until` out. What waits for the sink moves up to them: it is void for a successor, while
    /// what follows stays where it is, and is a successor's from one mark to the next.
    fn remove(&mut self, until: usize) {
        let (start, routed) = (self.at.start as usize, self.at.routed as usize);
        let waiting = routed - start;
        self.at.start = until as u32;
        self.at.routed = until as u32;
        if waiting == 0 {
            self.make_room();
            return;
        }
        self.keep();
        self.at.start -= waiting as u32;
        self.bytes_mut().copy_within(start..routed, until - waiting);
    }

    /// Once all that was routed is written, the rest moves to the front.
    fn make_room(&mut self) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        let rest = end - routed;
        // Before the copy: it may lie where a line was that is gone.
        self.keep();
        if self.at.start != self.at.routed || routed == 0 || rest > routed {
            return;
        }
        // A small rest moves when the buffer is half used, an empty one always.
        if rest > 0 && end < WHOLE_LINE_BYTES {
            return;
        }
        let bytes = self.bytes_mut();
        bytes.copy_within(routed..end, 0);
        self.scanned -= routed;
        self.at = Marks {
            start: 0,
            routed: 0,
            end: rest as u32,
        };
        // The source and the copy do not overlap.
        self.clear_to(end);
    }

    /// Puts the marks in force, then clears what used to reach to `old_end`.
    fn clear_to(&mut self, old_end: usize) {
        match &mut self.room {
            Room::Own(_) => {}
            Room::Recorded(inbox) => inbox.moved(self.at, old_end),
        }
    }

    fn keep(&mut self) {
        if let Room::Recorded(inbox) = &mut self.room {
            inbox.mark(self.at);
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.room.bytes_mut()
    }
}

impl Room {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Recorded(inbox) => inbox.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Recorded(inbox) => inbox.bytes_mut(),
        }
    }
}
