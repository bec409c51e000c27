//! `mainstay run`.

use super::run_options::RunOptions;
use crate::config::{Config, resolve};
use crate::exit::Exit;
use crate::paths::Paths;
use crate::report::Report;

/// Runs a server.
pub fn run(options: RunOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let settled = resolve(&options, &Config::load(&paths)?)?;
    drop(options);
    Err(Report::new(
        Exit::Failed,
        format!("cannot run `{}`: not built in this branch", settled.name),
    ))
}
