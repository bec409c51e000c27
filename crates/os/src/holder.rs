//! Who holds the other end of our stdin?
//!
//! When the process that started us is gone and no EOF came, somebody holds the client's end: the real client behind a
//! launcher (`sh -c`, npx) that has done its part, or a sibling into which the descriptor leaked. The real client is
//! older than the launcher it started; a sibling is younger than the client that leaked to it.
//!
//! A client may have made itself unreadable, as whoever handles keys does. Whether it holds the end cannot be seen then: it
//! is taken for the client, and its end or an EOF decides.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use mainstay_core::event::Seen;
use mainstay_core::ids::Identity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

use crate::adopter;
use crate::census::{self, Stat};
use crate::diag::{Diag, half, word};

/// The process that is the client now that `dead` is gone: the youngest holder of the other end that is an ancestor of
/// ours from the beginning, or plainly older than the dead one (start times have a grain of 10 ms); else the nearest
/// ancestor, if it may be one.
pub fn heir(stdin: &impl AsFd, dead: Identity, ancestors: &[Identity]) -> Option<Seen> {
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

/// The nearest ancestor that lives, if it is of our own user and does not let itself be looked at. Nobody above it: those
/// started clients, they are none. A manager of sessions is no client either, though some cannot be read.
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

/// The place of the first of these that lives and holds the other end of our stdin. If the end is held and none of them is seen
/// to hold it: the first whose descriptors cannot be seen. If nothing can be said about the end: the first of all. None once
/// the end is closed, whoever else may live.
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

/// Whether a process that does not let itself be looked at may be the client.
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

/// The other end of a descriptor.
enum End {
    Held(Wanted),
    /// That of a socket which no process holds any more.
    Closed,
    /// A terminal, a file or a device has none; of a socket the kernel may not tell.
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
            // The mode of the link tells how the descriptor was opened.
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

/// The inode of the socket at the other end of a Unix socket pair; `None` if nobody has it any more.
pub(crate) fn peer(inode: u32) -> io::Result<Option<u32>> {
    const UDIAG_SHOW_PEER: u32 = 4;
    const UNIX_DIAG_PEER: u16 = 2;
    // struct unix_diag_req: family, protocol, states, inode, show, cookie.
    let mut question = vec![libc::AF_UNIX as u8, 0, 0, 0];
    question.extend_from_slice(&u32::MAX.to_ne_bytes());
    question.extend_from_slice(&inode.to_ne_bytes());
    question.extend_from_slice(&UDIAG_SHOW_PEER.to_ne_bytes());
    question.extend_from_slice(&[0xff; 8]);
    let Some(answer) = Diag::open()?.ask(&question)? else {
        return Ok(None);
    };
    // struct unix_diag_msg is 16 bytes; attributes follow, each with length and type.
    let mut at = 16;
    while let (Some(size), Some(kind)) = (half(&answer, at), half(&answer, at + 2)) {
        if size < 4 || at + usize::from(size) > answer.len() {
            break;
        }
        if kind == UNIX_DIAG_PEER {
            return Ok(word(&answer, at + 4).filter(|&inode| inode != 0));
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
    fn an_older_holder_of_a_pipe_is_the_heir() {
        let _apart = crate::apart::childless();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let me = crate::identity::me().unwrap();
        assert_eq!(
            heir(&reader, me_as_if_started_by_a_launcher(), &[])
                .unwrap()
                .who,
            me
        );
        // Not older than the dead: a leak, unless it is known to stand above us.
        let twin = Identity {
            pid: i32::MAX,
            start: me.start,
        };
        assert_eq!(heir(&reader, twin, &[]), None);
        assert_eq!(heir(&reader, twin, &[me]).unwrap().who, me);
        drop(writer);
        assert_eq!(heir(&reader, me_as_if_started_by_a_launcher(), &[]), None);
    }

    #[test]
    fn the_nearest_holder_is_found() {
        let _apart = crate::apart::childless();
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
        // Of these no other end can be found: then it is the process that started us, or none.
        let null = fs::File::open("/dev/null").unwrap();
        assert_eq!(nearest(&null, &[me, other]), Some(0));
        assert_eq!(nearest(&null, &[other, me]), None);
    }

    #[test]
    fn the_same_for_a_socket() {
        let _apart = crate::apart::childless();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let me = crate::identity::me().unwrap();
        assert_eq!(
            heir(&ours, me_as_if_started_by_a_launcher(), &[])
                .unwrap()
                .who,
            me
        );
        assert!(theirs.as_raw_fd() > 0);
        drop(theirs);
        assert_eq!(heir(&ours, me_as_if_started_by_a_launcher(), &[]), None);
    }

    #[test]
    fn a_pipe_without_a_writer_has_hung_up() {
        let _apart = crate::apart::childless();
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
