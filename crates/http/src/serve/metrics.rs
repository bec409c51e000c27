//! What is counted, and the page that tells it in the words of Prometheus.

use std::cell::Cell;

use mainstay_http_core::serve::front::Count;
use mainstay_protocol::event::SessionEnd;

/// The upper ends of the latency buckets, in milliseconds.
const BUCKETS_MS: [u64; 14] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 30_000, 60_000,
];

/// Everything that is counted since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Sessions that were opened.
    pub opened: Cell<u64>,
    closed: [Cell<u64>; SessionEnd::ALL.len()],
    /// Requests of the legacy era that a server got.
    pub legacy: Cell<u64>,
    /// Requests of the modern era that a server got.
    pub modern: Cell<u64>,
    /// Requests that were refused before any server saw them.
    pub refused: Cell<u64>,
    /// Requests that we answered because their server could not.
    pub settled: Cell<u64>,
    /// Messages that were dropped because a client did not read.
    pub dropped: Cell<u64>,
    /// Lines of servers that no request waited for.
    pub stray_lines: Cell<u64>,
    /// Generations beyond the first of its server that any link of ours has had.
    pub restarts: Cell<u64>,
    /// Connections that were accepted.
    pub connections: Cell<u64>,
    buckets: [Cell<u64>; BUCKETS_MS.len()],
    answered: Cell<u64>,
    answered_us: Cell<u64>,
}

/// What is true right now.
#[derive(Debug, Default)]
pub struct Now {
    /// Sessions that are open.
    pub sessions: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Links that have not ended.
    pub links: usize,
    /// Sessions of servers upstream that are still to be ended.
    pub unclosed: usize,
    /// Memory of this process.
    pub resident_bytes: u64,
    /// Descriptors of this process.
    pub descriptors: usize,
}

