//! The puppet, a client process that the test controls; see `mainstay_testkit::puppet`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_testkit::puppet::run(std::env::args_os().skip(1).collect())
}
