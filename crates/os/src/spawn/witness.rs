//! Who sees how the server ends, so that the kernel may reap everybody else.
//!
//! To a subreaper come all the orphans of its tree, and a dead one stays until it is reaped: as many of them as end while
//! we wait for our turn on a processor. The kernel reaps them at once if it is told to ([`crate::orphans`]), but then it says
//! of no child how it ended. So the one child of whom we want to know is not ours: it is the witness's, a process that waits
//! for it, writes down what it saw, and leaves. Orphans pass the witness by, for it is no subreaper.
//!
//! The witness runs on our memory, with a stack of its own, and makes its child on our descriptors: it costs a page or two,
//! what it has made and writes down is there for us to read, and then it lets go of every descriptor.
//!
//! Invariants: until the server is there we stand still; after that the witness touches nothing but its desk and its stack,
//! and makes no call that could fail (which would write to `errno`, which is ours). It lets no signal in. It ends with us,
//! and the server with it. Its stack is given back only when it has ended.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_core::event::{Status, Usage};
use mainstay_core::ids::Identity;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::futex;

use super::clone::{Born, Closed};
use crate::tier::cgroup::timespec;
use crate::tree::{has_ended, status_of, usage_of, wait_for};
use crate::{census, ended, orphans, turn};

const PAGE: usize = 4096;
/// Room for what it takes to become the server. What is not touched costs nothing.
const STACK_BYTES: usize = 32 * PAGE;
/// How long the witness may take to tell of an end that has happened.
pub(crate) const HEAR_OUT_NS: u64 = 100_000_000;
/// How often we look whether a witness lives that has not said a word.
const LOOK_NS: u64 = 100_000_000;
/// How long somebody may take to die who was killed.
const DIE_NS: u64 = 1_000_000_000;
/// How long a child that is exiting by itself may take. A namespace's init takes long on a busy machine.
const LEAVE_NS: u64 = 3_000_000_000;

/// What it is called, and so is whoever does the same within a namespace.
pub(crate) const NAME: &CStr = c"mcp-witness";

/// The witness of one server, or of the init of its namespace.
#[derive(Debug)]
pub struct Witness {
    pid: i32,
    pidfd: OwnedFd,
    /// Whether the child's end was told.
    told: bool,
    room: Room,
}

impl Witness {
    /// Starts a witness that makes a child and waits for it.
    pub fn start(make: impl FnMut() -> io::Result<Born>) -> io::Result<(Born, Self)> {
        let room = Room::open()?;
        // So that it has no signal let in, from its beginning.
        let closed = Closed::now();
        let begun = begin(&room, make);
        drop(closed);
        let (pid, pidfd, made) = begun?;
        match made {
            Some(Ok(born)) => {
                let witness = Self {
                    pid,
                    pidfd,
                    told: false,
                    room,
                };
                Ok((born, witness))
            }
            Some(Err(error)) => {
                see_off(pid, &pidfd);
                Err(error)
            }
            // Somebody killed it just now. Whom it may have made dies with it, and may be on its stack until then.
            None => {
                room.leave_as_it_is();
                Err(io::Error::from_raw_os_error(KILLED))
            }
        }
    }

    /// Its number, which is another's once it has been reaped.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether whoever was just met is the witness, and no member of the tree: nobody else has its number while it lives,
    /// and whoever has it later may have ended, too.
    pub fn is(&self, pid: i32, pidfd: &OwnedFd) -> bool {
        pid == self.pid && (!has_ended(&self.pidfd, 0) || has_ended(pidfd, 0))
    }

    /// How the child, whose pidfd this is, has ended: once, if it has.
    pub fn end_of(&mut self, child: &OwnedFd, who: Identity) -> Option<(Status, Usage)> {
        if self.told || !has_ended(child, 0) {
            return None;
        }
        // The witness hears of it when we do.
        let gone = has_ended(&self.pidfd, HEAR_OUT_NS);
        let end = match self.room.desk().seen() {
            Some(Seen { status, usage }) => (status_of(*status), usage_of(usage)),
            // It has not had its turn yet: its own end will tell.
            None if !gone && !stopped(self.pid) => return None,
            None => unseen(child, who),
        };
        self.told = true;
        Some(end)
    }

    /// The child is gone: so is the witness, or it is ended.
    pub fn dismiss(&self) {
        dismiss(&self.pidfd);
    }

    /// Waits for its end: its child is about to leave.
    pub fn see_off(self) {
        see_off(self.pid, &self.pidfd);
    }
}

/// The error of a start whose witness somebody has killed. The child that it may have made is on our memory until it has
/// executed or died, and dies of that: whoever gets this keeps what the child was given until then.
pub(crate) const KILLED: i32 = libc::EINTR;

fn dismiss(witness: &OwnedFd) {
    if !has_ended(witness, HEAR_OUT_NS) {
        // Gone by now is as good.
        pidfd_send_signal(witness, Signal::KILL).ok();
    }
}

fn see_off(pid: i32, witness: &OwnedFd) {
    // A witness that is killed too early leaves its child to us while that child is still exiting.
    if stopped(pid) || !has_ended(witness, LEAVE_NS) {
        dismiss(witness);
    }
    has_ended(witness, DIE_NS);
    // Where the kernel does not reap.
    wait_for(pid);
}

/// Whether somebody has stopped it, so that it will not have its turn.
pub(crate) fn stopped(pid: i32) -> bool {
    census::stat(pid).is_ok_and(|stat| matches!(stat.state, b'T' | b't'))
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !has_ended(&self.pidfd, 0) {
            self.room.leave_as_it_is();
        }
    }
}