/// Adds one.
pub fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Metrics {
    /// A session is over.
    pub fn closed(&self, why: SessionEnd) {
        if let Some(place) = SessionEnd::ALL.iter().position(|one| *one == why) {
            count(&self.closed[place]);
        }
    }

    /// What the machine has counted.
    pub fn counted(&self, counted: Count) {
        match counted {
            Count::Legacy => count(&self.legacy),
            Count::Modern => count(&self.modern),
            Count::Settled(requests) => self.settled.set(self.settled.get() + requests as u64),
            Count::Dropped => count(&self.dropped),
            Count::Unexpected => count(&self.stray_lines),
            Count::Answered(ns) => self.answered(ns),
        }
    }

    /// A request was answered after this time.
    pub fn answered(&self, ns: u64) {
        count(&self.answered);
        self.answered_us.set(self.answered_us.get() + ns / 1_000);
        for (most, bucket) in BUCKETS_MS.iter().zip(&self.buckets) {
            if ns <= most * 1_000_000 {
                count(bucket);
            }
        }
    }

    /// The page.
    pub fn page(&self, now: &Now) -> String {
        let mut page = String::new();
        let mut one = |name: &str, kind: &str, help: &str, values: &[(String, String)]| {
            page.extend(["# HELP mainstay_", name, " ", help, "\n"]);
            page.extend(["# TYPE mainstay_", name, " ", kind, "\n"]);
            for (label, value) in values {
                page.extend(["mainstay_", name, label, " ", value, "\n"]);
            }
        };
        let bare = |value: String| vec![(String::new(), value)];
        let counted = |cell: &Cell<u64>| bare(cell.get().to_string());
        one(
            "sessions_opened_total",
            "counter",
            "Sessions that were opened.",
            &counted(&self.opened),
        );
        let closed: Vec<_> = SessionEnd::ALL
            .iter()
            .zip(&self.closed)
            .map(|(why, cell)| {
                (
                    format!("{{cause=\"{}\"}}", why.word()),
                    cell.get().to_string(),
                )
            })
            .collect();
        one(
            "sessions_closed_total",
            "counter",
            "Sessions that are over, by cause.",
            &closed,
        );
        one(
            "sessions_open",
            "gauge",
            "Sessions that are open.",
            &bare(now.sessions.to_string()),
        );
        one(
            "sessions_unclosed",
            "gauge",
            "Sessions upstream that must still be closed.",
            &bare(now.unclosed.to_string()),
        );
        one(
            "requests_total",
            "counter",
            "Requests that a server got, by era.",
            &[
                ("{era=\"legacy\"}".into(), self.legacy.get().to_string()),
                ("{era=\"modern\"}".into(), self.modern.get().to_string()),
            ],
        );
        one(
            "requests_refused_total",
            "counter",
            "Requests that no server got.",
            &counted(&self.refused),
        );
        one(
            "requests_settled_total",
            "counter",
            "Requests that were answered because their server could not.",
            &counted(&self.settled),
        );
        one(
            "messages_dropped_total",
            "counter",
            "Messages that were dropped because a client did not read.",
            &counted(&self.dropped),
        );
        one(
            "stray_lines_total",
            "counter",
            "Lines of servers that no request waited for.",
            &counted(&self.stray_lines),
        );
        let mut buckets: Vec<_> = BUCKETS_MS
            .iter()
            .zip(&self.buckets)
            .map(|(most, cell)| {
                let le = format!("_bucket{{le=\"{}.{:03}\"}}", most / 1_000, most % 1_000);
                (le, cell.get().to_string())
            })
            .collect();
        let us = self.answered_us.get();
        buckets.extend([
            (
                "_bucket{le=\"+Inf\"}".into(),
                self.answered.get().to_string(),
            ),
            (
                "_sum".into(),
                format!("{}.{:06}", us / 1_000_000, us % 1_000_000),
            ),
            ("_count".into(), self.answered.get().to_string()),
        ]);
        one(
            "request_seconds",
            "histogram",
            "Time from a request to its answer.",
            &buckets,
        );
        one(
            "server_restarts_total",
            "counter",
            "Servers that were started again, also those that have ended since.",
            &counted(&self.restarts),
        );
        one(
            "links",
            "gauge",
            "Servers with their keepers that have not ended.",
            &bare(now.links.to_string()),
        );
        one(
            "connections_total",
            "counter",
            "Connections that were accepted.",
            &counted(&self.connections),
        );
        one(
            "connections_open",
            "gauge",
            "Connections that are open.",
            &bare(now.connections.to_string()),
        );
        one(
            "resident_bytes",
            "gauge",
            "Memory of this process.",
            &bare(now.resident_bytes.to_string()),
        );
        one(
            "descriptors",
            "gauge",
            "Descriptors of this process.",
            &bare(now.descriptors.to_string()),
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_cause_and_rising_buckets() {
        let metrics = Metrics::default();
        metrics.closed(SessionEnd::Idle);
        for ms in [0, 3, 70, 100_000] {
            metrics.answered(ms * 1_000_000);
        }
        let page = metrics.page(&Now::default());
        for why in SessionEnd::ALL {
            let value = u64::from(why == SessionEnd::Idle);
            let line = format!(
                "mainstay_sessions_closed_total{{cause=\"{}\"}} {value}\n",
                why.word()
            );
            assert!(page.contains(&line), "{page}");
        }
        for line in [
            "mainstay_request_seconds_bucket{le=\"0.001\"} 1",
            "mainstay_request_seconds_bucket{le=\"0.005\"} 2",
            "mainstay_request_seconds_bucket{le=\"60.000\"} 3",
            "mainstay_request_seconds_bucket{le=\"+Inf\"} 4",
            "mainstay_request_seconds_sum 100.073000",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    /// The text format of Prometheus, version 0.0.4, as strictly as its readers take it.
    #[test]
    fn every_line_is_as_a_reader_wants_it() {
        let metrics = Metrics::default();
        metrics.answered(3_000_000);
        let page = metrics.page(&Now::default());
        assert!(page.ends_with('\n') && page.is_ascii() && !page.contains('\\'));
        let mut families = std::collections::BTreeSet::new();
        let mut lines = page.lines().peekable();
        while let Some(help) = lines.next() {
            let help = help
                .strip_prefix("# HELP ")
                .expect("a family begins with its help");
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.ends_with('.'), "{help}");
            let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
            let kind = kind.strip_prefix(name).unwrap().trim();
            let own = name.strip_prefix("mainstay_").expect("ours");
            assert!(
                own.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert_eq!(
                own.ends_with("_total"),
                kind == "counter",
                "{name} is a {kind}"
            );
            assert!(
                !own.contains("_ms") && !own.contains("_kib"),
                "{name}: base units only"
            );
            let mut samples = 0;
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let (told, labels) = series.split_once('{').unwrap_or((series, "}"));
                let rest = told.strip_prefix(name).expect("of its family");
                assert_eq!(
                    matches!(rest, "_bucket" | "_sum" | "_count"),
                    kind == "histogram",
                    "{line}"
                );
                let label = labels.strip_suffix('}').unwrap();
                if let Some((key, value)) = label.split_once('=') {
                    assert!(matches!(key, "cause" | "era" | "le"), "{line}");
                    let value = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
                    assert!(!value.contains(['"', '\\', '\n']), "{line}");
                } else {
                    assert_eq!(label, "", "{line}");
                }
                samples += 1;
            }
            assert!(samples > 0, "{name} has no value");
            assert!(families.insert(name.to_owned()), "{name} comes once");
        }
        assert!(families.len() >= 15);
    }

    /// A panel with a wrong name shows no data and no error.
    #[test]
    fn the_dashboard_shows_what_is_exported() {
        let metrics = Metrics::default();
        metrics.answered(3_000_000);
        let page = metrics.page(&Now::default());
        let exported: std::collections::BTreeSet<&str> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        let text = include_str!("../../../../packaging/grafana/mainstay-serve.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
        let mut queries = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                queries.push(target["expr"].as_str().unwrap());
            }
        }
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            queries.extend(variable["query"]["query"].as_str());
        }
        let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let shown: std::collections::BTreeSet<&str> = queries
            .iter()
            .flat_map(|query| query.split(|c| !of_a_name(c)))
            .filter(|word| word.starts_with("mainstay_"))
            .collect();
        let unknown: Vec<_> = shown.difference(&exported).collect();
        assert!(unknown.is_empty(), "not exported: {unknown:?}");
        assert!(shown.len() > 15, "the dashboard was not understood");
    }
}
