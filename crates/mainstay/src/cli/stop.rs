//! `mainstay stop`: asks keepers to end their trees, and waits until they have.

use clap::Args;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits;
use mainstay_report::happening::seen;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::registry::Listed;
use mainstay_store::registry::control::{Answer, Request};
use serde::Serialize;

use super::select::{self, Answered, Failure};
use mainstay_report::printer::Printer;

/// The options of `stop`.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay stop [--json] <NAME|ID>\n       mainstay stop [--json] --all [NAME]"
)]
#[command(after_help = "Examples:
  mainstay stop playwright
  mainstay stop 3f2a                   the first four digits of an id are enough
  mainstay stop playwright --all       all servers of this name, whichever client uses them
  mainstay stop playwright --json

If several servers have the name, none is ended, and their ids are listed. The client sees that its server has ended. Most clients do not start it again by themselves.")]
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
    /// Whether no process of the server is left.
    pub ok: bool,
    /// How many processes were ended.
    pub ended: u32,
    /// The processes that are still there.
    pub left: Vec<Seen>,
    /// Why the keeper did not end the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    failure: Option<Failure>,
    #[serde(skip)]
    exit: Exit,
}

/// Ends servers.
pub fn stop(options: &Options) -> Result<Exit, Report> {
    let chosen = select::choose("stop", options.target.as_deref(), options.all)?;
    let waiting = |names: &[String], most_ms| {
        if !options.json {
            select::tell_waiting("all processes have ended", names, most_ms);
        }
    };
    let rows: Vec<Row> = select::ask_all(chosen, &Request::Stop, ladder_ms, waiting)
        .into_iter()
        .map(row)
        .collect();
    show(&rows, options.json)?;
    Ok(Exit::worst(rows.iter().map(|row| row.exit)))
}

fn ladder_ms(listed: &Listed) -> u64 {
    let on_card = listed.card.as_ref().map_or(0, |card| card.ladder_ms);
    if on_card == 0 {
        limits::STOP_PATIENCE_MS
    } else {
        on_card
    }
}

fn row((listed, answer): Answered) -> Row {
    let mut row = Row {
        id: listed.id,
        server: select::name(&listed),
        ok: false,
        ended: 0,
        left: Vec::new(),
        error: None,
        failure: None,
        exit: Exit::Stuck,
    };
    let failure = match answer {
        Ok(Answer::Stopped { ended, left }) => {
            row.ok = left.is_empty();
            row.exit = if row.ok { Exit::Ok } else { Exit::Unhealthy };
            row.ended = ended;
            row.left = left;
            return row;
        }
        Ok(Answer::Refused { error }) => Failure::refused(&error),
        Ok(Answer::Status(_) | Answer::Restarted { .. }) => Failure::unexpected_answer(),
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
        let left: Vec<String> = row.left.iter().map(seen).collect();
        let who = if left.is_empty() {
            String::new()
        } else {
            format!(": {}", left.join(", "))
        };
        let (ended, left) = (row.ended, row.left.len());
        printer.text(&format!("{name}: ended {ended}, {left} left{who}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::select::samples::listed;
    use mainstay_store::registry::ask::NoAnswer;

    #[test]
    fn every_stop_answer_has_its_exit_code() {
        let stuck = row((listed(1, "a"), Err(NoAnswer::Stuck { ms: 14_000 })));
        assert_eq!((stuck.ok, stuck.exit), (false, Exit::Stuck));
        assert!(stuck.error.unwrap().starts_with("its keeper is stuck"));
        let left = Answer::Stopped {
            ended: 1,
            left: vec![mainstay_report::samples::seen(9, "x")],
        };
        let left = row((listed(1, "a"), Ok(left)));
        assert_eq!((left.ok, left.exit), (false, Exit::Unhealthy));
        let restarted = Answer::Restarted {
            generation: 2,
            pid: None,
        };
        let beside = row((listed(1, "a"), Ok(restarted)));
        assert_eq!(beside.exit, Exit::Stuck);
    }
}
