//! The mark: a tree's tag as a number that survives an emptied environment.
//!
//! A resource limit passes from parent to child over fork and exec, whatever happens to the environment, the session
//! and the parent. `RLIMIT_RTTIME` limits real-time processes only and is unlimited nearly everywhere. A number above
//! 2^62 (microseconds) has no effect either. So the limit can hold the tag's number, and one system call tells
//! whether a process is a member.
//!
//! A mark alone names no owner. It is only compared with the mark of a tag that is known from elsewhere. A client
//! that has set this limit keeps its value, and then its server has no mark. A member may remove its mark, just as it
//! may remove its tag.

use mainstay_protocol::ids::{Tag, is_mark};

/// Marks this process and all its future descendants. Only system calls, so a fresh clone may call it.
///
/// # Safety
/// No further condition: it may be called at any time.
pub(crate) unsafe fn set(mark: u64) {
    let mut limit = UNKNOWN;
    // SAFETY: the structure is ours, and valid for reading and writing.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) == 0 && is_free(limit) {
            limit.rlim_cur = mark;
            // If this is refused, the tree has no mark.
            libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit);
        }
    }
}

/// Whether a process carries the mark of this tag.
pub(crate) fn is_on(pid: i32, tag: &Tag) -> bool {
    let mut limit = UNKNOWN;
    // SAFETY: as above; nothing is set.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit) };
    read == 0 && limit.rlim_cur == tag.mark()
}

/// Whether a process may carry a mark: its limit is not unlimited, or we may not read it.
pub(crate) fn may_be_on(pid: i32) -> bool {
    let mut limit = UNKNOWN;
    // SAFETY: as above; nothing is set.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit) };
    read != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}

/// Whether the trees of a client that was started as we were can have a mark.
pub(crate) fn is_usual() -> bool {
    let mut limit = UNKNOWN;
    // SAFETY: the structure is ours, and valid for writing.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) };
    read == 0 && is_free(limit)
}

const UNKNOWN: libc::rlimit = libc::rlimit {
    rlim_cur: 0,
    rlim_max: 0,
};

/// Whether the limit has no effect: it is unlimited, or it is the mark of an outer tree.
fn is_free(limit: libc::rlimit) -> bool {
    let unlimited = libc::RLIM_INFINITY;
    limit.rlim_max == unlimited && (limit.rlim_cur == unlimited || is_mark(limit.rlim_cur))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_the_client_has_set_is_kept() {
        let unlimited = libc::RLIM_INFINITY;
        for (rlim_cur, rlim_max, free) in [
            (unlimited, unlimited, true),
            (1 << 62 | 0x77, unlimited, true),
            (200_000, unlimited, false),
            (200_000, 200_000, false),
            (1 << 62 | 0x77, 1 << 62 | 0x77, false),
        ] {
            assert_eq!(is_free(libc::rlimit { rlim_cur, rlim_max }), free);
        }
    }
}
