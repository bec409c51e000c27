//! The witness: a process that waits for the server and records how it ends, so that the kernel may reap all our
//! other children.
//!
//! A subreaper adopts all orphans of its tree, and a dead orphan stays a zombie until it is reaped; while we wait for
//! a processor, many may pile up. The kernel reaps them at once if it is told to ([`crate::orphans`]), but then it
//! reports the exit status of no child. So the one child whose status we need is not ours but the witness's. The
//! witness waits for it, records the status, and exits. Orphans do not come to the witness, because it is no
//! subreaper.
//!
//! The witness runs in our memory, with a stack of its own, and makes its child with our descriptors. So it costs a
//! page or two, and we can read what it has made and recorded. Then it closes every descriptor.
//!
//! Invariants: until the server exists we are blocked. After that the witness touches only its report and its stack,
//! and makes no call that could fail, because a failure would write to `errno`, which is ours. All signals are
//! blocked in it. It dies with us, and the server dies with it. Its stack is unmapped only when it has ended.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_protocol::event::{Status, Usage};
use mainstay_protocol::ids::Identity;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::futex;

use super::clone::{NewChild, SignalsBlocked};
use crate::tier::cgroup::timespec;
use crate::tree::{has_ended, status_of, usage_of, wait_for};
use crate::{census, ended, orphans, turn};

const PAGE: usize = 4096;
/// Enough to become the server. Pages that are not touched cost nothing.
const STACK_BYTES: usize = 32 * PAGE;
/// How long the witness may take to record an end that has happened.
pub(crate) const RECORD_WAIT_NS: u64 = 100_000_000;
/// How often we check whether a silent witness lives.
const CHECK_NS: u64 = 100_000_000;
/// How long a killed process may take to die.
const DIE_NS: u64 = 1_000_000_000;
/// How long a child that exits by itself may take. A namespace's init takes long on a busy machine.
const LEAVE_NS: u64 = 3_000_000_000;

/// The name of the witness, and of the process that does the same within a namespace.
pub(crate) const NAME: &CStr = c"mcp-witness";

/// The witness of one server, or of the init of its namespace.
#[derive(Debug)]
pub struct Witness {
    pid: i32,
    pidfd: OwnedFd,
    /// Whether the child's end was returned.
    reported: bool,
    mapping: Mapping,
}

impl Witness {
    /// Starts a witness that makes a child and waits for it.
    pub fn start(make: impl FnMut() -> io::Result<NewChild>) -> io::Result<(NewChild, Self)> {
        let mapping = Mapping::open()?;
        // So that all signals are blocked in it from its beginning.
        let blocked = SignalsBlocked::now();
        let begun = begin(&mapping, make);
        drop(blocked);
        let (pid, pidfd, made) = begun?;
        match made {
            Some(Ok(born)) => {
                let witness = Self {
                    pid,
                    pidfd,
                    reported: false,
                    mapping,
                };
                Ok((born, witness))
            }
            Some(Err(error)) => {
                wait_exit(pid, &pidfd);
                Err(error)
            }
            // The witness was killed just now. The child that it may have made dies with it, but may use its stack
            // until then.
            None => {
                mapping.keep_mapped();
                Err(io::Error::from_raw_os_error(KILLED))
            }
        }
    }

    /// Its pid, which another process may get once the witness has been reaped.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process that was just found is the witness and not a member of the tree. While the witness lives,
    /// no other process has its pid; a later process with that pid has either ended too, or is a member.
    pub fn is(&self, pid: i32, pidfd: &OwnedFd) -> bool {
        pid == self.pid && (!has_ended(&self.pidfd, 0) || has_ended(pidfd, 0))
    }

