//! Calendar time by hand: UTC in events and file names, and the date and clock of any time zone for people.
//!
//! Days are turned into dates with Howard Hinnant's `civil_from_days`; years 1970 to 9999. This module knows no time zone: a
//! caller gives it a [`Zone`], and `os::clock::local_offset_s` is that of the user.

use alloc::format;
use alloc::string::String;

/// Milliseconds of one day.
pub const DAY_MS: u64 = 86_400_000;

/// `2026-11-15T22:31:07.123Z`.
pub fn rfc3339(wall_ms: u64) -> String {
    let (rest, ms) = (wall_ms / 1_000, wall_ms % 1_000);
    let (hour, minute, second) = (rest / 3_600 % 24, rest / 60 % 60, rest % 60);
    format!(
        "{}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z",
        date(wall_ms)
    )
}

/// `2026-11-15`.
pub fn date(wall_ms: u64) -> String {
    let (year, month, day) = civil((wall_ms / DAY_MS) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Reads what [`rfc3339`] wrote.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, ms) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = clock.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 || ms.len() > 3 {
        return None;
    }
    let seconds = hour * 3_600 + minute * 60 + second;
    Some(day_number(date)? as u64 * DAY_MS + seconds * 1_000 + ms.parse::<u64>().ok()?)
}

/// Days since 1970-01-01 of a date as [`date`] writes it.
pub fn day_number(date: &str) -> Option<i64> {
    if date.len() != 10 {
        return None;
    }
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || year < 1970 {
        return None;
    }
    let days = days(year, month, day);
    // A date that does not exist (the 31st of February) does not come back as itself.
    (civil(days) == (year, month, day)).then_some(days)
}

/// Seconds that a time zone is ahead of UTC at a moment (milliseconds since the epoch).
pub type Zone = fn(u64) -> i32;

/// The zone UTC.
pub fn utc(_wall_ms: u64) -> i32 {
    0
}

/// A moment as a calendar and a clock in one time zone show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedTime {
    /// Days since 1970-01-01, in this zone.
    pub day: i64,
    /// Milliseconds since midnight, in this zone.
    pub ms_of_day: u64,
    /// How many seconds the zone is ahead of UTC.
    pub offset_s: i32,
}

impl ZonedTime {
    /// The moment in a zone.
    pub fn of(wall_ms: u64, zone: Zone) -> Self {
        let offset_s = zone(wall_ms);
        let local = wall_ms as i64 + i64::from(offset_s) * 1_000;
        Self {
            day: local.div_euclid(DAY_MS as i64),
            ms_of_day: local.rem_euclid(DAY_MS as i64) as u64,
            offset_s,
        }
    }

    /// The time of an event, as [`rfc3339`] wrote it, in a zone.
    pub fn of_text(at: &str, zone: Zone) -> Option<Self> {
        parse(at).map(|wall_ms| Self::of(wall_ms, zone))
    }

