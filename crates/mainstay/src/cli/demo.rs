//! `mainstay demo`.

use clap::Args;

use crate::exit::Exit;
use crate::report::Report;

/// What `demo` was told.
#[derive(Debug, Args)]
pub struct Options {}

/// Shows what mainstay does.
pub fn demo(options: &Options) -> Result<Exit, Report> {
    let Options {} = options;
    Err(Report::new(Exit::Failed, "not built in this branch"))
}
