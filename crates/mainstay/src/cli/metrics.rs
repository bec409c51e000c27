//! `mainstay metrics`: memory, restarts, requests and their durations of every server, in the text format of Prometheus.
//!
//! It asks each keeper once over its control socket, so a server that is not asked about pays nothing but the counting.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits;
use mainstay_protocol::traffic::{BUCKETS_US, Durations, Traffic};
use mainstay_report::printer::Printer;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::paths::Paths;
use mainstay_store::registry::ask::Asked;
use mainstay_store::registry::control::{Answer, Request};
use mainstay_store::registry::{self, Listed};
use serde::Serialize;

use super::ps;

/// The options of `metrics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay metrics
  mainstay metrics --output /var/lib/node_exporter/mainstay.prom     for its textfile collector
  mainstay metrics --json | jq '.[] | {server, calls: .traffic.calls.count}'

Counts begin again at zero if a keeper was killed, and end with the session. `mainstay serve` has figures of its own
at /metrics.")]
pub struct Options {
    /// Write into this file instead, so that a reader never sees half of it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The figures of one link.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The id of the link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// The client's name.
    pub client: Option<String>,
    /// The state of the link, as in `ps`.
    pub state: String,
    /// How often the server was restarted.
    pub restarts: u32,
    /// How many processes the server has.
    pub processes: usize,
    /// Resident memory of all of them.
    pub rss_kib: u64,
    /// Swapped-out memory of all of them.
    pub swap_kib: u64,
    /// How long the server process has run.
    pub uptime_ms: Option<u64>,
    /// What was answered so far; none if the keeper did not tell.
    pub traffic: Option<Traffic>,
}

/// Prints the figures.
pub fn metrics(options: &Options) -> Result<Exit, Report> {
    let rows = gather(&Paths::find()?)?;
    match &options.output {
        Some(file) => write(file, &page(&rows))?,
        None if options.json => {
            Printer::new().json(&rows)?;
        }
        None => {
            Printer::new().text(&page(&rows))?;
        }
    }
    Ok(Exit::Ok)
}

/// The figures of all links of this user.
pub fn gather(paths: &Paths) -> Result<Vec<Row>, Report> {
    let links = ps::gather(paths, false)?;
    let mut told = registry::list(paths).map(traffic).unwrap_or_default();
    Ok(links
        .into_iter()
        .map(|link| Row {
            traffic: told.remove(&link.id),
            id: link.id,
            server: link.server,
            client: link.client.map(|client| client.comm),
            state: link.state,
            restarts: link.generation.saturating_sub(1),
            processes: link.processes,
            rss_kib: link.rss_kib,
            swap_kib: link.swap_kib,
            uptime_ms: link.uptime_ms,
        })
        .collect())
}

/// Asks all keepers, and only then waits for the first answer.
fn traffic(listed: Vec<Listed>) -> HashMap<LinkId, Traffic> {
    let asked: Vec<_> = listed
        .into_iter()
        .filter(|listed| listed.alive)
        .filter_map(|listed| {
            let asked = Asked::send(&listed.path, &Request::Status, limits::DOCTOR_PATIENCE_MS);
            Some((listed.id, asked.ok()?))
        })
        .collect();
    asked
        .into_iter()
        .filter_map(|(id, asked)| match asked.answer() {
            Ok(Answer::Status(card)) => Some((id, card.traffic?)),
            Ok(Answer::Stopped { .. } | Answer::Restarted { .. } | Answer::Refused { .. })
            | Err(_) => None,
        })
        .collect()
}

/// One metric: its name, its type, its help, and its value for a link. None if the link has no such value.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Row) -> Option<u64>,
);

const METRICS: [Metric; 7] = [
    (
        "mainstay_server_resident_memory_bytes",
        "gauge",
        "Resident memory of all processes of a server.",
        |row| Some(row.rss_kib * 1024),
    ),
    (
        "mainstay_server_swap_bytes",
        "gauge",
        "Swapped-out memory of all processes of a server.",
        |row| Some(row.swap_kib * 1024),
    ),
    (
        "mainstay_server_processes",
        "gauge",
        "Processes of a server.",
        |row| Some(row.processes as u64),
    ),
    (
        "mainstay_server_uptime_seconds",
        "gauge",
        "How long the server process has run.",
        |row| row.uptime_ms.map(|ms| ms / 1_000),
    ),
    (
        "mainstay_server_restarts_total",
        "counter",
        "Restarts of a server in this session.",
        |row| Some(u64::from(row.restarts)),
    ),
    (
        "mainstay_server_errors_total",
        "counter",
        "Answers of a server that were JSON-RPC errors.",
        |row| row.traffic.as_ref().map(|traffic| traffic.errors),
    ),
    (
        "mainstay_server_requests_answered_by_mainstay_total",
        "counter",
        "Requests that mainstay answered, from its cache or because the server could not.",
        |row| {
            row.traffic
                .as_ref()
                .map(|traffic| traffic.answered_by_mainstay)
        },
    ),
];

