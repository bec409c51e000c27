//! Finds the process that holds the other end of our stdin.
//!
//! When the process that started us is gone and no EOF came, another process holds the client's end. Either it is the
//! real client behind a launcher (`sh -c`, npx) that has exited, or a sibling into which the descriptor leaked. The
//! real client is older than the launcher it started; a sibling is younger than the client that leaked to it.
//!
//! A client may have made itself unreadable, as programs that handle keys do. Then we cannot see whether it holds the
//! end. It is taken for the client, and its end or an EOF decides.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

use crate::adopter;
use crate::census::{self, Stat};
use crate::diag::{Diag, u16_at, u32_at};

/// The process that is the client now that `dead` is gone. It is the youngest holder of the other end that is one of
/// our original ancestors, or plainly older than the dead process (start times have a resolution of 10 ms). If there
/// is none: the nearest ancestor, if it may be a client.
pub fn next_holder(stdin: &impl AsFd, dead: Identity, ancestors: &[Identity]) -> Option<Seen> {
    let wanted = other_end(stdin)?;
    let mine = rustix::process::getuid().as_raw();
    census::pids()
        .ok()?
        .into_iter()
        .filter(|&pid| census::uid(pid) == Some(mine))
        .filter_map(|pid| census::stat(pid).ok())
        .filter(|stat| !stat.dead() && stat.who() != dead)
        .filter(|stat| stat.start < dead.start || ancestors.contains(&stat.who()))
        .filter(|stat| holds(stat.pid, &wanted) == Holds::Yes)
        .max_by_key(|stat| stat.start)
        .or_else(|| unreadable(dead, ancestors, &wanted, mine))
        .map(|stat| Seen {
            who: stat.who(),
            comm: stat.comm,
        })
}

/// The nearest living ancestor, if it belongs to our user and we may not see its descriptors. No ancestor above it:
/// those started clients and are not clients themselves. A session manager is no client either, though some of them
/// cannot be read.
fn unreadable(dead: Identity, ancestors: &[Identity], wanted: &Wanted, mine: u32) -> Option<Stat> {
    let nearest = ancestors
        .iter()
        .filter(|&&who| who != dead)
        .find_map(|who| {
            let stat = census::stat(who.pid).ok()?;
            (stat.who() == *who && !stat.dead()).then_some(stat)
        })?;
    let unknown = holds(nearest.pid, wanted) == Holds::Unknown;
    (unknown && may_be_client(&nearest, mine)).then_some(nearest)
}

/// The index of the first candidate that lives and holds the other end of our stdin. If the end is held but no
/// candidate is seen to hold it: the first candidate whose descriptors cannot be seen. If nothing is known about the
/// end: the first candidate, if it lives. None once the end is closed, whichever candidates live.
pub fn nearest(stdin: &impl AsFd, candidates: &[Identity]) -> Option<usize> {
    let living = |who: &Identity| {
        let stat = census::stat(who.pid).ok();
        stat.filter(|stat| stat.who() == *who && !stat.dead())
    };
    let wanted = match end(stdin) {
        End::Held(wanted) if !hung_up(stdin.as_fd()) => wanted,
        End::Held(_) | End::Closed => return None,
        End::Untold => return candidates.first().and_then(living).map(|_| 0),
    };
    let mine = rustix::process::getuid().as_raw();
    let mut hidden = None;
    for (place, who) in candidates.iter().enumerate() {
        match holds(who.pid, &wanted) {
            Holds::No => {}
            Holds::Yes => {
                if living(who).is_some() {
                    return Some(place);
                }
            }
            Holds::Unknown => {
                let stat = living(who).filter(|stat| hidden.is_none() && may_be_client(stat, mine));
                hidden = stat.map(|_| place).or(hidden);
            }
        }
    }
    hidden
}

/// Whether a process whose descriptors we may not see may be the client.
fn may_be_client(stat: &Stat, mine: u32) -> bool {
    let manager = stat.pid == adopter::INIT || stat.comm == "systemd";
    !manager && census::real_uid(stat.pid) == Some(mine)
}

pub(crate) fn other_end(stdin: &impl AsFd) -> Option<Wanted> {
    match end(stdin) {
        End::Held(wanted) => Some(wanted),
        End::Closed | End::Untold => None,
    }
}

/// The state of the other end of a descriptor.
enum End {
    Held(Wanted),
    /// The other end of a socket, and no process holds it.
    Closed,
    /// Terminals, files and devices have no other end; for a socket the kernel may not tell.
    Untold,
}

