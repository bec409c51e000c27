//! The part of D-Bus that is needed to ask a systemd user manager for a unit: one connection, calls in order, signals
//! kept while waiting for an answer.
//!
//! It knows the wire format and nothing about units. Everything is bounded by a deadline, and a peer of another user
//! is refused. It writes little-endian messages only, and reads both byte orders.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use mainstay_protocol::clock::Moment;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock;
use crate::tier::cgroup::timespec;

mod wire;

pub use wire::{Args, Body, Value};

/// Bytes of the largest message that is read.
const MESSAGE_MAX: usize = 1024 * 1024;
/// Signals that are kept while an answer is awaited.
const SIGNALS_MAX: usize = 256;

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A manager's own socket: no bus in between, no names.
    Direct(PathBuf),
    /// A message bus, by path.
    Bus(PathBuf),
    /// A message bus, by abstract name.
    Abstract(Vec<u8>),
}

impl Address {
    /// Reads the value of `DBUS_SESSION_BUS_ADDRESS`: the first unix address in it.
    pub fn parse(text: &str) -> Option<Self> {
        text.split(';').find_map(|address| {
            let pairs = address.strip_prefix("unix:")?;
            pairs.split(',').find_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                let value = unescape(value)?;
                match key {
                    "path" => Some(Self::Bus(PathBuf::from(String::from_utf8(value).ok()?))),
                    "abstract" => Some(Self::Abstract(value)),
                    _ => None,
                }
            })
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(path) | Self::Bus(path) => path.display().fmt(f),
            Self::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// Why a call had no usable answer.
#[derive(Debug)]
pub enum Error {
    /// The connection failed or the time was up.
    Io(io::Error),
    /// The peer violates the protocol.
    Protocol(&'static str),
    /// The peer answered with an error.
    Refused {
        /// The error's name, like `org.freedesktop.systemd1.UnitExists`.
        name: String,
        /// The error's text.
        text: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                f.write_str("it did not answer in time")
            }
            Self::Io(error) => error.fmt(f),
            Self::Protocol(what) => f.write_str(what),
            Self::Refused { name, text } if text.is_empty() => f.write_str(name),
            Self::Refused { text, .. } => f.write_str(text.trim_end_matches('.')),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A signal from the peer.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The member name, like `JobRemoved`.
    pub member: String,
    /// Its arguments.
    pub body: Body,
}

/// The method to call.
#[derive(Clone, Copy, Debug)]
pub struct Method<'a> {
    /// The bus name; unused on a direct connection.
    pub destination: &'a str,
    /// The object.
    pub path: &'a str,
    /// The interface.
    pub interface: &'a str,
    /// The method.
    pub member: &'a str,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    serial: u32,
    bus: bool,
    /// Whether the answer to our greeting was read.
    known: bool,
    notices: VecDeque<Notice>,
    input: Vec<u8>,
    /// Everything must be done before this time.
    pub deadline: Moment,
}

impl Connection {
    /// Connects and authenticates as ourselves. Whether the peer accepts us shows at the first answer.
    pub fn open(address: &Address, deadline: Moment) -> Result<Self, Error> {
        let socket = match address {
            Address::Direct(path) | Address::Bus(path) => UnixStream::connect(path)?,
            Address::Abstract(name) => {
                UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?
            }
        };
        let me = rustix::process::geteuid();
        check(&peer(&socket)?, me.as_raw())?;
        socket.set_nonblocking(true)?;
        let mut connection = Self {
            socket,
            serial: 0,
            bus: !matches!(address, Address::Direct(_)),
            known: false,
            notices: VecDeque::new(),
            input: Vec::new(),
            deadline,
        };
        let mut uid = String::new();
        for digit in me.as_raw().to_string().bytes() {
            // Decimal digits are 0x30 to 0x39.
            uid.push('3');
            uid.push(char::from(digit));
        }
        // The greeting and all that follows are sent at once, and its answer is read with the first other one. A peer
        // that does not accept us never reads on.
        connection.send(format!("\0AUTH EXTERNAL {uid}\r\nBEGIN\r\n").as_bytes())?;
        if connection.bus {
            connection.call(
                &Method {
                    destination: "org.freedesktop.DBus",
                    path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus",
                    member: "Hello",
                },
                &Args::new(),
            )?;
        }
        Ok(connection)
    }

    /// Whether a bus is in between: then signals come only if they are asked for.
    pub fn is_bus(&self) -> bool {
        self.bus
    }

    /// Calls and waits for the answer.
    pub fn call(&mut self, method: &Method<'_>, args: &Args) -> Result<Body, Error> {
        let serial = self.post(method, args)?;
        self.answer(serial)
    }

    /// Sends a call without waiting; the number is for [`Self::answer`].
    pub fn post(&mut self, method: &Method<'_>, args: &Args) -> Result<u32, Error> {
        self.serial += 1;
        let destination = self.bus.then_some(method.destination);
        let message = wire::call(self.serial, destination, method, args);
        self.send(&message)?;
        Ok(self.serial)
    }

    /// Waits for the answer to one call. Answers to other calls that come before are lost, so ask in order.
    pub fn answer(&mut self, serial: u32) -> Result<Body, Error> {
        loop {
            match self.message()? {
                wire::Message::Return { to, body } if to == serial => return Ok(body),
                wire::Message::Error { to, name, text } if to == serial => {
                    return Err(Error::Refused { name, text });
                }
                wire::Message::Signal(notice) => {
                    if self.notices.len() == SIGNALS_MAX {
                        self.notices.pop_front();
                    }
                    self.notices.push_back(notice);
                }
                wire::Message::Return { .. }
                | wire::Message::Error { .. }
                | wire::Message::Other => {}
            }
        }
    }

    /// Waits for a signal; one that came meanwhile counts.
    pub fn notice(&mut self) -> Result<Notice, Error> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(notice);
            }
            if let wire::Message::Signal(notice) = self.message()? {
                return Ok(notice);
            }
        }
    }

    fn message(&mut self) -> Result<wire::Message, Error> {
        if !self.known {
            if !self.read_line()?.starts_with("OK ") {
                return Err(Error::Protocol("it refused our authentication"));
            }
            self.known = true;
        }
        loop {
            if let Some(len) = wire::whole(&self.input)? {
                if len > MESSAGE_MAX {
                    return Err(Error::Protocol("its message is too long"));
                }
                if self.input.len() >= len {
                    let rest = self.input.split_off(len);
                    let message = std::mem::replace(&mut self.input, rest);
                    return wire::read(&message);
                }
            }
            self.fill()?;
        }
    }

    fn read_line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") {
                let rest = self.input.split_off(end + 2);
                let line = std::mem::replace(&mut self.input, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.input.len() > 1024 {
                return Err(Error::Protocol("it does not speak D-Bus"));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Error> {
        let mut buffer = [0u8; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(n) => {
                    self.input.extend_from_slice(&buffer[..n]);
                    return Ok(());
                }
                Err(error) => self.retry(error, PollFlags::IN)?,
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => self.retry(error, PollFlags::OUT)?,
            }
        }
        Ok(())
    }

    /// Waits for the socket if the error only says that it is not ready.
    fn retry(&self, error: io::Error, until: PollFlags) -> Result<(), Error> {
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok(());
        }
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error.into());
        }
        let left = self.deadline - clock::now();
        if left == 0 {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), until)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// A peer must be of our own user, or root, and in our own pid namespace: the pids that we send must mean the same to