/// The name that OpenTelemetry's conventions for MCP give the duration of a request, as Prometheus writes it.
const DURATION: &str = "mcp_server_operation_duration_seconds";

/// The page for Prometheus.
fn page(rows: &[Row]) -> String {
    let mut page = String::new();
    head(
        &mut page,
        "mainstay_server_state",
        "gauge",
        "1 for the state that a link is in.",
    );
    for row in rows {
        let state = escape(&row.state);
        let labels = labels(row);
        line(
            &mut page,
            format_args!("mainstay_server_state{{{labels},state=\"{state}\"}} 1"),
        );
    }
    for (name, kind, help, value) in METRICS {
        head(&mut page, name, kind, help);
        for row in rows {
            if let Some(value) = value(row) {
                line(&mut page, format_args!("{name}{{{}}} {value}", labels(row)));
            }
        }
    }
    head(
        &mut page,
        DURATION,
        "histogram",
        "Time from a client's request to the server's answer.",
    );
    for row in rows {
        let Some(traffic) = &row.traffic else {
            continue;
        };
        for (method, durations) in [("tools/call", &traffic.calls), ("other", &traffic.others)] {
            let labels = format!("{},mcp_method_name=\"{method}\"", labels(row));
            histogram(&mut page, &labels, durations);
        }
    }
    page
}

fn histogram(page: &mut String, labels: &str, durations: &Durations) {
    let mut below = 0;
    for (us, count) in BUCKETS_US.iter().zip(&durations.buckets) {
        below += count;
        let most = seconds(*us);
        line(
            page,
            format_args!("{DURATION}_bucket{{{labels},le=\"{most}\"}} {below}"),
        );
    }
    let (count, sum) = (durations.count, seconds(durations.total_us));
    line(
        page,
        format_args!("{DURATION}_bucket{{{labels},le=\"+Inf\"}} {count}"),
    );
    line(page, format_args!("{DURATION}_sum{{{labels}}} {sum}"));
    line(page, format_args!("{DURATION}_count{{{labels}}} {count}"));
}

/// Microseconds as seconds, without zeros at the end.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    line(page, format_args!("# HELP {name} {help}"));
    line(page, format_args!("# TYPE {name} {kind}"));
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.push_str(&text.to_string());
    page.push('\n');
}

fn labels(row: &Row) -> String {
    format!(
        "server=\"{}\",client=\"{}\",id=\"{}\"",
        escape(&row.server),
        escape(row.client.as_deref().unwrap_or_default()),
        row.id
    )
}

/// A label's value, as the format wants it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Writes a new file beside the old one and puts it in its place.
fn write(file: &Path, text: &str) -> Result<(), Report> {
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&new)
        .and_then(|mut open| open.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, file));
    written.map_err(|error| {
        // What is left of a failed try is ours.
        drop(fs::remove_file(&new));
        Report::new(Exit::Failed, format!("cannot write {}", file.display()))
            .because(plain(&error))
            .hint("name a file in a directory that you may write to")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let mut traffic = Traffic::default();
        for ns in [400_000, 1_500_000, 700_000_000, 400_000_000_000] {
            traffic.answered(mainstay_protocol::message::slot::Tracked::ToolsCall, ns);
        }
        traffic.errors = 2;
        Row {
            id: LinkId(0x3f2a_0001),
            server: "my \"files\"\\".into(),
            client: Some("claude".into()),
            state: "ready".into(),
            restarts: 3,
            processes: 2,
            rss_kib: 10,
            swap_kib: 0,
            uptime_ms: None,
            traffic: Some(traffic),
        }
    }

    #[test]
    fn buckets_add_up_and_labels_are_escaped() {
        let page = page(&[row()]);
        let labels = r#"server="my \"files\"\\",client="claude",id="3f2a0001""#;
        for line in [
            format!("mainstay_server_state{{{labels},state=\"ready\"}} 1"),
            format!("mainstay_server_resident_memory_bytes{{{labels}}} 10240"),
            format!("mainstay_server_restarts_total{{{labels}}} 3"),
            format!("mainstay_server_errors_total{{{labels}}} 2"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"0.001\"}} 1"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"0.002\"}} 2"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"0.5\"}} 2"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"1\"}} 3"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"300\"}} 3"),
            format!("{DURATION}_bucket{{{labels},mcp_method_name=\"tools/call\",le=\"+Inf\"}} 4"),
            format!("{DURATION}_sum{{{labels},mcp_method_name=\"tools/call\"}} 400.7019"),
            format!("{DURATION}_count{{{labels},mcp_method_name=\"other\"}} 0"),
        ] {
            assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        }
        // A value that is not known is left out.
        assert!(!page.contains("uptime_seconds{"), "{page}");
    }
}
