//! Which process reaps our children: we ourselves, or the kernel at once.
//!
//! A keeper is a subreaper, so every orphan of its tree becomes its child, and thousands may end in a second. How an
//! orphan ended does not matter, so the kernel reaps it itself and no orphan ever becomes a zombie. SIGCHLD still
//! arrives, so the keeper notices the end. For the server itself the status matters; its witness (`spawn/witness.rs`)
//! is its parent.
//!
//! Invariant: no process that we start inherits this setting.

/// From now on the kernel reaps our children at once.
pub fn leave_to_the_kernel() {
    set(libc::SA_NOCLDWAIT);
}

/// From now on we reap our children ourselves. A child of ours calls this before anything else, and `main` calls it
/// first, whatever setting we were started with. Only a system call and no writes, because the child may run in our
/// memory.
pub fn as_usual() {
    set(0);
}

/// Sets the default disposition with these flags. It ignores SIGCHLD, unless the signal is blocked and read.
fn set(flags: libc::c_int) {
    // SAFETY: zeroed is a valid action: the default, an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = flags;
    // SAFETY: a system call on a value that outlives it. It is refused for no signal that may be handled.
    unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) };
}
