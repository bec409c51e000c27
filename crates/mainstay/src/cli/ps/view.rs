//! The screen of `ps`: servers below their client, a total, what the states mean, and servers that run without mainstay.

use std::path::Path;

use mainstay_core::reap::Verdict;
use mainstay_observe::reap::Server;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::redact;
use mainstay_protocol::tier::{Tier, WhyNot};
use mainstay_report::measure::{count, memory, span};
use mainstay_report::paint::Tone;
use mainstay_report::states::{self, STATES};
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::wrap::wrap;

use super::Row;
use super::command::{short_path, telling};

/// From here on there is room for the pid and the number of processes.
const ROOMY: usize = 100;
/// Servers without mainstay that are listed, at most.
const OTHERS_MAX: usize = 20;

/// What is shown, and where.
#[derive(Clone, Copy, Debug)]
pub struct Screen<'h> {
    /// How wide a line may be.
    pub columns: usize,
    /// Whether colours are used.
    pub colour: bool,
    /// All columns.
    pub wide: bool,
    /// Paths below it are written with `~`.
    pub home: Option<&'h Path>,
}

/// A server that was not started through mainstay, as far as it is shown.
#[derive(Clone, Debug)]
pub struct Other {
    name: String,
    verdict: Verdict,
    rss_kib: u64,
    age_ms: u64,
    pid: i32,
    client: Option<Seen>,
}

impl From<&Server> for Other {
    fn from(server: &Server) -> Self {
        Self {
            name: server.name.clone(),
            verdict: server.verdict,
            rss_kib: server.rss_kib,
            age_ms: server.age_ms,
            pid: server.who.pid,
            client: server.client.clone(),
        }
    }
}

/// The whole screen.
pub fn render(rows: &[Row], others: &[Other], screen: Screen<'_>) -> String {
    let mut out = String::new();
    if !rows.is_empty() {
        out += &links(rows, screen);
    }
    if !others.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &unwrapped(others, screen);
    }
    out
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Lease,
    State,
    Memory,
    Swap,
    Uptime,
    Id,
    Pid,
    Procs,
    Tier,
    Command,
}

impl Field {
    const ALL: [Self; 11] = [
        Self::Name,
        Self::Lease,
        Self::State,
        Self::Memory,
        Self::Swap,
        Self::Uptime,
        Self::Id,
        Self::Pid,
        Self::Procs,
        Self::Tier,
        Self::Command,
    ];

    /// Whether it says something that is worth its room.
    fn is_wanted(self, rows: &[Row], screen: Screen<'_>) -> bool {
        let news = match self {
            Self::Lease => rows.iter().any(|row| row.lease.is_some()),
            Self::Swap => rows.iter().any(|row| row.swap_kib > 0),
            Self::Pid | Self::Procs => screen.columns >= ROOMY,
            Self::Tier => {
                let mut tiers = rows.iter().filter_map(|row| row.tier);
                let first = tiers.next();
                tiers.any(|tier| Some(tier) != first)
            }
            Self::Name | Self::State | Self::Memory | Self::Uptime | Self::Id | Self::Command => {
                true
            }
        };
        news || screen.wide
    }

    fn column(self) -> Column {
        match self {
            Self::Name => Column::Name("NAME"),
            Self::Lease => Column::Text("LEASE"),
            // Like a name it is not cut, because each state has a meaning.
            Self::State => Column::Name("STATE"),
            Self::Memory => Column::Number("MEMORY"),
            Self::Swap => Column::Number("SWAP"),
            Self::Uptime => Column::Number("UPTIME"),
            Self::Id => Column::Text("ID"),
            Self::Pid => Column::Number("PID"),
            Self::Procs => Column::Number("PROCS"),
            Self::Tier => Column::Text("TIER"),
            Self::Command => Column::Rest("COMMAND"),
        }
    }

