//! Lines on their way to one server.
//!
//! Back-pressure is not reading the next body: a request waits until [`ServerQueue::has_room`]. Lines that follow from what was
//! taken already (cancellations, answers to the server) are always taken.
//!
//! Invariant: nothing is sent after [`ServerQueue::close`], and what was sent before it is written before the pipe is closed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::limits::SERVER_QUEUE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It takes lines.
    Open,
    /// It takes no more; what waits is written.
    Closing,
    /// The pipe is closed, or is to be closed.
    Closed,
}

/// The lines that wait for one server.
#[derive(Clone, Debug)]
pub struct ServerQueue {
    waiting: VecDeque<Vec<u8>>,
    /// Bytes that wait or are being written.
    bytes: usize,
    state: State,
}

/// What is to be written next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextLine {
    /// This line, with its newline.
    Line(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// Nothing more: the pipe is to be closed.
    Close,
}

impl ServerQueue {
    /// Nothing waits.
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            state: State::Open,
        }
    }

    /// Sends a line with its newline; false if the queue is closed, and the line goes nowhere.
    pub fn send(&mut self, line: Vec<u8>) -> bool {
        debug_assert_eq!(line.last(), Some(&b'\n'), "a line has its newline");
        if self.state != State::Open {
            return false;
        }
        self.bytes += line.len();
        self.waiting.push_back(line);
        true
    }

    /// Whether a new request may be sent, or goes nowhere anyway.
    pub fn has_room(&self) -> bool {
        self.bytes < SERVER_QUEUE_BYTES || self.state != State::Open
    }

    /// Whether lines are taken.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The next line to write. Its bytes count until [`ServerQueue::written`].
    pub fn next_line(&mut self) -> NextLine {
        match (self.waiting.pop_front(), self.state) {
            (Some(line), _) => NextLine::Line(line),
            (None, State::Open) => NextLine::Nothing,
            (None, State::Closing | State::Closed) => {
                self.state = State::Closed;
                NextLine::Close
            }
        }
    }

    /// So many bytes have been written.
    pub fn written(&mut self, bytes: usize) {
        debug_assert!(
            self.bytes >= bytes || self.state == State::Closed,
            "more was written than was sent"
        );
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Nothing more is sent; what waits is written.
    pub fn close(&mut self) {
        if self.state == State::Open {
            self.state = State::Closing;
        }
    }

    /// The server reads no more: what waits goes nowhere.
    pub fn abandon(&mut self) {
        self.state = State::Closed;
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Bytes that wait or are being written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// States what holds after each step.
    pub fn check(&self) {
        let waiting: usize = self.waiting.iter().map(Vec::len).sum();
        debug_assert!(waiting <= self.bytes, "bytes are miscounted");
        debug_assert!(
            self.state != State::Closed || self.waiting.is_empty(),
            "a closed pipe has lines to write"
        );
    }
}

impl Default for ServerQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_the_close_is_written_and_nothing_after_it() {
        let mut queue = ServerQueue::new();
        assert_eq!(queue.next_line(), NextLine::Nothing);
        assert!(queue.send(b"1\n".to_vec()));
        queue.close();
        assert!(!queue.send(b"2\n".to_vec()));
        assert_eq!(queue.next_line(), NextLine::Line(b"1\n".to_vec()));
        queue.written(2);
        queue.check();
        assert_eq!(queue.next_line(), NextLine::Close);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn there_is_room_until_the_limit_and_again_when_it_was_written() {
        let mut queue = ServerQueue::new();
        let mut line = alloc::vec![b'x'; SERVER_QUEUE_BYTES];
        line.push(b'\n');
        assert!(queue.has_room() && queue.send(line));
        assert!(!queue.has_room());
        assert!(matches!(queue.next_line(), NextLine::Line(_)));
        assert!(!queue.has_room(), "it is not written yet");
        queue.written(SERVER_QUEUE_BYTES + 1);
        assert!(queue.has_room());
        assert!(queue.send(b"2\n".to_vec()));
        queue.abandon();
        queue.check();
        assert_eq!(queue.next_line(), NextLine::Close);
        assert!(queue.has_room(), "a request may find out that it is over");
    }
}
