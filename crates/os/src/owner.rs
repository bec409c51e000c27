//! Finds the user at the other end of a TCP connection on this machine.
//!
//! It asks the kernel for the socket whose two addresses are ours swapped: one netlink question, or, if netlink is
//! not available (gVisor, a service without `AF_NETLINK`), a search through `/proc/net/tcp` and `tcp6`.
//!
//! Invariants: an owner is returned only for a socket that a process has open, whose two addresses are exactly ours,
//! and that was the other end of this connection when we looked. If its process has closed the socket, the kernel
//! reports root. If our user namespace does not know the user, the kernel reports the overflow id (usually
//! 65534). Both count as unknown. Which users are admitted is not decided here.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::SocketAddrAny;

use crate::diag::{Diag, u32_at};

/// The value of `/proc/sys/kernel/overflowuid` on nearly every machine.
const OVERFLOW: u32 = 65_534;
/// The whole range of user ids, as `/proc/self/uid_map` counts them.
const ALL_UIDS: u64 = u32::MAX as u64;
/// The size of `struct inet_diag_msg` without attributes.
const ANSWER: usize = 72;

/// TCP states of a connection that was made: `ESTABLISHED`, `FIN_WAIT1`, `FIN_WAIT2`, `CLOSE_WAIT`, `LAST_ACK`, `CLOSING`. In any
/// other state the socket with these addresses may belong to the next connection, or to no process.
const MADE: [u8; 6] = [1, 4, 5, 8, 9, 11];

/// Why the owner of a connection is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No process of this network namespace has the other end open.
    Closed,
    /// The user has no id in our user namespace.
    Unmapped,
    /// The kernel answers neither of our questions.
    Untold,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "no process of this machine has its other end open",
            Self::Unmapped => "its user has no id in our user namespace",
            Self::Untold => "the kernel reports it neither by netlink nor in /proc/net/tcp",
        })
    }
}

/// Finds the owners of connections.
#[derive(Debug)]
pub struct Owners {
    diag: Option<Diag>,
    /// The id that the kernel reports for users that this user namespace does not know.
    unmapped: Option<u32>,
}

impl Owners {
    /// `listening` is a socket that listens. If the kernel cannot find it by netlink, netlink is not used.
    pub fn open(listening: &impl AsFd) -> Self {
        let diag = Diag::open()
            .ok()
            .filter(|diag| finds_listener(diag, listening).is_some());
        Self {
            diag,
            unmapped: unmapped(),
        }
    }

    /// The user that opened the other end of this connection.
    pub fn of(&self, connection: &impl AsFd) -> Result<u32, Unknown> {
        let ends = ends(connection).ok_or(Unknown::Closed)?;
        let found = match &self.diag {
            Some(diag) => diag
                .ask(&question(&ends))
                .map(|answer| answer.as_deref().and_then(read)),
            None => listed(&ends),
        };
        let found = found.map_err(|_| Unknown::Untold)?;
        let owner = found
            .and_then(|found| found.owner(&ends))
            .ok_or(Unknown::Closed)?;
        // As long as our end is not reset, no other connection can have these addresses. After a reset the next
        // process may.
        if self::ends(connection) != Some(ends) {
            return Err(Unknown::Closed);
        }
        match self.unmapped {
            Some(unmapped) if unmapped == owner => Err(Unknown::Unmapped),
            Some(_) | None => Ok(owner),
        }
    }
}

/// The two addresses of the socket at the other end, its own first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    near: SocketAddr,
    far: SocketAddr,
}

fn ends(connection: &impl AsFd) -> Option<Ends> {
    Some(Ends {
        near: plain(rustix::net::getpeername(connection).ok()??)?,
        far: plain(rustix::net::getsockname(connection).ok()?)?,
    })
}

/// IPv4 as IPv4, whichever kind of socket uses it.
fn plain(address: SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(address).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// A socket as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedSocket {
    ends: Ends,
    state: u8,
    uid: u32,
    inode: u32,
}

