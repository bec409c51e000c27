//! `mainstay restart`: asks keepers to put the next generation of their server in its place, and waits until it is ready.

use clap::Args;
use mainstay_core::ids::LinkId;
use mainstay_core::limits;
use serde::Serialize;

use super::whom::{self, Told, Trouble};
use crate::exit::Exit;
use crate::registry::Listed;
use crate::registry::control::{Answer, Request};
use crate::report::{Report, talk};
use crate::view::printer::Printer;

/// What `restart` was told.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay restart [--json] <NAME|ID>\n       mainstay restart [--json] --all"
)]
#[command(after_help = "Examples:
  mainstay restart playwright
  mainstay restart 3f2a                the first digits of an id will do
  mainstay restart --all --json

The client notices nothing: what is in flight is answered first, then the next generation takes over.

Exit code: 0 restarted, 1 not restarted or nobody of that name, 75 a keeper does not answer.")]
pub struct Options {
    /// All servers of this name, or the one with this id
    #[arg(
        value_name = "NAME|ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub whom: Option<String>,
    /// All servers that run under mainstay
    #[arg(long)]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How one restart came out.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// Whether the next generation is ready.
    pub ok: bool,
    /// Which one it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Its process; none if it is not started before it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    trouble: Option<Trouble>,
    #[serde(skip)]
    exit: Exit,
}

/// Restarts servers.
pub fn restart(options: &Options) -> Result<Exit, Report> {
    let chosen = match &options.whom {
        Some(whom) => whom::find(whom)?,
        None => whom::everybody()?
            .into_iter()
            .filter(|listed| listed.alive)
            .collect(),
    };
    let rows: Vec<Row> = whom::ask_all(chosen, &Request::Restart, restart_ms)
        .into_iter()
        .map(row)
        .collect();
    show(&rows, options.json)?;
    Ok(Exit::worst(rows.iter().map(|row| row.exit)))
}

fn restart_ms(listed: &Listed) -> u64 {
    let told = listed.card.as_ref().map_or(0, |card| card.restart_ms);
    if told == 0 {
        limits::RESTART_PATIENCE_MS
    } else {
        told
    }
}

fn row((listed, answer): Told) -> Row {
    let mut row = Row {
        id: listed.id,
        server: whom::name(&listed),
        ok: false,
        generation: None,
        pid: None,
        error: None,
        trouble: None,
        exit: Exit::Stuck,
    };
    let trouble = match answer {
        Ok(Answer::Restarted { generation, pid }) => {
            row.ok = true;
            row.exit = Exit::Ok;
            row.generation = Some(generation);
            row.pid = pid;
            return row;
        }
        Ok(Answer::Refused { error }) => {
            row.exit = Exit::Unhealthy;
            Trouble::refused(&error)
        }
        Ok(Answer::Status(_) | Answer::Stopped { .. }) => Trouble::beside(),
        Err(silence) => Trouble::of(&listed, silence),
    };
    row.error = Some(trouble.error.clone());
    row.trouble = Some(trouble);
    row
}

fn show(rows: &[Row], json: bool) -> Result<(), Report> {
    let mut printer = Printer::new();
    if json {
        printer.json(&rows)?;
        return Ok(());
    }
    if rows.is_empty() {
        talk("no server runs under mainstay now\n");
    }
    for row in rows {
        let name = whom::label(&row.server, row.id, rows.len());
        if let Some(trouble) = &row.trouble {
            talk(&trouble.text(&name));
            continue;
        }
        let generation = row.generation.unwrap_or_default();
        let how = match row.pid {
            Some(pid) => format!("generation {generation}, pid {pid}"),
            None => format!("generation {generation} starts when it is needed"),
        };
        printer.text(&format!("{name}: restarted, {how}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::whom::samples::listed;
    use crate::registry::ask::NoAnswer;

    #[test]
    fn every_answer_has_its_exit_code() {
        let exit = |answer| row((listed(1, "a"), answer)).exit;
        let restarted = Answer::Restarted {
            generation: 2,
            pid: Some(7),
        };
        assert_eq!(exit(Ok(restarted)), Exit::Ok);
        let error = "the next generation ended at once".into();
        assert_eq!(exit(Ok(Answer::Refused { error })), Exit::Unhealthy);
        assert_eq!(exit(Err(NoAnswer::Stuck { ms: 1 })), Exit::Stuck);
        let stopped = Answer::Stopped {
            ended: 1,
            left: Vec::new(),
        };
        assert_eq!(exit(Ok(stopped)), Exit::Stuck);
    }

    #[test]
    fn a_card_that_does_not_tell_is_waited_for_all_the_same() {
        let mut old = listed(1, "a");
        assert_eq!(restart_ms(&old), 60_000);
        old.card.as_mut().unwrap().restart_ms = 0;
        assert_eq!(restart_ms(&old), limits::RESTART_PATIENCE_MS);
    }
}
