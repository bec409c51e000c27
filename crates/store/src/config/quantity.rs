//! Times, sizes and counts as people write them, for the config file and the options alike.

use std::error::Error;
use std::fmt;

use mainstay_protocol::limits::{Limit, Unit};

/// Units of time, in milliseconds.
const TIMES: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];
/// Units of size, in bytes. As in docker and systemd, `G` and `GB` mean what `GiB` means.
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Why a text is not the quantity that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// No time with a unit.
    NotATime(String),
    /// Zero, where a time must pass.
    Zero,
    /// No size.
    NotASize(String),
    /// No number without a unit.
    NotANumber(String),
    /// More or less than a limit may be.
    OutOfRange {
        /// What was written.
        text: String,
        /// What the limit counts.
        unit: Unit,
        /// The least that it may be.
        min: u64,
        /// The most.
        max: u64,
    },
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATime(text) => write!(
                f,
                "`{text}` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)"
            ),
            Self::Zero => f.write_str("it must be more than 0, like `1s`"),
            Self::NotASize(text) => write!(
                f,
                "`{text}` is not a size (write it like `8192`, `100k`, `512M` or `2GiB`)"
            ),
            Self::NotANumber(text) => write!(f, "`{text}` is not a plain number"),
            Self::OutOfRange {
                text,
                unit,
                min,
                max,
            } => write!(
                f,
                "`{text}` is out of range ({} to {})",
                show(*unit, *min),
                show(*unit, *max)
            ),
        }
    }
}

impl Error for QuantityError {}

/// Reads a value of a limit and holds it against the limit's range.
pub fn parse<L>(limit: &Limit<L>, text: &str) -> Result<u64, QuantityError> {
    let value = match limit.unit {
        Unit::Time => time(text),
        Unit::Size => size(text),
        Unit::Count => count(text),
    }?;
    if value < limit.min || value > limit.max {
        return Err(QuantityError::OutOfRange {
            text: text.trim().into(),
            unit: limit.unit,
            min: limit.min,
            max: limit.max,
        });
    }
    Ok(value)
}

/// A time: `1500ms`, `2s`, `2 s`, `5m`, `10min`, `1h`, `1d`, `2w`. Only zero needs no unit.
pub fn time(text: &str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError::NotATime(text.into());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    if unit.is_empty() && number == 0 {
        return Ok(0);
    }
    let unit = TIMES.iter().find(|(word, _)| *word == unit);
    unit.and_then(|(_, factor)| number.checked_mul(*factor))
        .ok_or_else(wrong)
}

/// A time that is not zero.
pub fn some_time(text: &str) -> Result<u64, QuantityError> {
    match time(text)? {
        0 => Err(QuantityError::Zero),
        ms => Ok(ms),
    }
}

/// A size: `8KiB`, `100k`, `512M`, `2GB`, `2GiB`, in capitals or not, or plain bytes.
pub fn size(text: &str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError::NotASize(text.into());
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let unit = SIZES.iter().find(|(word, _)| is_size(word, unit));
    unit.and_then(|(_, factor)| number.checked_mul(*factor))
        .ok_or_else(wrong)
}

/// Whether a unit is written as `GiB`, `GB` or `G`; for bytes, as `B` or not at all.
fn is_size(word: &str, written: &str) -> bool {
    let letter = word.trim_end_matches("iB").trim_end_matches('B');
    let short = [word, letter];
    short.iter().any(|form| form.eq_ignore_ascii_case(written))
        || format!("{letter}B").eq_ignore_ascii_case(written)
}

/// A plain number.
pub fn count(text: &str) -> Result<u64, QuantityError> {
    match split(text) {
        Some((number, "")) => Ok(number),
        Some(_) | None => Err(QuantityError::NotANumber(text.into())),
    }
}

/// A value as it would be written, in the largest unit that divides it.
pub fn show(unit: Unit, value: u64) -> String {
    let units: &[(&str, u64)] = match unit {
        Unit::Time => &[TIMES[5], TIMES[4], TIMES[2], TIMES[1], TIMES[0]],
        Unit::Size => &[SIZES[4], SIZES[3], SIZES[2], SIZES[1]],
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

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::limits::TABLE;

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
            ("10min", 600_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(time(text), Ok(ms), "{text}");
        }
        for (text, bytes) in [
            ("0", 0),
            ("8192", 8_192),
            ("8192B", 8_192),
            ("8KiB", 8_192),
            ("8KB", 8_192),
            ("8k", 8_192),
            ("100k", 102_400),
            ("512M", 512 << 20),
            ("512mb", 512 << 20),
            ("1 MiB", 1 << 20),
            ("2G", 2 << 30),
            ("2g", 2 << 30),
            ("2GB", 2 << 30),
            ("2GiB", 2 << 30),
            ("1T", 1 << 40),
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
        assert_eq!(some_time("1ms"), Ok(1));
        assert_eq!(some_time("0h"), Err(QuantityError::Zero));
        assert_eq!(
            time("soon").unwrap_err().to_string(),
            "`soon` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)"
        );
        for text in ["", "G", "2s", "1e3", "8i", "8ib", "8X", "2.5G", "99999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(
            size("2 gigs").unwrap_err().to_string(),
            "`2 gigs` is not a size (write it like `8192`, `100k`, `512M` or `2GiB`)"
        );
        assert!(count("64 lines").is_err());
        let grace = &TABLE[0];
        assert_eq!(
            parse(grace, "11m").unwrap_err().to_string(),
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
