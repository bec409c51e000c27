//! The two clocks: one that stands still while the machine sleeps, and the wall.

use mainstay_core::clock::Moment;
use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// The keeper's clock (`CLOCK_MONOTONIC`: it does not count suspended time).
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Seconds since boot, suspended time included, in the unit of `/proc/PID/stat` start times.
pub fn since_boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the Unix epoch.
pub fn wall_ms() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}

/// Seconds and nanoseconds since the Unix epoch, as files are stamped.
pub fn wall() -> (i64, i64) {
    let time = clock_gettime(ClockId::Realtime);
    (time.tv_sec, time.tv_nsec)
}

/// Processor time that this process has used, in microseconds.
pub fn used_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Lets a moment pass, where no descriptor tells when the next look is worth it.
pub fn nap(ms: u32) {
    let moment = Timespec {
        tv_sec: i64::from(ms / 1_000),
        tv_nsec: i64::from(ms % 1_000) * 1_000_000,
    };
    // A signal makes it shorter.
    poll(&mut [], Some(&moment)).ok();
}

/// Ticks, the unit of times in `/proc/PID/stat`, as milliseconds.
pub fn ticks_ms(ticks: u64) -> u64 {
    // SAFETY: sysconf takes no pointers.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    ticks * 1_000 / a_second
}
