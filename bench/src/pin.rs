//! Holds this process, and all processes that it starts meanwhile, on one core.
//!
//! Unpinned round trips are bimodal: a wake-up on the same core takes a third of one across cores, and the scheduler decides
//! which of them it is.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// On any core.
    Any,
    /// On one.
    One,
}

impl Cores {
    /// The name of the column.
    pub fn words(self) -> &'static str {
        match self {
            Self::Any => "any core",
            Self::One => "one core",
        }
    }
}

/// Holds this process there until it is dropped.
pub struct Pin {
    before: CpuSet,
}

impl Pin {
    pub fn to(cores: Cores) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        if cores == Cores::One {
            let mut one = CpuSet::new();
            // The last core, because the first usually handles the interrupts.
            let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| before.is_set(cpu));
            one.set(last.unwrap_or(0));
            sched_setaffinity(None, &one)?;
        }
        Ok(Self { before })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // The old mask was in force before, so it is allowed.
        sched_setaffinity(None, &self.before).ok();
    }
}
