//! `mainstay ps`.

use clap::Args;

use crate::exit::Exit;
use crate::report::Report;

/// What `ps` was told.
#[derive(Debug, Args)]
pub struct Options {}

/// Not there yet.
pub fn ps(_options: &Options) -> Result<Exit, Report> {
    Err(Report::new(Exit::Failed, "not there yet"))
}
