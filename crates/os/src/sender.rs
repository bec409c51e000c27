//! A look at the sender of a signal, who may be gone in the next instant.
//!
//! [`look`] runs in the shim, which is the first to read the signal: it allocates nothing and leaves the bytes as the
//! kernel gave them. [`Look::of`] makes sense of them in the keeper. A pid that is reused meanwhile cannot be taken for the
//! sender: everything is read below one directory of `/proc`, which stays with the process that it was opened for.

use std::io::Write;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat, readlinkat_raw};

use crate::census::Stat;

/// Room for one look.
pub const LOOK_BYTES: usize = 1_536;
const EXE_BYTES: usize = 256;
const STAT_BYTES: usize = 512;
/// Three lengths in front: file, arguments, stat.
const HEAD: usize = 6;

/// What was seen of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What the process table says of it.
    pub stat: Option<Stat>,
    /// The file that it runs.
    pub exe: Option<String>,
    /// Its arguments, the first of them if there are many.
    pub cmdline: Vec<String>,
}

/// Looks at a process; how many bytes were written, 0 if it is gone.
pub fn look(pid: i32, into: &mut [u8; LOOK_BYTES]) -> usize {
    let Some(process) = directory(pid) else {
        return 0;
    };
    let (head, mut rest) = into.split_at_mut(HEAD);
    let mut at = HEAD;
    // What goes first when a process ends is read first: its memory, and with it file and arguments, before its entry.
    let exe_room = &mut rest[..EXE_BYTES];
    let exe = readlinkat_raw(&process, c"exe", &mut *exe_room).unwrap_or(0);
    rest = &mut rest[exe..];
    at += exe;
    let room = rest.len() - STAT_BYTES;
    let cmdline = read(&process, c"cmdline", &mut rest[..room]);
    rest = &mut rest[cmdline..];
    at += cmdline;
    let stat = read(&process, c"stat", &mut rest[..STAT_BYTES]);
    at += stat;
    if exe + cmdline + stat == 0 {
        return 0;
    }
    for (slot, len) in head.chunks_exact_mut(2).zip([exe, cmdline, stat]) {
        slot.copy_from_slice(&(len as u16).to_le_bytes());
    }
    at
}

impl Look {
    /// Reads what [`look`] has written; `None` if the process was gone.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let len = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (exe, rest) = rest.split_at_checked(len(0))?;
        let (cmdline, rest) = rest.split_at_checked(len(2))?;
        let stat = Stat::parse(rest.get(..len(4))?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self {
            stat,
            exe: (!exe.is_empty()).then(|| text(exe)),
            cmdline: cmdline
                .split(|&b| b == 0)
                .filter(|part| !part.is_empty())
                .map(text)
                .collect(),
        })
    }
}

fn directory(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    let mut path = [0u8; 24];
    write!(&mut path[..], "/proc/{pid}").ok()?;
    let end = path.iter().position(|&b| b == 0)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&path[..end], flags, Mode::empty()).ok()
}

fn read(process: &OwnedFd, name: &std::ffi::CStr, into: &mut [u8]) -> usize {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(process, name, flags, Mode::empty())
        .and_then(|file| rustix::io::read(file, into))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_see_ourselves() {
        let me = std::process::id() as i32;
        let mut bytes = [0; LOOK_BYTES];
        let len = look(me, &mut bytes);
        let seen = Look::of(&bytes[..len]).unwrap();
        let stat = seen.stat.unwrap();
        let other = crate::census::stat(me).unwrap();
        assert_eq!(
            (stat.who(), stat.ppid, stat.comm),
            (other.who(), other.ppid, other.comm)
        );
        let exe = std::env::current_exe().unwrap();
        assert_eq!(seen.exe.as_deref(), exe.to_str());
        assert_eq!(seen.cmdline, crate::census::cmdline(me));
    }

    #[test]
    fn nobody_is_seen_where_nobody_is() {
        let mut bytes = [0; LOOK_BYTES];
        for pid in [0, -1, i32::MAX] {
            assert_eq!(look(pid, &mut bytes), 0, "{pid}");
        }
        for bytes in [&[][..], &[9; 5], &[9; 20]] {
            assert_eq!(Look::of(bytes), None);
        }
    }
}