    /// How the child with this pidfd has ended. Returned once, if it has.
    pub fn end_of(&mut self, child: &OwnedFd, who: Identity) -> Option<(Status, Usage)> {
        if self.reported || !has_ended(child, 0) {
            return None;
        }
        // The witness learns of the end at the same moment as we do.
        let gone = has_ended(&self.pidfd, RECORD_WAIT_NS);
        let end = match self.mapping.report().seen() {
            Some(ExitStatus { status, usage }) => (status_of(*status), usage_of(usage)),
            // The witness has not run yet. Its own end will wake us.
            None if !gone && !stopped(self.pid) => return None,
            None => status_without_witness(child, who),
        };
        self.reported = true;
        Some(end)
    }

    /// The child is gone. The witness ends too; if not, it is killed.
    pub fn dismiss(&self) {
        dismiss(&self.pidfd);
    }

    /// Waits for the end of the witness; its child is about to exit.
    pub fn wait_exit(self) {
        wait_exit(self.pid, &self.pidfd);
    }
}

/// The error of a start whose witness was killed. The child that it may have made uses our memory until it has
/// executed or died, and dies with the witness. The caller must keep what the child was given until then.
pub(crate) const KILLED: i32 = libc::EINTR;

fn dismiss(witness: &OwnedFd) {
    if !has_ended(witness, RECORD_WAIT_NS) {
        // If it is gone by now, that is just as good.
        pidfd_send_signal(witness, Signal::KILL).ok();
    }
}

fn wait_exit(pid: i32, witness: &OwnedFd) {
    // If the witness is killed too early, we inherit its child while that child is still exiting.
    if stopped(pid) || !has_ended(witness, LEAVE_NS) {
        dismiss(witness);
    }
    has_ended(witness, DIE_NS);
    // Needed if the kernel does not reap our children itself.
    wait_for(pid);
}

/// Whether it was stopped, so that it will not run.
pub(crate) fn stopped(pid: i32) -> bool {
    census::stat(pid).is_ok_and(|stat| matches!(stat.state, b'T' | b't'))
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !has_ended(&self.pidfd, 0) {
            self.mapping.keep_mapped();
        }
    }
}

/// How a child ended whose witness was killed or stopped. If no source tells, it ended with its witness.
pub(crate) fn status_without_witness(child: &OwnedFd, who: Identity) -> (Status, Usage) {
    if let Some(end) = wait_for(who.pid) {
        return end;
    }
    let killed = Status::Signal {
        number: libc::SIGKILL,
        core: false,
    };
    let status = ended::status(child, who).unwrap_or(killed);
    (status, Usage::default())
}

/// The memory into which the witness writes.
#[repr(C)]
struct Report {
    /// 1 until the server exists, or could not be made, or the witness is gone: then the kernel clears it.
    busy: AtomicU32,
    /// 1 once the task is done, successful or not.
    done: AtomicU32,
    /// 1 once `seen` is written. It is written once.
    written: AtomicU32,
    seen: UnsafeCell<ExitStatus>,
}

/// How the server ended, as `wait4` returned it.
struct ExitStatus {
    status: c_int,
    usage: libc::rusage,
}

impl Report {
    fn seen(&self) -> Option<&ExitStatus> {
        let written = self.written.load(Ordering::Acquire) == 1;
        // SAFETY: after `written` is set, no process writes it.
        written.then(|| unsafe { &*self.seen.get() })
    }
}

/// A guard page, the witness's stack above it, and the report above the stack.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    kept: Cell<bool>,
}

// SAFETY: a mapping belongs to the whole process; only this value unmaps it.
unsafe impl Send for Mapping {}

impl Mapping {
    const BYTES: usize = PAGE + STACK_BYTES;

    fn open() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), Self::BYTES, access, flags) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self {
            start,
            kept: Cell::new(false),
        };
        // SAFETY: the first page of a mapping that is not used yet.
        unsafe { mprotect(start.as_ptr(), PAGE, MprotectFlags::empty()) }?;
        mapping.report().busy.store(1, Ordering::Relaxed);
        Ok(mapping)
    }

    fn report_at(&self) -> *mut Report {
        let at = (Self::BYTES - size_of::<Report>()) & !63;
        // SAFETY: within the mapping, at its end, and aligned.
        unsafe { self.start.as_ptr().byte_add(at).cast() }
    }

    fn report(&self) -> &Report {
        // SAFETY: zeroed memory is a valid report; all its fields may be written while it is shared.
        unsafe { &*self.report_at() }
    }

    /// It is never unmapped, because another process may still use it.
    fn keep_mapped(&self) {
        self.kept.set(true);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.kept.get() {
            // SAFETY: our own mapping; the process that used it has ended. It cannot fail.
            unsafe { munmap(self.start.as_ptr(), Self::BYTES) }.ok();
        }
    }
}

