//! What a process's stdin and stdout are, and who holds their other ends.
//!
//! Nothing here decides what that makes of the process.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::holder;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A pipe, by its inode.
    Pipe(u64),
    /// A socket, by its inode.
    Socket(u64),
    /// `/dev/null`.
    Null,
    /// A terminal.
    Terminal,
    /// A file.
    File,
    /// Something else.
    Other,
    /// The descriptor is closed.
    Closed,
    /// We may not look.
    Hidden,
}

impl End {
    /// The kind in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pipe(_) => "pipe",
            Self::Socket(_) => "socket",
            Self::Null => "null",
            Self::Terminal => "pty",
            Self::File => "file",
            Self::Other => "other",
            Self::Closed => "closed",
            Self::Hidden => "?",
        }
    }

    /// Whether somebody can be at the other end.
    pub fn talks(self) -> bool {
        matches!(self, Self::Pipe(_) | Self::Socket(_))
    }

    fn of(link: &str) -> Self {
        let inode = |kind: &str| {
            link.strip_prefix(kind)?
                .strip_suffix(']')?
                .parse::<u64>()
                .ok()
        };
        match link {
            "/dev/null" => Self::Null,
            _ if link.starts_with("/dev/pts/") || link.starts_with("/dev/tty") => Self::Terminal,
            "/dev/console" => Self::Terminal,
            _ if link.starts_with('/') => Self::File,
            _ => match (inode("pipe:["), inode("socket:[")) {
                (Some(inode), _) => Self::Pipe(inode),
                (None, Some(inode)) => Self::Socket(inode),
                (None, None) => Self::Other,
            },
        }
    }
}

/// What a descriptor of a process is.
pub fn end(pid: i32, fd: i32) -> End {
    match fs::read_link(format!("/proc/{pid}/fd/{fd}")) {
        Ok(link) => End::of(&link.to_string_lossy()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => End::Closed,
        Err(_) => End::Hidden,
    }
}

/// The ends that a process holds.
#[derive(Debug, Default)]
pub struct Held {
    readers: HashSet<u64>,
    writers: HashSet<u64>,
    sockets: HashSet<u64>,
    hidden: bool,
}

impl Held {
    /// Looks through the descriptors of a process.
    pub fn by(pid: i32) -> Self {
        let mut held = Self::default();
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            held.hidden = true;
            return held;
        };
        for entry in entries.flatten() {
            let Ok(link) = fs::read_link(entry.path()) else {
                continue;
            };
            match End::of(&link.to_string_lossy()) {
                End::Pipe(inode) => {
                    // The mode of the link tells how the descriptor was opened.
                    let mode = fs::symlink_metadata(entry.path()).map_or(0, |meta| meta.mode());
                    if mode & 0o400 != 0 {
                        held.readers.insert(inode);
                    }
                    if mode & 0o200 != 0 {
                        held.writers.insert(inode);
                    }
                }
                End::Socket(inode) => {
                    held.sockets.insert(inode);
                }
                End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => {}
            }
        }
        held
    }

    /// Whether we may not look at them.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether it writes into somebody's stdin; `peer` is the other socket, if the stdin is one.
    pub fn feeds(&self, stdin: End, peer: Option<u64>) -> bool {
        match stdin {
            End::Pipe(inode) => self.writers.contains(&inode),
            End::Socket(_) => peer.is_some_and(|peer| self.sockets.contains(&peer)),
            End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => false,
        }
    }

    /// Whether it reads from somebody's stdout.
    pub fn hears(&self, stdout: End, peer: Option<u64>) -> bool {
        match stdout {
            End::Pipe(inode) => self.readers.contains(&inode),
            End::Socket(_) => peer.is_some_and(|peer| self.sockets.contains(&peer)),
            End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => false,
        }
    }
}

/// The socket at the other end of a socket pair, if the kernel tells.
pub fn peer(end: End) -> Option<u64> {
    if let End::Socket(inode) = end {
        return holder::peer(inode as u32).ok()?.map(u64::from);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn links_of_every_kind() {
        for (link, end) in [
            ("pipe:[42]", End::Pipe(42)),
            ("socket:[7]", End::Socket(7)),
            ("/dev/null", End::Null),
            ("/dev/pts/3", End::Terminal),
            ("/tmp/x", End::File),
            ("anon_inode:[eventfd]", End::Other),
            ("pipe:[x]", End::Other),
        ] {
            assert_eq!(End::of(link), end, "{link}");
        }
        let me = std::process::id() as i32;
        assert_eq!(end(me, 99_999), End::Closed);
    }

    #[test]
    fn the_writer_feeds_and_the_reader_hears() {
        let _apart = crate::apart::childless();
        let me = std::process::id() as i32;
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let pipe = end(me, reader.as_raw_fd());
        let both = Held::by(me);
        assert!(both.feeds(pipe, None) && both.hears(pipe, None));
        drop(writer);
        let reads = Held::by(me);
        assert!(!reads.feeds(pipe, None) && reads.hears(pipe, None));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = end(me, ours.as_raw_fd());
        let other = peer(socket);
        assert!(Held::by(me).feeds(socket, other));
        drop(theirs);
        assert!(!Held::by(me).feeds(socket, other));
        assert_eq!(peer(socket), None);
        assert!(Held::by(i32::MAX).hidden());
    }
}
