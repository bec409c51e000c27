//! What a process's stdin and stdout are, and which process holds their other ends.
//!
//! It does not decide what that means for the process.

use std::collections::HashSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, readlinkat_raw};
use rustix::io::Errno;

use crate::holder;
use crate::procfs::ProcPath;

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// With its inode.
    Pipe(u64),
    /// With its inode.
    Socket(u64),
    /// `/dev/null`.
    Null,
    /// A terminal.
    Terminal,
    /// A regular file.
    File,
    /// Anything else.
    Other,
    /// The descriptor is closed.
    Closed,
    /// We may not look.
    Hidden,
}

impl End {
    /// The kind as one word, for views.
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

    /// Whether another process can be at the other end.
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

/// The kind of one descriptor of a process.
pub fn end(pid: i32, fd: i32) -> End {
    let path = ProcPath::of(pid, format_args!("fd/{fd}"));
    let mut link = [MaybeUninit::uninit(); LINK_BYTES];
    match readlinkat_raw(CWD, path.text(), &mut link) {
        // The end of a long path says nothing about the kind.
        Ok((link, _)) => End::of(&String::from_utf8_lossy(link)),
        Err(Errno::NOENT) => End::Closed,
        Err(_) => End::Hidden,
    }
}

/// Longer than every link that is not a file's path.
const LINK_BYTES: usize = 64;

/// One descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// What it is.
    pub end: End,
    /// It can be read from.
    pub reads: bool,
    /// It can be written to.
    pub writes: bool,
}

/// The descriptors of a process that are pipes or sockets, in the order of their numbers; none if we may not look.
pub fn descriptors(pid: i32) -> Option<Vec<Descriptor>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let path = entry.path();
        let Ok(link) = fs::read_link(&path) else {
            continue;
        };
        let end = End::of(&link.to_string_lossy());
        let name = entry.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if end.talks() {
            // The mode of the link says how the descriptor was opened.
            let mode = fs::symlink_metadata(&path).map_or(0, |meta| meta.mode());
            found.push(Descriptor {
                fd,
                end,
                reads: mode & 0o400 != 0,
                writes: mode & 0o200 != 0,
            });
        }
    }
    found.sort_unstable_by_key(|descriptor| descriptor.fd);
    Some(found)
}

/// The pipes and sockets that a process holds.
#[derive(Debug, Default)]
pub struct Held {
    readers: HashSet<u64>,
    writers: HashSet<u64>,
    sockets: HashSet<u64>,
    hidden: bool,
}

impl Held {
    /// Reads the descriptors of a process.
    pub fn by(pid: i32) -> Self {
        let mut held = Self::default();
        let Some(descriptors) = descriptors(pid) else {
            held.hidden = true;
            return held;
        };
        for Descriptor {
            end, reads, writes, ..
        } in descriptors
        {
            match end {
                End::Pipe(inode) => {
                    held.readers.extend(reads.then_some(inode));
                    held.writers.extend(writes.then_some(inode));
                }
                End::Socket(inode) => {
                    held.sockets.insert(inode);
                }
                End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => {}
            }
        }
        held
    }

    /// Whether we may not see its descriptors.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether it writes into this stdin; `peer` is the socket at the other end, if the stdin is a socket.
    pub fn feeds(&self, stdin: End, peer: Option<u64>) -> bool {
        match stdin {
            End::Pipe(inode) => self.writers.contains(&inode),
            End::Socket(_) => peer.is_some_and(|peer| self.sockets.contains(&peer)),
            End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => false,
        }
    }

    /// Whether it reads from this stdout.
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
    fn writer_of_stdin_and_reader_of_stdout_are_found() {
        let _lock = crate::child_lock::without_children();
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
