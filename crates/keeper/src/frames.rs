//! Frames for the watchers of a link: taps on the control socket, and the recording.
//!
//! Without a watcher a line costs a note of its head and one branch. With one, its beginning is copied into the
//! watcher's own bounded buffer; a buffer that is full loses the frame and counts it, and no process waits. Taps get bodies as
//! they are, because a process that may connect could read our memory too. The recording hides secrets, because a file outlives its reader.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::task::Poll;

use mainstay_core::link::{Link, Route};
use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::RecordingIncomplete;
use mainstay_protocol::frames::{
    self, Head, Kind, Line, Lost, Ours, Owed, Question, Recent, Side, Sight, VERSION,
};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::{
    FRAME_BODY_BYTES, LOG_LINE_BYTES, LOG_WAITING_BYTES, TAP_BYTES, TAPS,
};
use mainstay_protocol::message::frame::{self, Frame, Id, Scanner};
use mainstay_protocol::time;

use super::port::{Direction, Port};
use super::recording::Recording;
use super::watched::Watched;

/// The messages that pass, and the watchers that see them.
pub struct Frames {
    link: LinkId,
    server: String,
    keeper: i32,
    recent: Recent,
    /// There is a watcher: a tap or the recording.
    watched: bool,
    owed: Owed,
    taps: Vec<Tap>,
    recording: Option<Recording>,
    /// The beginning of a long line that is on its way from the client, and of one from the server.
    up_head: Vec<u8>,
    down_head: Vec<u8>,
    /// The side whose line was just replaced by one of ours.
    instead: Option<Side>,
    /// Lines of the server that were no messages, on their way to the log.
    junk: Vec<u8>,
    /// Since when which generation and the client know each other.
    opened: Option<(u32, Moment)>,
}

/// A connection that is shown frames.
struct Tap {
    stream: Watched<UnixStream>,
    sink: Port,
    body_bytes: usize,
    waiting: Vec<u8>,
    /// How much of that is written.
    written: usize,
    lost: u64,
}

/// One line, and what became of it.
#[derive(Clone, Copy)]
struct Passed<'a> {
    now: Moment,
    generation: u32,
    from: Side,
    to: Side,
    frame: &'a Frame<'a>,
    /// The line, or its beginning.
    bytes: &'a [u8],
    ours: Option<Ours>,
}

impl Frames {
    /// Without a watcher yet, except the recording if there is one.
    pub fn new(link: LinkId, server: &str, keeper: i32, recording: Option<Recording>) -> Self {
        let mut frames = Self {
            link,
            server: server.into(),
            keeper,
            recent: Recent::default(),
            watched: recording.is_some(),
            owed: Owed::default(),
            taps: Vec::new(),
            recording,
            up_head: Vec::new(),
            down_head: Vec::new(),
            instead: None,
            junk: Vec::new(),
            opened: None,
        };
        let body_bytes = FRAME_BODY_BYTES as u64;
        let head = frames.head(clock::now(), 0, body_bytes, true);
        if let Some(recording) = &mut frames.recording {
            recording.begin(head);
        }
        frames
    }

    /// Whether there is a watcher.
    pub fn watched(&self) -> bool {
        self.watched
    }

    /// A complete line passes from one side to the other, and no watcher sees it.
    #[inline]
    pub fn passed(&mut self, now: Moment, from: Side, frame: &Frame<'_>) {
        self.recent.note(now, from, other(from), frame);
    }

    /// A whole line from one side was routed. What is held is shown again.
    #[inline]
    pub fn line(
        &mut self,
        now: Moment,
        from: Side,
        frame: &Frame<'_>,
        bytes: &[u8],
        route: Route,
        generation: u32,
    ) {
        let to = match route {
            Route::Pass => other(from),
            Route::Consumed => Side::Mainstay,
            Route::Replaced => {
                self.instead = Some(from);
                Side::Mainstay
            }
            Route::Later | Route::Gather => return,
        };
        self.recent.note(now, from, to, frame);
        if frame.kind == frame::Kind::Junk && from == Side::Server {
            self.note_junk(bytes);
        }
        if self.watched {
            self.show(Passed {
                now,
                generation,
                from,
                to,
                frame,
                bytes,
                ours: None,
            });
        }
    }

    #[cold]
    fn note_junk(&mut self, line: &[u8]) {
        let line = &line[..line.len().min(LOG_LINE_BYTES)];
        if self.junk.len() + line.len() < LOG_WAITING_BYTES {
            self.junk.extend_from_slice(line.trim_ascii_end());
            self.junk.push(b'\n');
        }
    }

    /// The lines of the server that were no messages, since the last call.
    pub fn take_junk(&mut self) -> Option<Vec<u8>> {
        (!self.junk.is_empty()).then(|| std::mem::take(&mut self.junk))
    }

