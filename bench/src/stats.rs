//! A series of numbers, and its quantiles.

#[derive(Clone, Debug, Default)]
pub struct Series {
    values: Vec<u64>,
}

impl Series {
    pub fn push(&mut self, value: u64) {
        self.values.push(value);
    }

    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The value below which this share of them lies, or 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        sorted.get(at).copied().unwrap_or(0)
    }

    pub fn p50(&self) -> u64 {
        self.quantile(0.5)
    }

    pub fn min(&self) -> u64 {
        self.quantile(0.0)
    }

    pub fn max(&self) -> u64 {
        self.quantile(1.0)
    }
}

/// Nanoseconds as microseconds.
pub fn us(ns: u64) -> String {
    number(ns as f64 / 1e3)
}

/// Nanoseconds as milliseconds.
pub fn ms(ns: u64) -> String {
    number(ns as f64 / 1e6)
}

/// KiB as MB (10^6 bytes).
pub fn mb(kib: u64) -> String {
    number(kib as f64 * 1024.0 / 1e6)
}

/// A ratio of two numbers, or a dash if the second is 0.
pub fn ratio(of: u64, to: u64) -> String {
    if to == 0 {
        return "-".into();
    }
    format!("{:.2}", of as f64 / to as f64)
}

/// Three significant digits.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let mut series = Series::default();
        assert_eq!(series.p50(), 0);
        for value in [5, 1, 4, 2, 3] {
            series.push(value);
        }
        assert_eq!((series.min(), series.p50(), series.max()), (1, 3, 5));
        assert_eq!(series.quantile(0.75), 4);
    }

    #[test]
    fn numbers_have_three_digits() {
        let told = [0.123, 9.994, 9.996, 99.9, 99.96, 1234.5].map(number);
        assert_eq!(told, ["0.12", "9.99", "10.0", "99.9", "100", "1234"]);
    }
}
