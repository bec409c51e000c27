//! The socket that systemd passes to a service, as `sd_listen_fds(3)` describes it: descriptors from 3 on, announced by the
//! variables `LISTEN_PID` and `LISTEN_FDS`.

use std::env;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

use crate::role;

/// The descriptor of the first socket.
const FIRST: RawFd = 3;
/// The variables that announce sockets.
const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Why what was passed cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There is not exactly one.
    Count(u32),
    /// The descriptor is not a TCP socket that listens.
    NotListening,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => {
                write!(f, "{count} sockets were passed, and only one can be used")
            }
            Self::NotListening => f.write_str("descriptor 3 is not a TCP socket that listens"),
        }
    }
}

/// Takes the socket that was passed to this process, with its address, and closes all other descriptors above 2. Called first
/// in a command, before any value of ours owns a descriptor, and while there is only one thread.
pub fn listener() -> Result<Option<(TcpListener, SocketAddr)>, Unusable> {
    let variable = |name| env::var(name).ok();
    let count = announced(
        variable(VARIABLES[0]).as_deref(),
        variable(VARIABLES[1]).as_deref(),
        std::process::id(),
    );
    for name in VARIABLES {
        // SAFETY: there is only one thread, so no other thread reads the environment now.
        unsafe { env::remove_var(name) };
    }
    match count {
        0 => {
            role::close_inherited();
            Ok(None)
        }
        1 => {
            role::close_all_but(&mut [FIRST]);
            first().map(Some)
        }
        count => Err(Unusable::Count(count)),
    }
}

/// How many sockets were passed to the process with this pid. A process that inherits the variables from its parent gets none.
fn announced(pid: Option<&str>, count: Option<&str>, own: u32) -> u32 {
    if pid.and_then(|pid| pid.parse().ok()) != Some(own) {
        return 0;
    }
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn first() -> Result<(TcpListener, SocketAddr), Unusable> {
    // SAFETY: a call with plain integers; it only reads.
    if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } < 0 {
        return Err(Unusable::NotListening);
    }
    // SAFETY: the descriptor is open, and no value of ours owns it, because this is called before any is opened.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    let listens = socket_acceptconn(&socket).unwrap_or(false)
        && socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
    // A server must not inherit it.
    let closes = fcntl_setfd(&socket, FdFlags::CLOEXEC).is_ok();
    let socket = TcpListener::from(socket);
    match socket.local_addr() {
        Ok(address) if listens && closes => Ok((socket, address)),
        Ok(_) | Err(_) => Err(Unusable::NotListening),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_is_named_gets_the_sockets() {
        for (pid, count, expected) in [
            (None, None, 0),
            (None, Some("1"), 0),
            (Some("7"), None, 0),
            (Some("7"), Some("1"), 1),
            (Some("7"), Some("2"), 2),
            (Some("8"), Some("1"), 0),
            (Some("7x"), Some("1"), 0),
            (Some("7"), Some("-1"), 0),
        ] {
            assert_eq!(announced(pid, count, 7), expected, "{pid:?} {count:?}");
        }
    }
}
