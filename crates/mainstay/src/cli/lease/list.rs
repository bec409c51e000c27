//! `mainstay lease list`: shows all leases of this user, with the memory of their servers.

use mainstay_keeper::lease::member::MemberFile;
use mainstay_keeper::lease::{LeaseDirectory, State, names};
use mainstay_os::{clock, identity};
use mainstay_protocol::event::Seen;
use mainstay_protocol::lease::Over;
use mainstay_report::measure::{memory, span};
use mainstay_report::paint::Tone;
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::{Exit, Report, talk};
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::ListOptions;
use crate::cli::ps;
use mainstay_report::printer::Printer;

/// One lease.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the lease.
    pub lease: String,
    /// `open`; `closing` while its servers are being ended; `over`; `elsewhere` if it was opened in another pid or time
    /// namespace.
    pub state: &'static str,
    /// Why the lease is over.
    pub over: Option<Over>,
    /// The process with which the lease ends.
    pub owner: Option<Seen>,
    /// How long the lease lasts without renewal.
    pub ttl_ms: Option<u64>,
    /// How much of that time is left.
    pub left_ms: Option<u64>,
    /// How many servers the lease has.
    pub servers: usize,
    /// Resident memory of all processes of these servers.
    pub rss_kib: u64,
    /// When the lease was opened.
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
    let trouble = |error| Report::unreadable(paths.lease().display(), &error);
    let here = identity::realm().map_err(trouble)?;
    let names = names(paths).map_err(trouble)?;
    let links = if names.is_empty() {
        Vec::new()
    } else {
        ps::gather(paths, false)?
    };
    let now = clock::now();
    let mut rows = Vec::new();
    for name in names {
        let Ok(Some(place)) = LeaseDirectory::find(paths, &name) else {
            continue;
        };
        let servers =
            MemberFile::all(&place).map_or(0, |all| all.iter().filter(|v| v.held()).count());
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
            // In another time namespace the clock differs, so the rest cannot be computed.
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
    ])
    .spare(&["RSS"]);
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
                .map_or("-".into(), mainstay_report::happening::seen)
                .into(),
            row.left_ms.map_or("-".into(), span).into(),
            row.servers.to_string().into(),
            memory(row.rss_kib).into(),
        ]);
    }
    table.render(columns, colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_keeper::lease::directory::{ENDED, TERM};
    use mainstay_keeper::lease::{Wish, close, open};
    use mainstay_store::scratch::{HOSTILE, Scratch};
    use std::fs;

    #[test]
    fn hostile_files_in_a_lease_do_not_block_the_list() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        for (what, put) in HOSTILE {
            for name in [TERM, ENDED, "00000009", "stranger"] {
                open(&paths, "job", &Wish::default()).unwrap();
                let path = paths.lease().join("job").join(name);
                fs::remove_file(&path).ok();
                put(&path);
                let rows = gather(&paths).unwrap();
                assert_eq!(rows.len(), 1, "{what} as {name}");
                assert_eq!(rows[0].lease, "job", "{what} as {name}");
                close(&paths, "job", None, None).unwrap();
            }
        }
    }
}
