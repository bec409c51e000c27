//! A simulated world around the link: one seed is one story.
//!
//! A scripted [`client`] and a scripted [`server`] talk through the relay that ships, in a [`shell`] without descriptors, by a
//! clock that only the story moves. At random, servers die at any byte, starts fail, the machine sleeps, the client leaves, and
//! the keeper is killed: before any store into the memory that survives it, and around any read and write. The [`watch`] checks
//! every promise after each step.
//!
//! Invariants: the same seed gives the same story, byte for byte. Nothing here waits, and nothing knows how the link decides.

pub mod chance;
pub mod client;
pub mod dice;
mod happening;
pub mod matrix;
pub mod message;
pub mod outside;
mod phase;
pub mod pipe;
pub mod raw;
pub mod server;
pub mod shell;
mod story;
pub mod sweep;
pub mod watch;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_protocol::ids::LinkId;

use outside::Halt;
use story::Story;

/// The link of every world.
const LINK: LinkId = LinkId(7);

/// Counts of a story.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoryCounts {
    /// Generations that were started.
    pub generations: u32,
    /// Keepers that were killed.
    pub killed: u32,
    /// Clients that came back.
    pub reattached: u32,
    /// Steps that it took.
    pub steps: u32,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which promise.
    pub what: String,
    /// The story up to there, if a trace was asked for.
    pub trace: Vec<String>,
}

/// Runs the story of this seed.
pub fn run(seed: u64, trace: bool) -> Result<StoryCounts, Failure> {
    let mut story = Story::new(seed, trace);
    story.tell().map_err(|halt| Failure {
        what: match halt {
            Halt::Killed => "killed at an unlikely place".into(),
            Halt::Broken(what) => what,
        },
        trace: story.outside.trace.take().unwrap_or_default(),
    })
}

/// The seed of the running story, for the report of a panic.
static TELLING: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes which story runs, and prints it if it panics.
fn now_telling(seed: u64) {
    if TELLING.swap(seed, Ordering::Relaxed) == u64::MAX {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let seed = TELLING.load(Ordering::Relaxed);
            drop(writeln!(std::io::stderr(), "seed {seed} panics"));
            usual(panic);
        }));
    }
}
