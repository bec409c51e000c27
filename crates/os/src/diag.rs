//! Asks the kernel about one socket: netlink `SOCK_DIAG`.
//!
//! The kernel answers while the question is being sent, so reading never blocks. Only the kernel, and a process that
//! administers the whole network namespace, can write into such a socket. Still, an answer is used only if it carries
//! the question's number.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The size of `struct nlmsghdr`.
const HEAD: usize = 16;
/// Longer than any answer about one socket.
const ANSWER_BYTES: usize = 4_096;

/// An open netlink socket.
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

    /// Sends a question and returns the kernel's answer, both without netlink's header; `None` if there is no such
    /// socket.
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
            let answer = match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, len)) => parse(bytes.get(..len).unwrap_or_default(), number),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            match answer {
                Answer::Body(body) => return Ok(Some(body.to_vec())),
                Answer::Error(libc::ENOENT) => return Ok(None),
                Answer::Error(error) => return Err(io::Error::from_raw_os_error(error)),
                Answer::Broken => return Err(io::ErrorKind::InvalidData.into()),
                Answer::Stale => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer<'a> {
    Body(&'a [u8]),
    Error(i32),
    /// The answer to an earlier question.
    Stale,
    Broken,
}

fn parse(bytes: &[u8], number: u32) -> Answer<'_> {
    let head = (u32_at(bytes, 0), u16_at(bytes, 4), u32_at(bytes, 8));
    let (Some(len), Some(kind), Some(answers)) = head else {
        return Answer::Broken;
    };
    let Some(body) = bytes.get(HEAD..len as usize) else {
        return Answer::Broken;
    };
    if answers != number {
        return Answer::Stale;
    }
    match (i32::from(kind), u32_at(body, 0)) {
        (libc::NLMSG_ERROR, Some(error)) => Answer::Error((error as i32).wrapping_neg()),
        _ if kind == SOCK_DIAG_BY_FAMILY => Answer::Body(body),
        _ => Answer::Broken,
    }
}

/// The `u32` at this offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

/// The `u16` at this offset.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
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
    fn answers_are_parsed_and_torn_or_stale_ones_are_not() {
        let whole = message(SOCK_DIAG_BY_FAMILY, 7, b"body");
        assert_eq!(parse(&whole, 7), Answer::Body(b"body"));
        assert_eq!(parse(&whole, 8), Answer::Stale);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], 7), Answer::Broken, "{len}");
        }
        let error = message(libc::NLMSG_ERROR as u16, 7, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(parse(&error, 7), Answer::Error(libc::ENOENT));
        let torn = message(libc::NLMSG_ERROR as u16, 7, &[1]);
        assert_eq!(parse(&torn, 7), Answer::Broken);
        let least = message(libc::NLMSG_ERROR as u16, 7, &i32::MIN.to_ne_bytes());
        assert_eq!(parse(&least, 7), Answer::Error(i32::MIN));
        let done = message(libc::NLMSG_DONE as u16, 7, &[0; 4]);
        assert_eq!(parse(&done, 7), Answer::Broken);
        for len in [0, 15, u32::MAX] {
            let mut lies = whole.clone();
            lies[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(parse(&lies, 7), Answer::Broken, "{len}");
        }
    }
}