/// it.
fn check(peer: &libc::ucred, me: u32) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    if peer.uid != me && peer.uid != 0 {
        return Err(Error::Protocol("its socket belongs to another user"));
    }
    let namespace = |pid: &str| {
        std::fs::metadata(format!("/proc/{pid}/ns/pid"))
            .map(|meta| meta.ino())
            .ok()
    };
    let theirs = namespace(&peer.pid.to_string());
    if peer.pid == 0 || (theirs.is_some() && theirs != namespace("self")) {
        return Err(Error::Protocol("it runs in another pid namespace"));
    }
    Ok(())
}

fn peer(socket: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is valid for an answer of that length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(peer)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Decodes the `%2f` of addresses.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    Some(plain)
}

/// Where a user's manager and bus may listen, best first. Derived from the uid, because clients pass few variables.
pub fn candidates(uid: u32, runtime: Option<&Path>, session: Option<&str>) -> Vec<Address> {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let mut dirs = vec![usual];
    if let Some(dir) = runtime
        && dir.is_absolute()
        && dir != dirs[0]
    {
        dirs.push(dir.to_owned());
    }
    let direct = dirs
        .iter()
        .map(|dir| Address::Direct(dir.join("systemd/private")));
    let buses = dirs.iter().map(|dir| Address::Bus(dir.join("bus")));
    let mut found: Vec<Address> = direct.chain(buses).collect();
    if let Some(address) = session.and_then(Address::parse)
        && !found.contains(&address)
    {
        found.push(address);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_addresses_are_read() {
        assert_eq!(
            Address::parse("tcp:host=x;unix:guid=1,path=/run/a%20b"),
            Some(Address::Bus("/run/a b".into()))
        );
        assert_eq!(
            Address::parse("unix:abstract=/tmp/dbus-1"),
            Some(Address::Abstract(b"/tmp/dbus-1".to_vec()))
        );
        for bad in ["", "unix:", "unix:path", "unix:path=%zz", "autolaunch:"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_managers_own_socket_comes_first_and_needs_no_variable() {
        let found = candidates(7, None, None);
        assert_eq!(
            found,
            [
                Address::Direct("/run/user/7/systemd/private".into()),
                Address::Bus("/run/user/7/bus".into())
            ]
        );
        let more = candidates(7, Some(Path::new("/elsewhere")), Some("unix:path=/x"));
        assert_eq!(more.len(), 5);
        assert_eq!(
            more[1],
            Address::Direct("/elsewhere/systemd/private".into())
        );
        assert_eq!(more[4], Address::Bus("/x".into()));
    }
}
