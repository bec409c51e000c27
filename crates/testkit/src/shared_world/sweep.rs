//! The command for wide sweeps: `sim --serve --seeds 100000`, and `sim --serve --seed N` to be told one story.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{FrontCounts, run as tell};

/// Stories between two words about how far it has come.
const WORD_EVERY: u64 = 10_000;
/// Seeds that are named when promises are broken.
const NAMED_MAX: usize = 20;

const USAGE: &str = "usage: sim --serve [--from N] --seeds COUNT | sim --serve --seed N";

static TELLING: AtomicU64 = AtomicU64::new(u64::MAX);

/// A panic names this seed from now on.
pub fn now_telling(seed: u64) {
    if TELLING.swap(seed, Ordering::Relaxed) == u64::MAX {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let seed = TELLING.load(Ordering::Relaxed);
            say(&format!("seed {seed} panics: sim --serve --seed {seed}"));
            usual(panic);
        }));
    }
}

/// Does what the arguments after `--serve` say. All that it says goes to stderr.
pub fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let (mut seed, mut from, mut seeds) = (None, 0, 0);
    while let Some(word) = arguments.next() {
        let number = arguments.next().and_then(|text| text.parse().ok());
        match (word.as_str(), number) {
            ("--seed", Some(number)) => seed = Some(number),
            ("--from", Some(number)) => from = number,
            ("--seeds", Some(number)) => seeds = number,
            _ => {
                say(USAGE);
                return ExitCode::from(2);
            }
        }
    }
    match seed {
        Some(seed) => one(seed),
        None => many(from, seeds),
    }
}

fn one(seed: u64) -> ExitCode {
    now_telling(seed);
    match tell(seed, true) {
        Ok(told) => {
            say(&format!("seed {seed} holds: {told:?}"));
            ExitCode::SUCCESS
        }
        Err(what) => {
            say(&format!("seed {seed}: {what}"));
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, seeds: u64) -> ExitCode {
    let mut all = FrontCounts::default();
    let mut broken = 0;
    for seed in from..from + seeds {
        now_telling(seed);
        match tell(seed, false) {
            Ok(told) => all.add(&told),
            Err(what) => {
                broken += 1;
                if broken <= NAMED_MAX {
                    say(&format!("seed {seed}: {what}"));
                }
            }
        }
        if (seed + 1 - from).is_multiple_of(WORD_EVERY) {
            say(&format!("{} worlds, {broken} broken", seed + 1 - from));
        }
    }
    say(&format!("{seeds} worlds, {broken} broken: {all:?}"));
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl FrontCounts {
    /// What happened in another world, too.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.answered, other.answered),
            (&mut self.failed, other.failed),
            (&mut self.refused, other.refused),
            (&mut self.abandoned, other.abandoned),
            (&mut self.resumed, other.resumed),
            (&mut self.cut, other.cut),
            (&mut self.died, other.died),
            (&mut self.sessions, other.sessions),
            (&mut self.attacks, other.attacks),
            (&mut self.passed, other.passed),
            (&mut self.deleted, other.deleted),
        ] {
            *sum += more;
        }
    }
}

/// Says a line on stderr.
pub(super) fn say(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
