//! The client's lines, from our stdin.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use mainstay_http_core::bridge::Input;
use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::frame::Id;
use mainstay_protocol::message::lines::{Line, Lines};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A pipe of lines.
pub struct Stdin {
    pipe: pipe::Receiver,
    lines: Lines,
    piece: Box<[u8]>,
    /// What of the piece was read and not looked at.
    unseen: Range<usize>,
}

impl Stdin {
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(fd)?,
            lines: Lines::new(HELD_LINE_BYTES),
            piece: vec![0; PIECE_BYTES].into(),
            unseen: 0..0,
        })
    }

    /// The next line; none at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Input>> {
        loop {
            let mut rest = &self.piece[self.unseen.clone()];
            let line = self.lines.next(&mut rest);
            self.unseen.start = self.unseen.end - rest.len();
            if let Some(line) = line {
                return Poll::Ready(Some(input(line)));
            }
            let mut buffer = ReadBuf::new(&mut self.piece);
            match Pin::new(&mut self.pipe).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.unseen = 0..buffer.filled().len();
                }
                // An error is as good as the end: nothing more will come.
                Poll::Ready(_) => return Poll::Ready(self.lines.finish().map(input)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn input(line: Line<'_>) -> Input {
    let long = match line {
        Line::Whole(line) => return Input::Line(line.into_owned()),
        Line::TooLong(scanner) => scanner,
    };
    let frame = long.frame();
    let id = match frame.id {
        Id::Token(token) => Some(token.to_vec()),
        Id::Absent | Id::Null | Id::TooLong => None,
    };
    let method = frame.method.map(Into::into).unwrap_or_default();
    Input::LongLine(id, method)
}
