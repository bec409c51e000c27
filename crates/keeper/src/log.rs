//! The server's log: its stderr and the lines on its stdout that are no messages, on their way into files.
//!
//! The output waits in a bounded buffer as it came. A moment later it is cut into lines, secrets are hidden, and all is written at
//! once. The disk is used for a small part of the time only. If a server writes faster, or the disk is full, the oldest waiting
//! output is lost and counted. Nothing that goes wrong here reaches the server or the client.

use std::mem;

use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Status;
use mainstay_protocol::limits::{
    LOG_LINE_BYTES, LOG_WAIT_MS, LOG_WAITING_BYTES, RECORDING_AFTER_ERROR_MS, RECORDING_RESTS,
};
use mainstay_protocol::redact;
use mainstay_protocol::time;
use mainstay_store::logs::write::LogWriter;
use mainstay_store::logs::{LogLine, Source};

use super::plan::Plan;

/// The log of one link.
pub struct Log {
    /// None: the user wants no log, or there is no place for one.
    writer: Option<LogWriter>,
    generation: u32,
    waiting: Vec<Piece>,
    waiting_bytes: usize,
    /// When the first piece began to wait.
    since: Option<Moment>,
    /// Whether only marks wait that are not worth a file.
    idle: bool,
    /// The end of stderr that is no whole line yet, and when it came.
    partial: Vec<u8>,
    partial_ms: u64,
    lost_bytes: u64,
    rests_until: Moment,
}

/// Output as it came, or a mark of ours.
struct Piece {
    wall_ms: u64,
    generation: u32,
    from: Source,
    bytes: Vec<u8>,
}

impl Log {
    pub fn new(plan: &Plan) -> Self {
        let limit = plan.limits.log_bytes;
        let wanted = limit > 0 && plan.paths.has_place();
        let writer = wanted.then(|| LogWriter::new(&plan.paths, plan.id, &plan.name, limit));
        Self {
            writer,
            generation: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            since: None,
            idle: true,
            partial: Vec::new(),
            partial_ms: 0,
            lost_bytes: 0,
            rests_until: Moment(0),
        }
    }

    /// A server was started. The first start is written together with the first output; a server that is silent has no log.
    pub fn started(&mut self, generation: u32, pid: i32) {
        self.generation = generation;
        if generation > 1 {
            self.idle = false;
            self.mark(&format!("restarted as #{generation}, pid {pid}"));
        } else {
            self.mark(&format!("started, pid {pid}"));
        }
    }

    /// The server has ended, and all its output was taken: it is written now.
    pub fn ended(&mut self, status: Status) {
        self.mark(&format!("ended: {status}"));
        self.flush();
    }

    /// The server has written this to stderr.
    pub fn stderr(&mut self, bytes: &[u8]) {
        self.push(Source::Stderr, bytes);
    }

    /// The server has written these lines to stdout, and they are no messages.
    pub fn stdout(&mut self, lines: &[u8]) {
        self.push(Source::Stdout, lines);
    }

    /// Writes what waits, if it is time.
    pub fn poll(&mut self, now: Moment) {
        if self.due().is_some_and(|due| now >= due) {
            self.write();
        }
    }

    /// When there is something to write.
    pub fn due(&self) -> Option<Moment> {
        if self.idle {
            return None;
        }
        let soon = self.since?.after_ms(LOG_WAIT_MS);
        Some(soon.max(self.rests_until))
    }

    /// Writes all that waits, now.
    pub fn flush(&mut self) {
        if !self.idle {
            self.write();
        }
    }

    fn mark(&mut self, text: &str) {
        let idle = self.idle;
        self.push(Source::Mainstay, text.as_bytes());
        self.idle = idle;
    }

    fn push(&mut self, from: Source, bytes: &[u8]) {
        if self.writer.is_none() {
            return;
        }
        self.idle = false;
        self.since.get_or_insert_with(clock::now);
        self.waiting_bytes += bytes.len();
        self.waiting.push(Piece {
            wall_ms: clock::wall_ms(),
            generation: self.generation,
            from,
            bytes: bytes.to_vec(),
        });
        while self.waiting_bytes > LOG_WAITING_BYTES && self.waiting.len() > 1 {
            let lost = self.waiting.remove(0).bytes.len();
            self.waiting_bytes -= lost;
            self.lost_bytes += lost as u64 + mem::take(&mut self.partial).len() as u64;
        }
    }

    #[cold]
    fn write(&mut self) {
        let begun = clock::now();
        let lines = self.take_lines();
        self.since = None;
        self.waiting_bytes = 0;
        let Some(writer) = &mut self.writer else {
            return;
        };
        let written = writer.write(&lines);
        let ended = clock::now();
        self.rests_until = Moment(ended.0 + RECORDING_RESTS * (ended - begun));
        if written.is_err() {
            // How much of it was written is not known; the next line tells that some is missing.
            self.lost_bytes += lines.len() as u64;
            self.rests_until = ended.after_ms(RECORDING_AFTER_ERROR_MS);
        }
    }

