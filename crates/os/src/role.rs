//! Forking one of our own roles: a child that runs a function and exits, without exec.
//!
//! Only while this process has one thread. The child shares our pages, which is why guard and shim cost 30 KB each.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use mainstay_protocol::ids::Identity;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Signal, WaitOptions, getrlimit, kill_process, waitpid};

use crate::identity::{self, Handle};
use crate::{orphans, turn, vfork};

/// Forks. The child runs `role` and exits with its result; the parent gets the child's pid.
pub fn start(role: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: this process has a single thread (an invariant of the shim, the guard and the keeper), so the child may
    // go on using the heap and everything else that it inherits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            reset_inherited();
            exit_now(role())
        }
        pid => Ok(pid),
    }
}

/// Like [`start`], but returns the child's identity. If that cannot be read, the child is ended.
pub fn start_known(role: impl FnOnce() -> u8) -> io::Result<Identity> {
    let pid = start(role)?;
    // The child has just been started and is not reaped, so the pid is its own.
    identity::of(pid).inspect_err(|_| end(pid))
}

/// Like [`start`], for a child that only waits until [`dismiss`] ends it.
pub fn start_held(role: impl FnOnce() -> u8) -> io::Result<Handle> {
    let who = start_known(role)?;
    Handle::open(who).inspect_err(|_| end(who.pid))
}

/// The error of [`start_detached`] if its intermediate process was killed: the child may have been started.
pub(crate) const KILLED: i32 = libc::EINTR;

/// Like [`start`], but the child leaves our process tree: its parent exits at once, so that init or a subreaper
/// adopts it. That parent does nothing else, so it needs no copy of us.
pub fn start_detached<R: FnOnce() -> u8>(mut role: R) -> io::Result<()> {
    let with = (&raw mut role).cast();
    // SAFETY: the intermediate process forks and exits. The role lives until we go on, and we drop what it holds.
    let intermediate = match unsafe { vfork::start([0; 11], 64, fork_and_exit::<R>, with) } {
        Ok(pid) => pid,
        Err(_) => start(|| fork_and_exit::<R>(with))?,
    };
    match wait(intermediate)? {
        Some(0) => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.unwrap_or(KILLED))),
    }
}

/// Starts the role in a child, and exits.
extern "C" fn fork_and_exit<R: FnOnce() -> u8>(role: *mut c_void) -> ! {
    // SAFETY: one thread, as for any fork of ours. The child has a copy of the role and consumes it by calling it.
    match unsafe { libc::fork() } {
        0 => {
            reset_inherited();
            // SAFETY: the caller gave us a role of this type.
            exit_now(unsafe { role.cast::<R>().read() }())
        }
        -1 => exit_now(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EAGAIN) as u8,
        ),
        _ => exit_now(0),
    }
}

