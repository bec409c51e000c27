//! The list that `mainstay reap` prints: servers below their client and conversation, then one line for each verdict, as in the report that this
//! command answers (claude-code #26658).

use std::fmt::Write as _;

use mainstay_core::reap::Verdict;
use mainstay_report::measure::{count, memory, processes, span};
use mainstay_report::paint::Tone;
use mainstay_report::safe::{one_line, visible};

use super::{Server, Total};

const VERDICTS: [Verdict; 5] = [
    Verdict::Orphan,
    Verdict::StaleClient,
    Verdict::Duplicate,
    Verdict::InUse,
    Verdict::Unsure,
];
/// Columns of a name, at least.
const NAME_LEAST: usize = 12;
/// Columns of everything else in a row.
const REST: usize = 2 + 12 + 2 + 2 + 7 + 2 + 5 + 2 + 8 + 2 + 8 + 2 + 6;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// How wide a line may be.
    pub columns: usize,
    /// Whether colours are used.
    pub colour: bool,
    /// Also processes without a sign that they speak MCP.
    pub all: bool,
}

/// The whole list.
pub fn render(servers: &[Server], screen: Screen) -> String {
    let (shown, hidden): (Vec<&Server>, Vec<&Server>) = servers
        .iter()
        .partition(|server| screen.all || server.speaks_mcp || server.client.is_some());
    let mut out = String::new();
    if !shown.is_empty() {
        let wide = screen.columns.saturating_sub(REST).clamp(NAME_LEAST, 40);
        let titles = row(
            ["VERDICT", "SERVER", "PID", "PROCS", "RSS", "SWAP", "AGE"],
            wide,
        );
        line(&mut out, &Tone::Strong.paint(&titles, screen.colour));
        for (title, members) in clients(&shown) {
            line(
                &mut out,
                &Tone::Strong.paint(&one_line(&title, screen.columns), screen.colour),
            );
            for server in members {
                one(&mut out, server, wide, screen);
            }
        }
        out.push('\n');
        totals(&mut out, &shown);
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

fn one(out: &mut String, server: &Server, wide: usize, screen: Screen) {
    let tone = match server.verdict {
        Verdict::Orphan => Tone::Bad,
        Verdict::StaleClient | Verdict::Duplicate | Verdict::Unsure => Tone::Warn,
        Verdict::InUse => Tone::Good,
    };
    let text = row(
        [
            server.verdict.word(),
            &server.name,
            &server.who.pid.to_string(),
            &server.processes.len().to_string(),
            &memory(server.rss_kib),
            &memory(server.swap_kib),
            &span(server.age_ms),
        ],
        wide,
    );
    // The verdict alone is coloured.
    let (verdict, rest) = text.split_at(2 + 12);
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

fn row([verdict, name, pid, processes, rss, swap, age]: [&str; 7], wide: usize) -> String {
    let name = one_line(name, wide);
    format!(
        "  {verdict:<12}  {name:<wide$}  {pid:>7}  {processes:>5}  {rss:>8}  {swap:>8}  {age:>6}"
    )
}

/// One line for each verdict, with what to do about it.
fn totals(out: &mut String, servers: &[&Server]) {
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
            Verdict::Orphan => "to end the orphans: mainstay reap --yes",
            Verdict::StaleClient => {
                "to end stale clients with their servers: mainstay reap --yes --stale"
            }
            Verdict::Duplicate => {
                "to stop idle servers of living clients: mainstay adopt --thrifty"
            }
            Verdict::InUse | Verdict::Unsure => "",
        };
        // A string takes everything.
        writeln!(
            out,
            "{:>8} {:>8} swap  {what} ({})",
            memory(total.rss_kib),
            memory(total.swap_kib),
            processes(total.processes)
        )
        .ok();
        cures.extend((!cure.is_empty()).then_some(cure));
    }
    for cure in cures {
        line(out, cure);
    }
}
