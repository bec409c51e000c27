//! The clocks: one that stops while the machine sleeps, one since boot, and the wall clock with the user's time zone.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::time::{self, Zone};
use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// The keeper's clock (`CLOCK_MONOTONIC`: it does not count suspended time).
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Milliseconds since boot, suspended time included, like the start times in `/proc/PID/stat`.
pub fn since_boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the Unix epoch.
pub fn wall_ms() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}

/// Seconds and nanoseconds since the Unix epoch, by the clock that stamps files. It stands still for a few milliseconds at a
/// time, and never shows more than the stamp of a file that is changed later.
pub fn wall() -> (i64, i64) {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    (time.tv_sec, time.tv_nsec)
}

/// The time zone in which times are shown.
pub fn zone(utc: bool) -> Zone {
    if utc { time::utc } else { local_offset_s }
}

/// Seconds that the user's time zone is ahead of UTC at a moment: the zone in `TZ`, else that in `/etc/localtime`. UTC if
/// neither can be read. This is a `Zone` of `protocol::time`.
pub fn local_offset_s(wall_ms: u64) -> i32 {
    let seconds = (wall_ms / 1_000) as libc::time_t;
    // SAFETY: `tm` has numbers and one pointer; for both, all bits zero are a valid value.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of this frame. No code of this program changes the environment, which the call reads.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
    if filled.is_null() {
        return 0;
    }
    local.tm_gmtoff as i32
}

/// Processor time that this process has used, in microseconds.
pub fn used_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Sleeps for a moment, where no descriptor says when looking again is worth it.
pub fn nap(ms: u32) {
    let moment = Timespec {
        tv_sec: i64::from(ms / 1_000),
        tv_nsec: i64::from(ms % 1_000) * 1_000_000,
    };
    // A signal ends it early.
    poll(&mut [], Some(&moment)).ok();
}

/// Converts clock ticks, the unit of times in `/proc/PID/stat`, to milliseconds.
pub fn ticks_ms(ticks: u64) -> u64 {
    // SAFETY: sysconf takes no pointers.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    ticks * 1_000 / a_second
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells the test below, when it runs again in a process of its own, which offset to find.
    const EXPECTED: &str = "MAINSTAY_TEST_OFFSET";

    /// The C library reads `TZ` once, so each zone needs a process.
    #[test]
    fn offset_is_that_of_the_zone_in_the_environment() {
        let summer = 1_782_900_000_000;
        if let Ok(expected) = std::env::var(EXPECTED) {
            assert_eq!(local_offset_s(summer).to_string(), expected);
            return;
        }
        // The last zone has rules of its own for the summer; the file of the one before it does not exist.
        for (zone, offset) in [
            ("UTC", 0),
            ("XYZ-05:30", 19_800),
            ("XYZ+03:30", -12_600),
            ("no/such/zone", 0),
            ("CET-1CEST,M3.5.0,M10.5.0/3", 7_200),
        ] {
            #[expect(
                clippy::disallowed_methods,
                reason = "this test again, with another zone"
            )]
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "clock::tests::offset_is_that_of_the_zone_in_the_environment",
                ])
                .env("TZ", zone)
                .env(EXPECTED, offset.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&status.stdout);
            assert!(
                status.status.success() && said.contains("1 passed"),
                "{zone}: {said}"
            );
        }
    }
}
