//! The pages for monitoring.

use std::fs;

use hyper::StatusCode;

use super::front::Front;
use super::metrics::Now;
use super::reply::{Reply, json};

/// Whether new sessions may be opened here: what a balancer asks.
pub fn ready(front: &Front) -> Reply {
    let (status, word) = if front.leaving() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ready")
    };
    json(
        status,
        serde_json::json!({"status": word}).to_string().into_bytes(),
    )
}

/// Whether we take requests.
pub fn health(front: &Front) -> Reply {
    let (status, word) = if front.stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else {
        (StatusCode::OK, "ok")
    };
    let told = serde_json::json!({"status": word, "sessions": front.open_sessions()});
    json(status, told.to_string().into_bytes())
}

/// What is counted.
pub fn metrics(front: &Front) -> String {
    front.count_restarts();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident_kib: u64 = resident
        .and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0);
    front.metrics.page(&Now {
        sessions: front.open_sessions(),
        connections: front.connections(),
        links: front.links(),
        unclosed: front.unclosed(),
        resident_bytes: resident_kib * 1_024,
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
    })
}
