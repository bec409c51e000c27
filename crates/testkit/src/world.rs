//! A simulated world around the link: one seed is one story.
//!
//! A scripted [`client`] and a scripted [`server`] talk through the relay that ships, in a [`shell`] without descriptors, by a clock that
//! only the story moves. Chance lets servers die at any byte, starts fail, the machine sleep, the client leave, and the keeper be killed
//! before any store into the memory that survives it, and around any read and write. The [`watch`] checks every promise on the way.
//!
//! Invariants: the same seed tells the same story, byte for byte; nothing here waits, and nothing knows how the link
//! comes to its decisions.

pub mod chance;
pub mod client;
pub mod dice;
mod happening;
pub mod matrix;
pub mod outside;
mod phase;
pub mod pipe;
pub mod raw;
pub mod said;
pub mod server;
pub mod shell;
mod story;
pub mod sweep;
pub mod watch;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_core::ids::LinkId;

use outside::Halt;
use story::Story;

/// The link of every world.
const LINK: LinkId = LinkId(7);

/// What a story was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Generations that were started.
    pub generations: u32,
    /// Keepers that were killed.
    pub killed: u32,
    /// Clients that came back.
    pub reattached: u32,
    /// Steps that it took.
    pub steps: u32,
}

/// A promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which one.
    pub what: String,
    /// The story up to there, if it was to be told.
    pub trace: Vec<String>,
}

/// Tells the story of this seed.
pub fn run(seed: u64, trace: bool) -> Result<Told, Failure> {
    let mut story = Story::new(seed, trace);
    story.tell().map_err(|halt| Failure {
        what: match halt {
            Halt::Killed => "killed at an unlikely place".into(),
            Halt::Broken(what) => what,
        },
        trace: story.outside.trace.take().unwrap_or_default(),
    })
}

/// The story that is being told, for whoever hears a panic.
static TELLING: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes which story is being told, and says so if it panics.
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
