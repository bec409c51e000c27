//! The machine and the date of the measurement.

use std::fs;

pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

/// How many cores we may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

pub fn kernel() -> String {
    let name = rustix::system::uname();
    format!(
        "{} {}",
        name.sysname().to_string_lossy(),
        name.release().to_string_lossy()
    )
}

/// Whether the scheduler shares time by session first. Desktops are set so, and a busy machine shows it.
pub fn autogroup() -> &'static str {
    match fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled") {
        Ok(text) if text.trim() == "1" => "by session",
        Ok(_) | Err(_) => "by process",
    }
}

pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let fields: Vec<&str> = text.split_ascii_whitespace().take(3).collect();
    fields.join(" ")
}

/// The UTC date of this time in milliseconds since the epoch.
pub fn date(wall_ms: u64) -> String {
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year.
    let days = wall_ms / 86_400_000 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The same with the time of day, as events have it.
pub fn time(wall_ms: u64) -> String {
    let (ms, s) = (wall_ms % 1_000, wall_ms / 1_000 % 86_400);
    let (hour, minute, second) = (s / 3_600, s / 60 % 60, s % 60);
    let date = date(wall_ms);
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (day, told) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
            (20_512, "2026-02-28"),
            (20_513, "2026-03-01"),
        ] {
            assert_eq!(date(day * 86_400_000 + 86_399_999), told);
            let time = time(day * 86_400_000 + 86_399_999);
            assert_eq!(time, format!("{told}T23:59:59.999Z"));
        }
    }
}
