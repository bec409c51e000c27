//! `mainstay restart`: asks keepers to restart their servers, and waits until the new servers are ready.

use std::ops::ControlFlow;

use clap::Args;
use mainstay_os::clock;
use mainstay_protocol::event::{Cause, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits;
use mainstay_protocol::time::ZonedTime;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::ledger::backwards;
use mainstay_store::ledger::read::{self, Events, Filter};
use mainstay_store::paths::Paths;
use mainstay_store::registry::Listed;
use mainstay_store::registry::control::{Answer, Request};
use memchr::memmem;
use serde::Serialize;

use super::select::{self, Answered, Failure};
use super::why;
use mainstay_report::printer::Printer;

/// The options of `restart`.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay restart [--json] <NAME|ID>\n       mainstay restart [--json] --all [NAME]"
)]
#[command(after_help = "Examples:
  mainstay restart playwright
  mainstay restart 3f2a                the first four digits of an id are enough
  mainstay restart playwright --all    all servers of this name, whichever client uses them
  mainstay restart --all --json

If several servers have the name, none is restarted, and their ids are listed. Clients stay connected: requests in flight are answered first, then the new server takes over.

Exit code: 0 restarted, 1 not restarted or no server of that name, 75 a keeper does not answer.")]
pub struct Options {
    /// The server's name, or at least four digits of its id
    #[arg(value_name = "NAME|ID")]
    pub target: Option<String>,
    /// All servers of this name; without a name, all servers that run under mainstay
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The result for one server.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The id of the link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// Whether the new server is ready.
    pub ok: bool,
    /// The number of the new generation (one run of the server).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The pid of the new server; not there if it starts only when it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Why the server was not restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    failure: Option<Failure>,
    #[serde(skip)]
    exit: Exit,
}

/// Restarts servers.
pub fn restart(options: &Options) -> Result<Exit, Report> {
    let chosen = select::choose("restart", options.target.as_deref(), options.all);
    let chosen = chosen.map_err(|report| {
        let target = options.target.as_deref();
        target.and_then(stopped).unwrap_or(report)
    })?;
    let waiting = |names: &[String], most_ms| {
        if !options.json {
            select::tell_waiting("the new server is ready", names, most_ms);
        }
    };
    let rows: Vec<Row> = select::ask_all(chosen, &Request::Restart, restart_ms, waiting)
        .into_iter()
        .map(row)
        .collect();
    show(&rows, options.json)?;
    Ok(Exit::worst(rows.iter().map(|row| row.exit)))
}

/// The error for a server that `mainstay stop` has ended: it runs again once its client connects.
fn stopped(target: &str) -> Option<Report> {
    let runs = |listed: &Listed| select::name(listed) == target;
    if select::running().ok()?.iter().any(runs) {
        return None;
    }
    let paths = Paths::find().ok()?;
    let files = Events::open(&paths, Filter::default()).files().ok()?;
    let named = memmem::Finder::new(&read::server_bytes(target)).into_owned();
    let last = backwards::lines(&files, |_, line| {
        let death = named.find(line).and_then(|_| why::death(line));
        match death.filter(|event| event.server == target) {
            Some(event) => ControlFlow::Break(event),
            None => ControlFlow::Continue(()),
        }
    });
    let event = last.ok()?.break_value()?;
    let What::Exit(exit) = &event.what else {
        return None;
    };
    if exit.ending.as_ref()?.cause != Cause::Asked {
        return None;
    }
    let at = ZonedTime::of_text(&event.at, clock::zone(false))?;
    let problem = format!(
        "`mainstay stop` ended `{target}` at {} ({})",
        at.clock(),
        at.date()
    );
    let hint =
        "its client starts it again when it reconnects to its MCP servers, or when it is restarted";
    Some(Report::new(Exit::NotFound, problem).hint(hint))
}

fn restart_ms(listed: &Listed) -> u64 {
    let on_card = listed.card.as_ref().map_or(0, |card| card.restart_ms);
    if on_card == 0 {
        limits::RESTART_PATIENCE_MS
    } else {
        on_card
    }
}

fn row((listed, answer): Answered) -> Row {
    let mut row = Row {
        id: listed.id,
        server: select::name(&listed),
        ok: false,
        generation: None,
        pid: None,
        error: None,
        failure: None,
        exit: Exit::Stuck,
    };
    let failure = match answer {
        Ok(Answer::Restarted { generation, pid }) => {
            row.ok = true;
            row.exit = Exit::Ok;
            row.generation = Some(generation);
            row.pid = pid;
            return row;
        }
        Ok(Answer::Refused { error }) => {
            row.exit = Exit::Unhealthy;
            Failure::refused(&error)
        }
        Ok(Answer::Status(_) | Answer::Stopped { .. }) => Failure::unexpected_answer(),
        Err(reason) => Failure::no_answer(&listed, reason),
    };
    row.error = Some(failure.error.clone());
    row.failure = Some(failure);
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
        let name = select::label(&row.server, row.id, rows.len());
        if let Some(failure) = &row.failure {
            talk(&failure.text(&name));
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
    use crate::cli::select::samples::listed;
    use mainstay_store::registry::ask::NoAnswer;

    #[test]
    fn every_restart_answer_has_its_exit_code() {
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
    fn a_card_without_a_restart_time_gets_the_default_patience() {
        let mut old = listed(1, "a");
        assert_eq!(restart_ms(&old), 60_000);
        old.card.as_mut().unwrap().restart_ms = 0;
        assert_eq!(restart_ms(&old), limits::RESTART_PATIENCE_MS);
    }
}
