//! One direction of the data, as the keeper's own pump moves it: routed line by line, a long one as it comes.
//!
//! It is the model of `keeper/pump.rs`, over plain vectors and with a kill possible between any two steps.

use std::collections::VecDeque;

use mainstay_core::limits::WHOLE_LINE_BYTES;
use mainstay_core::link::Route;
use mainstay_core::message::frame::{Fed, Frame, Scanner};

use super::outside::Halt;
use super::pipe::{Pipe, Read};

/// What the pump shows to whoever decides.
#[derive(Clone, Copy, Debug)]
pub enum Show<'a> {
    /// A whole line.
    Line(&'a Frame<'a>, &'a [u8]),
    /// The beginning of a line that is too long to be held.
    Cut(Option<&'a Frame<'a>>),
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

/// Whoever decides.
pub type Decide<'d> = &'d mut dyn FnMut(Show<'_>) -> Result<Route, Halt>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    No,
    Forward { known: bool },
    Drop { known: bool },
    Gather,
}

/// One direction.
#[derive(Debug)]
pub struct Pump {
    scanner: Scanner,
    /// Routed and not yet written.
    pub out: VecDeque<u8>,
    /// Read and not yet routed.
    pub rest: Vec<u8>,
    scanned: usize,
    cut: Cut,
    held: Option<usize>,
    ended: bool,
    dry: bool,
    last_written: u8,
}

impl Pump {
    /// A pump with what a killed keeper had read and not routed. `mid_line`: the rest of a line follows.
    pub fn over(rest: Vec<u8>, mid_line: bool) -> Self {
        Self {
            scanner: if mid_line {
                Scanner::within_a_line()
            } else {
                Scanner::new()
            },
            out: VecDeque::new(),
            rest,
            scanned: 0,
            cut: if mid_line {
                Cut::Drop { known: false }
            } else {
                Cut::No
            },
            held: None,
            ended: false,
            dry: false,
            last_written: b'\n',
        }
    }

    /// Whether the source has ended.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the source had nothing more when it was last asked, and all that it gave has been passed on.
    pub fn dry(&self) -> bool {
        self.dry && self.flushed()
    }

    /// Whether nothing more is read for now: there is no room, or enough waits to be written.
    pub fn full(&self) -> bool {
        self.no_room() || self.out.len() >= WHOLE_LINE_BYTES / 2
    }

    fn no_room(&self) -> bool {
        self.out.len() + self.rest.len() >= 2 * WHOLE_LINE_BYTES
    }

    /// Whether everything that was routed has been written.
    pub fn flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether the beginning of a line is gone already, wherever it went.
    pub fn within_a_line(&self) -> bool {
        self.cut != Cut::No
    }

    /// Whether a line is half forwarded.
    pub fn mid_line(&self) -> bool {
        matches!(self.cut, Cut::Forward { .. })
    }

    /// Whether the sink has taken a part of a line only.
    pub fn torn(&self) -> bool {
        !self.flushed() && self.last_written != b'\n'
    }

    /// Whether there is a line that waits to be shown again.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Reads once; whether there was anything (or the end).
    pub fn fill(&mut self, from: &mut Pipe) -> bool {
        if self.ended || self.full() {
            return false;
        }
        let room = 2 * WHOLE_LINE_BYTES - self.out.len() - self.rest.len();
        match from.read(room) {
            Read::Nothing => {
                self.dry = true;
                false
            }
            Read::End => {
                self.ended = true;
                true
            }
            Read::Bytes(bytes) => {
                self.dry = false;
                self.rest.extend(bytes);
                true
            }
        }
    }

    /// Shows every line that is there until one is held; whether anything moved.
    pub fn route(&mut self, decide: Decide<'_>) -> Result<bool, Halt> {
        let before = (self.out.len(), self.rest.len(), self.scanned);
        loop {
            if let Some(line_end) = self.held.take() {
                if !self.whole_line(line_end, decide)? {
                    break;
                }
                continue;
            }
            if self.scanned == self.rest.len() {
                self.part_of_a_line(decide)?;
                break;
            }
            match self.scanner.feed(&self.rest[self.scanned..]) {
                Fed::Line { used } => {
                    let line_end = self.scanned + used;
                    if !self.whole_line(line_end, decide)? {
                        break;
                    }
                }
                Fed::Partial => {
                    self.scanned = self.rest.len();
                    self.part_of_a_line(decide)?;
                    break;
                }
            }
        }
        Ok(before != (self.out.len(), self.rest.len(), self.scanned))
    }

    /// The source has ended: a last line without newline is shown if it is a whole message.
    pub fn finish(&mut self, decide: Decide<'_>) -> Result<(), Halt> {
        if self.cut != Cut::No || self.held.is_some() || self.rest.is_empty() {
            return Ok(());
        }
        if serde_json::from_slice::<serde_json::Value>(&self.rest).is_err() || self.no_room() {
            self.rest.clear();
            self.scanned = 0;
            return Ok(());
        }
        self.rest.push(b'\n');
        self.route(decide)?;
        Ok(())
    }

    /// Takes note of what the sink has taken.
    pub fn written(&mut self, len: usize) {
        if let Some(last) = self.out.drain(..len).next_back() {
            self.last_written = last;
        }
    }

    /// Forgets what was routed: the sink is gone.
    pub fn discard_routed(&mut self) {
        self.out.clear();
    }

    /// The source died in the middle of a line.
    pub fn forget_partial(&mut self) {
        self.rest.clear();
        self.scanned = 0;
        self.scanner = Scanner::new();
        self.cut = Cut::No;
        self.held = None;
    }

    /// The sink is gone, and another one follows.
    pub fn sink_lost(&mut self) {
        if let Cut::Forward { known } = self.cut {
            self.cut = Cut::Drop { known };
        }
        self.discard_routed();
    }

    /// The source is gone, and another one follows.
    pub fn source_lost(&mut self) {
        self.forget_partial();
        self.ended = false;
        self.dry = false;
    }

    fn whole_line(&mut self, line_end: usize, decide: Decide<'_>) -> Result<bool, Halt> {
        let frame = self.scanner.frame();
        let route = match self.cut {
            Cut::No => decide(Show::Line(&frame, &self.rest[..line_end]))?,
            Cut::Forward { known } => {
                if !known {
                    decide(Show::Known(&frame))?;
                }
                decide(Show::CutEnd(&frame))?;
                Route::Forward
            }
            Cut::Drop { known } => {
                if !known {
                    decide(Show::DropEnd(&frame))?;
                }
                Route::Drop
            }
            Cut::Gather => {
                decide(Show::Piece(&self.rest[..line_end]))?;
                decide(Show::GatherEnd(&frame))?;
                Route::Instead
            }
        };
        self.scanned = line_end;
        match route {
            Route::Forward => self.forward(line_end),
            Route::Drop => self.remove(line_end),
            Route::Instead | Route::Gather => {
                self.cut = Cut::No;
                self.remove(line_end);
                return Ok(false);
            }
            Route::Hold => {
                self.held = Some(line_end);
                return Ok(false);
            }
        }
        self.cut = Cut::No;
        Ok(true)
    }

    fn part_of_a_line(&mut self, decide: Decide<'_>) -> Result<(), Halt> {
        let end = self.rest.len();
        match self.cut {
            Cut::No if end >= WHOLE_LINE_BYTES => {
                let frame = self.scanner.begun();
                let known = self.scanner.known().is_some();
                let route = if self.scanner.certain_junk() {
                    Route::Drop
                } else {
                    decide(Show::Cut(frame.as_ref()))?
                };
                if let (true, Some(frame), Route::Forward) = (known, &frame, route) {
                    decide(Show::Known(frame))?;
                }
                match route {
                    Route::Forward => {
                        self.cut = Cut::Forward { known };
                        self.forward(end);
                    }
                    Route::Drop | Route::Instead => {
                        self.cut = Cut::Drop { known: false };
                        self.remove(end);
                    }
                    Route::Gather => {
                        self.cut = Cut::Gather;
                        decide(Show::Piece(&self.rest[..end]))?;
                        self.remove(end);
                    }
                    Route::Hold => {}
                }
            }
            Cut::No => {}
            Cut::Forward { known } => {
                if let (false, Some(frame)) = (known, self.scanner.known()) {
                    decide(Show::Known(&frame))?;
                    self.cut = Cut::Forward { known: true };
                }
                self.forward(end);
            }
            Cut::Drop { .. } => self.remove(end),
            Cut::Gather => {
                decide(Show::Piece(&self.rest[..end]))?;
                self.remove(end);
            }
        }
        Ok(())
    }

    fn forward(&mut self, until: usize) {
        self.out.extend(self.rest.drain(..until));
        self.scanned -= until;
    }

    fn remove(&mut self, until: usize) {
        self.rest.drain(..until);
        self.scanned -= until;
    }
}