    /// `2026-11-15`.
    pub fn date(&self) -> String {
        let (year, month, day) = civil(self.day);
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// `22:31:07`.
    pub fn clock(&self) -> String {
        let rest = self.ms_of_day / 1_000;
        let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
        format!("{hour:02}:{minute:02}:{second:02}")
    }

    /// `22:31:07.123`.
    pub fn clock_ms(&self) -> String {
        format!("{}.{:03}", self.clock(), self.ms_of_day % 1_000)
    }

    /// `UTC`, or the distance from it: `UTC+01:00`.
    pub fn zone(&self) -> String {
        let minutes = self.offset_s.unsigned_abs() / 60;
        let sign = if self.offset_s < 0 { '-' } else { '+' };
        match minutes {
            0 => "UTC".into(),
            minutes => format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

/// The moment at which a calendar and a clock in this zone show a day and a time. If the clock shows it twice (it was put
/// back), the first of both; if never (it was put forward), the moment at which it would have come first. None before 1970.
pub fn in_zone(day: i64, ms_of_day: u64, zone: Zone) -> Option<u64> {
    let shown = day.checked_mul(DAY_MS as i64)? + ms_of_day as i64;
    // No zone changes its clock twice within two days, so one of these two offsets is right.
    let around = [shown - DAY_MS as i64, shown + DAY_MS as i64];
    let moments = around.map(|near| shown - i64::from(zone(near.max(0) as u64)) * 1_000);
    let shows = |moment: i64| {
        u64::try_from(moment).is_ok_and(|moment| {
            let there = ZonedTime::of(moment, zone);
            (there.day, there.ms_of_day) == (day, ms_of_day)
        })
    };
    let right = moments.into_iter().filter(|moment| shows(*moment)).min();
    let moment = right.or_else(|| moments.into_iter().min())?;
    u64::try_from(moment).ok()
}

/// Milliseconds since midnight of a time of day: `14:00` or `14:00:30`.
pub fn clock_ms(text: &str) -> Option<u64> {
    let two = |part: &str| {
        let is_number = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| part.parse::<u64>().ok())?
    };
    let mut parts = text.split(':');
    let (hour, minute) = (two(parts.next()?)?, two(parts.next()?)?);
    let second = parts.next().map_or(Some(0), two)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((hour * 3_600 + minute * 60 + second) * 1_000)
}

fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_794_781_867_123, "2026-11-15T22:31:07.123Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn every_day_of_two_centuries_comes_back() {
        for day in 0..73_050 {
            let text = date(day * DAY_MS);
            assert_eq!(day_number(&text), Some(day as i64), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "",
            "2026-11-15",
            "2026-11-15T22:31:07",
            "2026-02-31T00:00:00.000Z",
            "2026-11-15T25:00:00.000Z",
            "2026-11-15T22:31:07.1234Z",
            "1969-12-31T23:59:59.000Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// Berlin in 2026: the clock is put forward on 29 March at 01:00 UTC, and back on 25 October at 01:00 UTC.
    fn berlin(wall_ms: u64) -> i32 {
        let summer = 1_774_746_000_000..1_792_890_000_000;
        if summer.contains(&wall_ms) {
            7_200
        } else {
            3_600
        }
    }

    fn newfoundland(_: u64) -> i32 {
        -12_600
    }

    #[test]
    fn moment_is_shown_in_its_zone() {
        for (at, zone, date, clock, name) in [
            (
                "2026-11-15T22:31:07.123Z",
                utc as Zone,
                "2026-11-15",
                "22:31:07.123",
                "UTC",
            ),
            (
                "2026-11-15T23:31:07.123Z",
                berlin,
                "2026-11-16",
                "00:31:07.123",
                "UTC+01:00",
            ),
            (
                "2026-07-01T12:00:00.000Z",
                berlin,
                "2026-07-01",
                "14:00:00.000",
                "UTC+02:00",
            ),
            (
                "2026-01-01T02:00:00.000Z",
                newfoundland,
                "2025-12-31",
                "22:30:00.000",
                "UTC-03:30",
            ),
            (
                "1970-01-01T00:00:00.000Z",
                newfoundland,
                "1969-12-31",
                "20:30:00.000",
                "UTC-03:30",
            ),
        ] {
            let shown = ZonedTime::of_text(at, zone).unwrap();
            assert_eq!(shown.date(), date, "{at}");
            assert_eq!(shown.clock_ms(), clock, "{at}");
            assert_eq!(
                clock.split('.').next(),
                Some(shown.clock().as_str()),
                "{at}"
            );
            assert_eq!(shown.zone(), name, "{at}");
        }
        assert_eq!(ZonedTime::of_text("yesterday", utc), None);
    }

    #[test]
    fn date_and_clock_of_a_zone_become_a_moment() {
        for (date, clock, zone, at) in [
            (
                "2026-11-17",
                "14:00",
                utc as Zone,
                "2026-11-17T14:00:00.000Z",
            ),
            ("2026-11-17", "14:00:30", berlin, "2026-11-17T13:00:30.000Z"),
            ("2026-07-01", "00:00", berlin, "2026-06-30T22:00:00.000Z"),
            (
                "2026-07-01",
                "9:05",
                newfoundland,
                "2026-07-01T12:35:00.000Z",
            ),
            // Minutes before and after the clock is changed.
            ("2026-03-29", "01:59", berlin, "2026-03-29T00:59:00.000Z"),
            ("2026-03-29", "03:00", berlin, "2026-03-29T01:00:00.000Z"),
            ("2026-10-25", "01:59", berlin, "2026-10-24T23:59:00.000Z"),
            ("2026-10-25", "03:00", berlin, "2026-10-25T02:00:00.000Z"),
            // A time that the clock never shows, and one that it shows twice.
            ("2026-03-29", "02:30", berlin, "2026-03-29T00:30:00.000Z"),
            ("2026-10-25", "02:30", berlin, "2026-10-25T00:30:00.000Z"),
        ] {
            let (day, ms) = (day_number(date).unwrap(), clock_ms(clock).unwrap());
            let moment = in_zone(day, ms, zone).map(rfc3339);
            assert_eq!(moment.as_deref(), Some(at), "{date} {clock}");
        }
        assert_eq!(in_zone(0, 0, berlin), None, "before 1970 in UTC");
        assert_eq!(in_zone(i64::MAX, 0, utc), None);
    }

    #[test]
    fn every_hour_of_a_year_comes_back_from_its_zone() {
        let start = parse("2026-01-01T00:00:00.000Z").unwrap();
        for hour in 0..8_760 {
            let moment = start + hour * 3_600_000;
            let shown = ZonedTime::of(moment, berlin);
            let back = in_zone(shown.day, shown.ms_of_day, berlin).unwrap();
            // The second of the two hours that look the same comes back as the first.
            assert!(back == moment || back + 3_600_000 == moment, "{moment}");
            assert_eq!(ZonedTime::of(back, berlin).clock(), shown.clock());
        }
    }

    #[test]
    fn other_words_are_no_time_of_day() {
        for text in [
            "",
            "14",
            "24:00",
            "14:60",
            "14:00:60",
            "14:00:00:00",
            "+4:00",
            "14:",
            "2 pm",
            "014:00",
        ] {
            assert_eq!(clock_ms(text), None, "{text}");
        }
    }
}
