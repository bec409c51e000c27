//! The two clocks: one that stands still while the machine sleeps, and the wall.

use mainstay_core::clock::Moment;
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
