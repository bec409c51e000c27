//! A child that runs on our memory and on our stack, below us, while we stand still: until it executes or leaves.
//!
//! What fork costs is the copy: of the tables now, and of every page that either side writes later. A child that will do
//! nothing but execute, or fork once more and leave, needs none. This is `vfork`, with a pidfd and a cgroup.
//!
//! Invariants: we have one thread; the child never returns and does nothing that a signal handler may not do, for all
//! that it writes is ours. Where the kernel or a filter refuses, nothing has happened, and the caller copies instead.

use std::ffi::c_void;
use std::io;

const CLONE_VM: u64 = 0x0000_0100;
const CLONE_VFORK: u64 = 0x0000_4000;

/// The kernel's `struct clone_args`, of which flags are 0, the pidfd's place 1, the exit signal 4, the cgroup 10.
pub(crate) type CloneArgs = [u64; 11];

/// What the child does.
pub(crate) type Role = extern "C" fn(*mut c_void) -> !;

/// Starts such a child; its pid. `size` is how much of the arguments the kernel is to know.
///
/// # Safety
/// `role` keeps the invariants above with what `with` points to, and the arguments name no stack.
pub(crate) unsafe fn start(
    mut args: CloneArgs,
    size: usize,
    role: Role,
    with: *mut c_void,
) -> io::Result<i32> {
    args[0] |= CLONE_VM | CLONE_VFORK;
    args[4] = libc::SIGCHLD as u64;
    // SAFETY: as promised by the caller.
    match unsafe { clone3(&args, size, role, with) } {
        pid @ 1.. => Ok(pid as i32),
        refused => Err(io::Error::from_raw_os_error(-refused as i32)),
    }
}

/// The one call that comes back twice. On the child's side it never leaves the assembly: our frame stays as it was, and
/// what is below it is the child's.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn clone3(args: &CloneArgs, size: usize, role: Role, with: *mut c_void) -> i64 {
    let answer: i64;
    // SAFETY: the arguments follow `struct clone_args`; no stack is given, so the child goes on below ours, which the
    // block may use (no `nostack`), and CLONE_VFORK keeps us from using it meanwhile.
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

/// As above.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn clone3(args: &CloneArgs, size: usize, role: Role, with: *mut c_void) -> i64 {
    let answer: i64;
    // SAFETY: as above.
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

/// Elsewhere everybody copies.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArgs, _: usize, _: Role, _: *mut c_void) -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role;

    /// What the child finds and leaves.
    struct Room {
        given: u64,
        left: u64,
        pid: i32,
    }

    extern "C" fn child(room: *mut c_void) -> ! {
        // SAFETY: the parent stands still, so the room is ours alone.
        unsafe {
            let room = &mut *room.cast::<Room>();
            room.left = deep(room.given);
            room.pid = libc::getpid();
            libc::_exit(7)
        }
    }

    /// Uses some of the stack.
    #[inline(never)]
    fn deep(n: u64) -> u64 {
        let room = std::hint::black_box([n; 256]);
        if n == 0 { 0 } else { room[1] + deep(n - 1) }
    }

    #[test]
    fn child_works_in_our_room_and_we_go_on_after_it() {
        let _apart = crate::apart::starting();
        for given in 0..50 {
            let mut room = Room {
                given,
                left: 0,
                pid: 0,
            };
            // Of all that is alive here, nothing may have changed afterwards.
            let alive = std::hint::black_box([given; 64]);
            // SAFETY: the child only computes, asks for its pid and leaves.
            let pid = unsafe { start([0; 11], 64, child, (&raw mut room).cast()) }.unwrap();
            assert_eq!(role::wait(pid).unwrap(), Some(7));
            assert_eq!((room.left, room.pid), (given * (given + 1) / 2, pid));
            assert_eq!(alive, [given; 64]);
        }
    }

    #[test]
    fn refusal_has_done_nothing() {
        let mut room = Room {
            given: 3,
            left: 0,
            pid: 0,
        };
        let mut args = [0; 11];
        args[0] = 0x8000_0000_0000_0000;
        // SAFETY: as above; there is no child.
        let refused = unsafe { start(args, 64, child, (&raw mut room).cast()) }.unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(room.pid, 0);
    }
}
