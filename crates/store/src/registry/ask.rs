//! Asking a keeper over its control socket: blocking, with a time-out.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mainstay_report::plain;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::control::{ANSWER_BYTES, Answer, Garbled, REQUEST_BYTES, Request};
use super::entry::socket_path;
use crate::state::Location;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// No process listens.
    Dead,
    /// A process listens and does not answer.
    Stuck {
        /// How long we waited.
        ms: u64,
    },
    /// Something answered that we do not trust or understand.
    Strange(String),
}

/// Asks the keeper of a link, by the link's directory, and waits for its answer.
pub fn ask(directory: &Location, request: &Request, timeout_ms: u64) -> Result<Answer, NoAnswer> {
    Asked::send(directory, request, timeout_ms)?.answer()
}

/// A request that was sent. Several can be sent before the first answer is read.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
    timeout_ms: u64,
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Asked {
    /// Sends the question.
    pub fn send(
        directory: &Location,
        request: &Request,
        timeout_ms: u64,
    ) -> Result<Self, NoAnswer> {
        let trouble = |error: io::Error| trouble(&error, timeout_ms);
        let mut stream = reach(directory, timeout_ms).map_err(trouble)?;
        if !same_user(&stream) {
            return Err(NoAnswer::Strange(
                "the control socket belongs to another user".into(),
            ));
        }
        stream.write_all(&request.line()).map_err(trouble)?;
        Ok(Self { stream, timeout_ms })
    }

    /// Waits for the first line of a streamed answer. Returns the stream, without a time-out, and what was read. A shared
    /// buffer would lose what came with the first line.
    pub fn stream(mut self) -> Result<(UnixStream, Vec<u8>), NoAnswer> {
        let trouble = |error: io::Error| trouble(&error, self.timeout_ms);
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") && line.len() < REQUEST_BYTES {
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(NoAnswer::Dead),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(trouble(error)),
            }
        }
        set_socket_timeout(&self.stream, Timeout::Recv, None)
            .map_err(|error| trouble(error.into()))?;
        Ok((self.stream, line))
    }

    /// How long the answer may take.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// Waits for the answer.
    pub fn answer(mut self) -> Result<Answer, NoAnswer> {
        let mut line = Vec::new();
        read_line(&mut self.stream, &mut line).map_err(|error| trouble(&error, self.timeout_ms))?;
        if line.is_empty() {
            // It closed without an answer: it died, or it is exiting.
            return Err(NoAnswer::Dead);
        }
        Answer::parse(&line).map_err(|Garbled(reason)| NoAnswer::Strange(reason))
    }
}

/// Whether the other end of a socket is a process of our own user.
pub fn same_user(socket: &impl AsFd) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn reach(directory: &Location, timeout_ms: u64) -> io::Result<UnixStream> {
    let directory = directory.open()?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // A zero would mean "for ever".
    let timeout = Some(Duration::from_millis(timeout_ms.max(1)));
    set_socket_timeout(&socket, Timeout::Send, timeout)?;
    set_socket_timeout(&socket, Timeout::Recv, timeout)?;
    connect(&socket, &SocketAddrUnix::new(socket_path(&directory))?)?;
    Ok(socket.into())
}

fn read_line(stream: &mut UnixStream, line: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0u8; 4096];
    while !line.ends_with(b"\n") && line.len() < ANSWER_BYTES {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => line.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn trouble(error: &io::Error, timeout_ms: u64) -> NoAnswer {
    if matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ) {
        return NoAnswer::Stuck { ms: timeout_ms };
    }
    if matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
    ) {
        return NoAnswer::Dead;
    }
    NoAnswer::Strange(plain(error))
}

#[cfg(test)]
mod tests {
    //! guards: Only processes of the same user may use a control socket.

    use super::*;
    use crate::registry::entry::Entry;
    use crate::scratch::Scratch;
    use mainstay_protocol::ids::LinkId;

    fn entry(scratch: &Scratch) -> Entry {
        Entry::create(&scratch.paths(), LinkId(7)).unwrap()
    }

    #[test]
    fn a_question_is_answered() {
        let scratch = Scratch::new();
        let entry = entry(&scratch);
        let listener = entry.listen().unwrap();
        listener.set_nonblocking(false).unwrap();
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(same_user(&stream));
                let mut line = Vec::new();
                read_line(&mut stream, &mut line).unwrap();
                assert_eq!(Request::parse(&line), Ok(Request::Stop));
                let stopped = Answer::Stopped {
                    ended: 2,
                    left: Vec::new(),
                };
                stream.write_all(&stopped.line()).unwrap();
            });
            ask(entry.path(), &Request::Stop, 60_000)
        });
        assert_eq!(
            answer,
            Ok(Answer::Stopped {
                ended: 2,
                left: Vec::new()
            })
        );
    }

    #[test]
    fn another_user_is_recognised() {
        use rustix::process::{Uid, geteuid};
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = format!("mainstay-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let (mine, _peer) = {
            let peer = UnixStream::connect_addr(&address).unwrap();
            (listener.accept().unwrap().0, peer)
        };
        assert!(same_user(&mine));
        if !geteuid().is_root() {
            // Only root can become another user.
            return;
        }
        let other = std::thread::scope(|scope| {
            let connected = scope.spawn(|| {
                let other = Some(Uid::from_raw(65_534));
                // Of this thread alone.
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
                UnixStream::connect_addr(&address).unwrap()
            });
            connected.join().unwrap()
        });
        assert!(!same_user(&listener.accept().unwrap().0));
        drop(other);
    }

    #[test]
    fn dead_silent_and_foreign_listeners_give_different_errors() {
        let scratch = Scratch::new();
        let entry = entry(&scratch);
        assert_eq!(
            ask(entry.path(), &Request::Status, 60_000),
            Err(NoAnswer::Dead)
        );
        let listener = entry.listen().unwrap();
        // It listens, and never accepts.
        assert_eq!(
            ask(entry.path(), &Request::Status, 1),
            Err(NoAnswer::Stuck { ms: 1 })
        );
        drop(listener);
        // The socket's file is there, its owner is not.
        assert_eq!(
            ask(entry.path(), &Request::Status, 60_000),
            Err(NoAnswer::Dead)
        );
        let listener = entry.listen().unwrap();
        listener.set_nonblocking(false).unwrap();
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = Vec::new();
                read_line(&mut stream, &mut line).unwrap();
                stream.write_all(b"hello\n").unwrap();
            });
            ask(entry.path(), &Request::Status, 60_000)
        });
        assert!(matches!(answer, Err(NoAnswer::Strange(_))), "{answer:?}");
    }
}