    /// All whole lines that wait, as the file has them.
    fn take_lines(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in mem::take(&mut self.waiting) {
            if self.lost_bytes > 0 {
                let lost = mem::take(&mut self.lost_bytes);
                let text = format!(
                    "{lost} bytes are missing here: there was no time or no room to write them"
                );
                put(
                    &mut out,
                    piece.wall_ms,
                    piece.generation,
                    Source::Mainstay,
                    text.as_bytes(),
                );
            }
            match piece.from {
                Source::Stderr => self.cut(&mut out, &piece),
                Source::Stdout => {
                    for line in piece
                        .bytes
                        .split(|&b| b == b'\n')
                        .filter(|line| !line.is_empty())
                    {
                        put(&mut out, piece.wall_ms, piece.generation, piece.from, line);
                    }
                }
                Source::Mainstay => {
                    // What the last server wrote without an end of line comes before the mark.
                    self.end_partial(&mut out, piece.generation);
                    put(
                        &mut out,
                        piece.wall_ms,
                        piece.generation,
                        piece.from,
                        &piece.bytes,
                    );
                }
            }
        }
        out
    }

    fn cut(&mut self, out: &mut Vec<u8>, piece: &Piece) {
        for part in piece.bytes.split_inclusive(|&b| b == b'\n') {
            if self.partial.is_empty() {
                self.partial_ms = piece.wall_ms;
            }
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_partial(out, piece.generation);
            }
            while self.partial.len() > LOG_LINE_BYTES {
                let rest = self.partial.split_off(LOG_LINE_BYTES);
                self.end_partial(out, piece.generation);
                self.partial = rest;
            }
        }
    }

    fn end_partial(&mut self, out: &mut Vec<u8>, generation: u32) {
        let line = mem::take(&mut self.partial);
        for line in line.chunks(LOG_LINE_BYTES) {
            put(out, self.partial_ms, generation, Source::Stderr, line);
        }
    }
}

/// One line of the file, without secrets.
fn put(out: &mut Vec<u8>, wall_ms: u64, generation: u32, from: Source, line: &[u8]) {
    let text = String::from_utf8_lossy(&line[..line.len().min(LOG_LINE_BYTES)]);
    let text = text.trim_end_matches(['\n', '\r']);
    let line = LogLine {
        at: time::rfc3339(wall_ms),
        generation,
        from,
        text: redact::body(text).into_owned(),
    };
    // A struct of texts and numbers can always be written.
    if serde_json::to_writer(&mut *out, &line).is_ok() {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    //! guards: A server that floods its stderr, or a full disk, costs lines of its log and nothing else.

    use super::*;
    use mainstay_protocol::ids::LinkId;
    use mainstay_store::logs::read::LogReader;
    use mainstay_store::paths::Paths;
    use mainstay_store::scratch::Scratch;

    fn log(paths: &Paths) -> Log {
        Log {
            writer: Some(LogWriter::new(paths, LinkId(7), "demo", 1 << 20)),
            generation: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            since: None,
            idle: true,
            partial: Vec::new(),
            partial_ms: 0,
            lost_bytes: 0,
            rests_until: Moment(0),
        }
    }

    fn texts(paths: &Paths) -> Vec<String> {
        let mut all = Vec::new();
        LogReader::new(paths, LinkId(7))
            .read(|line| all.push(line.text))
            .unwrap();
        all
    }

    #[test]
    fn lines_are_whole_and_without_secrets() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let mut log = log(&paths);
        log.started(1, 4711);
        assert_eq!(log.due(), None, "a silent server has no log");
        log.stderr(b"one\ntoken=abcdef tw");
        log.stderr(b"o\nlast wo");
        log.stdout(b"Listening\n");
        assert!(log.due().is_some());
        log.stderr(b"rds");
        log.ended(Status::Code(1));
        log.started(2, 4712);
        log.flush();
        assert_eq!(
            texts(&paths),
            [
                "started, pid 4711",
                "one",
                "token=[hidden] two",
                "Listening",
                "last words",
                "ended: exit code 1",
                "restarted as #2, pid 4712"
            ]
        );
    }

    #[test]
    fn a_flood_loses_its_oldest_lines_and_says_so() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let mut log = log(&paths);
        for n in 0..10_000 {
            log.stderr(format!("line {n} {}\n", "x".repeat(80)).as_bytes());
            assert!(log.waiting_bytes <= LOG_WAITING_BYTES);
        }
        log.ended(Status::Code(0));
        let texts = texts(&paths);
        assert!(
            texts[0]
                .ends_with("bytes are missing here: there was no time or no room to write them"),
            "{}",
            texts[0]
        );
        assert!(texts[texts.len() - 2].starts_with("line 9999 "));
    }

    #[test]
    fn a_disk_that_takes_nothing_costs_only_the_lines() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        std::fs::write(paths.logs().path(), "in the way").unwrap();
        let mut log = log(&paths);
        log.stderr(b"one\n");
        log.flush();
        assert!(log.waiting.is_empty() && log.rests_until > clock::now());
        std::fs::remove_file(paths.logs().path()).unwrap();
        log.stderr(b"two\n");
        log.flush();
        let texts = texts(&paths);
        assert!(texts[0].contains("missing"), "{texts:?}");
        assert_eq!(texts[1], "two");
    }
}
