//! The time of day of an event, in the user's time zone. This is the one place that knows how views write it.

use mainstay_protocol::time;

/// Seconds that a time zone is ahead of UTC at a moment (milliseconds since the epoch).
pub type Zone = fn(u64) -> i32;

/// How precise it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `22:31:07`.
    Seconds,
    /// `22:31:07.123`.
    Milliseconds,
}

/// The time of day of a time as events write it; empty if it is none.
pub fn clock(at: &str, zone: Zone, precision: Precision) -> String {
    let Some(wall_ms) = time::parse(at) else {
        return String::new();
    };
    let offset_ms = i64::from(zone(wall_ms)) * 1_000;
    let local = time::rfc3339(wall_ms.saturating_add_signed(offset_ms));
    let chars = match precision {
        Precision::Seconds => 8,
        Precision::Milliseconds => 12,
    };
    let of_day = local.split_once('T').map_or("", |(_, clock)| clock);
    of_day.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_zone() {
        let at = "2026-11-15T22:31:07.123Z";
        let berlin: Zone = |_| 3_600;
        let newfoundland: Zone = |_| -12_600;
        assert_eq!(clock(at, |_| 0, Precision::Seconds), "22:31:07");
        assert_eq!(clock(at, berlin, Precision::Milliseconds), "23:31:07.123");
        assert_eq!(clock(at, newfoundland, Precision::Seconds), "19:01:07");
        assert_eq!(clock("soon", berlin, Precision::Seconds), "");
    }
}