/// How a child ended whose witness was killed or stopped. If nobody knows, it ended with its witness.
pub(crate) fn unseen(child: &OwnedFd, who: Identity) -> (Status, Usage) {
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

/// Where the witness writes.
#[repr(C)]
struct Desk {
    /// 1 until the server is there, or could not be made, or the witness is gone: then the kernel clears it.
    busy: AtomicU32,
    /// 1 once the task is done, whatever came of it.
    done: AtomicU32,
    /// 1 once the rest is written, which it is once.
    written: AtomicU32,
    seen: UnsafeCell<Seen>,
}

/// How the server ended, in the kernel's words.
struct Seen {
    status: c_int,
    usage: libc::rusage,
}

impl Desk {
    fn seen(&self) -> Option<&Seen> {
        let written = self.written.load(Ordering::Acquire) == 1;
        // SAFETY: nobody writes it any more.
        written.then(|| unsafe { &*self.seen.get() })
    }
}

/// The witness's stack, a page below it that nobody may touch, and the desk above it.
#[derive(Debug)]
struct Room {
    start: NonNull<c_void>,
    kept: Cell<bool>,
}

// SAFETY: a mapping is the whole process's; this value alone gives it back.
unsafe impl Send for Room {}

impl Room {
    const BYTES: usize = PAGE + STACK_BYTES;

    fn open() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), Self::BYTES, access, flags) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let room = Self {
            start,
            kept: Cell::new(false),
        };
        // SAFETY: the first page of a mapping that nobody uses yet.
        unsafe { mprotect(start.as_ptr(), PAGE, MprotectFlags::empty()) }?;
        room.desk().busy.store(1, Ordering::Relaxed);
        Ok(room)
    }

    fn desk_at(&self) -> *mut Desk {
        let at = (Self::BYTES - size_of::<Desk>()) & !63;
        // SAFETY: within the mapping, whose last bytes it is, and aligned.
        unsafe { self.start.as_ptr().byte_add(at).cast() }
    }

    fn desk(&self) -> &Desk {
        // SAFETY: zeroed memory is a desk; all of it may be written while it is shared.
        unsafe { &*self.desk_at() }
    }

    /// It is never given back: somebody may be in it.
    fn leave_as_it_is(&self) {
        self.kept.set(true);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.kept.get() {
            // SAFETY: our own mapping; whoever worked in it has ended. It cannot fail.
            unsafe { munmap(self.start.as_ptr(), Self::BYTES) }.ok();
        }
    }
}

/// What the witness finds when it begins.
struct Task<M> {
    make: M,
    made: Option<io::Result<Born>>,
    keeper: i32,
    desk: *mut Desk,
}

type Begun = (i32, OwnedFd, Option<io::Result<Born>>);

/// Starts it, and stands still until it has made its child; nothing was made if somebody has killed it.
fn begin<M: FnMut() -> io::Result<Born>>(room: &Room, make: M) -> io::Result<Begun> {
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
    // Never dropped: a killed witness may have left half a word in it, and there is nothing else to drop.
    let mut task = ManuallyDrop::new(Task {
        make,
        made: None,
        keeper: std::process::id() as i32,
        desk: room.desk_at(),
    });
    let task: *mut Task<M> = &raw mut *task;
    let mut pidfd: RawFd = -1;
    // SAFETY: the stack is the room below the desk, and the witness's alone; the task is there until we go on, which is when
    // the witness has let go of it; it keeps the invariants above.
    let pid = unsafe {
        libc::clone(
            watch::<M>,
            (*task).desk.cast(),
            flags,
            task.cast(),
            &raw mut pidfd,
        )
    };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has put a new descriptor there, which nobody else knows of.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let busy = &room.desk().busy;
    while busy.load(Ordering::Acquire) != 0 {
        // Not private: the kernel's own wake-up, at the end of a killed witness, is not. One that was killed before it could
        // ask for that wakes nobody.
        let heard = futex::wait(busy, futex::Flags::empty(), 1, Some(&timespec(LOOK_NS)));
        if heard == Err(Errno::TIMEDOUT) && has_ended(&pidfd, 0) {
            break;
        }
    }
    // A witness that was killed may have left half a word.
    let done = room.desk().done.load(Ordering::Acquire) == 1;
    // SAFETY: the task is ours again, and its end is read only if it is whole.
    let made = unsafe { if done { (*task).made.take() } else { None } };
    Ok((pid, pidfd, made))
}

/// The witness's whole life.
extern "C" fn watch<M: FnMut() -> io::Result<Born>>(task: *mut c_void) -> c_int {
    let task = task.cast::<Task<M>>();
    // SAFETY: whoever started us stands still, so the task, and all that it points to, is ours until we say that we are
    // not busy any more. From then on only the desk is, and the calls that are left cannot fail: the child is ours and is
    // waited for once, and no signal interrupts us.
    unsafe {
        let desk = (*task).desk;
        // Not by a flag of the clone: not every C library takes that one.
        libc::syscall(libc::SYS_set_tid_address, &raw const (*desk).busy);
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
        (*desk).done.store(1, Ordering::Release);
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        // Where that is not known, our descriptors are closed when we close them: the table is one.
        libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, unshare);
        (*desk).busy.store(0, Ordering::Release);
        futex::wake(&(*desk).busy, futex::Flags::empty(), 1).ok();
        if child != 0 {
            let seen = (*desk).seen.get();
            let (status, usage) = (&raw mut (*seen).status, &raw mut (*seen).usage);
            while libc::wait4(child, status, libc::__WALL, usage) != child {}
            (*desk).written.store(1, Ordering::Release);
        }
        libc::_exit(0)
    }
}
