//! The last test program of a run: one line says which tests did not run, and why. It has no harness, because a harness would
//! hide the line.
//!
//! Cargo runs test programs by the names of packages and targets, so this one is last. Where `MAINSTAY_MAY_SKIP` is set (CI sets
//! it), a test that was skipped for any other reason fails the run.
//! guards: A test that could not run on this machine is named at the end of the run.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use mainstay_testkit::skip;

fn main() -> ExitCode {
    if env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let skipped = skip::take();
    let mut lines = format!("\n{}\n", skip::told(&skipped));
    let refused = match env::var(skip::MAY_SKIP) {
        Ok(words) => skip::not_allowed(&skipped, &words),
        Err(_) => Vec::new(),
    };
    if !refused.is_empty() {
        lines +=
            "error: this run may not skip these tests; install what they need, or run as root\n";
    }
    drop(io::stderr().write_all(lines.as_bytes()));
    ExitCode::from(u8::from(!refused.is_empty()))
}
