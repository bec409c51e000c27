//! The list that `mainstay reap` prints: servers below their client and conversation, then one line for each verdict, as in the report that this
//! command answers (claude-code #26658).

use mainstay_core::reap::Verdict;
use mainstay_report::measure::{count, memory, processes, span};
use mainstay_report::paint::Tone;
use mainstay_report::safe::{one_line, visible};
use mainstay_report::wrap::wrap;

use super::{Server, Total};

const VERDICTS: [Verdict; 5] = [
    Verdict::Orphan,
    Verdict::StaleClient,
    Verdict::Duplicate,
    Verdict::InUse,
    Verdict::Unsure,
];
/// Columns of a name, at least and at most.
const NAME_LEAST: usize = 12;
const NAME_MOST: usize = 40;
/// Columns of the verdict, with the gap before it.
const VERDICT: usize = 2 + 12;
/// Columns of what follows the name in every row: its gap, and pid, memory and age.
const REST: usize = 2 + 2 + 7 + 2 + 8 + 2 + 6;
/// Columns of the number of processes and of the swapped memory, each with its gap.
const PROCESSES: usize = 2 + 5;
const SWAP: usize = 2 + 8;

/// The columns of the table that fit the screen.
#[derive(Clone, Copy, Debug)]
struct Columns {
    name: usize,
    processes: bool,
    swap: bool,
}

impl Columns {
    /// First the swapped memory is left out, then the number of processes.
    fn fit(columns: usize) -> Self {
        let room = columns.saturating_sub(VERDICT + REST);
        let swap = room >= NAME_LEAST + PROCESSES + SWAP;
        let processes = room >= NAME_LEAST + PROCESSES;
        let taken = [(swap, SWAP), (processes, PROCESSES)];
        let taken = taken.into_iter().filter(|(shown, _)| *shown);
        let room = room.saturating_sub(taken.map(|(_, wide)| wide).sum());
        Self {
            name: room.clamp(NAME_LEAST, NAME_MOST),
            processes,
            swap,
        }
    }

    fn row(self, [verdict, name, pid, processes, rss, swap, age]: [&str; 7]) -> String {
        let name = one_line(name, self.name);
        let cell = |shown: bool, text: String| if shown { text } else { String::new() };
        let processes = cell(self.processes, format!("  {processes:>5}"));
        let swap = cell(self.swap, format!("  {swap:>8}"));
        let wide = self.name;
        format!("  {verdict:<12}  {name:<wide$}  {pid:>7}{processes}  {rss:>8}{swap}  {age:>6}")
    }
}

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// How wide a line may be.
    pub columns: usize,
    /// Whether colours are used.
    pub colour: bool,
    /// Also processes without a sign that they speak MCP.
    pub all: bool,
    pub ends: Ends,
}

/// Which of the listed servers are ended next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Nothing,
    Orphans,
    /// The orphans, and the stale clients with their servers.
    AlsoStale,
}

/// The whole list.
pub fn render(servers: &[Server], screen: Screen) -> String {
    let (shown, hidden): (Vec<&Server>, Vec<&Server>) = servers
        .iter()
        .partition(|server| screen.all || server.speaks_mcp || server.client.is_some());
    let mut out = String::new();
    if !shown.is_empty() {
        let table = Columns::fit(screen.columns);
        let titles = table.row(["VERDICT", "SERVER", "PID", "PROCS", "RSS", "SWAP", "AGE"]);
        line(&mut out, &Tone::Strong.paint(&titles, screen.colour));
        for (title, members) in clients(&shown) {
            line(
                &mut out,
                &Tone::Strong.paint(&one_line(&title, screen.columns), screen.colour),
            );
            for server in members {
                one(&mut out, server, table, screen);
            }
        }
        out.push('\n');
        totals(&mut out, &shown, screen);
    }
    if !hidden.is_empty() {
        let text = format!(
            "spared, because nothing shows that they speak MCP: {} without a client (--all)",
            processes(hidden.len())
        );
        line(
            &mut out,
            &Tone::Faint.paint(&one_line(&text, screen.columns), screen.colour),
        );
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// The servers by client and conversation, in the order of the list.
fn clients<'a>(servers: &[&'a Server]) -> Vec<(String, Vec<&'a Server>)> {
    let mut found: Vec<(String, Vec<&Server>)> = Vec::new();
    for &server in servers {
        let client = match (&server.client, server.verdict) {
            (Some(client), _) => format!("{} {}", client.comm, client.who.pid),
            (None, Verdict::Unsure) => "no client known".into(),
            (None, _) => "client gone".into(),
        };
        let title = match &server.conversation {
            Some(conversation) => format!("{client}, conversation {conversation}"),
            None => client,
        };
        let title = visible(&title).into_owned();
        match found.iter_mut().find(|(known, _)| *known == title) {
            Some((_, members)) => members.push(server),
            None => found.push((title, vec![server])),
        }
    }
    found
}

