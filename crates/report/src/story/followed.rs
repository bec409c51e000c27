//! What happened after a death.

use mainstay_core::verdict::Death;
use mainstay_protocol::event::{Event, Exit, What};
use mainstay_protocol::time;

use crate::happening::{Happening, seen};
use crate::measure::{count, fine};

/// What happened after the death, up to the next one.
pub(super) fn followed(death: &Event, exit: Option<&Exit>, rest: &[Event]) -> Vec<String> {
    let mut lines = Vec::new();
    let since = |event: &Event| {
        let at = |event: &Event| time::parse(&event.at).unwrap_or(0);
        fine(at(event).saturating_sub(at(death)))
    };
    for event in rest {
        if Death::of(&event.what).is_some() {
            break;
        }
        if let What::Start(start) = &event.what {
            lines.push(format!(
                "started again as generation {} (pid {}) after {}",
                start.generation,
                start.pid,
                since(event)
            ));
        } else if let What::Teardown(teardown) = &event.what {
            let names: Vec<String> = teardown.left.iter().map(seen).collect();
            let left = names.len();
            let names = if left == 0 {
                String::new()
            } else {
                format!(": {}", names.join(", "))
            };
            let ms = fine(teardown.ms);
            lines.push(format!("{left} left of its tree after {ms}{names}"));
        } else if let What::Ready(ready) = &event.what {
            lines.push(format!(
                "generation {} is ready after {}",
                ready.generation,
                fine(ready.ms)
            ));
        } else if is_consequence(&event.what) {
            lines.push(Happening::of(event, time::utc).text);
        }
    }
    let again = rest
        .iter()
        .any(|event| matches!(event.what, What::Start(_)));
    if !again && exit.is_some() {
        lines.push("it was not started again".into());
    }
    if let What::KeeperLost(lost) = &death.what {
        if let Some(pid) = lost.successor {
            lines.insert(0, format!("a new keeper took over (pid {pid})"));
        }
        if lost.settled > 0 {
            let requests = count(lost.settled, "request");
            lines.insert(0, format!("{requests} answered with an error"));
        }
        if lost.successor.is_none() {
            lines.push("it was not started again".into());
        }
    }
    if lines.is_empty() {
        lines.push("nothing".into());
    }
    lines
}

/// Whether an event reports a consequence of a death.
fn is_consequence(what: &What) -> bool {
    matches!(
        what,
        What::ServerChanged(_)
            | What::Abandoned(_)
            | What::ListChanged(_)
            | What::Reattached(_)
            | What::LingerEnded(_)
    )
}
