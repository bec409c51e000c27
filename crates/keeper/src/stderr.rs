//! The server's stderr: always drained, passed on as far as the client takes it, copied to the log, its last lines remembered.
//!
//! Some clients never read it. Lines that they do not take are dropped and counted; the server never waits.

use std::collections::VecDeque;
use std::io;
use std::task::Poll;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::redact;

use super::log::Log;
use super::port::Port;

/// The buffer that one read fills.
const CHUNK: usize = 16 * 1024;
/// Reads before the others have their turn: a full pipe.
const READS: u32 = 4;

/// One server's stderr.
pub struct Stderr {
    from: Option<Port>,
    to: Option<Port>,
    tail: Tail,
    log: Log,
    /// The client's pipe was full: everything up to the next newline is dropped.
    skipping: bool,
    dropped: u64,
    told: u64,
}

impl Stderr {
    /// Keeps at most this number of lines and bytes, and passes all on to `to` and to the log.
    pub fn new(to: Option<Port>, (lines, bytes): (u64, u64), log: Log) -> Self {
        let tail = Tail {
            lines: VecDeque::new(),
            partial: Vec::new(),
            max: (lines as usize, bytes as usize),
            held: 0,
        };
        Self {
            from: None,
            to,
            tail,
            log,
            skipping: false,
            dropped: 0,
            told: 0,
        }
    }

    /// A new generation's stderr. The last words of its predecessor are not its own.
    pub fn attach(&mut self, from: Port) {
        self.tail.clear();
        self.from = Some(from);
    }

    /// The log of the server's output.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// When the log has something to write.
    pub fn log_due(&self) -> Option<Moment> {
        self.log.due()
    }

    /// Another client's end.
    pub fn pass_to(&mut self, to: Option<Port>) {
        self.to = to;
        self.skipping = false;
    }

    /// Closes the end of the client; the pipe of the server is still drained.
    pub fn release(&mut self) {
        self.to = None;
    }

    /// Says something of our own.
    pub fn say(&mut self, text: &str) {
        let line = format!("{text}\n");
        if let Some(to) = &self.to {
            // Best effort: a client that does not read stderr does not want to know.
            drop(to.poll_write(line.as_bytes()));
        }
    }

    /// The last words, without what looks like a secret.
    pub fn tail(&self) -> Vec<String> {
        let lines = self.tail.lines().into_iter();
        lines.map(|line| redact::body(&line).into_owned()).collect()
    }

    /// Bytes dropped since this was last asked, if enough to be told.
    pub fn dropped(&mut self) -> Option<u64> {
        // Told at the first loss and whenever it has grown tenfold.
        (self.dropped > 0 && self.dropped >= self.told.saturating_mul(10).max(1)).then(|| {
            self.told = self.dropped;
            self.dropped
        })
    }

    /// Bytes dropped in all, if not all were told.
    pub fn dropped_in_all(&self) -> Option<u64> {
        (self.dropped > self.told).then_some(self.dropped)
    }

    /// Moves what is there, but not for ever: a server may write faster than we read, and others wait for their turn.
    /// Whether another look is due.
    pub fn poll(&mut self) -> bool {
        for _ in 0..READS {
            if !self.from.as_ref().is_some_and(Port::readable) {
                return false;
            }
            self.read();
        }
        true
    }

    /// The server is dead: its last words are there, whether an event has told of them yet or not.
    pub fn look_again(&self) {
        if let Some(from) = &self.from {
            from.look_again();
        }
    }

    /// Apart from [`Self::poll`], which every message passes: there the chunk would be cleared each time.
    #[inline(never)]
    fn read(&mut self) {
        let mut chunk = [0u8; CHUNK];
        let Some(from) = &self.from else { return };
        match from.poll_read(&mut chunk) {
            Poll::Pending => {}
            Poll::Ready(Ok(0) | Err(_)) => self.from = None,
            Poll::Ready(Ok(len)) => {
                self.tail.push(&chunk[..len]);
                self.pass_on(&chunk[..len]);
                self.log.stderr(&chunk[..len]);
            }
        }
    }

    fn pass_on(&mut self, mut bytes: &[u8]) {
        if self.skipping {
            let Some(newline) = bytes.iter().position(|&b| b == b'\n') else {
                self.dropped += bytes.len() as u64;
                return;
            };
            self.dropped += newline as u64 + 1;
            bytes = &bytes[newline + 1..];
            self.skipping = false;
        }
        while let (Some(to), false) = (&self.to, bytes.is_empty()) {
            match to.poll_write(bytes) {
                Poll::Ready(Ok(len)) => bytes = &bytes[len..],
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(_)) => self.to = None,
                Poll::Pending => {
                    self.dropped += bytes.len() as u64;
                    self.skipping = bytes.last() != Some(&b'\n');
                    return;
                }
            }
        }
    }
}

struct Tail {
    lines: VecDeque<String>,
    partial: Vec<u8>,
    max: (usize, usize),
    held: usize,
}

impl Tail {
    fn clear(&mut self) {
        self.lines.clear();
        self.partial.clear();
        self.held = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let room = self.max.1.saturating_sub(self.partial.len());
            self.partial
                .extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.partial)
            .trim_end()
            .to_string();
        self.partial.clear();
        self.held += line.len();
        self.lines.push_back(line);
        while self.lines.len() > self.max.0 || self.held > self.max.1 {
            match self.lines.pop_front() {
                Some(line) => self.held -= line.len(),
                None => break,
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let partial = String::from_utf8_lossy(&self.partial)
            .trim_end()
            .to_string();
        self.lines
            .iter()
            .cloned()
            .chain((!partial.is_empty()).then_some(partial))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(lines: usize, bytes: usize) -> Tail {
        Tail {
            lines: VecDeque::new(),
            partial: Vec::new(),
            max: (lines, bytes),
            held: 0,
        }
    }

    #[test]
    fn the_last_lines_are_remembered_within_their_limits() {
        let mut by_lines = tail(2, 100);
        by_lines.push(b"one\ntw");
        by_lines.push(b"o\nthree\nfo");
        assert_eq!(by_lines.lines(), ["two", "three", "fo"]);
        by_lines.clear();
        by_lines.push(b"anew\n");
        assert_eq!(by_lines.lines(), ["anew"]);
        let mut by_bytes = tail(10, 8);
        by_bytes.push(b"12345\n67890\nabcdefghijklmnop\n");
        assert_eq!(by_bytes.lines(), ["abcdefgh"]);
    }
}
