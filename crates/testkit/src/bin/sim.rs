//! Wide sweeps of simulated worlds; see `mainstay_testkit::world`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_testkit::world::sweep::run(std::env::args().skip(1))
}