/// What the witness gets when it begins.
struct Task<M> {
    make: M,
    made: Option<io::Result<NewChild>>,
    keeper: i32,
    report: *mut Report,
}

type Begun = (i32, OwnedFd, Option<io::Result<NewChild>>);

/// Starts the witness and blocks until it has made its child. The result is `None` if the witness was killed.
fn begin<M: FnMut() -> io::Result<NewChild>>(mapping: &Mapping, make: M) -> io::Result<Begun> {
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
    // Never dropped: a killed witness may have left a half-written value in it, and it has nothing else to drop.
    let mut task = ManuallyDrop::new(Task {
        make,
        made: None,
        keeper: std::process::id() as i32,
        report: mapping.report_at(),
    });
    let task: *mut Task<M> = &raw mut *task;
    let mut pidfd: RawFd = -1;
    // SAFETY: the stack is the mapping below the report, and only the witness uses it. The task lives until we go on,
    // and by then the witness does not use it any more. The witness keeps the invariants above.
    let pid = unsafe {
        libc::clone(
            witness_main::<M>,
            (*task).report.cast(),
            flags,
            task.cast(),
            &raw mut pidfd,
        )
    };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has put a new descriptor there, and no other value owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let busy = &mapping.report().busy;
    while busy.load(Ordering::Acquire) != 0 {
        // Not private, because the kernel's own wake-up, at the end of a killed witness, is not. A witness that was
        // killed before it could ask for that wake-up sends none, hence the time-out.
        let heard = futex::wait(busy, futex::Flags::empty(), 1, Some(&timespec(CHECK_NS)));
        if heard == Err(Errno::TIMEDOUT) && has_ended(&pidfd, 0) {
            break;
        }
    }
    // A killed witness may have left a half-written result.
    let done = mapping.report().done.load(Ordering::Acquire) == 1;
    // SAFETY: the task is ours again, and its result is read only if it is complete.
    let made = unsafe { if done { (*task).made.take() } else { None } };
    Ok((pid, pidfd, made))
}

/// The witness's whole life.
extern "C" fn witness_main<M: FnMut() -> io::Result<NewChild>>(task: *mut c_void) -> c_int {
    let task = task.cast::<Task<M>>();
    // SAFETY: the process that started us is blocked, so the task and all that it points to is ours until we clear
    // `busy`. After that only the report is ours. The calls that are left cannot fail: the child is ours and is
    // waited for once, and no signal interrupts us.
    unsafe {
        let report = (*task).report;
        // Not by a flag of the clone, because not every C library accepts that one.
        libc::syscall(libc::SYS_set_tid_address, &raw const (*report).busy);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != (*task).keeper {
            libc::_exit(1);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        turn::as_usual();
        orphans::as_usual();
        let made = ((*task).make)();
        let child = made.as_ref().map_or(0, |born| born.pid);
        (*task).made = Some(made);
        (*report).done.store(1, Ordering::Release);
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        // If the kernel does not know the flag, the table stays shared, and our descriptors are closed only when the
        // keeper closes them.
        libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, unshare);
        (*report).busy.store(0, Ordering::Release);
        futex::wake(&(*report).busy, futex::Flags::empty(), 1).ok();
        if child != 0 {
            let seen = (*report).seen.get();
            let (status, usage) = (&raw mut (*seen).status, &raw mut (*seen).usage);
            while libc::wait4(child, status, libc::__WALL, usage) != child {}
            (*report).written.store(1, Ordering::Release);
        }
        libc::_exit(0)
    }
}
