//! Questions to the kernel about one socket: netlink `SOCK_DIAG`.
//!
//! The kernel answers while the question is being sent, so nobody ever waits here. Only it (and who administers the whole
//! network namespace) can write into such a socket; an answer is still taken only if it bears the question's number.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `struct nlmsghdr`.
const HEAD: usize = 16;
/// Longer than any answer about one socket.
const ANSWER_BYTES: usize = 4_096;

/// A way to ask.
#[derive(Debug)]
pub(crate) struct Diag {
    socket: OwnedFd,
    asked: Cell<u32>,
}

impl Diag {
    pub(crate) fn open() -> io::Result<Self> {
        let protocol =
            std::num::NonZeroU32::new(libc::NETLINK_SOCK_DIAG as u32).map(Protocol::from_raw);
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            protocol,
        )?;
        Ok(Self {
            socket,
            asked: Cell::new(0),
        })
    }

    /// What the kernel says to a question (without netlink's header, both); `None` if there is no such socket.
    pub(crate) fn ask(&self, question: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        let mut message = Vec::with_capacity(HEAD + question.len());
        message.extend_from_slice(&((HEAD + question.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend_from_slice(&number.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(question);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        let mut bytes = [0u8; ANSWER_BYTES];
        loop {
            let heard = match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, len)) => parse(bytes.get(..len).unwrap_or_default(), number),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            match heard {
                Heard::Body(body) => return Ok(Some(body.to_vec())),
                Heard::Error(libc::ENOENT) => return Ok(None),
                Heard::Error(error) => return Err(io::Error::from_raw_os_error(error)),
                Heard::Broken => return Err(io::ErrorKind::InvalidData.into()),
                Heard::Stale => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard<'a> {
    Body(&'a [u8]),
    Error(i32),
    /// The answer to an earlier question.
    Stale,
    Broken,
}

fn parse(bytes: &[u8], number: u32) -> Heard<'_> {
    let head = (word(bytes, 0), half(bytes, 4), word(bytes, 8));
    let (Some(len), Some(kind), Some(answers)) = head else {
        return Heard::Broken;
    };
    let Some(body) = bytes.get(HEAD..len as usize) else {
        return Heard::Broken;
    };
    if answers != number {
        return Heard::Stale;
    }
    match (i32::from(kind), word(body, 0)) {
        (libc::NLMSG_ERROR, Some(error)) => Heard::Error((error as i32).wrapping_neg()),
        _ if kind == SOCK_DIAG_BY_FAMILY => Heard::Body(body),
        _ => Heard::Broken,
    }
}

/// The number at this place.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// The short number at this place.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, number: u32, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEAD + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&[0; 2]);
        message.extend_from_slice(&number.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(body);
        message
    }

    #[test]
    fn answers_are_read_and_torn_stale_and_strange_ones_are_not() {
        let whole = message(SOCK_DIAG_BY_FAMILY, 7, b"body");
        assert_eq!(parse(&whole, 7), Heard::Body(b"body"));
        assert_eq!(parse(&whole, 8), Heard::Stale);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], 7), Heard::Broken, "{len}");
        }
        let error = message(libc::NLMSG_ERROR as u16, 7, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(parse(&error, 7), Heard::Error(libc::ENOENT));
        let torn = message(libc::NLMSG_ERROR as u16, 7, &[1]);
        assert_eq!(parse(&torn, 7), Heard::Broken);
        let least = message(libc::NLMSG_ERROR as u16, 7, &i32::MIN.to_ne_bytes());
        assert_eq!(parse(&least, 7), Heard::Error(i32::MIN));
        let done = message(libc::NLMSG_DONE as u16, 7, &[0; 4]);
        assert_eq!(parse(&done, 7), Heard::Broken);
        for len in [0, 15, u32::MAX] {
            let mut lies = whole.clone();
            lies[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(parse(&lies, 7), Heard::Broken, "{len}");
        }
    }
}
