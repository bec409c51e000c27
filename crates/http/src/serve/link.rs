//! One `mainstay run` of our own: the pipes to it, and its end.
//!
//! This is the client's side of an ordinary link, so a server behind it is contained, started again and answered for as
//! for any other client. When nothing more is to be written its stdin is closed, and the keeper does the rest; if we are
//! killed, the kernel closes it for us.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::rc::Rc;

use mainstay_http_core::serve::server_queue::NextLine;
use mainstay_os::child::{self, Piped};
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::bell::Bell;
use super::front::Front;
use crate::descriptor::registered;

/// How much is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The server's name.
    pub name: String,
    /// Everything behind `mainstay run`.
    pub words: Vec<OsString>,
}

/// Starts a link. The bell is rung when there is something to write.
pub fn open(front: &Rc<Front>, link: u64, spec: &Spec) -> io::Result<Rc<Bell>> {
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
    let to = pipe::Sender::from_owned_fd(to)?;
    let from = pipe::Receiver::from_owned_fd(from)?;
    let ended = registered(ended, Interest::READABLE)?;
    let bell: Rc<Bell> = Rc::default();
    front
        .tasks
        .start(write(Rc::clone(front), link, Rc::clone(&bell), to));
    let front_of_reader = Rc::clone(front);
    front.tasks.start(async move {
        let front = front_of_reader;
        read(&front, link, from).await;
        front.with(|core, _| core.unwritable(link));
        // The shim exits last. Its status is only reported, so an unreadable one is no reason to wait.
        let mut child = child;
        let how = match ended.readable().await.and_then(|_| child.wait()) {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        front.end_link(link, &how);
    });
    Ok(bell)
}

async fn write(front: Rc<Front>, link: u64, bell: Rc<Bell>, to: pipe::Sender) {
    loop {
        let next = || match front.next_line(link) {
            NextLine::Line(line) => Some(Some(line)),
            NextLine::Nothing => None,
            NextLine::Close => Some(None),
        };
        let Some(line) = bell.until(next).await else {
            return;
        };
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let written = match to.writable().await {
                Ok(()) => to.try_write(rest),
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It reads no more. The reader task reports its end.
                Err(_) => return front.with(|core, _| core.unwritable(link)),
            }
        }
        front.with(|core, _| core.written(link, line.len()));
    }
}

thread_local! {
    /// One room for all links: each empties it before the next one reads.
    static CHUNK: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]);
}

async fn read(front: &Rc<Front>, link: u64, from: pipe::Receiver) {
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let read = CHUNK.with_borrow_mut(|chunk| {
            let count = from.try_read(chunk)?;
            front.with(|core, now| core.server_bytes(now, link, &chunk[..count]));
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
