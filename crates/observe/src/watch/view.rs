//! What `mainstay watch` prints for people: a table of the servers that run, or a row for each change.

use mainstay_report::clock::{Precision, Zone, clock};
use mainstay_report::measure::{fine, memory, span};
use mainstay_report::paint::Tone;
use mainstay_report::safe::one_line;
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::width::{padded, width};
use mainstay_report::wrap::wrap;

use super::line::{Happened, WatchLine};

/// Between two fields of a row.
const GAP: &str = "  ";
/// Columns of the time, the kind of change and the pid.
const TIME: usize = 8;
const WHAT: usize = 6;
const PID: usize = 7;
/// Columns of client and server on a narrow and on a wide terminal.
const NARROW: (usize, usize) = (13, 16);
const WIDE: (usize, usize) = (18, 26);
const WIDE_FROM: usize = 100;

/// Where it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// How wide a line may be.
    pub columns: usize,
    /// Whether colours are used.
    pub colour: bool,
    /// The user's time zone.
    pub zone: Zone,
}

/// The servers that run now, by client.
pub fn table(lines: &[WatchLine], style: Style) -> String {
    let mut table = Table::new(&[
        Column::Name("CLIENT"),
        Column::Name("SERVER"),
        Column::Number("PID"),
        Column::Number("AGE"),
        Column::Number("RSS"),
        Column::Rest("HELD BY"),
    ])
    .spare(&["AGE", "RSS"]);
    let mut lines: Vec<&WatchLine> = lines.iter().collect();
    // Orphans come last, and servers of one client in the order of their start.
    lines.sort_by_key(|line| {
        let client = line.shown_client();
        (
            line.what == Happened::Orphan,
            client.map(|seen| (seen.comm.clone(), seen.who.pid)),
            line.who.start,
        )
    });
    for line in lines {
        let client = client(line);
        table.row(vec![
            Cell::from(client),
            Cell::new(line.name(), Tone::Strong),
            line.shown_pid().to_string().into(),
            span(line.age_ms).into(),
            memory(line.shown_rss_kib()).into(),
            "".into(),
        ]);
        let (held, tone) = held_by(line);
        table.note(Cell::new(held, tone));
    }
    table.render(style.columns, style.colour)
}

fn client(line: &WatchLine) -> String {
    line.shown_client().map_or_else(
        || "-".into(),
        |seen| format!("{} {}", one_line(&seen.comm, 20), seen.who.pid),
    )
}

/// What ends the server with its client; if nothing does, what to do.
fn held_by(line: &WatchLine) -> (String, Tone) {
    match (&line.ours, line.what) {
        (Some(ours), _) => (format!("mainstay {}", ours.short_id), Tone::Good),
        (None, Happened::Orphan) => ("ORPHAN: mainstay reap".into(), Tone::Bad),
        (None, Happened::Left) => ("no client: mainstay reap".into(), Tone::Bad),
        (None, Happened::New | Happened::Moved | Happened::Gone | Happened::ClientGone) => {
            ("client only: mainstay adopt".into(), Tone::Plain)
        }
    }
}

/// The titles above the rows.
pub fn titles(style: Style) -> String {
    let fields = [
        padded("TIME", TIME),
        padded("WHAT", WHAT),
        padded("CLIENT", sizes(style).0),
        padded("SERVER", sizes(style).1),
        format!("{:>PID$}", "PID"),
        "DETAILS".into(),
    ];
    format!("{}\n", Tone::Strong.paint(&fields.join(GAP), style.colour))
}

fn sizes(style: Style) -> (usize, usize) {
    if style.columns < WIDE_FROM {
        NARROW
    } else {
        WIDE
    }
}

/// One change. `first`: the server was found when `watch` began.
pub fn row(line: &WatchLine, first: bool, style: Style) -> String {
    let (client_wide, server_wide) = sizes(style);
    let word = match (line.what, first) {
        (Happened::New, true) => "RUNS",
        (what, _) => what.word(),
    };
    let (client, server) = match line.what {
        Happened::ClientGone => (line.name(), String::new()),
        Happened::New | Happened::Moved | Happened::Gone | Happened::Left | Happened::Orphan => {
            (client(line), line.name())
        }
    };
    let server = padded(&one_line(&server, server_wide), server_wide);
    let fields = [
        Tone::Faint.paint(
            &clock(&line.at, style.zone, Precision::Seconds),
            style.colour,
        ),
        line.what.tone().paint(&padded(word, WHAT), style.colour),
        padded(&one_line(&client, client_wide), client_wide),
        Tone::Strong.paint(&server, style.colour),
        format!("{:>PID$}", line.shown_pid()),
    ];
    let indent = TIME + WHAT + client_wide + server_wide + PID + 5 * GAP.len();
    let mut out = fields.join(GAP);
    let details = details(line, style.columns, indent);
    if !details.starts_with('\n') {
        out.push_str(GAP);
    }
    out + &details + "\n"
}

