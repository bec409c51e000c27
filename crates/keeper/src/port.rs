//! A descriptor that is read or written without ever waiting, whatever it is: pipe, socket, terminal or file.
//!
//! The client's descriptors may be shared with its other children, so their flags are not ours to change: a pipe or
//! terminal is opened anew through `/proc/self/fd`, a socket is asked not to wait call by call. A regular file and
//! `/dev/null` are always ready.
//!
//! What we write to is watched only while it is full: else each read on its other end would wake us for nothing.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;

use mainstay_protocol::limits::WHOLE_LINE_BYTES;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use super::ready::Ready;

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// We read.
    In,
    /// We write.
    Out,
}

/// The descriptor.
#[derive(Debug)]
pub struct Port {
    kind: Kind,
    /// There may be bytes that no event has told of yet.
    untold: Cell<bool>,
    /// A read that brings less than it could has emptied it. A terminal gives a line at a time, a socket of packets a packet.
    stream: bool,
    /// How wide the pipe is.
    width: Cell<Width>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// As its owner wants it, or no pipe.
    Fixed,
    /// As the kernel makes it; it may be widened.
    Usual,
    /// Widened for large messages.
    Wide,
}

/// What a pipe holds as the kernel makes it, and what it holds while large messages pass: as much as a turn of ours moves.
/// More would only leave the cache before it is read. All pipes of a user share one budget (64 MB), so a pipe is wide only
/// while it is needed.
const USUAL_BYTES: usize = 64 * 1024;
const WIDE_BYTES: usize = 2 * WHOLE_LINE_BYTES;

#[derive(Debug)]
enum Kind {
    Stream(Ready<OwnedFd>),
    Socket(Ready<OwnedFd>),
    Ready(OwnedFd),
    Sink(Sink),
}

/// What we write to.
#[derive(Debug)]
struct Sink {
    fd: OwnedFd,
    socket: bool,
    /// There was no room lately.
    full: RefCell<Option<PortWatch>>,
    /// Tells when no reader is left; only of a pipe that we made.
    lost: Option<Ready<OwnedFd>>,
}

/// Tells when there is room again.
#[derive(Debug)]
struct PortWatch {
    /// A copy of the descriptor: what is watched is watched for as long as it lives.
    fd: Ready<OwnedFd>,
    /// There was none when it was last written to.
    full: bool,
    /// How many writes have found room since.
    calm: u32,
}

/// After this number of writes that found room, the port is no longer watched for room.
const CALM: u32 = 16;

impl Sink {
    fn over(fd: OwnedFd, socket: bool) -> Self {
        Self {
            fd,
            socket,
            full: RefCell::new(None),
            lost: None,
        }
    }
}

impl Port {
    /// One of the client's descriptors; the original stays as it is.
    pub fn of_client(fd: BorrowedFd<'_>, way: Direction) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
        if kind == FileType::Socket {
            let own = fd.try_clone_to_owned()?;
            return match way {
                Direction::In => Ok(Self {
                    stream: socket_type(&own)? == SocketType::STREAM,
                    ..Self::source(own, Kind::Socket)?
                }),
                Direction::Out => Ok(Self::sink(own, true)),
            };
        }
        if kind == FileType::RegularFile {
            return Ok(Self::new(Kind::Ready(fd.try_clone_to_owned()?)));
        }
        let access = if way == Direction::In {
            OFlags::RDONLY
        } else {
            OFlags::WRONLY
        };
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let own = if let Ok(own) = open(path, flags, Mode::empty()) {
            own
        } else {
            // A pipe of another user, or no /proc: then the flag is set on the shared description.
            let own = fd.try_clone_to_owned()?;
            let flags = rustix::fs::fcntl_getfl(&own)?;
            rustix::fs::fcntl_setfl(&own, flags | OFlags::NONBLOCK)?;
            own
        };
        match way {
            Direction::In => Ok(Self {
                stream: kind == FileType::Fifo,
                ..Self::source(own, Kind::Stream)?
            }),
            Direction::Out => {
                let port = Self::sink(own, false);
                // A size that its owner has chosen stays; a descriptor that is no pipe has none.
                if fcntl_getpipe_size(&port).is_ok_and(|bytes| bytes == USUAL_BYTES) {
                    port.width.set(Width::Usual);
                }
                Ok(port)
            }
        }
    }

    /// One end of a pipe that we made; it is non-blocking already.
    pub fn of_ours(fd: OwnedFd, way: Direction) -> io::Result<Self> {
        let port = match way {
            Direction::In => Self::source(fd, Kind::Stream)?,
            Direction::Out => {
                let lost = Ready::to_lose(fd.try_clone()?)?;
                Self::new(Kind::Sink(Sink {
                    lost: Some(lost),
                    ..Sink::over(fd, false)
                }))
            }
        };
        port.width.set(Width::Usual);
        Ok(port)
    }

    /// Large messages pass: a wider pipe gives its writer fewer and longer turns. True if it holds more now.
    pub fn widen(&self) -> bool {
        if self.width.get() != Width::Usual {
            return false;
        }
        // Refused if the user's pipes hold too much already: then it stays as it is, and is not asked again.
        self.width.set(Width::Wide);
        fcntl_setpipe_size(self, WIDE_BYTES).is_ok()
    }

