//! `mainstay lease list`: every lease of this user, with what its servers use.

use mainstay_core::event::Seen;
use mainstay_core::lease::Over;
use mainstay_os::{clock, identity};
use serde::Serialize;

use super::ListOptions;
use crate::cli::ps;
use crate::exit::Exit;
use crate::lease::member::Visit;
use crate::lease::{Place, State, names};
use crate::paths::Paths;
use crate::report::{Report, plain, talk};
use crate::view::measure::{memory, span};
use crate::view::paint::Tone;
use crate::view::printer::Printer;
use crate::view::table::{Cell, Column, Table};

/// One lease.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub lease: String,
    /// `open`, `closing` while servers of a lease that is over are being ended, `over`, or `elsewhere`.
    pub state: &'static str,
    /// Why it is over.
    pub over: Option<Over>,
    /// The process whose end is its end.
    pub owner: Option<Seen>,
    /// How long it lasts without being renewed.
    pub ttl_ms: Option<u64>,
    /// How long that is from now.
    pub left_ms: Option<u64>,
    /// How many servers are in it.
    pub servers: usize,
    /// What their trees use.
    pub rss_kib: u64,
    /// When it was opened.
    pub opened_at: Option<String>,
}

pub(super) fn list(options: &ListOptions) -> Result<Exit, Report> {
    let rows = gather(&Paths::find()?)?;
    let mut printer = Printer::new();
    if options.json {
        printer.json(&rows)?;
    } else if rows.is_empty() {
        talk("no leases: open one with `mainstay lease open NAME`\n");
    } else {
        let text = render(&rows, printer.columns(), printer.colour());
        printer.text(&text)?;
    }
    Ok(Exit::Ok)
}

/// Every lease of this user.
pub fn gather(paths: &Paths) -> Result<Vec<Row>, Report> {
    let trouble = |error: &std::io::Error| {
        Report::new(
            Exit::State,
            format!("cannot read {}", paths.lease().display()),
        )
        .because(plain(error))
        .hint("`mainstay doctor` looks for the reason")
    };
    let here = identity::realm().map_err(|error| trouble(&error))?;
    let names = names(paths).map_err(|error| trouble(&error))?;
    let links = if names.is_empty() {
        Vec::new()
    } else {
        ps::gather(paths, false)?
    };
    let now = clock::now();
    let mut rows = Vec::new();
    for name in names {
        let Ok(Some(place)) = Place::find(paths, &name) else {
            continue;
        };
        let servers = Visit::all(&place).map_or(0, |all| all.iter().filter(|v| v.held()).count());
        let (state, term, over) = match place.state(&here) {
            State::Open(term) if term.realm == here => ("open", Some(term), None),
            State::Open(term) => ("elsewhere", Some(term), None),
            State::Over(term, over) if servers > 0 => ("closing", term, Some(over)),
            State::Over(term, over) => ("over", term, Some(over)),
        };
        let rss = links
            .iter()
            .filter(|link| link.lease.as_ref() == Some(&name));
        let term = term.as_ref();
        rows.push(Row {
            state,
            over,
            owner: term.and_then(|term| term.owner.clone()),
            ttl_ms: term.and_then(|term| term.ttl_ms),
            // Another time namespace has another clock.
            left_ms: term
                .filter(|term| term.realm.timens == here.timens)
                .and_then(|term| term.left_ms(now)),
            servers,
            rss_kib: rss.map(|link| link.rss_kib).sum(),
            opened_at: term.map(|term| term.opened_at.clone()),
            lease: name,
        });
    }
    Ok(rows)
}

fn render(rows: &[Row], columns: usize, colour: bool) -> String {
    let mut table = Table::new(&[
        Column::Name("LEASE"),
        Column::Text("STATE"),
        Column::Text("OWNER"),
        Column::Number("LEFT"),
        Column::Number("SERVERS"),
        Column::Number("RSS"),
    ]);
    for row in rows {
        let tone = match row.state {
            "open" => Tone::Good,
            _ => Tone::Warn,
        };
        let owner = row.owner.as_ref();
        table.row(vec![
            row.lease.as_str().into(),
            Cell::new(row.state, tone),
            owner
                .map_or("-".into(), crate::view::happening::seen)
                .into(),
            row.left_ms.map_or("-".into(), span).into(),
            row.servers.to_string().into(),
            memory(row.rss_kib).into(),
        ]);
    }
    table.render(columns, colour)
}
