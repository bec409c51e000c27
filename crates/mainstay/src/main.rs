//! Arguments → command → exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mainstay::cli::Cli;
use mainstay::exit::Exit;
use mainstay::report::talk;
use mainstay::view::printer;

fn main() -> ExitCode {
    mainstay_os::signals::ignore_file_size();
    mainstay_os::orphans::as_usual();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
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

/// Help and version are data; anything else is a mistake in the arguments.
fn unparsed(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if error.use_stderr() {
        talk(&text);
        return Exit::Usage.into();
    }
    match printer::print_text(&text) {
        Ok(()) => Exit::Ok.into(),
        Err(report) => report.exit().into(),
    }
}