    /// They have passed. A pipe that holds too much for it stays wide until the next time.
    pub fn narrow(&self) {
        if self.width.get() == Width::Wide && fcntl_setpipe_size(self, USUAL_BYTES).is_ok() {
            self.width.set(Width::Usual);
        }
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            untold: Cell::new(false),
            stream: true,
            width: Cell::new(Width::Fixed),
        }
    }

    fn source(fd: OwnedFd, kind: fn(Ready<OwnedFd>) -> Kind) -> io::Result<Self> {
        let spare = fd.try_clone()?;
        match Ready::to_read(fd) {
            Ok(fd) => Ok(Self::new(kind(fd))),
            // epoll refuses what is always ready, such as /dev/null.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Ok(Self::new(Kind::Ready(spare)))
            }
            Err(error) => Err(error),
        }
    }

    fn sink(fd: OwnedFd, socket: bool) -> Self {
        Self::new(Kind::Sink(Sink::over(fd, socket)))
    }

    /// Reads some bytes; 0 is the end. A terminal that was hung up has ended, too.
    pub fn poll_read(&self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let (fd, socket) = match &self.kind {
            Kind::Ready(fd) | Kind::Sink(Sink { fd, .. }) => {
                return Poll::Ready(Ok(rustix::io::read(fd, buffer)?));
            }
            Kind::Stream(fd) => (fd, false),
            Kind::Socket(fd) => (fd, true),
        };
        let room = buffer.len();
        let mut read = || {
            if socket {
                recv(fd.get_ref(), &mut *buffer, RecvFlags::DONTWAIT).map(|(len, _)| len)
            } else {
                rustix::io::read(fd.get_ref(), &mut *buffer)
            }
        };
        if self.untold.get() {
            match read() {
                Ok(len) if len > 0 => return Poll::Ready(Ok(len)),
                Ok(_) | Err(_) => self.untold.set(false),
            }
        }
        while fd.is_ready() {
            match read() {
                Ok(len) => {
                    // A short read has emptied it: the next byte brings a new event, so the vain read is saved.
                    if self.stream && len > 0 && len < room {
                        fd.taken();
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(Errno::AGAIN) => fd.in_vain(),
                Err(Errno::INTR) => {}
                Err(Errno::IO | Errno::CONNRESET) => return Poll::Ready(Ok(0)),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Pending
    }

    /// Whether a read may bring something.
    pub fn readable(&self) -> bool {
        match &self.kind {
            Kind::Ready(_) | Kind::Sink(_) => true,
            Kind::Stream(fd) | Kind::Socket(fd) => self.untold.get() || fd.is_ready(),
        }
    }

    /// There may be bytes, whether an event has told of them yet or not: the process that wrote here is dead, or may have written before
    /// the first look at the events.
    pub fn look_again(&self) {
        self.untold.set(true);
    }

    /// Whether no process is left that could write: told also while there are bytes for which the reader has no room.
    pub fn hung_up(&self) -> bool {
        match &self.kind {
            Kind::Stream(fd) | Kind::Socket(fd) => fd.is_closed(),
            Kind::Ready(_) | Kind::Sink(_) => false,
        }
    }

    /// Whether what was written here is there still and no reader is left.
    pub fn left_unread(&self) -> bool {
        match &self.kind {
            Kind::Sink(sink) => {
                sink.lost.as_ref().is_some_and(Ready::is_ready)
                    && rustix::io::ioctl_fionread(&sink.fd).is_ok_and(|bytes| bytes > 0)
            }
            Kind::Ready(_) | Kind::Stream(_) | Kind::Socket(_) => false,
        }
    }

    /// Writes some bytes.
    pub fn poll_write(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Sink {
            fd, socket, full, ..
        } = match &self.kind {
            Kind::Sink(sink) => sink,
            Kind::Ready(fd) => return Poll::Ready(Ok(rustix::io::write(fd, bytes)?)),
            Kind::Stream(fd) | Kind::Socket(fd) => {
                return Poll::Ready(Ok(rustix::io::write(fd.get_ref(), bytes)?));
            }
        };
        let mut full = full.borrow_mut();
        // It was full at the last write. A write before the event of room would fail.
        if let Some(watch) = &*full
            && watch.full
            && !watch.fd.is_ready()
        {
            return Poll::Pending;
        }
        loop {
            let put = if *socket {
                send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                rustix::io::write(fd, bytes)
            };
            match put {
                Ok(len) if len == bytes.len() => {
                    if let Some(watch) = &mut *full {
                        watch.full = false;
                        watch.calm += 1;
                        if watch.calm > CALM {
                            *full = None;
                        }
                    }
                    return Poll::Ready(Ok(len));
                }
                Ok(len) if bytes.len() >= USUAL_BYTES / 2 && self.widen() => {
                    return Poll::Ready(Ok(len));
                }
                Ok(len) => {
                    // A short write has filled it. The next write would fail, and room brings a new event.
                    watched(&mut full, fd)?.taken();
                    return Poll::Ready(Ok(len));
                }
                Err(Errno::AGAIN) if bytes.len() >= USUAL_BYTES / 2 && self.widen() => {}
                Err(Errno::AGAIN) => {
                    watched(&mut full, fd)?.in_vain();
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

/// Notes that it is full, and watches for room.
fn watched<'w>(full: &'w mut Option<PortWatch>, fd: &OwnedFd) -> io::Result<&'w Ready<OwnedFd>> {
    let fd = match full.take() {
        Some(watch) => watch.fd,
        // If there is room by now, it tells so at once.
        None => Ready::to_write(fd.try_clone()?)?,
    };
    let watch = full.insert(PortWatch {
        fd,
        full: true,
        calm: 0,
    });
    Ok(&watch.fd)
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Stream(fd) | Kind::Socket(fd) => fd.get_ref().as_fd(),
            Kind::Ready(fd) | Kind::Sink(Sink { fd, .. }) => fd.as_fd(),
        }
    }
}
