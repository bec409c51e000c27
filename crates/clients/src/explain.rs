//! What is wrong, why, and what to do: the three parts of every error of this crate.

use std::fmt;

/// Text for people, as lower-case fragments without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is wrong.
    pub what: String,
    /// Why it stops us.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// What can be explained.
pub trait Explain {
    /// In three parts.
    fn explain(&self) -> Explanation;
}
