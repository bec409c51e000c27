//! `mainstay bridge`: what `run --url` starts in the place of a server. Not for people.

use clap::Args;

/// What it was told; the rest is in its environment.
#[derive(Debug, Args)]
pub struct Options {
    /// The URL, for people who look at the process list
    #[arg(value_name = "URL")]
    pub shown: Option<String>,
}
