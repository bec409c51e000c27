//! Sentences about the life of a server: how it starts, ends, and is replaced by the next generation.

use mainstay_protocol::event::{
    Abandoned, ConfigMistake, Detached, Exit, LeftoversEnded, Lost, RestartReason, Restarting,
    Seen, ServerReady, Start, StartFailed, Teardown,
};
use mainstay_protocol::message::settle;

use super::{DETAIL_CHARS, Told, detail, seen, unanswered};
use crate::measure::{count, fine};
use crate::paint::Tone;
use crate::safe::one_line;

pub fn start(start: &Start) -> Told {
    let mut text = format!("#{} pid {}", start.generation, start.pid);
    if let Some(client) = &start.client {
        text.push_str(" for ");
        text.push_str(&seen(client));
    }
    (Tone::Good, text, Vec::new())
}

/// How the tree is held, and why not better.
pub fn machine(start: &Start) -> Vec<String> {
    let mut facts = vec![format!("tier {}", start.tier)];
    let why_not = start.why_not.iter();
    facts.extend(why_not.map(|why| one_line(&why.to_string(), DETAIL_CHARS)));
    match &start.detached {
        Detached::Yes => {}
        Detached::No { why } => facts.push(detail("not detached from the client", why)),
    }
    facts
}

pub fn start_failed(failed: &StartFailed) -> Told {
    let mut details = vec![detail("command", &failed.argv.join(" "))];
    if !failed.hint.is_empty() {
        details.push(detail("hint", &failed.hint));
    }
    (Tone::Bad, one_line(&failed.problem, DETAIL_CHARS), details)
}

pub fn config_mistake(mistake: &ConfigMistake) -> Told {
    let mut details = Vec::new();
    if !mistake.hint.is_empty() {
        details.push(detail("hint", &mistake.hint));
    }
    let problem = one_line(&mistake.problem, DETAIL_CHARS);
    (Tone::Warn, format!("ignored: {problem}"), details)
}

pub fn exit(exit: &Exit) -> Told {
    let unanswered = unanswered(exit.in_flight);
    let text = format!(
        "#{} pid {}, {} after {}{unanswered}",
        exit.generation,
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

pub fn leftovers_ended(leftovers: &LeftoversEnded) -> Told {
    let text = format!(
        "{} of link {} ended, whose keeper {} is dead (found by {})",
        leftovers.ended.len(),
        leftovers.of,
        leftovers.owner,
        one_line(&leftovers.by.join(", "), 40)
    );
    let tone = if leftovers.left.is_empty() {
        Tone::Warn
    } else {
        Tone::Bad
    };
    (tone, text, left(&leftovers.left))
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

pub fn restarting(restarting: &Restarting) -> String {
    let rest = if let RestartReason::Idle { .. } = restarting.why {
        " is put to rest"
    } else {
        ""
    };
    let unanswered = match restarting.in_flight {
        0 => String::new(),
        number => format!(", {} may still be answered", count(number, "request")),
    };
    let (generation, why) = (restarting.generation, &restarting.why);
    format!("#{generation}{rest}: {why}{unanswered}")
}

pub fn ready(ready: &ServerReady) -> String {
    let mut parts = Vec::new();
    if ready.level {
        parts.push("log level".to_string());
    }
    for (number, noun) in [
        (ready.subscriptions, "subscription"),
        (ready.listens, "listening request"),
        (ready.resent, "request"),
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
    let ms = fine(ready.ms);
    format!("#{} after {ms}{what}", ready.generation)
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