    fn cell(self, row: &Row, home: Option<&Path>) -> Cell {
        let or_none = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        let used = |kib| or_none((row.processes > 0).then(|| memory(kib)));
        match self {
            Self::Name => row.server.as_str().into(),
            Self::Lease => or_none(row.lease.clone()),
            Self::State => {
                let tone = states::of(&row.state).map_or(Tone::Warn, |state| state.tone);
                Cell::new(row.state.as_str(), tone)
            }
            Self::Memory => used(row.rss_kib),
            Self::Swap => used(row.swap_kib),
            Self::Uptime => or_none(row.uptime_ms.map(span)),
            Self::Id => Cell::new(row.short_id.as_str(), Tone::Faint),
            Self::Pid => or_none(row.pid.map(|pid| pid.to_string())),
            Self::Procs => row.processes.to_string().into(),
            Self::Tier => row.tier.map_or("-", Tier::word).into(),
            Self::Command => telling(&redact::words(&row.argv), home).into(),
        }
    }
}

fn links(rows: &[Row], screen: Screen<'_>) -> String {
    let mut fields = Field::ALL.to_vec();
    fields.retain(|field| field.is_wanted(rows, screen));
    let columns: Vec<Column> = fields.iter().map(|field| field.column()).collect();
    let mut table = Table::new(&columns)
        .grouped()
        .spare(&["PROCS", "PID", "TIER", "LEASE", "SWAP", "COMMAND", "UPTIME"]);
    let groups = by_client(rows);
    for group in &groups {
        let title = title(group, screen.home);
        table.heading(Cell::new(title, Tone::Strong), sums(group));
        for row in group {
            let cells = fields.iter().map(|field| field.cell(row, screen.home));
            table.row(cells.collect());
            if let Some(trouble) = &row.trouble {
                let text = format!("{}: {}", trouble.reason, trouble.command);
                table.note(Cell::new(text, Tone::Bad));
            }
            for process in row.tree.iter().flatten() {
                table.below(&format!(
                    "{}└ {} {}  {}",
                    "  ".repeat(process.depth + 2),
                    process.pid,
                    memory(process.rss_kib),
                    process.command
                ));
            }
        }
    }
    let mut out = table.render(screen.columns, screen.colour);
    let clients = groups.iter().filter(|group| group[0].client.is_some());
    let total = [
        count(rows.len(), "server"),
        memory(rows.iter().map(|row| row.rss_kib).sum()),
        count(clients.count(), "client"),
    ];
    out += &total.join(", ");
    out.push('\n');
    out += &missing_tiers(rows, screen);
    out + &legend(rows, screen)
}

