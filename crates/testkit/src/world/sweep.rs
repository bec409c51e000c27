//! The command for wide sweeps: `sim --seeds 100000`, and `sim --seed N` to print one story.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use super::{StoryCounts, outside, run as tell};

/// Stories between two progress lines.
const WORD_EVERY: u64 = 10_000;
/// Seeds that are listed for each broken promise.
const NAMED_MAX: usize = 8;

const USAGE: &str = "usage: sim [--from N] --seeds COUNT [--keep-going] | sim --seed N [--trace]";

#[derive(Debug, Default)]
struct Wish {
    seed: Option<u64>,
    from: u64,
    seeds: u64,
    keep_going: bool,
    trace: bool,
}

/// Does what the arguments say. All its output goes to stderr.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(wish) = read(arguments) else {
        say(USAGE);
        return ExitCode::from(2);
    };
    match wish.seed {
        Some(seed) => one(seed, wish.trace),
        None => many(&wish),
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Option<Wish> {
    let mut wish = Wish::default();
    while let Some(word) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match word.as_str() {
            "--seed" => wish.seed = Some(number()?),
            "--from" => wish.from = number()?,
            "--seeds" => wish.seeds = number()?,
            "--keep-going" => wish.keep_going = true,
            "--trace" => wish.trace = true,
            _ => return None,
        }
    }
    (wish.seed.is_some() || wish.seeds > 0).then_some(wish)
}

fn one(seed: u64, trace: bool) -> ExitCode {
    if trace {
        // A story that ends in a panic is printed too.
        outside::tell_aloud();
    }
    match tell(seed, true) {
        Ok(told) => {
            say(&format!("seed {seed} holds: {told:?}"));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            if !trace {
                for line in &failure.trace {
                    say(line);
                }
            }
            say(&format!("seed {seed}: {}", failure.what));
            ExitCode::FAILURE
        }
    }
}

fn many(wish: &Wish) -> ExitCode {
    let mut all = StoryCounts::default();
    let mut failures: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seed in wish.from..wish.from + wish.seeds {
        super::now_telling(seed);
        match tell(seed, false) {
            Ok(told) => {
                all.generations += told.generations;
                all.killed += told.killed;
                all.reattached += told.reattached;
                all.steps = all.steps.wrapping_add(told.steps);
            }
            Err(failure) => {
                if !wish.keep_going {
                    return one(seed, false);
                }
                let what = failure.what.split(": ").next().unwrap_or_default();
                let kind = what.replace(|c: char| c.is_ascii_digit(), "");
                failures.entry(kind).or_default().push(seed);
            }
        }
        if (seed + 1 - wish.from).is_multiple_of(WORD_EVERY) {
            say(&format!(
                "{} seeds, {} generations, {} killed keepers",
                seed + 1 - wish.from,
                all.generations,
                all.killed
            ));
        }
    }
    for (what, seeds) in &failures {
        let (times, named) = (seeds.len(), &seeds[..seeds.len().min(NAMED_MAX)]);
        say(&format!("{times:>8} × {what} (seeds {named:?})"));
    }
    if failures.is_empty() {
        say(&format!("{} seeds hold: {all:?}", wish.seeds));
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn say(line: &str) {
    // A closed stderr is no reason to fail.
    drop(writeln!(io::stderr(), "{line}"));
}
