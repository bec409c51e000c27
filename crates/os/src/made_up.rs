//! Files that the kernel makes up while they are read: `/proc` and the cgroup tree.
//!
//! They say that they are empty, so the standard library reads them in small steps and asks for their size first: eight
//! calls for a page of text. Here it is two reads, the second to hear that it was all. A start reads a dozen of them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// One of them, whole.
pub(crate) fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    // A limit that is none, so that nobody asks the file for its size.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One that holds text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// What was read of somebody, or that there is nothing to be read of it. An error only if we had no means to look: that
/// says nothing about what is there.
pub(crate) fn seen<T>(read: io::Result<T>) -> io::Result<Option<T>> {
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
    fn as_the_standard_library_reads_it() {
        for path in ["/proc/self/mountinfo", "/proc/cpuinfo", "/proc/self/comm"] {
            assert_eq!(text(path).unwrap(), std::fs::read_to_string(path).unwrap());
        }
        let environ = "/proc/self/environ";
        assert_eq!(bytes(environ).unwrap(), std::fs::read(environ).unwrap());
        assert!(text("/proc/self/nothing").is_err());
    }
}