/// The end of a row: what has no room stands below.
fn details(line: &WatchLine, columns: usize, indent: usize) -> String {
    let room = columns.saturating_sub(indent);
    let starts = |parts: Vec<String>| {
        // What matters least comes last, and is left out first.
        let mut text = String::new();
        for part in parts {
            let gap = if text.is_empty() { "" } else { GAP };
            if width(&text) + gap.len() + width(&part) <= room {
                text.extend([gap, &part]);
            }
        }
        text
    };
    let text = match line.what {
        Happened::New | Happened::Moved | Happened::Left | Happened::Orphan => {
            let (held, _) = held_by(line);
            let held = match held.split_once(": ") {
                // The word before it says the rest of a server without a client.
                Some((who, command)) if width(&held) > room => match line.what {
                    Happened::Left | Happened::Orphan => command.to_owned(),
                    Happened::New | Happened::Moved | Happened::Gone | Happened::ClientGone => {
                        who.to_owned()
                    }
                },
                Some(_) | None => held,
            };
            let mut parts = vec![held, span(line.age_ms), memory(line.shown_rss_kib())];
            parts.extend(line.remarks());
            return starts(parts);
        }
        Happened::Gone => format!("{} after {}", line.end(), fine(line.age_ms)),
        Happened::ClientGone => line.end(),
    };
    if width(&text) <= room {
        return text;
    }
    // Below the client.
    let indent = TIME + WHAT + 2 * GAP.len();
    let lines = wrap(&text, columns.saturating_sub(indent));
    let below: Vec<String> = lines
        .iter()
        .map(|line| format!("\n{:indent$}{line}", ""))
        .collect();
    below.concat()
}

#[cfg(test)]
mod tests {
    use super::super::line::samples::{line, ours};
    use super::super::line::{Launcher, Sender};
    use super::*;
    use mainstay_protocol::event::Status;
    use mainstay_protocol::ids::Identity;
    use mainstay_report::samples::assert_snapshot;

    const DIR: &str = env!("CARGO_MANIFEST_DIR");

    fn style(columns: usize) -> Style {
        Style {
            columns,
            colour: false,
            zone: |_| 3_600,
        }
    }

    /// One of each kind.
    fn lines() -> Vec<WatchLine> {
        let mut held = line(Happened::New);
        held.ours = Some(ours());
        held.client = Some(mainstay_report::samples::seen(15_609, "mcp-keeper"));
        let mut launched = line(Happened::Moved);
        launched.from = Some(Identity { pid: 5, start: 1 });
        launched.launchers = vec![Launcher {
            who: Identity { pid: 5, start: 1 },
            command: vec!["npx".into()],
        }];
        let mut gone = line(Happened::Gone);
        gone.status = Some(Status::Signal {
            number: 15,
            core: false,
        });
        gone.sender = Some(Sender {
            pid: 4000,
            comm: Some("claude".into()),
            number: 15,
        });
        let mut unknown = line(Happened::Gone);
        unknown.unknown = Some("its parent has not reaped it, and it belongs to another user");
        let mut end = line(Happened::ClientGone);
        end.client = None;
        end.command = vec!["claude".into()];
        end.status = Some(Status::Code(0));
        let mut orphan = line(Happened::Orphan);
        orphan.client = None;
        orphan.age_ms = 840_000;
        vec![
            held,
            line(Happened::New),
            launched,
            gone,
            unknown,
            end,
            line(Happened::Left),
            orphan,
        ]
    }

    fn running() -> Vec<WatchLine> {
        let mut lines = lines();
        lines.retain(|line| matches!(line.what, Happened::New | Happened::Orphan));
        lines
    }

    fn rows(columns: usize) -> String {
        let lines = lines();
        let rows = lines.iter().map(|line| row(line, false, style(columns)));
        titles(style(columns)) + &rows.collect::<String>()
    }

    #[test]
    fn the_table_at_80_and_120_columns() {
        for columns in [80, 120] {
            let path = format!("src/watch/table-{columns}.txt");
            assert_snapshot(DIR, &path, &table(&running(), style(columns)));
        }
    }

    #[test]
    fn the_rows_at_80_and_120_columns() {
        for columns in [80, 120] {
            let path = format!("src/watch/rows-{columns}.txt");
            assert_snapshot(DIR, &path, &rows(columns));
        }
    }

    #[test]
    fn a_server_that_was_there_before_is_not_new() {
        let text = row(&line(Happened::New), true, style(80));
        assert!(text.contains("  RUNS    claude 27819 "), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_its_terminal() {
        let names = ["a", "日本語のサーバー名前はとても長いです", "🦀🦀🦀"];
        let long = "x".repeat(200);
        for name in names.into_iter().chain([long.as_str()]) {
            let mut all = Vec::new();
            for number in 0..63 {
                let mut lines = lines();
                for line in &mut lines {
                    line.who.pid = 4_000_000 + number;
                    line.command = vec![name.into()];
                    line.age_ms = 400 * 86_400_000;
                    line.rss_kib = 1_023 * 1_024;
                    if let Some(client) = &mut line.client {
                        client.comm = name.into();
                    }
                    if let Some(ours) = &mut line.ours {
                        ours.server = Some(name.into());
                        ours.short_id = ours.id.to_string();
                    }
                }
                all.extend(lines);
            }
            for columns in 60..=200 {
                let step = if columns % 70 == 60 { all.len() } else { 8 };
                let mut text = table(&all[..step], style(columns));
                for line in &all[..8] {
                    text += &row(line, true, style(columns));
                }
                for line in text.lines() {
                    assert!(width(line) <= columns, "{columns}: {line}");
                }
            }
        }
        assert_eq!(table(&[], style(60)).lines().count(), 1);
    }
}
