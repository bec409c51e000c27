//! `mainstay stop`.

use clap::Args;

use crate::exit::Exit;
use crate::report::Report;

/// What `stop` was told.
#[derive(Debug, Args)]
pub struct Options {}

/// Not there yet.
pub fn stop(_options: &Options) -> Result<Exit, Report> {
    Err(Report::new(Exit::Failed, "not there yet"))
}