/// Checks that this many more processes can run at the same time: starts that many children, which wait for each
/// other.
pub fn room_for(count: usize) -> io::Result<()> {
    let (wait, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut waiting = Vec::with_capacity(count);
    let gate_fd = gate.as_raw_fd();
    let mut room = Ok(());
    while room.is_ok() && waiting.len() < count {
        let started = start(|| {
            close_parents([gate_fd]);
            // Nothing ever arrives but the end of file.
            rustix::io::read(&wait, &mut [0]).ok();
            0
        });
        room = started.map(|pid| waiting.push(pid));
    }
    drop(gate);
    for pid in waiting {
        drop(self::wait(pid));
    }
    room
}

/// Like [`start`], for a child that works without us and reports its exit code over a pipe, so that no process has to
/// wait for it. It has none of our descriptors.
pub fn start_helper(role: impl FnOnce() -> u8) -> io::Result<HelperProcess> {
    let (told, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    start(|| {
        release_stdio();
        close_all_but(&mut [tell.as_raw_fd()]);
        let code = role();
        // If we no longer read the pipe, we have started another helper meanwhile.
        rustix::io::write(&tell, &[code]).ok();
        code
    })?;
    Ok(HelperProcess(told))
}

/// A child that [`start_helper`] has started.
#[derive(Debug)]
pub struct HelperProcess(OwnedFd);

impl HelperProcess {
    /// Once it has ended, which also raises SIGCHLD: its code, or an inner `None` if it was killed before.
    pub fn over(&self) -> Option<Option<u8>> {
        let mut code = [0];
        match rustix::io::read(&self.0, &mut code) {
            Ok(0) => Some(None),
            Ok(_) => Some(Some(code[0])),
            Err(_) => None,
        }
    }
}

/// Undoes in a child what a keeper has set for itself.
fn reset_inherited() {
    turn::as_usual();
    orphans::as_usual();
}

/// Waits for a child of ours. Returns its exit code, or `None` if a signal ended it.
pub fn wait(pid: i32) -> io::Result<Option<i32>> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status.exit_status()),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Exits at once: no destructors, no handlers, no flushing of buffers that belong to the parent.
fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` may be called at any time.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Starts a session of our own; a process that leads one already stays in it.
pub fn own_session() {
    rustix::process::setsid().ok();
}

/// Lowers our priority from now on, so that other processes go first.
pub fn be_patient() {
    // Never refused, because it asks for less.
    rustix::process::nice(10).ok();
}

/// Adopts the orphans of our descendants from now on.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: a prctl with plain integer arguments.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Closes every descriptor above 2, because we must not hold open what a client leaked to us. Called first in `main`,
/// before any value of ours owns a descriptor.
pub fn close_inherited() {
    close_from(3, RawFd::MAX);
}

/// Closes these in a role that was just forked. They belong to its parent, and the role never uses or drops the
/// values that own them. Where the limit is low, a role must not hold descriptors that it does not need.
pub(crate) fn close_parents<const N: usize>(descriptors: [RawFd; N]) {
    for fd in descriptors {
        close_from(fd, fd);
    }
}

/// Closes every descriptor above 2 but these: for a role that is forked from a running keeper, whose copies of the
/// server's pipes would keep the server from ever seeing EOF.
pub fn close_all_but(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 3;
    for &mut fd in kept {
        close_from(first, fd - 1);
        first = fd + 1;
    }
    close_from(first, RawFd::MAX);
}

fn close_from(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: no value owns these descriptors yet, or the caller never uses or drops the values that did: it leaves
    // by `_exit`.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // A kernel or a filter that does not know the call: close those that are open, or if they cannot be listed, all
    // numbers.
    let close = |fd: RawFd| {
        // SAFETY: as above; a number that is not open is refused.
        unsafe { libc::close(fd) };
    };
    if let Ok(open) = open_descriptors() {
        let open = open.into_iter().filter(|fd| (first..=last).contains(fd));
        return open.for_each(close);
    }
    let most = getrlimit(Resource::Nofile).current;
    let most = most.map_or(COUNT_MAX, |most| most.min(COUNT_MAX as u64) as RawFd);
    (first..=last.min(most)).for_each(close);
}

/// Descriptors that are closed one by one if they cannot be listed.
const COUNT_MAX: RawFd = 65_536;

fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// One of the three descriptors that every process has: the Rust runtime opens those of 0, 1 and 2 that are missing.
pub fn standard(fd: RawFd) -> BorrowedFd<'static> {
    debug_assert!((0..3).contains(&fd));
    // SAFETY: 0, 1 and 2 are open until the client's pipes are released; after that no code asks for them.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Ends a child of ours that only waits, and reaps it. The kernel refuses the signal once the child has been reaped,
/// because from then on another process may have its pid.
pub fn dismiss(child: &Handle) {
    if child.signal(Signal::KILL).is_ok() {
        drop(wait(child.who.pid));
    }
}

/// Ends a child that was forked a moment ago, and reaps it.
pub(crate) fn end(child: i32) {
    if let Some(pid) = Pid::from_raw(child) {
        kill_process(pid, Signal::KILL).ok();
        drop(wait(child));
    }
}

/// Makes a client's pipes our descriptors 0, 1 and 2.
pub fn take_stdio(stdio: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    for (fd, new) in (0..3).zip(stdio) {
        // SAFETY: dup2 onto the standard descriptors, which nothing in this process owns as a Rust value.
        if unsafe { libc::dup2(new.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Releases the client's pipes in any case: 0, 1 and 2 become `/dev/null`, or are closed if that cannot be opened.
pub fn release_stdio() {
    let null = open_null().or_else(|_| {
        // If all descriptors are in use, closing the first of the client's makes room.
        // SAFETY: nothing in this process owns a standard descriptor as a Rust value.
        unsafe { libc::close(0) };
        open_null()
    });
    for fd in 0..3 {
        // SAFETY: as above.
        unsafe {
            match &null {
                Ok(null) => libc::dup2(null.as_raw_fd(), fd),
                Err(_) => libc::close(fd),
            }
        };
    }
    if let Ok(null) = null
        && null.as_raw_fd() < 3
    {
        // It is one of the three by now.
        std::mem::forget(null);
    }
}

/// A file that is empty and stays empty.
fn open_null() -> io::Result<OwnedFd> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty());
    let null = null.or_else(|_| {
        let none = memfd_create("null", MemfdFlags::ALLOW_SEALING)?;
        fcntl_add_seals(&none, SealFlags::GROW)?;
        Ok(none)
    });
    null.map_err(|error: rustix::io::Errno| error.into())
}

#[cfg(test)]
mod tests {
    //! guards: Ending a child that was already reaped signals no other process.

    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn dismissing_a_reaped_child_touches_no_other_process() {
        #[expect(clippy::disallowed_methods, reason = "a child to be reaped")]
        let start = || {
            std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap()
        };
        let held = |child: &std::process::Child| {
            Handle::open(identity::of(child.id() as i32).unwrap()).unwrap()
        };
        let mut reaped = start();
        let handle = held(&reaped);
        reaped.kill().unwrap();
        reaped.wait().unwrap();
        let mut other = start();
        let stays = held(&other);
        dismiss(&handle);
        assert!(!stays.ended());
        // A child that waits is ended and reaped.
        dismiss(&stays);
        assert!(stays.ended() && other.wait().is_err());
    }

    #[test]
    fn helper_reports_its_code_or_that_it_was_killed() {
        let _lock = crate::child_lock::with_children();
        let told = |role: fn() -> u8| {
            let helper = start_helper(role).unwrap();
            let mut fds = [PollFd::new(&helper.0, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
            helper.over()
        };
        assert_eq!(told(|| 3), Some(Some(3)));
        let killed = told(|| {
            end(rustix::process::getpid().as_raw_nonzero().get());
            3
        });
        assert_eq!(killed, Some(None));
        let (quiet, _tell) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        assert_eq!(HelperProcess(quiet).over(), None);
    }
}