impl ListedSocket {
    /// The owner of the socket, if it is the one that was asked for and a process has it open. Without an inode no
    /// process has, and the id is meaningless. If no connection is found, the kernel answers with the socket that
    /// listens there.
    fn owner(&self, ends: &Ends) -> Option<u32> {
        (self.ends == *ends && self.inode != 0 && MADE.contains(&self.state)).then_some(self.uid)
    }
}

/// Whether netlink finds a socket that listens.
fn finds_listener(diag: &Diag, listening: &impl AsFd) -> Option<ListedSocket> {
    let near = plain(rustix::net::getsockname(listening).ok()?)?;
    let nowhere = match near.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let far = SocketAddr::new(nowhere, 0);
    let answer = diag.ask(&question(&Ends { near, far })).ok()??;
    read(&answer).filter(|found| found.ends.near.port() == near.port())
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, states, then the socket.
fn question(ends: &Ends) -> Vec<u8> {
    let family = if ends.near.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut question = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    question.extend_from_slice(&u32::MAX.to_ne_bytes());
    // `struct inet_diag_sockid`: ports and addresses in network byte order, any interface, no cookie.
    question.extend_from_slice(&ends.near.port().to_be_bytes());
    question.extend_from_slice(&ends.far.port().to_be_bytes());
    for end in [ends.near, ends.far] {
        match end.ip() {
            IpAddr::V4(ip) => {
                question.extend_from_slice(&ip.octets());
                question.extend_from_slice(&[0; 12]);
            }
            IpAddr::V6(ip) => question.extend_from_slice(&ip.octets()),
        }
    }
    question.extend_from_slice(&[0; 4]);
    question.extend_from_slice(&[0xff; 8]);
    question
}

/// Reads a `struct inet_diag_msg`.
fn read(answer: &[u8]) -> Option<ListedSocket> {
    let answer = answer.get(..ANSWER)?;
    let (family, state) = (i32::from(answer[0]), answer[1]);
    let ip = |at: usize| {
        let bytes: [u8; 16] = answer.get(at..at + 16)?.try_into().ok()?;
        match family {
            libc::AF_INET => {
                let [a, b, c, d, ..] = bytes;
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            // An IPv6 socket may use IPv4.
            libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
            _ => None,
        }
    };
    let port = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    Some(ListedSocket {
        ends: Ends {
            near: SocketAddr::new(ip(8)?, port(4)?),
            far: SocketAddr::new(ip(24)?, port(6)?),
        },
        state,
        uid: u32_at(answer, 64)?,
        inode: u32_at(answer, 68)?,
    })
}

/// The same from the kernel's tables. IPv6 sockets that use IPv4 are in the second one.
fn listed(ends: &Ends) -> io::Result<Option<ListedSocket>> {
    let mut readable = Err(io::ErrorKind::NotFound.into());
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let mut file = match File::open(path) {
            Ok(file) => BufReader::new(file),
            // A machine without IPv6 has no second one.
            Err(_) => continue,
        };
        readable = Ok(None);
        let mut line = String::new();
        while file.read_line(&mut line)? != 0 {
            if let Some(found) = row(&line).filter(|found| found.owner(ends).is_some()) {
                return Ok(Some(found));
            }
            line.clear();
        }
    }
    readable
}

/// Reads `sl local remote state queues timer retransmits uid timeout inode …`.
fn row(line: &str) -> Option<ListedSocket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let ends = Ends {
        near: address_from_hex(words.next()?)?,
        far: address_from_hex(words.next()?)?,
    };
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let uid = words.nth(3)?.parse().ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(ListedSocket {
        ends,
        state,
        uid,
        inode,
    })
}

/// Reads `0100007F:2268`: each 32-bit word of the address in host byte order.
fn address_from_hex(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = ip.get(at..at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (place, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(place * 8)?);
            }
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The id that stands for unknown users. In a user namespace that maps all users it is an ordinary user.
fn unmapped() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if maps_all_users(&map) {
        return None;
    }
    let told = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    Some(
        told.and_then(|told| told.trim().parse().ok())
            .unwrap_or(OVERFLOW),
    )
}

fn maps_all_users(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| {
        let count = line.split_ascii_whitespace().nth(2)?;
        count.parse::<u64>().ok()
    });
    counts.sum::<u64>() >= ALL_UIDS
}

#[cfg(test)]
mod tests;
