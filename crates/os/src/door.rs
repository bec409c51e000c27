//! A named place where one process waits for others and is handed descriptors: packets over a socket in a directory.
//!
//! It knows neither what is said nor who may say it; whoever opens a door asks [`Visit::peer`]. Nothing here waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};

use crate::channel::LENT_MAX;

/// How many may wait to be let in.
const BACKLOG: i32 = 16;

/// The place itself. Its name in the directory is left behind; whoever made it removes it.
#[derive(Debug)]
pub struct Door(OwnedFd);

/// One connection, seen from either side.
#[derive(Debug)]
pub struct Visit(OwnedFd);

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// This many bytes, and perhaps descriptors.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// Nobody is on the other end.
    Gone,
}

impl Door {
    /// Opens a door in a directory of ours; there must be none of that name.
    pub fn open(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let door = packets()?;
        bind(&door, &address(directory, name)?)?;
        listen(&door, BACKLOG)?;
        Ok(Self(door))
    }

    /// Lets one in, if one waits.
    pub fn admit(&self) -> io::Result<Option<Visit>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(visit) => Ok(Some(Visit(visit))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Visit {
    /// Knocks at a door. [`io::ErrorKind::ConnectionRefused`]: whoever opened it is dead.
    pub fn at(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let visit = packets()?;
        connect(&visit, &address(directory, name)?)?;
        Ok(Self(visit))
    }

    /// Who is on the other end, as the kernel saw it when the connection was made: pid and uid.
    pub fn peer(&self) -> io::Result<(i32, u32)> {
        let peer = sockopt::socket_peercred(&self.0)?;
        Ok((peer.pid.as_raw_nonzero().get(), peer.uid.as_raw()))
    }

    /// Says something, and hands over copies of descriptors, [`LENT_MAX`] at most. All of it arrives at once, or nothing.
    pub fn say(&self, bytes: &[u8], lent: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(LENT_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !lent.is_empty() && !control.push(SendAncillaryMessage::ScmRights(lent)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(bytes)];
        sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Hears something; descriptors that came with it are added to `lent`. More than fits into `bytes` is lost.
    pub fn hear(&self, bytes: &mut [u8], lent: &mut Vec<OwnedFd>) -> Said {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(LENT_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(bytes)], &mut control, flags);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                lent.extend(fds);
            }
        }
        match got {
            Ok(message) if message.bytes == 0 => Said::Gone,
            Ok(message) => Said::Bytes(message.bytes),
            Err(Errno::AGAIN | Errno::INTR) => Said::Nothing,
            Err(_) => Said::Gone,
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Door {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Visit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Visit {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn packets() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// A socket's name may have 108 bytes, a home directory more: the directory is named by its descriptor.
fn address(directory: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}
