//! Why a server does not serve, in a few words, and which command tells more.

use std::ops::ControlFlow;

use mainstay_protocol::event::{Abandoned, What};
use mainstay_protocol::time;
use mainstay_report::measure::{count, fine};
use mainstay_report::safe::one_line;
use mainstay_store::ledger::read::{Events, Filter};
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::Row;

/// Columns of a path that is named.
const PATH: usize = 40;

/// Why a server does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// The reason.
    pub reason: String,
    /// The command that tells more.
    pub command: String,
}

/// The trouble of a link, if it has one. `alone`: no other link has its name.
pub fn of(paths: &Paths, row: &Row, alone: bool) -> Option<Trouble> {
    let why = || {
        let named = if alone { &row.server } else { &row.short_id };
        format!("mainstay why {named}")
    };
    let (reason, command) = match row.state.as_str() {
        "abandoned" => {
            let event = last_abandoned(paths, row);
            let reason = event.map_or_else(|| "too many crashes".into(), |event| reason(&event));
            (reason, why())
        }
        "failed" => ("it does not start".into(), why()),
        "dead" => (
            "its mainstay processes were killed".into(),
            "mainstay doctor".into(),
        ),
        _ => return None,
    };
    Some(Trouble { reason, command })
}

/// The last event of this link that says why it was given up.
fn last_abandoned(paths: &Paths, row: &Row) -> Option<Abandoned> {
    let filter = Filter {
        id: Some(row.id.to_string()),
        since_ms: time::parse(&row.started_at),
        ..Filter::default()
    };
    let mut last = None;
    let read = Events::open(paths, filter).read(|event, _| {
        if let What::Abandoned(abandoned) = &event.what {
            last = Some(abandoned.clone());
        }
        ControlFlow::<()>::Continue(())
    });
    // Without events the state is all that is known.
    read.ok().and(last)
}

fn reason(event: &Abandoned) -> String {
    if let Some(path) = &event.changed {
        return format!("does not start since {} changed", one_line(path, PATH));
    }
    let window = match event.window_ms {
        ms if ms > 0 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms => fine(ms),
    };
    let losses = [
        (event.deaths, "death"),
        (event.failed_starts, "failed start"),
    ];
    let losses: Vec<String> = losses
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| count(number, what))
        .collect();
    format!("{} in {window}", losses.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::super::view::samples::row;
    use super::*;
    use mainstay_store::ledger::Ledger;
    use mainstay_store::scratch::Scratch;

    fn abandoned(deaths: u32, failed_starts: u32, window_ms: u64) -> Abandoned {
        Abandoned {
            deaths,
            failed_starts,
            window_ms,
            last: "exit code 1".into(),
            changed: None,
            probe_ms: 60_000,
        }
    }

    #[test]
    fn a_server_that_was_given_up_says_after_how_many_deaths() {
        let scratch = Scratch::new();
        let mut ledger = Ledger::open(&scratch.paths());
        let mut crash = row("crash", 0x2c76_0000);
        for (id, deaths) in [(crash.id, 3), (crash.id, 5), (row("x", 7).id, 9)] {
            let event = What::Abandoned(abandoned(deaths, 0, 60_000));
            ledger.record(id, "crash", event);
        }
        crash.state = "abandoned".into();
        crash.short_id = "2c76".into();
        let told = |alone| of(&scratch.paths(), &crash, alone).unwrap();
        assert_eq!(
            told(true),
            Trouble {
                reason: "5 deaths in 1 min".into(),
                command: "mainstay why crash".into(),
            }
        );
        assert_eq!(told(false).command, "mainstay why 2c76");
        assert_eq!(of(&scratch.paths(), &row("a", 1), true), None);
    }

    #[test]
    fn deaths_failed_starts_and_changed_files_are_told_apart() {
        assert_eq!(
            reason(&abandoned(1, 2, 90_000)),
            "1 death and 2 failed starts in 1m30s"
        );
        let mut changed = abandoned(1, 0, 60_000);
        changed.changed = Some("src/server.py".into());
        assert_eq!(
            reason(&changed),
            "does not start since src/server.py changed"
        );
    }
}
