//! How a process ended that is not our child.
//!
//! There are two sources. The kernel answers about a pidfd once the process has been reaped (Linux 6.15). Until then
//! the zombie's entry in the process table has the status. If neither source answers, that is no error: the status is
//! unknown.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mainstay_protocol::event::Status;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tree::status_of;
use crate::{census, identity};

/// In the flags of `/proc/PID/stat`: the process is exiting.
const PF_EXITING: u64 = 0x4;

/// The exit status of this process, if the kernel tells; the pidfd must belong to it.
pub fn status(pidfd: &OwnedFd, who: Identity) -> Option<Status> {
    // The process may be reaped between the two questions, so the first is asked again.
    by_pidfd(pidfd)
        .or_else(|| by_entry(who))
        .or_else(|| by_pidfd(pidfd))
}

/// Whether it has ended. If it is exiting, this waits for a moment.
pub fn ended(pidfd: &OwnedFd, who: Identity) -> bool {
    let wait = if leaving(who) { limits::EXITING_MS } else { 0 };
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    let within = Timespec {
        tv_sec: 0,
        tv_nsec: (wait * 1_000_000) as i64,
    };
    poll(&mut fds, Some(&within)).is_ok_and(|n| n > 0)
}

fn by_pidfd(pidfd: &OwnedFd) -> Option<Status> {
    let info = info(pidfd)?;
    let told = info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0;
    told.then(|| status_of(info.exit_code))
}

/// What the kernel says about a pidfd; `None` if it does not know the question.
fn info(pidfd: &OwnedFd) -> Option<libc::pidfd_info> {
    let mut info = MaybeUninit::<libc::pidfd_info>::zeroed();
    // SAFETY: zeroed is valid for a struct of integers; the kernel writes as much of it as the request's size says.
    unsafe {
        (*info.as_mut_ptr()).mask = u64::from(libc::PIDFD_INFO_EXIT);
        let done = libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, info.as_mut_ptr());
        (done == 0).then(|| info.assume_init())
    }
}

/// A zombie's entry ends with its status. To users other than its owner the kernel shows 0 there, which would be
/// wrong.
fn by_entry(who: Identity) -> Option<Status> {
    let mine = census::uid(who.pid)? == rustix::process::geteuid().as_raw();
    let stat = census::stat(who.pid).ok()?;
    if !mine || stat.who() != who || !stat.dead() {
        return None;
    }
    let status = field(who.pid, 52)?;
    // Another process may have got the pid while the entry was read.
    (identity::of(who.pid).ok()? == who).then(|| status_of(status as i32))
}

fn leaving(who: Identity) -> bool {
    field(who.pid, 9).is_some_and(|flags| flags & PF_EXITING != 0)
}

/// A field of `/proc/PID/stat` by its number in proc(5).
pub(crate) fn field(pid: i32, number: usize) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = text.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Handle;

    /// The status is known while the child is a zombie, and after it was reaped if the kernel can tell.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes that end")]
    fn status_is_known_before_and_after_reaping() {
        let _lock = crate::child_lock::with_children();
        for (script, status) in [
            ("read line; exit 7", Status::Code(7)),
            ("read line; exit 0", Status::Code(0)),
            (
                "read line; kill -9 $$",
                Status::Signal {
                    number: 9,
                    core: false,
                },
            ),
        ] {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let who = identity::of(child.id() as i32).unwrap();
            let handle = Handle::open(who).unwrap();
            drop(child.stdin.take());
            assert!(handle.wait_ended(60_000));
            let fd = handle.into_fd();
            assert_eq!(super::status(&fd, who), Some(status), "a zombie");
            assert!(ended(&fd, who));
            child.wait().unwrap();
            // An older kernel does not know the question.
            let told = info(&fd).is_some_and(|info| info.mask != 0);
            assert_eq!(super::status(&fd, who), told.then_some(status), "reaped");
        }
    }

    #[test]
    fn living_process_has_no_status() {
        let me = identity::me().unwrap();
        let fd = Handle::open(me).unwrap().into_fd();
        assert_eq!(status(&fd, me), None);
        assert!(!ended(&fd, me));
    }
}
