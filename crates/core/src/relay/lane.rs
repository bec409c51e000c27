//! One direction of the data: a buffer, a scanner, and the lines in it.
//!
//! Bytes come in at the end, are routed line by line, and go out from the start. A line of up to 64 KiB is routed whole; a longer one is
//! forwarded as it comes, all but its last bytes so far: these wait until the router knows the line's id, or until the line ends. A full
//! buffer is back-pressure: nothing is read until something was written.
//!
//! Invariants: `start ≤ routed ≤ scanned ≤ end`; what is routed is never looked at again; no byte of an id is routed before the router
//! has been shown the whole id; no allocation.

use mainstay_protocol::limits::WHOLE_LINE_BYTES;
use mainstay_protocol::message::frame::{Begun, Fed, Frame, Scanner, TAIL_BYTES};

use super::shell::{Read, Wrote};
use crate::link::Route;
use crate::record::inbox::{Inbox, Marks};

/// How much may wait for a sink while more is read.
const AHEAD_BYTES: usize = WHOLE_LINE_BYTES / 2;

/// What a lane shows to its router.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// A whole line.
    Line(&'a Frame<'a>, &'a [u8]),
    /// The beginning of a line that is too long to be held, and what is there of it: may it go on?
    LongBegins(Option<&'a Frame<'a>>, &'a [u8]),
    /// More is known of a long line that is being forwarded.
    LongKnown(&'a Frame<'a>),
    /// The end of a long line that went on.
    LongPassed(&'a Frame<'a>),
    /// The end of a long line that went nowhere and that the router does not know yet.
    LongDropped(&'a Frame<'a>),
    /// A piece of a long line that is gathered.
    Piece(&'a [u8]),
    /// The end of such a line.
    Gathered(&'a Frame<'a>),
}

/// Decides what becomes of lines.
pub(super) trait Router {
    /// How many bytes of lines at the start of these go on without a decision. They begin at the byte `begin` of what goes on.
    fn pass(&mut self, lines: &[u8], begin: u64) -> usize;

    /// What becomes of a line, or of a part of one. If it goes on, it ends at the byte `end` of what goes on.
    fn route(&mut self, part: Part<'_>, end: u64) -> Route;
}

/// Where the bytes lie.
#[derive(Debug)]
pub(super) enum Room<'a> {
    /// In memory of this process.
    Own(&'a mut [u8]),
    /// In the record, which survives this process.
    Recorded(Inbox<'a>),
}

/// What becomes of a line that is longer than the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// There is none.
    No,
    /// It is forwarded.
    Passes {
        /// The router knows which message it is.
        known: bool,
    },
    /// It is dropped.
    Dropped {
        /// The router knows which message it is.
        known: bool,
    },
    /// The router gathers its pieces.
    Gathered,
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
#[derive(Debug)]
pub(super) struct Lane<'a> {
    room: Room<'a>,
    scanner: Scanner,
    at: Marks,
    scanned: usize,
    long: Long,
    /// The next line was shown and is to be shown again.
    held: bool,
    source: Source,
    /// The last byte that the sink took ended no line.
    torn: bool,
    /// Bytes that went on so far, to a sink or into the void.
    gone: u64,
}

impl<'a> Lane<'a> {
    /// An empty lane over memory of our own.
    pub fn own(bytes: &'a mut [u8]) -> Self {
        Self::over(Room::Own(bytes))
    }

    /// A lane over the record: what a killed keeper had read and not routed is still there.
    pub fn recorded(mut inbox: Inbox<'a>) -> Self {
        let at = inbox.recover();
        let mut lane = Self::over(Room::Recorded(inbox));
        lane.at = Marks {
            start: at.routed,
            ..at
        };
        lane.scanned = at.routed as usize;
        if let Some(begun) = at.within_a_line {
            lane.long = Long::Dropped { known: false };
            lane.scanner = Scanner::within_a_line(begun);
        }
        lane.check();
        lane
    }

    fn over(room: Room<'a>) -> Self {
        Self {
            room,
            scanner: Scanner::new(),
            at: Marks::default(),
            scanned: 0,
            long: Long::No,
            held: false,
            source: Source::Flows,
            torn: false,
            gone: 0,
        }
    }

    /// True if the source has ended.
    pub fn ended(&self) -> bool {
        self.source == Source::Ended
    }

    /// True if the source had nothing more when it was last asked, and all that it gave has been passed on.
    pub fn dry(&self) -> bool {
        self.source != Source::Flows && self.flushed() && !self.lines_wait()
    }

    /// True if whole lines are here that were not shown yet: after a line that is replaced, the next one waits for its turn.
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

    /// True if nothing more is read for now: there is no room, or enough waits to be written. Reading ahead of a slow sink would wake us
    /// once more for each piece, and the piece would have left the cache when it is written.
    pub fn full(&self) -> bool {
        self.at.end as usize == self.room.bytes().len()
            || (self.at.routed - self.at.start) as usize >= AHEAD_BYTES
    }

    /// True if everything that was routed has been written.
    pub fn flushed(&self) -> bool {
        self.at.start == self.at.routed
    }

    /// True if a line is half forwarded.
    pub fn mid_line(&self) -> bool {
        matches!(self.long, Long::Passes { .. })
    }

    /// True if the sink has taken only a part of a line whose rest is here.
    pub fn torn(&self) -> bool {
        self.torn && !self.flushed()
    }

    /// True if there is a line that waits to be shown again.
    pub fn holds(&self) -> bool {
        self.held
    }

    /// Bytes that wait: routed and not written, read and not routed.
    pub fn waiting(&self) -> (usize, usize) {
        let Marks {
            start, routed, end, ..
        } = self.at;
        ((routed - start) as usize, (end - routed) as usize)
    }

    /// Reads once; true if there was anything (or the end).
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> Read) -> bool {
        if self.ended() || self.full() {
            return false;
        }
        let end = self.at.end as usize;
        let free = &mut self.room.bytes_mut()[end..];
        let most = free.len();
        match read(free) {
            Read::Nothing => {
                self.source = Source::Dry;
                false
            }
            Read::End => {
                self.source = Source::Ended;
                true
            }
            Read::Bytes(len) => {
                debug_assert!(0 < len && len <= most, "read {len} bytes into {most}");
                self.source = Source::Flows;
                self.at.end += len as u32;
                self.keep();
                true
            }
        }
    }

    /// Shows every line that is there until one is held or replaced; true if anything moved.
    pub fn route(&mut self, router: &mut impl Router) -> bool {
        let before = (self.at, self.scanned);
        self.held = false;
        loop {
            if self.long == Long::No
                && self.scanner.between_lines()
                && let Some((line_end, route)) = self.usual_lines(router)
            {
                if !self.line_goes(line_end, route) {
                    break;
                }
                continue;
            }
            let (scanned, end) = (self.scanned, self.at.end as usize);
            if scanned == end {
                // A long line that was held may be forwarded now.
                self.part_of_a_line(router);
                break;
            }
            // The room and the scanner are apart, so that a line can be scanned where it lies.
            let Self { room, scanner, .. } = self;
            match scanner.feed(&room.bytes()[scanned..end]) {
                Fed::Line { used } => {
                    let route = self.whole_line(scanned + used, router);
                    if !self.line_goes(scanned + used, route) {
                        break;
                    }
                }
                Fed::Partial => {
                    self.scanned = end;
                    self.part_of_a_line(router);
                    break;
                }
            }
        }
        self.keep();
        before != (self.at, self.scanned)
    }

    /// Lines that can be known at a glance and go on, one after another; where the first one ends that does not go on, and what becomes
    /// of it.
    fn usual_lines(&mut self, router: &mut impl Router) -> Option<(usize, Route)> {
        let lines = &self.room.bytes()[..self.at.end as usize];
        let (start, gone) = (self.at.start as usize, self.gone);
        let passed = router.pass(&lines[self.scanned..], gone + (self.scanned - start) as u64);
        debug_assert!(passed == 0 || lines[self.scanned + passed - 1] == b'\n');
        let mut from = self.scanned + passed;
        let stopped = loop {
            let Some((frame, used)) = Frame::at_a_glance(&lines[from..]) else {
                break None;
            };
            let end = gone + (from + used - start) as u64;
            match router.route(Part::Line(&frame, &lines[from..from + used]), end) {
                Route::Pass => from += used,
                route @ (Route::Consumed | Route::Replaced | Route::Gather | Route::Later) => {
                    break Some((from + used, route));
                }
            }
        };
        self.scanned = from;
        self.at.routed = from as u32;
        stopped
    }

    /// The source has ended: a last line without newline is shown if it is a whole message, and gets its newline. Not before every other
    /// line has been shown.
    pub fn finish(&mut self, router: &mut impl Router) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        if self.held || routed == end || self.lines_wait() {
            return;
        }
        if self.long != Long::No {
            self.long_line_without_end();
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
        self.route(router);
    }

    /// The source has ended within a long line. A server may read a last line that has no newline. The client may not: it would take the
    /// line for the answer, and then get ours as well.
    fn long_line_without_end(&mut self) {
        if let (Room::Recorded(_), Long::Passes { .. }) = (&self.room, self.long) {
            self.at.routed = self.at.end;
            self.keep();
        }
    }

    /// Writes once of what was routed; `None` if nothing is left.
    pub fn write(&mut self, write: impl FnOnce(&[u8]) -> Wrote) -> Option<Wrote> {
        if self.flushed() {
            return None;
        }
        let (start, routed) = (self.at.start as usize, self.at.routed as usize);
        let wrote = write(&self.room.bytes()[start..routed]);
        if let Wrote::Took(len) = wrote {
            debug_assert!(
                0 < len && len <= routed - start,
                "the sink took {len} of {} bytes",
                routed - start
            );
            self.at.start += len as u32;
            self.gone += len as u64;
            self.torn = self.room.bytes()[self.at.start as usize - 1] != b'\n';
            self.make_room();
        }
        Some(wrote)
    }

    /// What was routed and not written yet.
    pub fn unsent(&self) -> &[u8] {
        &self.room.bytes()[self.at.start as usize..self.at.routed as usize]
    }

    /// What was read and not routed yet, and what is known of its first line if the beginning of that is gone.
    pub fn fresh(&self) -> (&[u8], Option<Begun>) {
        let bytes = &self.room.bytes()[self.at.routed as usize..self.at.end as usize];
        (bytes, self.half_line())
    }

    /// What is known of a line that is half routed.
    fn half_line(&self) -> Option<Begun> {
        (self.long != Long::No).then(|| self.scanner.begun_as())
    }

    /// Forgets what was routed: the sink is gone.
    pub fn discard_routed(&mut self) {
        self.torn = false;
        self.gone += u64::from(self.at.routed - self.at.start);
        self.at.start = self.at.routed;
        self.make_room();
    }

    /// The buffer if nothing is in it: its memory may be given back until it is needed again.
    pub fn spare(&mut self) -> Option<&mut [u8]> {
        (self.at.end == 0).then(|| self.room.bytes_mut())
    }

    /// The source died in the middle of a line: its rest will never come.
    pub fn forget_partial(&mut self) {
        let end = self.at.end as usize;
        self.at.end = self.at.routed;
        self.scanned = self.at.routed as usize;
        self.scanner = Scanner::new();
        self.long = Long::No;
        self.held = false;
        self.clear_to(end);
    }

    /// The sink is gone, and another one follows: what was routed to it is void, and so is the rest of a line that it has the beginning of.
    pub fn sink_lost(&mut self) {
        if let Long::Passes { known } = self.long {
            self.long = Long::Dropped { known };
        }
        self.discard_routed();
    }

    /// The source is gone, and another one follows.
    pub fn source_lost(&mut self) {
        self.forget_partial();
        self.source = Source::Flows;
    }

    /// Bytes that another process has read from the source before us. There is room for them: nothing else is on its way.
    pub fn preload(&mut self, bytes: &[u8]) {
        let end = self.at.end as usize;
        let Some(room) = self.room.bytes_mut().get_mut(end..end + bytes.len()) else {
            return;
        };
        room.copy_from_slice(bytes);
        self.at.end += bytes.len() as u32;
        self.keep();
    }

    /// Shows the line that the scanner has found, which ends at `line_end`.
    fn whole_line(&self, line_end: usize, router: &mut impl Router) -> Route {
        let start = self.at.routed as usize;
        let frame = self.scanner.frame();
        let end = self.position(line_end);
        match self.long {
            Long::No => router.route(Part::Line(&frame, &self.room.bytes()[start..line_end]), end),
            Long::Passes { known } => {
                if !known {
                    router.route(Part::LongKnown(&frame), end);
                }
                router.route(Part::LongPassed(&frame), end);
                Route::Pass
            }
            Long::Dropped { known } => {
                if !known {
                    router.route(Part::LongDropped(&frame), end);
                }
                Route::Consumed
            }
            Long::Gathered => {
                router.route(Part::Piece(&self.room.bytes()[start..line_end]), end);
                router.route(Part::Gathered(&frame), end);
                Route::Replaced
            }
        }
    }

    /// Where this place of the buffer is in what goes on.
    fn position(&self, place: usize) -> u64 {
        self.gone + (place - self.at.start as usize) as u64
    }

    /// How much of what goes on the sink has. A line that lacks nothing but its newline counts as whole: the newline follows in any case,
    /// from us or from a successor.
    pub fn delivered(&self) -> u64 {
        let rest = self.unsent();
        self.gone + u64::from(self.torn && rest.first() == Some(&b'\n'))
    }

    /// The line that ends at `line_end` goes its way; false if nothing more is to be shown for now.
    fn line_goes(&mut self, line_end: usize, route: Route) -> bool {
        debug_assert!(self.at.routed as usize <= line_end && line_end <= self.at.end as usize);
        self.scanned = line_end;
        match route {
            Route::Pass => self.at.routed = line_end as u32,
            Route::Consumed => {
                self.long = Long::No;
                self.remove(line_end);
            }
            Route::Replaced | Route::Gather => {
                self.long = Long::No;
                self.remove(line_end);
                return false;
            }
            Route::Later => {
                // It is scanned again when it is shown again.
                self.scanned = self.at.routed as usize;
                self.scanner = Scanner::new();
                self.held = true;
                return false;
            }
        }
        self.long = Long::No;
        true
    }

    /// All that is there is the beginning or the middle of a line.
    fn part_of_a_line(&mut self, router: &mut impl Router) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        let position = self.position(end);
        match self.long {
            Long::No if end - routed >= WHOLE_LINE_BYTES => {
                let frame = self.scanner.begun();
                let known = self.scanner.known().is_some();
                let route = if self.scanner.certain_junk() {
                    Route::Consumed
                } else {
                    let bytes = &self.room.bytes()[routed..end];
                    router.route(Part::LongBegins(frame.as_ref(), bytes), position)
                };
                if let (true, Some(frame), Route::Pass) = (known, &frame, route) {
                    router.route(Part::LongKnown(frame), position);
                }
                match route {
                    Route::Pass => {
                        self.long = Long::Passes { known };
                        self.at.routed = self.safe_end() as u32;
                    }
                    Route::Consumed | Route::Replaced => {
                        self.long = Long::Dropped { known: false };
                        self.remove(self.safe_end());
                    }
                    Route::Gather => {
                        self.long = Long::Gathered;
                        self.gather(router);
                    }
                    // Nothing is forwarded; the full buffer makes the source wait.
                    Route::Later => {}
                }
            }
            Long::No => {}
            Long::Passes { known } => {
                if let (false, Some(frame)) = (known, self.scanner.known()) {
                    router.route(Part::LongKnown(&frame), position);
                    self.long = Long::Passes { known: true };
                }
                self.at.routed = self.safe_end() as u32;
            }
            Long::Dropped { .. } => self.remove(self.safe_end()),
            Long::Gathered => self.gather(router),
        }
    }

    /// The router gathers what is there of a long line and may be routed.
    fn gather(&mut self, router: &mut impl Router) {
        let (routed, until) = (self.at.routed as usize, self.safe_end());
        if routed < until {
            let piece = &self.room.bytes()[routed..until];
            router.route(Part::Piece(piece), self.position(until));
        }
        self.remove(until);
    }

    /// Up to where the long line that is here may be routed before its end has come. If this process is killed, its successor finds the
    /// rest of the client's line, and must read the id in it unless the record has it. The server's line is different: its rest is lost
    /// with us, and the client must not have all of a line whose end the router has not seen.
    fn safe_end(&self) -> usize {
        let end = self.at.end as usize;
        let known = matches!(
            self.long,
            Long::Passes { known: true } | Long::Dropped { known: true }
        );
        match &self.room {
            Room::Recorded(_) if known => end,
            Room::Recorded(_) | Room::Own(_) => {
                (self.at.routed as usize).max(end.saturating_sub(TAIL_BYTES))
            }
        }
    }

    /// Takes the bytes from `routed` to `until` out. What waits for the sink moves up to them: it is void for a successor, while what
    /// follows stays where it is and is the successor's from one mark to the next.
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
        self.room
            .bytes_mut()
            .copy_within(start..routed, until - waiting);
    }

    /// Once all that was routed is written, the rest moves to the front.
    fn make_room(&mut self) {
        let (routed, end) = (self.at.routed as usize, self.at.end as usize);
        let rest = end - routed;
        // Before the copy: it may lie where a line was that is gone.
        self.keep();
        // A copy that overlaps its source would leave neither for a successor.
        if self.at.start != self.at.routed || routed == 0 || rest > routed {
            return;
        }
        // A small rest moves when the buffer is half used, an empty one always.
        if rest > 0 && end < WHOLE_LINE_BYTES {
            return;
        }
        self.room.bytes_mut().copy_within(routed..end, 0);
        self.scanned -= routed;
        self.at = Marks {
            start: 0,
            routed: 0,
            end: rest as u32,
            ..self.at
        };
        self.clear_to(end);
    }

    /// Puts the marks in force, then clears what used to reach to `old_end`.
    fn clear_to(&mut self, old_end: usize) {
        self.at.within_a_line = self.half_line();
        self.check();
        match &mut self.room {
            Room::Own(_) => {}
            Room::Recorded(inbox) => inbox.moved(self.at, old_end),
        }
    }

    fn keep(&mut self) {
        self.at.within_a_line = self.half_line();
        self.check();
        if let Room::Recorded(inbox) = &mut self.room {
            inbox.mark(self.at);
        }
    }

    fn check(&self) {
        debug_assert!(
            self.at.fit(self.room.bytes().len())
                && (self.at.routed as usize) <= self.scanned
                && self.scanned <= self.at.end as usize,
            "marks out of order: {:?}, scanned to {}",
            self.at,
            self.scanned
        );
    }
}

impl Room<'_> {
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