/// Why servers whose trees are shown have no stronger tier: each reason once, with their names if it is not that of all.
fn missing_tiers(rows: &[Row], screen: Screen<'_>) -> String {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.tree.is_some()).collect();
    let mut reasons: Vec<&WhyNot> = Vec::new();
    for why in shown.iter().flat_map(|row| &row.why_not) {
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    let mut out = String::new();
    for why in reasons {
        let of = shown.iter().filter(|row| row.why_not.contains(why));
        let names: Vec<&str> = of.map(|row| row.server.as_str()).collect();
        let whose = if names.len() == shown.len() {
            String::new()
        } else {
            format!("{}: ", names.join(", "))
        };
        out += &paragraph(&format!("{whose}{why}"), screen);
    }
    out
}

/// The rows of each client, in the order of its first row.
fn by_client(rows: &[Row]) -> Vec<Vec<&Row>> {
    let key = |row: &Row| -> Option<Identity> { row.client.as_ref().map(|client| client.who) };
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// `claude 4000  ~/proj`. If the client's directory cannot be read, that of its servers is shown if they have the same.
fn title(group: &[&Row], home: Option<&Path>) -> String {
    let Some(client) = &group[0].client else {
        return "no client".into();
    };
    let same = group.iter().all(|row| row.directory == group[0].directory);
    let directory = group[0]
        .client_directory
        .as_ref()
        .or(same.then_some(&group[0].directory));
    let directory = directory.map_or_else(String::new, |path| short_path(path, home));
    let title = format!("{} {}  {directory}", client.comm, client.who.pid);
    title.trim_end().into()
}

fn sums(group: &[&Row]) -> String {
    let total = memory(group.iter().map(|row| row.rss_kib).sum());
    format!("{}  {total:>8}", count(group.len(), "server"))
}

/// What the states mean that are not plain.
fn legend(rows: &[Row], screen: Screen<'_>) -> String {
    let mut out = String::new();
    let shown = |word: &str| {
        rows.iter()
            .any(|row| row.state == word && row.trouble.is_none())
    };
    for state in STATES.iter().filter(|state| state.word != "ready") {
        if shown(state.word) {
            out += &paragraph(&format!("{}: {}", state.word, state.meaning), screen);
        }
    }
    out
}

/// A text of its own below a table: wrapped, and faint.
fn paragraph(text: &str, screen: Screen<'_>) -> String {
    let mut out = String::new();
    for (place, line) in wrap(text, screen.columns.saturating_sub(2))
        .iter()
        .enumerate()
    {
        let indent = if place > 0 { "  " } else { "" };
        out += indent;
        out += &Tone::Faint.paint(line, screen.colour);
        out.push('\n');
    }
    out
}

/// Servers that were not started through mainstay, and what to do about them.
fn unwrapped(others: &[Other], screen: Screen<'_>) -> String {
    let mut table = Table::new(&[
        Column::Name("NAME"),
        Column::Name("VERDICT"),
        Column::Number("MEMORY"),
        Column::Number("AGE"),
        Column::Number("PID"),
        Column::Rest("CLIENT"),
    ])
    .grouped()
    .spare(&["CLIENT", "AGE"]);
    let total = memory(others.iter().map(|server| server.rss_kib).sum());
    let right = format!("{}  {total:>8}", count(others.len(), "server"));
    table.heading(Cell::new("without mainstay", Tone::Strong), right);
    for server in others.iter().take(OTHERS_MAX) {
        let tone = match server.verdict {
            Verdict::Orphan => Tone::Bad,
            Verdict::StaleClient | Verdict::Duplicate | Verdict::Unsure => Tone::Warn,
            Verdict::InUse => Tone::Plain,
        };
        let client = server.client.as_ref();
        table.row(vec![
            server.name.as_str().into(),
            Cell::new(server.verdict.word(), tone),
            memory(server.rss_kib).into(),
            span(server.age_ms).into(),
            server.pid.to_string().into(),
            client
                .map_or("-".into(), |client| {
                    format!("{} {}", client.comm, client.who.pid)
                })
                .into(),
        ]);
    }
    let mut out = table.render(screen.columns, screen.colour);
    if others.len() > OTHERS_MAX {
        let more = others.len() - OTHERS_MAX;
        out += &paragraph(&format!("… {more} more: `mainstay reap` lists all"), screen);
    }
    let has = |verdict: Verdict| others.iter().any(|server| server.verdict == verdict);
    if has(Verdict::Orphan) {
        out += &paragraph(
            "orphan: its client is gone; `mainstay reap` shows and ends it",
            screen,
        );
    }
    if has(Verdict::Unsure) {
        let text = "unsure: not proven to be an orphan, so it is spared; `mainstay reap` says why";
        out += &paragraph(text, screen);
    }
    if has(Verdict::InUse) || has(Verdict::Duplicate) {
        let text = "servers of living clients: `mainstay adopt` puts mainstay in front of them";
        out += &paragraph(text, screen);
    }
    out
}

#[cfg(test)]
pub mod samples {
    use super::super::Row;
    use mainstay_protocol::ids::LinkId;
    use mainstay_protocol::tier::Tier;

    /// A server that is ready.
    pub fn row(server: &str, id: u32) -> Row {
        Row {
            id: LinkId(id),
            short_id: format!("{id:08x}")[..4].into(),
            server: server.into(),
            lease: None,
            state: "ready".into(),
            generation: 1,
            trouble: None,
            client: Some(mainstay_report::samples::seen(4000, "claude")),
            client_directory: Some("/home/ann/proj".into()),
            tier: Some(Tier::Cgroup),
            why_not: Vec::new(),
            pid: Some(4711),
            keeper: Some(4700),
            processes: 3,
            rss_kib: 74_752,
            swap_kib: 0,
            uptime_ms: Some(7_500_000),
            started_at: "2026-11-15T22:31:07.123Z".into(),
            argv: [
                "npx",
                "-y",
                "@modelcontextprotocol/server-filesystem",
                "/home/ann/proj/data",
            ]
            .map(Into::into)
            .into(),
            directory: "/home/ann/proj".into(),
            tree: None,
        }
    }
}

#[cfg(test)]
mod tests;
