//! Sizes and spans of time as a table shows them: short, and never more precise than it matters.

/// KiB as `812 KiB`, `96 MiB`, `1.3 GiB`.
pub fn memory(kib: u64) -> String {
    const MIB: u64 = 1024;
    const GIB: u64 = 1024 * 1024;
    match kib {
        0 => "0".into(),
        _ if kib < MIB => format!("{kib} KiB"),
        _ if kib < 10 * MIB => format!("{}.{} MiB", kib / MIB, kib % MIB * 10 / MIB),
        _ if kib < GIB => format!("{} MiB", kib / MIB),
        _ => format!("{}.{} GiB", kib / GIB, kib % GIB * 10 / GIB),
    }
}

/// Milliseconds as `12s`, `3m20s`, `2h05m`, `4d07h`.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        86_400.. => format!("{days}d{:02}h", hours % 24),
    }
}

/// Milliseconds with their unit where they count: `12 ms`, `1.25 s`, else as [`span`].
pub fn fine(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        60_000.. => span(ms),
    }
}

/// `1 request`, `2 requests`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// `1 process`, `2 processes`.
pub fn processes(count: usize) -> String {
    match count {
        1 => "1 process".into(),
        _ => format!("{count} processes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_precise_enough() {
        for (kib, text) in [
            (0, "0"),
            (812, "812 KiB"),
            (1_500, "1.4 MiB"),
            (98_304, "96 MiB"),
            (1_363_149, "1.3 GiB"),
        ] {
            assert_eq!(memory(kib), text);
        }
        for (ms, text) in [
            (999, "0s"),
            (12_000, "12s"),
            (200_000, "3m20s"),
            (7_500_000, "2h05m"),
            (370_800_000, "4d07h"),
        ] {
            assert_eq!(span(ms), text);
        }
        assert_eq!(fine(12), "12 ms");
        assert_eq!(fine(1_250), "1.25 s");
        assert_eq!(fine(200_000), "3m20s");
    }
}
