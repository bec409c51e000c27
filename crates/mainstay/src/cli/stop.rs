//! `mainstay stop`: asks keepers to end their trees, and waits until they have.

use clap::Args;
use mainstay_core::event::Seen;
use mainstay_core::ids::LinkId;
use mainstay_core::limits;
use serde::Serialize;

use super::whom::{self, Told, Trouble};
use crate::exit::Exit;
use crate::registry::Listed;
use crate::registry::control::{Answer, Request};
use crate::report::{Report, talk};
use crate::view::happening::seen;
use crate::view::printer::Printer;

/// What `stop` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay stop playwright
  mainstay stop 3f2a                   the first digits of an id will do
  mainstay stop playwright --json

The client sees its server end. Most clients do not start it again by themselves.")]
pub struct Options {
    /// All servers of this name, or the one with this id
    #[arg(value_name = "NAME|ID")]
    pub whom: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How one link ended.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// Whether nothing of it is left.
    pub ok: bool,
    /// How many processes were ended.
    pub ended: u32,
    /// Who is still there.
    pub left: Vec<Seen>,
    /// Why the keeper did not do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    trouble: Option<Trouble>,
    #[serde(skip)]
    exit: Exit,
}

/// Ends servers.
pub fn stop(options: &Options) -> Result<Exit, Report> {
    let chosen = whom::find(&options.whom)?;
    let rows: Vec<Row> = whom::ask_all(chosen, &Request::Stop, ladder_ms)
        .into_iter()
        .map(row)
        .collect();
    show(&rows, options.json)?;
    Ok(Exit::worst(rows.iter().map(|row| row.exit)))
}

fn ladder_ms(listed: &Listed) -> u64 {
    let told = listed.card.as_ref().map_or(0, |card| card.ladder_ms);
    if told == 0 {
        limits::STOP_PATIENCE_MS
    } else {
        told
    }
}

fn row((listed, answer): Told) -> Row {
    let mut row = Row {
        id: listed.id,
        server: whom::name(&listed),
        ok: false,
        ended: 0,
        left: Vec::new(),
        error: None,
        trouble: None,
        exit: Exit::Stuck,
    };
    let trouble = match answer {
        Ok(Answer::Stopped { ended, left }) => {
            row.ok = left.is_empty();
            row.exit = if row.ok { Exit::Ok } else { Exit::Unhealthy };
            row.ended = ended;
            row.left = left;
            return row;
        }
        Ok(Answer::Refused { error }) => Trouble::refused(&error),
        Ok(Answer::Status(_) | Answer::Restarted { .. }) => Trouble::beside(),
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
    for row in rows {
        let name = whom::label(&row.server, row.id, rows.len());
        if let Some(trouble) = &row.trouble {
            talk(&trouble.text(&name));
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
    use crate::cli::whom::samples::listed;
    use crate::registry::ask::NoAnswer;

    #[test]
    fn every_answer_has_its_exit_code() {
        let stuck = row((listed(1, "a"), Err(NoAnswer::Stuck { ms: 14_000 })));
        assert_eq!((stuck.ok, stuck.exit), (false, Exit::Stuck));
        assert!(stuck.error.unwrap().starts_with("its keeper is stuck"));
        let left = Answer::Stopped {
            ended: 1,
            left: vec![crate::samples::seen(9, "x")],
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
