//! One `mainstay run` of our own: the pipes to it, the lines from it, its end.
//!
//! This is the client's side of an ordinary link, so a server behind it is contained, started again and answered for as
//! for any other client. Whoever drops or closes it closes its stdin, and the keeper does the rest; if we are killed,
//! the kernel closes it for us. A line that is too long to be held is answered for, not lost.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::rc::Rc;

use mainstay_core::limits::HELD_LINE_BYTES;
use mainstay_core::message::frame::{Id, Kind};
use mainstay_core::message::lines::{Line, Lines};
use mainstay_core::serve::limits::INLET_BYTES;
use mainstay_core::serve::words::{self, Code};
use mainstay_os::child::{self, Piped};
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::bell::Bell;
use super::tasks::Tasks;
use crate::http::registered;

/// How much is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a link says.
#[derive(Debug)]
pub enum Said {
    /// A line, without its newline.
    Line(Vec<u8>),
    /// It has ended, and how.
    Over(String),
}

/// Who listens to a link.
pub type Hear = Box<dyn Fn(Said)>;

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The server's name.
    pub name: String,
    /// Everything behind `mainstay run`.
    pub words: Vec<OsString>,
}

/// A running link.
pub struct Link {
    queue: RefCell<VecDeque<Vec<u8>>>,
    queued: Cell<usize>,
    closing: Cell<bool>,
    bell: Bell,
}

impl Link {
    /// Starts it.
    pub fn open(tasks: &Tasks, spec: &Spec, hear: Hear) -> io::Result<Rc<Self>> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this starts no server but ourselves, who starts servers by os::spawn"
        )]
        let mut command = Command::new("/proc/self/exe");
        command.arg("run").args(&spec.words);
        let Piped {
            child,
            ended,
            to,
            from,
        } = child::piped(command)?;
        let link = Rc::new(Self {
            queue: RefCell::default(),
            queued: Cell::new(0),
            closing: Cell::new(false),
            bell: Bell::default(),
        });
        let to = pipe::Sender::from_owned_fd(to)?;
        let from = pipe::Receiver::from_owned_fd(from)?;
        let ended = registered(ended, Interest::READABLE)?;
        tasks.start(write(Rc::clone(&link), to));
        let heard = Rc::clone(&link);
        tasks.start(async move {
            read(from, &hear).await;
            heard.close();
            // The shim goes last. Its status is only told, so one that cannot be read is no reason to stay.
            let mut child = child;
            let how = match ended.readable().await.and_then(|_| child.wait()) {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            hear(Said::Over(how));
        });
        Ok(link)
    }

    /// Sends a line with its newline. What comes after the closing goes nowhere.
    pub fn send(&self, line: Vec<u8>) {
        if self.closing.get() {
            return;
        }
        self.queued.set(self.queued.get() + line.len());
        self.queue.borrow_mut().push_back(line);
        self.bell.ring();
    }

    /// Waits until there is room for another line: back-pressure is not reading the next body.
    pub async fn room(&self) {
        let free = || (self.queued.get() < INLET_BYTES || self.closing.get()).then_some(());
        self.bell.until(free).await;
    }

    /// Closes its stdin when everything has been written: the client is gone.
    pub fn close(&self) {
        self.closing.set(true);
        self.bell.ring();
    }
}

async fn write(link: Rc<Link>, to: pipe::Sender) {
    loop {
        let next = || {
            let line = link.queue.borrow_mut().pop_front();
            match line {
                Some(line) => Some(Some(line)),
                None => link.closing.get().then_some(None),
            }
        };
        let Some(line) = link.bell.until(next).await else {
            return;
        };
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            if to.writable().await.is_err() {
                return link.close();
            }
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    // It reads no more; its end is told by the reader.
                    link.close();
                    link.queue.borrow_mut().clear();
                    link.queued.set(0);
                    return;
                }
            }
        }
        link.queued
            .set(link.queued.get().saturating_sub(line.len()));
        link.bell.ring();
    }
}

thread_local! {
    /// One room for all links: each empties it before the next one reads.
    static CHUNK: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]);
}

async fn read(from: pipe::Receiver, hear: &Hear) {
    let mut lines = Lines::new(HELD_LINE_BYTES);
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let read = CHUNK.with_borrow_mut(|chunk| {
            let count = from.try_read(chunk)?;
            let mut piece = &chunk[..count];
            while let Some(line) = lines.next(&mut piece) {
                if let Some(line) = whole_or_answer(line) {
                    hear(Said::Line(line));
                }
            }
            Ok::<_, io::Error>(count)
        });
        match read {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// The line, or what is said instead of an answer that is too long; other lines that are too long are dropped.
fn whole_or_answer(line: Line<'_>) -> Option<Vec<u8>> {
    let long = match line {
        Line::Whole(line) => return Some(line.into_owned()),
        Line::TooLong(scanner) => scanner,
    };
    let frame = long.frame();
    match (frame.kind, frame.id) {
        (Kind::Response | Kind::Error, Id::Token(id)) => Some(words::error(
            Some(id),
            Code::Internal,
            "the server's answer is larger than 16 MiB, which is more than can be passed on",
            None,
        )),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(HELD_LINE_BYTES);
        let mut found = Vec::new();
        for mut piece in pieces.iter().copied() {
            while let Some(line) = lines.next(&mut piece) {
                found.extend(whole_or_answer(line));
            }
        }
        found
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let all = b"{\"a\":1}\n\n{\"b\":2}\nrest";
        for cut in 0..all.len() {
            let (one, other) = all.split_at(cut);
            assert_eq!(
                lines(&[one, other]),
                [b"{\"a\":1}".to_vec(), Vec::new(), b"{\"b\":2}".to_vec()]
            );
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_answered_for_and_the_next_line_is_read() {
        let big = vec![b'x'; HELD_LINE_BYTES];
        let found = lines(&[
            br#"{"jsonrpc":"2.0","id":7,"result":""#,
            &big,
            b"\"}\n{\"next\":1}\n",
        ]);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with(br#"{"jsonrpc":"2.0","id":7,"error":"#));
        assert_eq!(found[1], br#"{"next":1}"#);
    }
}
