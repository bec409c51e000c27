//! The mark: a tree's tag as a number that an emptied environment does not lose.
//!
//! A resource limit goes from parent to child over fork and exec, whatever becomes of the environment, the session and the
//! parent. `RLIMIT_RTTIME` limits real-time processes only and is unlimited nearly everywhere: a number above 2^62
//! (microseconds) limits nothing either. So it can hold the tag's number, and a member is known by one system call.
//!
//! A mark names no owner by itself: it is only compared with the mark of a tag that is known from elsewhere. A client that has
//! set this limit keeps what it has set, and its server has no mark. A member may remove its mark, as it may remove its tag.

use mainstay_core::ids::{Tag, is_mark};

/// Marks this process and all that it will make. Only system calls, for a fresh clone.
///
/// # Safety
/// None beyond that: it may be called at any time.
pub(crate) unsafe fn put(mark: u64) {
    let mut limit = UNKNOWN;
    // SAFETY: the structure is ours, and valid for reading and writing.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) == 0 && is_free(limit) {
            limit.rlim_cur = mark;
            // Refused: then there is no mark.
            libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limit);
        }
    }
}

/// Whether a process bears the mark of this tag.
pub(crate) fn is(pid: i32, tag: &Tag) -> bool {
    let mut limit = UNKNOWN;
    // SAFETY: as above; nothing is set.
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_RTTIME, std::ptr::null(), &raw mut limit) };
    read == 0 && limit.rlim_cur == tag.mark()
}

const UNKNOWN: libc::rlimit = libc::rlimit {
    rlim_cur: 0,
    rlim_max: 0,
};

/// Whether the limit says nothing, or only who an outer tree belongs to.
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
