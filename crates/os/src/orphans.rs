//! Who reaps our children: we do, or the kernel does, at once.
//!
//! A keeper is a subreaper, so every orphan of its tree becomes its child, and thousands may end in a second. Of none of them
//! does it matter how it ended, so the kernel reaps them itself, and nobody is ever a zombie; SIGCHLD still comes, so that an
//! end is noticed. Of whom it does matter, [somebody else](crate::spawn::witness) is the parent.
//!
//! Invariant: nobody whom we start inherits that.

use std::sync::atomic::{AtomicBool, Ordering};

/// In this process the kernel reaps.
static BY_THE_KERNEL: AtomicBool = AtomicBool::new(false);

/// From now on nobody who ends is left to be reaped.
pub fn leave_to_the_kernel() {
    // Refused nowhere; were it, we would reap them, only later.
    if set(libc::SA_NOCLDWAIT) {
        BY_THE_KERNEL.store(true, Ordering::Relaxed);
    }
}

/// In a child of ours, before it does anything else: its own children are its own to reap. Only a system call, and nothing
/// is written: the child may run on our memory.
pub(crate) fn as_usual() {
    if BY_THE_KERNEL.load(Ordering::Relaxed) {
        set(0);
    }
}

/// The default disposition, with these flags: it ignores SIGCHLD, unless that is blocked and read.
fn set(flags: libc::c_int) -> bool {
    // SAFETY: zeroed is a valid action: the default, an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = flags;
    // SAFETY: a system call on a value that lives through it.
    unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) == 0 }
}
