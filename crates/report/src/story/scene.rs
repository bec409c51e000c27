//! The state of the link when a server ended.

use mainstay_protocol::event::{Exit, Standing};

use super::TEXT_CHARS;
use crate::measure::{count, fine};
use crate::safe::one_line;

/// How long after the handshake, or after the start where there was none.
pub(super) fn since(standing: Option<&Standing>, uptime_ms: u64) -> String {
    match standing.and_then(|standing| standing.since_handshake_ms) {
        Some(ms) => format!("{} after the handshake", fine(ms)),
        None => format!("{} after its start", fine(uptime_ms)),
    }
}

/// The state of the link: whether stdin was open if that matters, the last answer, what was in flight.
pub(super) fn scene(asks: bool, standing: Option<&Standing>, in_flight: String) -> String {
    let mut parts = Vec::new();
    match standing.map(|standing| standing.stdin_open) {
        Some(false) if asks => parts.push("stdin was closed already".into()),
        Some(true) | None if asks => parts.push("stdin was still open".into()),
        Some(_) | None => {}
    }
    if let Some(standing) = standing {
        parts.push(match standing.last_answer_ms {
            Some(ms) => format!("the last answer was {} old", fine(ms)),
            None => "it had not answered anything yet".into(),
        });
    }
    parts.push(in_flight);
    capital(&parts.join("; "))
}

/// The requests that were not answered, and what became of them.
pub(super) fn in_flight(exit: &Exit, standing: Option<&Standing>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for waiting in standing.iter().flat_map(|standing| &standing.waiting) {
        if !names.contains(&waiting.request.as_str()) {
            names.push(&waiting.request);
        }
    }
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", one_line(&names.join(", "), TEXT_CHARS))
    };
    match (exit.in_flight, exit.kept) {
        (0, _) => "nothing was in flight".into(),
        (all, 0) => format!(
            "{} in flight{names} got an answer from mainstay",
            count(all, "request")
        ),
        (all, kept) if kept >= all => {
            format!(
                "{} in flight{names} went on to the next generation",
                count(all, "request")
            )
        }
        (all, kept) => format!(
            "of {} in flight{names} {kept} went on to the next generation, the rest got an answer from mainstay",
            count(all, "request")
        ),
    }
}

pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
