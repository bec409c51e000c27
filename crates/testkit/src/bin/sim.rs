//! Wide sweeps of simulated worlds; see `mainstay_testkit::world`, and `mainstay_testkit::shared_world` for `--serve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|word| word == "--serve").is_some() {
        return mainstay_testkit::shared_world::sweep::run(arguments);
    }
    mainstay_testkit::world::sweep::run(arguments)
}
