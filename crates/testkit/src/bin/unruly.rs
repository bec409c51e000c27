//! The unruly server; see `mainstay_testkit::unruly`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_testkit::unruly::run(std::env::args_os().skip(1).collect())
}
