//! Messages from the kernel that a process has executed another program, or has ended: the netlink proc connector.
//!
//! It is a wake-up, never the truth. Messages are lost if they are not read in time; that is reported, and then the
//! caller reads the whole table. It is not available everywhere: not in another network, user or pid namespace, and
//! on older kernels for root only. It reports pids of the machine, which is why the kernel serves only the initial
//! pid namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mainstay_protocol::event::Status;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::tree::status_of;

/// `CN_IDX_PROC` and `CN_VAL_PROC`.
const PROC: u32 = 1;
const LISTEN: u32 = 1;
const NONE: u32 = 0;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;
/// `struct nlmsghdr`, then `struct cn_msg`.
const HEAD: usize = 16 + 20;
/// `what`, `cpu` and the time in front of each event.
const FACTS: usize = 16;
/// As much as an unprivileged process may ask for on most machines; root gets more.
const BUFFER_BYTES: libc::c_int = 1024 * 1024;

/// What the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// This process runs another program now.
    Exec(i32),
    /// This process has ended.
    Exit {
        /// Which.
        pid: i32,
        /// How.
        status: Status,
    },
    /// Messages were lost: only reading the whole table helps.
    Overrun,
}

/// An open connector.
#[derive(Debug)]
pub struct Connector {
    socket: OwnedFd,
}

impl Connector {
    /// Starts to listen; the error says why that is impossible.
    pub fn open() -> io::Result<Self> {
        let protocol = std::num::NonZeroU32::new(libc::NETLINK_CONNECTOR as u32)
            .map(rustix::net::Protocol::from_raw);
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            protocol,
        )?;
        bind(&socket)?;
        enlarge(&socket);
        let connector = Self { socket };
        // Newer kernels (6.6) accept the wanted kinds and send no others; older ones do not answer that at all.
        for request in [&[LISTEN, EXEC | EXIT][..], &[LISTEN]] {
            connector.ask(request)?;
            if let Some(result) = connector.answer()? {
                return result.map(|()| connector);
            }
        }
        // The kernel is silent towards other user and pid namespaces.
        Err(io::Error::from_raw_os_error(libc::ECONNREFUSED))
    }

    /// All messages since the last call.
    pub fn read(&self, into: &mut Vec<ProcessEvent>) -> io::Result<()> {
        let mut bytes = [0u8; 4096];
        loop {
            match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, len)) => into.extend(parse(&bytes[..len.min(4096)])),
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::NOBUFS) => into.push(ProcessEvent::Overrun),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&self, words: &[u32]) -> io::Result<()> {
        let body = words.len() * 4;
        let mut message = Vec::with_capacity(HEAD + body);
        message.extend_from_slice(&((HEAD + body) as u32).to_ne_bytes());
        message.extend_from_slice(&(libc::NLMSG_DONE as u16).to_ne_bytes());
        message.extend_from_slice(&[0; 10]);
        for word in [PROC, PROC, 0, 0] {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        message.extend_from_slice(&(body as u16).to_ne_bytes());
        message.extend_from_slice(&[0; 2]);
        for word in words {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// The kernel's answer to a request: it is there when the request has been sent, or never comes.
    fn answer(&self) -> io::Result<Option<io::Result<()>>> {
        let mut bytes = [0u8; 4096];
        loop {
            match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, len)) => {
                    let event = bytes.get(HEAD..len).unwrap_or_default();
                    if word(event, 0) == Some(NONE) {
                        let error = word(event, FACTS).unwrap_or(0) as i32;
                        return Ok(Some(match error {
                            0 => Ok(()),
                            error => Err(io::Error::from_raw_os_error(error)),
                        }));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: all-zero is a valid address of this family; its length is its own.
    let bound = unsafe {
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = PROC;
        libc::bind(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A buffer for a burst of messages. Root may go beyond the machine's limit; other users get the limit.
fn enlarge(socket: &OwnedFd) {
    let bytes = BUFFER_BYTES;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // SAFETY: the option takes an int, whose address and size are given.
        unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(socket),
                libc::SOL_SOCKET,
                option,
                (&raw const bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
}

/// The event in one message, if it is one that we want. Events of a thread that is not its process's first are
/// neither a start nor an end of a process.
fn parse(message: &[u8]) -> Option<ProcessEvent> {
    if word(message, 16)? != PROC {
        return None;
    }
    let event = message.get(HEAD..)?;
    let (thread, process) = (word(event, FACTS)? as i32, word(event, FACTS + 4)? as i32);
    match word(event, 0)? {
        // A thread that executes another program becomes its process's first and only one.
        EXEC => Some(ProcessEvent::Exec(process)),
        EXIT if thread == process => Some(ProcessEvent::Exit {
            pid: process,
            status: status_of(word(event, FACTS + 8)? as i32),
        }),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, words: &[u32]) -> Vec<u8> {
        let mut message = vec![0; HEAD];
        message[16..20].copy_from_slice(&PROC.to_ne_bytes());
        message.extend_from_slice(&what.to_ne_bytes());
        message.extend_from_slice(&[0; FACTS - 4]);
        for word in words {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        message
    }

    #[test]
    fn messages_are_parsed_and_torn_ones_are_not() {
        let exec = message(EXEC, &[8, 7]);
        assert_eq!(parse(&exec), Some(ProcessEvent::Exec(7)));
        let exit = message(EXIT, &[7, 7, 15, 17]);
        let status = Status::Signal {
            number: 15,
            core: false,
        };
        assert_eq!(parse(&exit), Some(ProcessEvent::Exit { pid: 7, status }));
        assert_eq!(parse(&message(EXIT, &[8, 7, 0, 17])), None, "a thread");
        assert_eq!(parse(&message(1, &[8, 7])), None, "a fork");
        for len in 0..exit.len() - 4 {
            assert_eq!(parse(&exit[..len]), None, "{len}");
        }
    }

    /// If the kernel serves us, a program that runs and ends is reported; if not, opening fails at once.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that runs and ends")]
    fn program_that_runs_and_ends_is_reported_or_open_is_refused() {
        let _lock = crate::child_lock::with_children();
        let connector = match Connector::open() {
            Ok(connector) => connector,
            Err(error) => {
                assert!(error.raw_os_error().is_some(), "{error}");
                return;
            }
        };
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exit 7"])
            .spawn()
            .unwrap();
        child.wait().unwrap();
        let pid = child.id() as i32;
        let mut told = Vec::new();
        connector.read(&mut told).unwrap();
        if told.contains(&ProcessEvent::Overrun) {
            return;
        }
        let status = Status::Code(7);
        assert!(told.contains(&ProcessEvent::Exec(pid)), "{told:?}");
        assert!(
            told.contains(&ProcessEvent::Exit { pid, status }),
            "{told:?}"
        );
    }
}