    /// The beginning of a line that is longer than we hold.
    #[inline]
    pub fn long_begins(&mut self, from: Side, bytes: &[u8]) {
        if self.watched {
            // The last one may have been torn by a death.
            let head = self.long_head(from);
            head.clear();
            head.extend_from_slice(&bytes[..bytes.len().min(FRAME_BODY_BYTES)]);
        }
    }

    /// The end of such a line. `passed`: it went on as it came.
    pub fn long_ends(
        &mut self,
        now: Moment,
        from: Side,
        frame: &Frame<'_>,
        passed: bool,
        generation: u32,
    ) {
        let to = if passed { other(from) } else { Side::Mainstay };
        if !passed {
            self.instead = Some(from);
        }
        self.recent.note(now, from, to, frame);
        if !passed && frame.kind == frame::Kind::Junk && from == Side::Server {
            self.note_junk(format!("(a line of {} bytes)", frame.bytes).as_bytes());
        }
        let bytes = std::mem::take(self.long_head(from));
        if self.watched {
            self.show(Passed {
                now,
                generation,
                from,
                to,
                frame,
                bytes: &bytes,
                ours: None,
            });
        }
    }

    /// A line of ours.
    pub fn ours(&mut self, now: Moment, to: Side, line: &[u8], generation: u32) {
        let mut scanner = Scanner::new();
        scanner.feed(line);
        let frame = scanner.frame();
        let what = frames::ours(self.link, to, &frame, self.instead);
        let from = Side::Mainstay;
        self.recent.note(now, from, to, &frame);
        if self.watched {
            self.show(Passed {
                now,
                generation,
                from,
                to,
                frame: &frame,
                bytes: line,
                ours: Some(what),
            });
        }
    }

    /// All that one line brought about is done.
    pub fn settled(&mut self) {
        self.instead = None;
    }

    /// The state in one word has changed.
    pub fn state(&mut self, now: Moment, word: &str, generation: u32) {
        let knows = matches!(word, "ready" | "doubtful" | "draining");
        if knows && self.opened.is_none_or(|(of, _)| of != generation) {
            self.opened = Some((generation, now));
        }
    }

    /// How long this generation and the client have known each other.
    pub fn since_handshake_ms(&self, now: Moment, generation: u32) -> Option<u64> {
        let (of, at) = self.opened?;
        (of == generation).then(|| now.ms_since(at))
    }

    /// The last frames.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// One more peer wants to see frames; its connection comes back if there are too many.
    pub fn attach(
        &mut self,
        stream: Watched<UnixStream>,
        body_bytes: u64,
        link: &Link<'_>,
        now: Moment,
    ) -> Result<(), Watched<UnixStream>> {
        if self.taps.len() >= TAPS {
            return Err(stream);
        }
        let Ok(sink) = Port::of_client(stream.get().as_fd(), Direction::Out) else {
            return Err(stream);
        };
        if !self.watched {
            // What was asked before has its answer still to come.
            for (id, sort, at) in link.waiting() {
                let method = sort.method().map(Into::into);
                self.owed.asks(Side::Client, id, Question { method, at });
            }
        }
        let body_bytes = body_bytes.min(FRAME_BODY_BYTES as u64);
        let head = self.head(now, link.generation(), body_bytes, false);
        self.taps.push(Tap {
            stream,
            sink,
            body_bytes: body_bytes as usize,
            waiting: Line::Head(head).text(),
            written: 0,
            lost: 0,
        });
        self.watched = true;
        Ok(())
    }

    /// Writes what waits, and closes taps whose peers have left; true if anything moved.
    pub fn poll(&mut self, now: Moment) -> bool {
        if !self.watched {
            return false;
        }
        let mut moved = false;
        let link = self.link;
        let before = self.taps.len();
        self.taps.retain_mut(|tap| match tap.poll(link) {
            Ok(any) => {
                moved |= any;
                true
            }
            Err(Left) => false,
        });
        moved |= before != self.taps.len();
        if let Some(recording) = &mut self.recording {
            recording.write(now);
        }
        self.watched = !self.taps.is_empty() || self.recording.is_some();
        if !self.watched {
            self.owed.clear();
            self.up_head = Vec::new();
            self.down_head = Vec::new();
        }
        moved
    }

    /// What went wrong with the recording, once.
    pub fn recording_hurt(&mut self) -> Option<RecordingIncomplete> {
        self.recording.as_mut().and_then(Recording::hurt)
    }

