//! Times, sizes and counts as people write them, for the config file and the options alike.

use mainstay_core::limits::{Limit, Unit};

/// Units of time, in milliseconds.
const TIMES: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
];
/// Units of size, in bytes.
const SIZES: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads a value of a limit and holds it against the limit's range.
pub fn parse<L>(limit: &Limit<L>, text: &str) -> Result<u64, String> {
    let value = match limit.unit {
        Unit::Time => time(text),
        Unit::Size => size(text),
        Unit::Count => count(text),
    }?;
    if value < limit.min || value > limit.max {
        return Err(format!(
            "`{}` is out of range ({} to {})",
            text.trim(),
            show(limit.unit, limit.min),
            show(limit.unit, limit.max)
        ));
    }
    Ok(value)
}

/// A time: `1500ms`, `2s`, `2 s`, `5m`, `1h`. Only zero needs no unit.
pub fn time(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    if unit.is_empty() && number == 0 {
        return Ok(0);
    }
    factor(&TIMES, unit)
        .and_then(|factor| number.checked_mul(factor))
        .ok_or_else(wrong)
}

/// A size: `8KiB`, `16MiB`, or plain bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size (write it like `8192`, `8KiB`, `16MiB` or `1GiB`)");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = if unit.is_empty() {
        Some(1)
    } else {
        factor(&SIZES, unit)
    };
    factor
        .and_then(|factor| number.checked_mul(factor))
        .ok_or_else(wrong)
}

/// A plain number.
pub fn count(text: &str) -> Result<u64, String> {
    match split(text) {
        Some((number, "")) => Ok(number),
        Some(_) | None => Err(format!("`{text}` is not a plain number")),
    }
}

/// A value as it would be written, in the largest unit that divides it.
pub fn show(unit: Unit, value: u64) -> String {
    let units: &[(&str, u64)] = match unit {
        Unit::Time => &[TIMES[4], TIMES[2], TIMES[1], TIMES[0]],
        Unit::Size => &[SIZES[3], SIZES[2], SIZES[1]],
        Unit::Count => &[],
    };
    let fitting = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    match fitting {
        Some((word, factor)) => format!("{}{word}", value / factor),
        None => value.to_string(),
    }
}

/// The whole number at the beginning, and what follows.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units
        .iter()
        .find(|(word, _)| *word == unit)
        .map(|(_, factor)| *factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::limits::TABLE;

    #[test]
    fn what_people_write() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("1500ms", 1_500),
            ("2 s", 2_000),
            (" 2s ", 2_000),
            ("5m", 300_000),
            ("5 min", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Ok(ms), "{text}");
        }
        for (text, bytes) in [
            ("0", 0),
            ("8192", 8_192),
            ("8KiB", 8_192),
            ("1 MiB", 1 << 20),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(count("64"), Ok(64));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "2",
            "s",
            "-2s",
            "2.5s",
            "2 sec",
            "8KiB",
            "99999999999999999999s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(time("18446744073709551615h").is_err());
        assert_eq!(
            time("soon").unwrap_err(),
            "`soon` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)"
        );
        for text in ["8KB", "8k", "2s", "1e3"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(count("64 lines").is_err());
        let grace = &TABLE[0];
        assert_eq!(
            parse(grace, "11m").unwrap_err(),
            "`11m` is out of range (0 to 10m)"
        );
    }

    #[test]
    fn every_default_comes_back_from_its_text_and_is_in_range() {
        for limit in &TABLE {
            for value in [limit.default, limit.min, limit.max] {
                let text = show(limit.unit, value);
                assert_eq!(parse(limit, &text), Ok(value), "{} {text}", limit.name);
            }
        }
    }
}
