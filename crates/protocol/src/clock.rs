//! Time as core knows it: a number it is told.
//!
//! A [`Moment`] comes from a clock that stands still while the machine sleeps, so that a sleeping laptop ages
//! nothing. It has no relation to the calendar.

use core::ops::{Add, Sub};

/// A point on the keeper's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment, later by some milliseconds.
    #[must_use]
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Milliseconds since an earlier moment; 0 if it is not earlier.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

impl Add<u64> for Moment {
    type Output = Self;
    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Sub for Moment {
    type Output = u64;
    fn sub(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
