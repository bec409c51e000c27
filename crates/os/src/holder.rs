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
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use mainstay_core::event::Seen;
use mainstay_core::ids::Identity;
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
    let manager = nearest.pid == adopter::INIT || nearest.comm == "systemd";
    let unknown =
        census::real_uid(nearest.pid) == Some(mine) && holds(nearest.pid, wanted) == Holds::Unknown;
    (!manager && unknown).then_some(nearest)
}

/// The place of the first of these that holds the other end of our stdin.
pub fn nearest(stdin: &impl AsFd, candidates: &[Identity]) -> Option<usize> {
    let wanted = other_end(stdin)?;
    let is = |who: &Identity| census::stat(who.pid).is_ok_and(|stat| stat.who() == *who);
    let mut all = candidates.iter();
    all.position(|who| holds(who.pid, &wanted) == Holds::Yes && is(who))
}

pub(crate) fn other_end(stdin: &impl AsFd) -> Option<Wanted> {
    let stat = fstat(stdin).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Fifo {
        Some(Wanted::Writer(format!("pipe:[{}]", stat.st_ino)))
    } else if kind == FileType::Socket {
        let peer = peer(stat.st_ino as u32).ok()??;
        Some(Wanted::Any(format!("socket:[{peer}]")))
    } else {
        // A terminal, a file or a device is nobody's end.
        None
    }
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
}
