//! The binary: parses the arguments, runs the command, and returns its exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mainstay::cli::{Cli, mistaken, version};
use mainstay_report::printer;

fn main() -> ExitCode {
    mainstay_os::signals::ignore_file_size();
    mainstay_os::orphans::as_usual();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if version::is_asked_as_json(&words) {
        return match version::print_json() {
            Ok(exit) => exit.into(),
            Err(report) => report.exit().into(),
        };
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return mistaken::unparsed(&error).into(),
    };
    printer::choose_colour(cli.color.into());
    let is_run = cli.verb.is_run();
    let exit = match cli.verb.perform() {
        Ok(exit) => exit,
        Err(report) => {
            report.tell();
            report.exit()
        }
    };
    if is_run { exit.in_run() } else { exit }.into()
}
