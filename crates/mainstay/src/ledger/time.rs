//! Calendar time by hand, UTC only: the form in events and file names.
//!
//! Days are turned into dates with Howard Hinnant's `civil_from_days`; years 1970 to 9999.

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
}
