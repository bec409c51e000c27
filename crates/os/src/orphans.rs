//! Who reaps our children: we do, or the kernel does, at once.
//!
//! A keeper is a subreaper, so every orphan of its tree becomes its child, and thousands may end in a second. Of none of them
//! does it matter how it ended, so the kernel reaps them itself, and nobody is ever a zombie; SIGCHLD still comes, so that an
//! end is noticed. Of whom it does matter, its witness (`spawn/witness.rs`) is the parent.
//!
//! Invariant: nobody whom we start inherits that.

/// From now on nobody who ends is left to be reaped.
pub fn leave_to_the_kernel() {
    set(libc::SA_NOCLDWAIT);
}

/// Our children are our own to reap: in a child of ours before it does anything else, and first thing in `main`, whatever
/// we were started with. Only a system call, and nothing is written: the child may run on our memory.
pub fn as_usual() {
    set(0);
}

/// The default disposition, with these flags: it ignores SIGCHLD, unless that is blocked and read.
fn set(flags: libc::c_int) {
    // SAFETY: zeroed is a valid action: the default, an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = flags;
    // SAFETY: a system call on a value that lives through it. It is refused for no signal that may be handled.
    unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) };
}
