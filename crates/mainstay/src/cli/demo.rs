//! `mainstay demo`: the scenes of [`crate::demo`], for people and, with `--json`, for programs.
//!
//! The demo's own servers, helpers and clients are this program again, with the hidden `--act`.

use clap::Args;

use crate::demo::{self, act::Act};
use crate::exit::Exit;
use crate::report::Report;

/// What `demo` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay demo
  mainstay demo --json | jq -c '[.scene, .held]'

It starts real processes in a state directory of its own and ends all of them: nothing of
yours is touched, nothing is left behind. Exit code: 0 if every scene held, 1 if not.")]
pub struct Options {
    /// As JSON, one object per scene
    #[arg(long)]
    pub json: bool,

    /// The part that this process plays in somebody else's demo
    #[arg(long, hide = true, value_enum)]
    act: Option<Act>,

    /// Whose part it is
    #[arg(long, hide = true, requires = "act", default_value = "")]
    party: String,
}

/// Shows what mainstay does.
pub fn demo(options: &Options) -> Result<Exit, Report> {
    match options.act {
        Some(act) => Ok(act.play(&options.party)),
        None => demo::play(options.json),
    }
}