fn one(out: &mut String, server: &Server, table: Columns, screen: Screen) {
    let tone = match server.verdict {
        Verdict::Orphan => Tone::Bad,
        Verdict::StaleClient | Verdict::Duplicate | Verdict::Unsure => Tone::Warn,
        Verdict::InUse => Tone::Good,
    };
    let text = table.row([
        server.verdict.word(),
        &server.name,
        &server.who.pid.to_string(),
        &server.processes.len().to_string(),
        &memory(server.rss_kib),
        &memory(server.swap_kib),
        &span(server.age_ms),
    ]);
    // The verdict alone is coloured.
    let (verdict, rest) = text.split_at(VERDICT);
    line(
        out,
        &format!("{}{rest}", tone.paint(verdict, screen.colour)),
    );
    let mut below: Vec<String> = Vec::new();
    if server.verdict == Verdict::Orphan && server.old_code {
        below.push("its program file is newer than the process: it runs old code".into());
    }
    below.extend(server.blocked.iter().cloned());
    for text in below {
        let text = one_line(&text, screen.columns.saturating_sub(16));
        line(
            out,
            &Tone::Faint.paint(&format!("{:16}{text}", ""), screen.colour),
        );
    }
}

/// One line for each verdict, with what to do about it.
fn totals(out: &mut String, servers: &[&Server], screen: Screen) {
    let mut cures = Vec::new();
    for verdict in VERDICTS {
        let total = Total::of(servers.iter().copied(), verdict);
        if total.servers == 0 {
            continue;
        }
        let what = match verdict {
            Verdict::Orphan => count(total.servers, "orphan"),
            Verdict::StaleClient => format!("{} of stale clients", count(total.servers, "server")),
            Verdict::Duplicate => {
                format!("{} under living clients", count(total.servers, "duplicate"))
            }
            Verdict::InUse => format!("{} in use", count(total.servers, "server")),
            Verdict::Unsure => format!("{} unsure, spared", count(total.servers, "server")),
        };
        let cure = match verdict {
            Verdict::Orphan if screen.ends != Ends::Nothing => "",
            Verdict::Orphan => "to end the orphans: mainstay reap --yes",
            Verdict::StaleClient if screen.ends == Ends::AlsoStale => "",
            Verdict::StaleClient => {
                "to end stale clients with their servers: mainstay reap --yes --stale"
            }
            Verdict::Duplicate => {
                "to stop idle servers of living clients: mainstay adopt --thrifty"
            }
            Verdict::InUse | Verdict::Unsure => "",
        };
        let used = format!(
            "{:>8} {:>8} swap  ",
            memory(total.rss_kib),
            memory(total.swap_kib)
        );
        let what = format!("{what} ({})", processes(total.processes));
        wrapped(out, &used, &what, screen.columns);
        cures.extend((!cure.is_empty()).then_some(cure));
    }
    for cure in cures {
        wrapped(out, "", cure, screen.columns);
    }
}

/// A text behind its lead; what does not fit goes on below it.
fn wrapped(out: &mut String, lead: &str, text: &str, columns: usize) {
    for (place, part) in wrap(text, columns.saturating_sub(lead.len()))
        .iter()
        .enumerate()
    {
        let indent = " ".repeat(lead.len());
        let lead = if place == 0 { lead } else { &indent };
        line(out, &format!("{lead}{part}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_left_out_on_a_narrow_screen() {
        let titles = ["VERDICT", "SERVER", "PID", "PROCS", "RSS", "SWAP", "AGE"];
        for (columns, swap, processes) in [(80, true, true), (68, false, true), (60, false, false)]
        {
            let row = Columns::fit(columns).row(titles);
            assert!(row.chars().count() <= columns, "{columns}: {row}");
            assert_eq!(row.contains("SWAP"), swap, "{columns}: {row}");
            assert_eq!(row.contains("PROCS"), processes, "{columns}: {row}");
        }
        for columns in 55..200 {
            let row = Columns::fit(columns).row([
                "stale client",
                "a-server-with-a-name-that-is-far-too-long-for-it",
                "4194304",
                "12345",
                "1023 MiB",
                "1023 MiB",
                "99d23h",
            ]);
            assert!(row.chars().count() <= columns, "{columns}: {row}");
        }
    }
}