fn end(stdin: &impl AsFd) -> End {
    let Ok(stat) = fstat(stdin) else {
        return End::Untold;
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Fifo {
        End::Held(Wanted::Writer(format!("pipe:[{}]", stat.st_ino)))
    } else if kind == FileType::Socket {
        match peer(stat.st_ino as u32) {
            Ok(Some(peer)) => End::Held(Wanted::Any(format!("socket:[{peer}]"))),
            Ok(None) => End::Closed,
            Err(_) => End::Untold,
        }
    } else {
        End::Untold
    }
}

/// Whether no process holds the other end of a pipe or a socket. Unread bytes do not matter.
pub(crate) fn hung_up(stdin: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

pub(crate) enum Wanted {
    Writer(String),
    Any(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    Yes,
    No,
    /// We may not see its descriptors.
    Unknown,
}

pub(crate) fn holds(pid: i32, wanted: &Wanted) -> Holds {
    let (name, writer) = match wanted {
        Wanted::Writer(name) => (name, true),
        Wanted::Any(name) => (name, false),
    };
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let fds = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(fds) => fds,
        Err(error) if refused(&error) => return Holds::Unknown,
        Err(_) => return Holds::No,
    };
    let mut found = Holds::No;
    for entry in fds.flatten() {
        match fs::read_link(entry.path()) {
            // The mode of the link says how the descriptor was opened.
            Ok(link)
                if link.as_os_str() == name.as_str()
                    && (!writer
                        || fs::symlink_metadata(entry.path())
                            .is_ok_and(|meta| meta.mode() & 0o200 != 0)) =>
            {
                return Holds::Yes;
            }
            Err(error) if refused(&error) => found = Holds::Unknown,
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// The inode of the socket at the other end of a Unix socket pair; `None` if that end is closed.
pub(crate) fn peer(inode: u32) -> io::Result<Option<u32>> {
    peer_by(&Diag::open()?, inode)
}

/// The same with a netlink socket that is open already.
pub(crate) fn peer_by(diag: &Diag, inode: u32) -> io::Result<Option<u32>> {
    const UDIAG_SHOW_PEER: u32 = 4;
    const UNIX_DIAG_PEER: u16 = 2;
    // struct unix_diag_req: family, protocol, states, inode, show, cookie.
    let mut question = vec![libc::AF_UNIX as u8, 0, 0, 0];
    question.extend_from_slice(&u32::MAX.to_ne_bytes());
    question.extend_from_slice(&inode.to_ne_bytes());
    question.extend_from_slice(&UDIAG_SHOW_PEER.to_ne_bytes());
    question.extend_from_slice(&[0xff; 8]);
    let Some(answer) = diag.ask(&question)? else {
        return Ok(None);
    };
    // struct unix_diag_msg is 16 bytes; attributes follow, each with length and type.
    let mut at = 16;
    while let (Some(size), Some(kind)) = (u16_at(&answer, at), u16_at(&answer, at + 2)) {
        if size < 4 || at + usize::from(size) > answer.len() {
            break;
        }
        if kind == UNIX_DIAG_PEER {
            return Ok(u32_at(&answer, at + 4).filter(|&inode| inode != 0));
        }
        at += usize::from(size).next_multiple_of(4);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn me_as_if_started_by_a_launcher() -> Identity {
        Identity {
            pid: i32::MAX,
            start: u64::MAX,
        }
    }

    #[test]
    fn older_holder_of_a_pipe_is_the_client() {
        let _lock = crate::child_lock::without_children();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let me = crate::identity::me().unwrap();
        assert_eq!(
            next_holder(&reader, me_as_if_started_by_a_launcher(), &[])
                .unwrap()
                .who,
            me
        );
        // Not older than the dead process: a leak, unless it is a known ancestor of ours.
        let twin = Identity {
            pid: i32::MAX,
            start: me.start,
        };
        assert_eq!(next_holder(&reader, twin, &[]), None);
        assert_eq!(next_holder(&reader, twin, &[me]).unwrap().who, me);
        drop(writer);
        assert_eq!(
            next_holder(&reader, me_as_if_started_by_a_launcher(), &[]),
            None
        );
    }

    #[test]
    fn the_nearest_holder_is_found() {
        let _lock = crate::child_lock::without_children();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let me = crate::identity::me().unwrap();
        let other = me_as_if_started_by_a_launcher();
        assert_eq!(nearest(&reader, &[other, me, me]), Some(1));
        assert_eq!(nearest(&reader, &[other]), None);
        drop(writer);
        assert_eq!(nearest(&reader, &[other, me]), None);
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(nearest(&ours, &[other, me]), Some(1));
        drop(theirs);
        assert_eq!(nearest(&ours, &[other, me]), None);
        // These have no other end: the answer is the process that started us, or none.
        let null = fs::File::open("/dev/null").unwrap();
        assert_eq!(nearest(&null, &[me, other]), Some(0));
        assert_eq!(nearest(&null, &[other, me]), None);
    }

    #[test]
    fn older_holder_of_a_socket_is_the_client() {
        let _lock = crate::child_lock::without_children();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let me = crate::identity::me().unwrap();
        assert_eq!(
            next_holder(&ours, me_as_if_started_by_a_launcher(), &[])
                .unwrap()
                .who,
            me
        );
        assert!(theirs.as_raw_fd() > 0);
        drop(theirs);
        assert_eq!(
            next_holder(&ours, me_as_if_started_by_a_launcher(), &[]),
            None
        );
    }

    #[test]
    fn a_pipe_without_a_writer_has_hung_up() {
        let _lock = crate::child_lock::without_children();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"unread").unwrap();
        assert!(!hung_up(reader.as_fd()));
        drop(writer);
        assert!(hung_up(reader.as_fd()));
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!hung_up(ours.as_fd()), "an EOF alone is no hang-up");
        drop(theirs);
        assert!(hung_up(ours.as_fd()));
    }
}
