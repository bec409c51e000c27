//! "Since when", as people write it: `2h`, `1d`, `yesterday`, `14:00`, `2026-11-17`, `2026-11-17 14:00`.
//!
//! Reading the words and finding the moment are two steps, because the time zone is known only after all options are read.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use mainstay_protocol::time::{self, DAY_MS, Zone, ZonedTime};

use crate::config::quantity;

/// A time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So many milliseconds before now.
    Ago(u64),
    /// This moment, in milliseconds since the epoch.
    At(u64),
    /// The last time that a clock showed this, in milliseconds since midnight.
    Clock(u64),
    /// A day and a time of it, in milliseconds since midnight.
    Day(Day, u64),
}

/// A day of the user's calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// The day that it is now.
    Today,
    /// The day before.
    Yesterday,
    /// Days since 1970-01-01.
    Date(i64),
}

impl Since {
    /// The moment, in milliseconds since the epoch. What would be before 1970 is 1970.
    pub fn moment(self, now_ms: u64, zone: Zone) -> u64 {
        let today = ZonedTime::of(now_ms, zone).day;
        let of_day = |day, clock| time::in_zone(day, clock, zone).unwrap_or(0);
        match self {
            Self::Ago(ms) => now_ms.saturating_sub(ms),
            Self::At(ms) => ms,
            Self::Clock(clock) => match of_day(today, clock) {
                moment if moment > now_ms => of_day(today - 1, clock),
                moment => moment,
            },
            Self::Day(Day::Today, clock) => of_day(today, clock),
            Self::Day(Day::Yesterday, clock) => of_day(today - 1, clock),
            Self::Day(Day::Date(day), clock) => of_day(day, clock),
        }
    }
}

impl FromStr for Since {
    type Err = UnknownTime;

    fn from_str(text: &str) -> Result<Self, UnknownTime> {
        let words = text.trim();
        let read = quantity::time(words).map(Self::Ago).ok();
        let read = read.or_else(|| time::parse(words).map(Self::At));
        let read = read.or_else(|| time::clock_ms(words).map(Self::Clock));
        read.or_else(|| day_and_clock(words))
            .ok_or_else(|| UnknownTime(text.into()))
    }
}

/// `yesterday`, `2026-11-17`, and both with a time of day after a blank or a `T`.
fn day_and_clock(words: &str) -> Option<Since> {
    let (day, clock) = match words.split_once(' ').or_else(|| words.split_once('T')) {
        Some((day, clock)) => (day, time::clock_ms(clock.trim_start())?),
        None => (words, 0),
    };
    let day = match day {
        "today" => Day::Today,
        "yesterday" => Day::Yesterday,
        date => Day::Date(time::day_number(date)?),
    };
    debug_assert!(clock < DAY_MS, "a time of day");
    Some(Since::Day(day, clock))
}

/// A text that is no time in the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTime(String);

impl fmt::Display for UnknownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a time (write it like `10min`, `2h`, `1d`, `2w`, `yesterday`, `14:00`, `2026-11-17` or `2026-11-17 14:00`)",
            self.0
        )
    }
}

impl Error for UnknownTime {}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_hours_ahead(_: u64) -> i32 {
        7_200
    }

    fn nine_hours_behind(_: u64) -> i32 {
        -32_400
    }

    fn moment(text: &str, zone: Zone) -> String {
        let now = time::parse("2026-11-18T11:15:00.000Z").unwrap();
        let since: Since = text.parse().unwrap();
        time::rfc3339(since.moment(now, zone))
    }

    #[test]
    fn times_as_people_write_them() {
        for (text, at) in [
            ("90s", "2026-11-18T11:13:30.000Z"),
            ("10min", "2026-11-18T11:05:00.000Z"),
            ("24h", "2026-11-17T11:15:00.000Z"),
            ("1d", "2026-11-17T11:15:00.000Z"),
            ("2w", "2026-11-04T11:15:00.000Z"),
            ("0", "2026-11-18T11:15:00.000Z"),
            ("today", "2026-11-17T22:00:00.000Z"),
            ("yesterday", "2026-11-16T22:00:00.000Z"),
            ("yesterday 14:00", "2026-11-17T12:00:00.000Z"),
            // 13:15 has just been; 14:00 was yesterday.
            ("13:15", "2026-11-18T11:15:00.000Z"),
            ("14:00", "2026-11-17T12:00:00.000Z"),
            ("9:30:10", "2026-11-18T07:30:10.000Z"),
            ("2026-11-17", "2026-11-16T22:00:00.000Z"),
            (" 2026-11-17 14:00 ", "2026-11-17T12:00:00.000Z"),
            ("2026-11-17T14:00:30", "2026-11-17T12:00:30.000Z"),
            // As in the events, which are UTC.
            ("2026-11-17T14:00:30.123Z", "2026-11-17T14:00:30.123Z"),
            ("9999999d", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(moment(text, two_hours_ahead), at, "{text}");
        }
    }

    #[test]
    fn day_is_that_of_the_zone() {
        assert_eq!(moment("today", time::utc), "2026-11-18T00:00:00.000Z");
        assert_eq!(
            moment("today", nine_hours_behind),
            "2026-11-18T09:00:00.000Z"
        );
        assert_eq!(
            moment("03:00", nine_hours_behind),
            "2026-11-17T12:00:00.000Z"
        );
        assert_eq!(
            moment("1970-01-01", two_hours_ahead),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn anything_else_is_answered_with_what_is_accepted() {
        for text in [
            "",
            "soon",
            "2",
            "tomorrow",
            "2026-02-30",
            "2026-11-17 25:00",
            "14",
            "yesterday noon",
            "2MiB",
        ] {
            let error = text.parse::<Since>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}` is not a time")),
                "{error}"
            );
            for accepted in ["2h", "1d", "yesterday", "14:00", "2026-11-17 14:00"] {
                assert!(error.contains(&format!("`{accepted}`")), "{error}");
            }
        }
    }
}
