//! How often a server was lost lately.

/// Deaths and failed starts within the window that the restart budget counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Generations that ended.
    pub deaths: u32,
    /// Starts that failed.
    pub failed_starts: u32,
}

impl Losses {
    /// And one more death.
    #[must_use]
    pub fn with_death(mut self) -> Self {
        self.deaths += 1;
        self
    }

    /// And one more failed start.
    #[must_use]
    pub fn with_failed_start(mut self) -> Self {
        self.failed_starts += 1;
        self
    }
}