    /// Writes the last line of the recording.
    pub fn close_recording(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.close();
        }
    }

    /// When something is due.
    pub fn due(&self) -> Option<Moment> {
        self.recording.as_ref().and_then(Recording::due)
    }

    fn long_head(&mut self, from: Side) -> &mut Vec<u8> {
        match from {
            Side::Client => &mut self.up_head,
            Side::Server | Side::Mainstay => &mut self.down_head,
        }
    }

    fn head(&self, now: Moment, generation: u32, body_bytes: u64, redacted: bool) -> Head {
        Head {
            v: VERSION,
            link: self.link,
            server: self.server.clone(),
            at: time::rfc3339(clock::wall_ms()),
            ns: now.0,
            keeper: self.keeper,
            generation,
            body_bytes,
            redacted,
        }
    }

    #[cold]
    fn show(&mut self, passed: Passed<'_>) {
        let question = self.question(&passed);
        let Passed {
            now,
            generation,
            from,
            to,
            frame,
            bytes,
            ours,
        } = passed;
        let latency = question.as_ref().map(|question| now - question.at);
        let asked = question.and_then(|question| question.method);
        let sight = Sight {
            n: self.recent.count(),
            at: time::rfc3339(clock::wall_ms()),
            ns: now.0,
            link: self.link,
            from,
            to,
            generation,
            kind: frame.kind.into(),
            method: frame.method.as_deref().map(Into::into).or(asked),
            id: frames::id_text(frame.id),
            bytes: frame.bytes,
            latency_us: latency.map(|ns| ns / 1_000),
            ours,
            body: None,
            cut: false,
        };
        let link = self.link;
        let with_body = |limit: usize, sight: Sight| {
            let (body, cut) = frames::body(bytes, frame.bytes, limit);
            Sight {
                body: Some(body.into_owned()),
                cut,
                ..sight
            }
        };
        for tap in &mut self.taps {
            let sight = with_body(tap.body_bytes, sight.clone());
            tap.push(link, &Line::Frame(sight.into()).text());
        }
        if let Some(recording) = &mut self.recording {
            recording.push(with_body(FRAME_BODY_BYTES, sight));
        }
    }

    /// Notes a question; finds the one that an answer belongs to.
    fn question(&mut self, passed: &Passed<'_>) -> Option<Question> {
        let Passed {
            now,
            from,
            to,
            frame,
            ours,
            ..
        } = *passed;
        let Id::Token(id) = frame.id else {
            return None;
        };
        let kind = Kind::from(frame.kind);
        let again = ours == Some(Ours::PassedOn);
        if kind == Kind::Request && !again {
            let method = frame.method.as_deref().map(Into::into);
            // A repeated line is a request of the client, unless its id is one of ours.
            let asker = if from == Side::Mainstay && self.link.own_number(id).is_none() {
                other(to)
            } else {
                from
            };
            self.owed.asks(asker, id, Question { method, at: now });
            return None;
        }
        if !kind.answers() {
            return None;
        }
        if to != Side::Mainstay {
            return self.owed.answered(to, id);
        }
        if let Some(question) = self.owed.answered(Side::Mainstay, id) {
            return Some(question);
        }
        // It may be passed on in a moment.
        let question = self.owed.answered(other(from), id)?;
        self.owed.asks(other(from), id, question.clone());
        Some(question)
    }
}

/// It is gone.
struct Left;

impl Tap {
    fn push(&mut self, link: LinkId, line: &[u8]) {
        let mut more = Vec::new();
        if self.lost > 0 {
            let count = self.lost;
            more = Line::Lost(Lost { link, count }).text();
        }
        let waits = self.waiting.len() - self.written;
        if waits + more.len() + line.len() > TAP_BYTES {
            self.lost += 1;
            return;
        }
        self.lost = 0;
        self.waiting.extend_from_slice(&more);
        self.waiting.extend_from_slice(line);
    }

    fn poll(&mut self, link: LinkId) -> Result<bool, Left> {
        let mut moved = false;
        if self.stream.poll_ready() {
            match self.stream.get().read(&mut [0; 64]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.stream.clear(),
                // It has nothing to say: an end, an error and a word are all its farewell.
                Ok(_) | Err(_) => return Err(Left),
            }
        }
        while self.written < self.waiting.len() {
            match self.sink.poll_write(&self.waiting[self.written..]) {
                Poll::Ready(Ok(len)) => {
                    self.written += len;
                    moved = true;
                }
                Poll::Ready(Err(_)) => return Err(Left),
                Poll::Pending => break,
            }
            if self.written == self.waiting.len() && self.lost > 0 {
                // It reads again: what it has missed is the next that it hears.
                let count = std::mem::take(&mut self.lost);
                self.waiting.extend(Line::Lost(Lost { link, count }).text());
            }
        }
        if self.written == self.waiting.len() {
            self.waiting.clear();
            self.written = 0;
        } else if self.written > TAP_BYTES / 2 {
            self.waiting.drain(..self.written);
            self.written = 0;
        }
        Ok(moved)
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server | Side::Mainstay => Side::Client,
    }
}
