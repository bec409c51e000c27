//! Side-by-side measurements: a bare server, `cat | server | cat`, and `mainstay run -- server`, in one run.
//!
//! `cargo run --release -p mainstay-bench` writes `docs/benchmarks.md`. It measures the `mainstay` next to it and builds nothing.
//! It fails if something does not work, never because of a time.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people, with three digits"
)]

mod args;
mod footprint;
mod http;
mod lane;
mod machine;
mod pin;
mod place;
mod report;
mod role;
mod section;
mod stats;
mod table;
mod talk;
mod watchdog;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use args::{Args, Asked};
use place::Programs;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(role) = role::of(&words) {
        return role.play();
    }
    let outcome = match Args::parse(&words) {
        Ok(Asked::Measure(args)) => measure(&args, &words),
        Ok(Asked::Help(text)) => print(&text),
        Err(problem) => Err(io::Error::other(problem)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            talk(&format!("mainstay-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args, words: &[OsString]) -> io::Result<()> {
    // The last resort. Each section's watchdog finds and reports a hang before.
    mainstay_testkit::fork::expire_after(if args.quick { 300 } else { 3_600 });
    let programs = Programs::find(args.old.as_deref())?;
    if args.writes() && cfg!(debug_assertions) {
        return Err(io::Error::other(
            "figures of a debug build mean nothing; add --release, or --quick to see that it works",
        ));
    }
    let before = machine::load();
    let mut parts = Vec::new();
    for section in args.sections() {
        talk(&format!("measuring: {}", section.title));
        parts.push(section.measure(&programs, args.effort())?);
    }
    let text = report::render(&programs, words, &before, &parts)?;
    if args.writes() {
        std::fs::write(report::PATH, text)?;
        talk("written: docs/benchmarks.md");
        return Ok(());
    }
    print(&text)
}

fn print(text: &str) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that prints what was measured"
    )]
    io::stdout().write_all(text.as_bytes())
}

/// Prints the progress. A closed stderr is no reason to stop.
fn talk(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}
