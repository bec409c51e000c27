//! `mainstay demo`: runs the scenes of [`mainstay_demo`].
//!
//! The servers, helpers and clients of the demo are this program again, started with the hidden option `--role`.

use clap::Args;
use mainstay_report::{Exit, Report};

use mainstay_demo::{self as demo, role::Role};

/// The options of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay demo
  mainstay demo --json | jq -c '[.scene, .held]'

It starts real processes with a state directory of their own and ends all of them. It does not
touch your servers and leaves nothing behind. Exit code: 0 if every scene succeeded, 1 if not.")]
pub struct Options {
    /// Print one JSON object per scene
    #[arg(long)]
    pub json: bool,

    /// Which process of a running demo this one is
    #[arg(long, hide = true, value_enum)]
    role: Option<Role>,

    /// The demo that this process belongs to
    #[arg(long, hide = true, requires = "role", default_value = "")]
    group: String,
}

/// Runs `mainstay demo`.
pub fn demo(options: &Options) -> Result<Exit, Report> {
    match options.role {
        Some(role) => Ok(role.run(&options.group)),
        None => demo::run(options.json),
    }
}
