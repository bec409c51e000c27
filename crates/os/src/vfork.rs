//! `vfork` with a pidfd and a cgroup: the child runs in our memory and on our stack while we are suspended, until it
//! executes or exits.
//!
//! The cost of `fork` is the copy: the page tables at once, and later every page that either side writes. A child
//! that only executes, or forks once more and exits, does not need the copy.
//!
//! Invariants: the caller has one thread. The child never returns and does only what a signal handler may do, because
//! all memory that it writes is ours. If the kernel or a seccomp filter refuses the call, nothing has happened, and
//! the caller uses `fork` instead.

use std::ffi::c_void;
use std::io;

const CLONE_VM: u64 = 0x0000_0100;
const CLONE_VFORK: u64 = 0x0000_4000;

/// The kernel's `struct clone_args`. Index 0 is the flags, 1 the address for the pidfd, 4 the exit signal, 10 the
/// cgroup.
pub(crate) type CloneArgs = [u64; 11];

/// The function that the child runs.
pub(crate) type Role = extern "C" fn(*mut c_void) -> !;

/// Starts such a child and returns its pid. `size` says how many bytes of the arguments the kernel reads.
///
/// # Safety
/// `role` keeps the invariants above with the value behind `with`, and the arguments name no stack.
pub(crate) unsafe fn start(
    mut args: CloneArgs,
    size: usize,
    role: Role,
    with: *mut c_void,
) -> io::Result<i32> {
    args[0] |= CLONE_VM | CLONE_VFORK;
    args[4] = libc::SIGCHLD as u64;
    // SAFETY: the caller promised it.
    match unsafe { clone3(&args, size, role, with) } {
        pid @ 1.. => Ok(pid as i32),
        refused => Err(io::Error::from_raw_os_error(-refused as i32)),
    }
}

/// The system call that returns twice. The child never leaves the assembly block: our frame stays as it was, and the
/// child uses the stack below it.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn clone3(args: &CloneArgs, size: usize, role: Role, with: *mut c_void) -> i64 {
    let answer: i64;
    // SAFETY: the arguments follow `struct clone_args`. No stack is given, so the child continues below our frame,
    // which the block may use (no `nostack`). CLONE_VFORK suspends us meanwhile.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, {with}",
            "call {role}",
            "ud2",
            "2:",
            with = in(reg) with,
            role = in(reg) role,
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") args.as_ptr(),
            in("rsi") size,
            out("rcx") _,
            out("r11") _,
        );
    }
    answer
}

/// The same for this processor.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn clone3(args: &CloneArgs, size: usize, role: Role, with: *mut c_void) -> i64 {
    let answer: i64;
    // SAFETY: as for x86_64.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, {with}",
            "blr {role}",
            "brk 1",
            "2:",
            with = in(reg) with,
            role = in(reg) role,
            in("x8") libc::SYS_clone3,
            inlateout("x0") args.as_ptr() => answer,
            in("x1") size,
        );
    }
    answer
}

/// On other processors callers use `fork`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: usize, _: Role, _: *mut c_void) -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role;

    /// What the parent gives to the child and gets back.
    struct Shared {
        given: u64,
        left: u64,
        pid: i32,
    }

    extern "C" fn child(shared: *mut c_void) -> ! {
        // SAFETY: the parent is suspended, so no other code uses this value.
        unsafe {
            let shared = &mut *shared.cast::<Shared>();
            shared.left = deep(shared.given);
            shared.pid = libc::getpid();
            libc::_exit(7)
        }
    }

    /// Uses some of the stack.
    #[inline(never)]
    fn deep(n: u64) -> u64 {
        let shared = std::hint::black_box([n; 256]);
        if n == 0 { 0 } else { shared[1] + deep(n - 1) }
    }

    #[test]
    fn child_writes_our_memory_and_the_parent_continues() {
        let _lock = crate::child_lock::with_children();
        for given in 0..50 {
            let mut shared = Shared {
                given,
                left: 0,
                pid: 0,
            };
            // None of the parent's live values may have changed afterwards.
            let alive = std::hint::black_box([given; 64]);
            // SAFETY: the child only computes, asks for its pid and exits.
            let pid = unsafe { start([0; 11], 64, child, (&raw mut shared).cast()) }.unwrap();
            assert_eq!(role::wait(pid).unwrap(), Some(7));
            assert_eq!((shared.left, shared.pid), (given * (given + 1) / 2, pid));
            assert_eq!(alive, [given; 64]);
        }
    }

    #[test]
    fn refused_clone_has_no_effect() {
        let mut shared = Shared {
            given: 3,
            left: 0,
            pid: 0,
        };
        let mut args = [0; 11];
        args[0] = 0x8000_0000_0000_0000;
        // SAFETY: as above; there is no child.
        let refused = unsafe { start(args, 64, child, (&raw mut shared).cast()) }.unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(shared.pid, 0);
    }
}
