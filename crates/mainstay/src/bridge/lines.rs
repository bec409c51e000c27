//! The client's lines, from our stdin.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use mainstay_core::http::bridge::Input;
use mainstay_core::limits::HELD_LINE_BYTES;
use mainstay_core::message::frame::{Fed, Id, Scanner};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A pipe of lines.
pub struct Lines {
    pipe: pipe::Receiver,
    line: Vec<u8>,
    /// A line that is too long is looked at in passing.
    passing: Option<Box<Scanner>>,
    ready: VecDeque<Input>,
    ended: bool,
    piece: Box<[u8]>,
}

impl Lines {
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(fd)?,
            line: Vec::new(),
            passing: None,
            ready: VecDeque::new(),
            ended: false,
            piece: vec![0; PIECE_BYTES].into(),
        })
    }

    /// The next line; none at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        loop {
            if let Some(input) = self.ready.pop_front() {
                return Poll::Ready(Some(input));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let mut piece = std::mem::take(&mut self.piece);
            let mut buffer = ReadBuf::new(&mut piece);
            let read = Pin::new(&mut self.pipe).poll_read(cx, &mut buffer);
            let length = buffer.filled().len();
            match read {
                Poll::Ready(Ok(())) if length > 0 => self.take(&piece[..length]),
                // An error is as good as the end: nothing more will come.
                Poll::Ready(_) => {
                    self.ended = true;
                    let line = std::mem::take(&mut self.line);
                    if !line.is_empty() {
                        self.ready.push_back(Input::Line(line));
                    }
                }
                Poll::Pending => {
                    self.piece = piece;
                    return Poll::Pending;
                }
            }
            self.piece = piece;
        }
    }

    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            if let Some(scanner) = &mut self.passing {
                match scanner.feed(piece) {
                    Fed::Line { used } => {
                        piece = &piece[used..];
                        let frame = scanner.frame();
                        let id = match frame.id {
                            Id::Token(token) => Some(token.to_vec()),
                            Id::Absent | Id::Null | Id::TooLong => None,
                        };
                        let method = frame.method.map(Into::into).unwrap_or_default();
                        self.ready.push_back(Input::LongLine(id, method));
                        self.passing = None;
                    }
                    Fed::Partial => return,
                }
                continue;
            }
            let end = piece.iter().position(|&byte| byte == b'\n');
            let (part, rest) = match end {
                Some(end) => (&piece[..end], &piece[end + 1..]),
                None => (piece, &piece[piece.len()..]),
            };
            if self.line.len() + part.len() > HELD_LINE_BYTES {
                let mut scanner = Box::new(Scanner::new());
                scanner.feed(&std::mem::take(&mut self.line));
                self.passing = Some(scanner);
                continue;
            }
            self.line.extend_from_slice(part);
            if end.is_some() {
                self.ready
                    .push_back(Input::Line(std::mem::take(&mut self.line)));
            }
            piece = rest;
        }
    }
}
