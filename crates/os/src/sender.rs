//! Reads what `/proc` shows of the sender of a signal, which may be gone in the next instant.
//!
//! [`look`] runs in the shim, which is the first to read the signal. It allocates nothing and keeps the bytes as the
//! kernel gave them. The keeper parses them with [`Look::of`]. A process that reuses the pid meanwhile cannot be
//! taken for the sender: everything is read below one directory of `/proc`, which stays with the process that it was
//! opened for.

use std::io::Write;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat, readlinkat_raw};

use crate::census::Stat;

/// The size of the buffer for one look.
pub const LOOK_BYTES: usize = 1_536;
const EXE_BYTES: usize = 256;
const STAT_BYTES: usize = 512;
/// The header holds three lengths: of the executable's path, the arguments and the stat line.
const HEAD: usize = 6;

/// What `/proc` showed of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its entry in the process table.
    pub stat: Option<Stat>,
    /// The path of its executable.
    pub exe: Option<String>,
    /// Its arguments, truncated if there are many.
    pub cmdline: Vec<String>,
}

/// Reads a process's entries. Returns how many bytes were written, 0 if the process is gone.
pub fn look(pid: i32, into: &mut [u8; LOOK_BYTES]) -> usize {
    let Some(process) = directory(pid) else {
        return 0;
    };
    let (head, mut rest) = into.split_at_mut(HEAD);
    let mut at = HEAD;
    // A dying process loses its memory first, and with it `exe` and `cmdline`; its `stat` goes last. Read in that
    // order.
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
    /// Parses what [`look`] has written; `None` if the process was gone.
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
    fn look_at_ourselves_matches_the_process_table() {
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
    fn missing_process_gives_no_look() {
        let mut bytes = [0; LOOK_BYTES];
        for pid in [0, -1, i32::MAX] {
            assert_eq!(look(pid, &mut bytes), 0, "{pid}");
        }
        for bytes in [&[][..], &[9; 5], &[9; 20]] {
            assert_eq!(Look::of(bytes), None);
        }
    }
}
