//! Reads files of `/proc` and of the cgroup tree, whose content the kernel generates while they are read.
//!
//! Such a file reports a size of 0. The standard library asks for the size first and then reads in small steps: eight
//! system calls for a page of text. The functions here need two reads; the second one finds the end. A start reads a
//! dozen of these files.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A path below `/proc/PID`, made without allocating memory, because a scan makes thousands of them.
pub(crate) struct ProcPath([u8; PATH_BYTES]);

const PATH_BYTES: usize = 64;

impl ProcPath {
    /// `file` is one of the kernel's own short names, or `fd/N`.
    pub(crate) fn of(pid: i32, file: impl std::fmt::Display) -> Self {
        let mut path = [0; PATH_BYTES];
        let mut rest = &mut path[..PATH_BYTES - 1];
        // What does not fit is cut off, and then there is no such file.
        write!(rest, "/proc/{pid}/{file}").ok();
        Self(path)
    }

    /// For a system call.
    pub(crate) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    /// Opens it for reading.
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.text(), flags, Mode::empty())?.into())
    }
}

/// The whole file.
pub(crate) fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    // A limit that never applies. With it the standard library does not ask for the file's size.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The whole file as text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Turns a failed read into `None`: the process or file is not there or may not be read. It is an error only if we
/// had no resources to look (no descriptor, no memory), because that says nothing about what is there.
pub(crate) fn none_if_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Err(error),
            Some(_) | None => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_same_as_the_standard_library() {
        for path in ["/proc/self/mountinfo", "/proc/cpuinfo", "/proc/self/comm"] {
            assert_eq!(text(path).unwrap(), std::fs::read_to_string(path).unwrap());
        }
        let environ = "/proc/self/environ";
        assert_eq!(bytes(environ).unwrap(), std::fs::read(environ).unwrap());
        assert!(text("/proc/self/nothing").is_err());
    }
}
