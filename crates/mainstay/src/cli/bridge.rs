//! `mainstay bridge`: the process that `run --url` starts as its server. Not called by users.

use clap::Args;

/// The arguments; the settings are in an environment variable.
#[derive(Debug, Args)]
pub struct Options {
    /// The URL, so that it can be seen in the process list
    #[arg(value_name = "URL")]
    pub shown: Option<String>,
}
