//! The life of a server in words: how it starts, ends, and gives way to the next generation.

use mainstay_core::event::{
    Abandoned, Detached, Exit, Lost, Renewal, Renewing, Replayed, Seen, Start, StartFailed, Sweep,
    Teardown,
};
use mainstay_core::message::settle;

use super::{DETAIL_CHARS, Told, detail, seen, unanswered};
use crate::view::measure::{count, fine, one_line};
use crate::view::paint::Tone;

pub fn start(start: &Start) -> Told {
    let mut text = format!(
        "pid {}, generation {}, tier {}",
        start.pid, start.generation, start.tier
    );
    if let Some(client) = &start.client {
        text.push_str(", for ");
        text.push_str(&seen(client));
    }
    let why_not = start.why_not.iter();
    let mut details: Vec<String> = why_not
        .map(|why| one_line(&why.to_string(), DETAIL_CHARS))
        .collect();
    match &start.detached {
        Detached::Yes => {}
        Detached::No { why } => details.push(detail("not detached from the client", why)),
    }
    (Tone::Good, text, details)
}

pub fn start_failed(failed: &StartFailed) -> Told {
    let mut details = vec![detail("command", &failed.argv.join(" "))];
    if !failed.hint.is_empty() {
        details.push(detail("hint", &failed.hint));
    }
    (Tone::Bad, one_line(&failed.problem, DETAIL_CHARS), details)
}

pub fn exit(exit: &Exit) -> Told {
    let unanswered = unanswered(exit.in_flight);
    let text = format!(
        "pid {}, {} after {}{unanswered}",
        exit.pid,
        exit.status,
        fine(exit.uptime_ms)
    );
    if exit.status.success() {
        return (Tone::Plain, text, Vec::new());
    }
    let memory = exit.out_of_memory.iter();
    let memory = memory.map(|whose| detail("cause", &whose.to_string()));
    let details = settle::telling(&exit.stderr_tail).into_iter();
    let details = details.map(|line| detail("stderr", line));
    let details = memory.chain(details).collect();
    (Tone::Bad, text, details)
}

pub fn teardown(teardown: &Teardown) -> Told {
    let rungs: Vec<String> = teardown.rungs.iter().map(ToString::to_string).collect();
    let rungs = if rungs.is_empty() {
        String::new()
    } else {
        format!(" ({})", rungs.join(", "))
    };
    let text = format!(
        "{} left after {}{rungs}, {}, {} ended",
        teardown.left.len(),
        fine(teardown.ms),
        teardown.cause,
        teardown.ended
    );
    let tone = if teardown.left.is_empty() {
        Tone::Plain
    } else {
        Tone::Bad
    };
    (tone, text, left(&teardown.left))
}

pub fn sweep(sweep: &Sweep) -> Told {
    let text = format!(
        "{} of link {} ended, whose keeper {} is dead (found by {})",
        sweep.ended.len(),
        sweep.of,
        sweep.owner,
        one_line(&sweep.by.join(", "), 40)
    );
    let tone = if sweep.left.is_empty() {
        Tone::Warn
    } else {
        Tone::Bad
    };
    (tone, text, left(&sweep.left))
}

pub fn lost(lost: &Lost, successor: &str) -> String {
    let mut parts = vec![format!("pid {}", lost.pid)];
    if let Some(status) = &lost.status {
        parts.push(status.to_string());
    }
    if lost.ended > 0 {
        parts.push(format!("{} of the tree ended", lost.ended));
    }
    if lost.settled > 0 {
        parts.push(format!(
            "{} answered with an error",
            count(lost.settled, "request")
        ));
    }
    parts.push(match lost.successor {
        Some(pid) => format!("{successor} {pid}"),
        None => format!("no {successor}"),
    });
    parts.join(", ")
}

pub fn renewal(renewal: &Renewal) -> String {
    let rest = if let Renewing::Idle { .. } = renewal.why {
        "put to rest"
    } else {
        "to be replaced"
    };
    let unanswered = match renewal.in_flight {
        0 => String::new(),
        number => format!(", {} may still be answered", count(number, "request")),
    };
    let (generation, why) = (renewal.generation, &renewal.why);
    format!("generation {generation} {rest}: {why}{unanswered}")
}

pub fn replayed(replayed: &Replayed) -> String {
    let mut parts = Vec::new();
    if replayed.level {
        parts.push("log level".to_string());
    }
    for (number, noun) in [
        (replayed.subscriptions, "subscription"),
        (replayed.listens, "listening request"),
        (replayed.resent, "request"),
    ] {
        if number > 0 {
            parts.push(count(number, noun));
        }
    }
    let what = if parts.is_empty() {
        String::new()
    } else {
        format!(" with {}", parts.join(", "))
    };
    let ms = fine(replayed.ms);
    format!(
        "generation {} is ready after {ms}{what}",
        replayed.generation
    )
}

pub fn abandoned(abandoned: &Abandoned) -> String {
    let again = match abandoned.probe_ms {
        0 => String::new(),
        ms if abandoned.failed_starts > 0 && abandoned.changed.is_none() => {
            format!(", tried again after {}", fine(ms))
        }
        ms => format!(", tried again every {}", fine(ms)),
    };
    let last = one_line(&abandoned.last, DETAIL_CHARS);
    if let Some(path) = &abandoned.changed {
        return format!(
            "{} has changed and does not start: {last}; waits for the next change{again}",
            one_line(path, DETAIL_CHARS)
        );
    }
    let deaths = (abandoned.deaths, "death");
    let failed = (abandoned.failed_starts, "failed start");
    let all = [deaths, failed].into_iter().filter(|(n, _)| *n > 0);
    let all: Vec<String> = all.map(|(n, what)| count(n, what)).collect();
    let (all, window) = (all.join(" and "), fine(abandoned.window_ms));
    format!("{all} within {window}, last: {last}{again}")
}

fn left(left: &[Seen]) -> Vec<String> {
    left.iter()
        .map(|process| detail("left", &seen(process)))
        .collect()
}
