//! Waiting for conditions that the kernel does not report: files of another process, states of a process.
//!
//! A condition ends the wait, never a time. The limit only turns a hang into a readable failure.

use std::time::Duration;

use mainstay_os::{census, clock};
use mainstay_protocol::clock::Moment;
use rustix::event::{PollFd, Timespec, poll};

/// When a wait is given up as a hang. Far above anything that a loaded machine needs.
pub const HANG_STOP: Duration = Duration::from_mins(1);

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Moment);

impl Deadline {
    /// This long from now.
    pub fn after(limit: Duration) -> Self {
        Self(clock::now().after_ms(limit.as_millis() as u64))
    }

    /// Whether it is over.
    pub fn passed(self) -> bool {
        clock::now() >= self.0
    }

    /// The time that is left, in the form for `poll`.
    pub fn left(self) -> Timespec {
        span(Duration::from_nanos(self.0 - clock::now()))
    }
}

/// A duration in the form for `poll`.
pub fn span(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Does nothing for some time. For misbehaviour and for the gaps in a client's kill habit, never to "let something happen".
pub fn idle(time: Duration) {
    let end = Deadline::after(time);
    while !end.passed() {
        poll_for(&mut [], end.left());
    }
}

/// Polls. An interrupted call counts as a time-out, because every caller checks again anyway.
pub fn poll_for(fds: &mut [PollFd<'_>], time: Timespec) -> usize {
    poll(fds, Some(&time)).unwrap_or(0)
}

/// Looks until there is a value. Panics with `what` if there never is one.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Deadline::after(HANG_STOP);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(!end.passed(), "gave up waiting: {what}");
        poll_for(&mut [], span(Duration::from_millis(3)));
    }
}

/// Waits until every child of this process has executed its program. Until then, a child that another test has just started has
/// copies of all our descriptors: a pipe that we have closed is still open, and a lock that we have released is still held.
pub fn children_executed() {
    until("all children have executed their programs", || {
        let children = census::children(std::process::id() as i32).unwrap_or_default();
        let waits =
            |pid: i32| census::forked_only(pid) && census::stat(pid).is_ok_and(|stat| !stat.dead());
        (!children.into_iter().any(waits)).then_some(())
    });
}
