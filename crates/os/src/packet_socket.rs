//! Listening sockets with a name in a directory. Over them processes exchange packets and descriptors.
//!
//! This module knows neither what the packets mean nor which peer may send them; the listener checks [`PacketConnection::peer`].
//! No call here blocks.

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

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket. Its name in the directory stays when it is closed; the process that made it removes the name.
#[derive(Debug)]
pub struct PacketListener(OwnedFd);

/// One connection, seen from either side.
#[derive(Debug)]
pub struct PacketConnection(OwnedFd);

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, and perhaps descriptors.
    Bytes(usize),
    /// No packet has arrived yet.
    Nothing,
    /// The other end is closed.
    Gone,
}

impl PacketListener {
    /// Listens under this name in a directory of ours. The name must not exist.
    pub fn open(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let listener = packets()?;
        bind(&listener, &address(directory, name)?)?;
        listen(&listener, BACKLOG)?;
        Ok(Self(listener))
    }

    /// Accepts a connection, if one waits.
    pub fn accept(&self) -> io::Result<Option<PacketConnection>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => Ok(Some(PacketConnection(connection))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl PacketConnection {
    /// Connects to a socket. [`io::ErrorKind::ConnectionRefused`] means that the listening process is dead.
    pub fn connect(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let connection = packets()?;
        connect(&connection, &address(directory, name)?)?;
        Ok(Self(connection))
    }

    /// The pid and uid of the other end, as the kernel saw it when the connection was made.
    pub fn peer(&self) -> io::Result<(i32, u32)> {
        let peer = sockopt::socket_peercred(&self.0)?;
        Ok((peer.pid.as_raw_nonzero().get(), peer.uid.as_raw()))
    }

    /// Sends a packet and copies of at most [`LENT_MAX`] descriptors. All of it arrives at once, or nothing.
    pub fn send(&self, bytes: &[u8], lent: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(LENT_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !lent.is_empty() && !control.push(SendAncillaryMessage::ScmRights(lent)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(bytes)];
        sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Reads a packet and appends the descriptors that came with it to `lent`. Bytes that do not fit into `bytes` are
    /// lost.
    pub fn receive(&self, bytes: &mut [u8], lent: &mut Vec<OwnedFd>) -> Received {
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
            Ok(message) if message.bytes == 0 => Received::Gone,
            Ok(message) => Received::Bytes(message.bytes),
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Gone,
        }
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PacketListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for PacketConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PacketConnection {
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

/// A socket's path may have 108 bytes, and a home directory may be longer. So the path names the directory by its
/// descriptor.
fn address(directory: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}
