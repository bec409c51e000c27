//! `mainstay forget`: removes remembered openings, for the case that one misleads.

use std::io;

use clap::Args;
use serde::Serialize;

use crate::config::file::nearest;
use crate::exit::Exit;
use crate::paths::Paths;
use crate::recollection::{self, Kept};
use crate::report::{Report, plain};
use crate::view::measure::memory;
use crate::view::printer::Printer;

/// What `forget` was told.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay forget [--json] <NAME>\n       mainstay forget [--json] --all"
)]
#[command(after_help = "Examples:
  mainstay forget playwright
  mainstay forget --all --json

The next start of that server is as slow as the first, and is remembered again. A server that runs now is not touched.")]
pub struct Options {
    /// What was remembered of servers of this name
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// Everything that was remembered of any server
    #[arg(long)]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    /// How many records.
    pub records: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Forgets.
pub fn forget(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let all = recollection::all(&paths.record()).map_err(|error| {
        Report::new(
            Exit::State,
            format!("cannot read {}", paths.record().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    })?;
    let chosen = match &options.name {
        Some(name) => choose(name, all)?,
        None => all,
    };
    let forgotten = remove(&paths, &chosen)?;
    let mut printer = Printer::new();
    if options.json {
        printer.json(&forgotten)?;
    } else {
        printer.text(&told(forgotten))?;
    }
    Ok(Exit::Ok)
}

/// The records of a name: one for each directory, environment and version that it was started with.
fn choose(name: &str, all: Vec<Kept>) -> Result<Vec<Kept>, Report> {
    let (chosen, others): (Vec<Kept>, Vec<Kept>) = all
        .into_iter()
        .partition(|kept| kept.server.as_deref() == Some(name));
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let report = Report::new(
        Exit::NotFound,
        format!("nothing is remembered of a server called `{name}`"),
    );
    let mut names: Vec<&str> = others
        .iter()
        .filter_map(|kept| kept.server.as_deref())
        .collect();
    names.dedup();
    Err(match (nearest(name, &names), names.as_slice()) {
        (_, []) => report.hint("nor of any other"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("those that are remembered: {}", names.join(", "))),
    })
}

fn remove(paths: &Paths, chosen: &[Kept]) -> Result<Forgotten, Report> {
    let mut forgotten = Forgotten {
        records: 0,
        bytes: 0,
    };
    for kept in chosen {
        let place = paths.record();
        match place.open().and_then(|record| record.remove(&kept.name)) {
            // It went its way while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(Report::new(
                    Exit::State,
                    format!("cannot remove {} in {}", kept.name, place.display()),
                )
                .because(plain(&error))
                .hint("make its directory writable"));
            }
            Ok(()) => {}
        }
        forgotten.records += usize::from(!kept.is_openings);
        forgotten.bytes += kept.bytes;
    }
    Ok(forgotten)
}

fn told(forgotten: Forgotten) -> String {
    let Forgotten { records, bytes } = forgotten;
    match records {
        0 => "nothing was remembered\n".into(),
        1 => format!("forgot 1 record with {}\n", memory(bytes.div_ceil(1024))),
        _ => format!(
            "forgot {records} records with {}\n",
            memory(bytes.div_ceil(1024))
        ),
    }
}
