//! Signals in words, and who was there where nobody was seen.

use mainstay_core::event::{
    Origin, Part, Relation, Signal, Suspect, Suspects, Traced, signal_name,
};

use super::{DETAIL_CHARS, Told, detail, seen};
use crate::view::measure::one_line;
use crate::view::paint::Tone;

pub fn signal(signal: &Signal) -> Told {
    let word = signal_name(signal.number);
    let to = match signal.to {
        Part::Shim => String::new(),
        Part::Keeper | Part::Client | Part::Server => format!(" to the {}", signal.to),
    };
    let sender = match (&signal.comm, signal.relation) {
        // It may have run another program when it sent the signal: the kernel vouches for the pid only.
        (Some(comm), Some(relation)) if relation != Relation::Client => {
            format!("pid {} (seen as {})", signal.sender, one_line(comm, 40))
        }
        (comm, _) => process(comm.as_deref(), signal.sender),
    };
    let from = match signal.origin() {
        Origin::Kernel => " from the terminal or the kernel".into(),
        Origin::Claim => format!(", sender unsure: it claims to be {sender}"),
        Origin::Outside => " from outside this container".into(),
        Origin::Kill | Origin::Thread => format!(" from {sender}, uid {}", signal.uid),
    };
    let relation = signal
        .relation
        .map_or_else(String::new, |relation| format!(", {relation}"));
    let gone = if signal.gone {
        ", which had ended already"
    } else {
        ""
    };
    let ignored = signal.ignored.map_or_else(String::new, |count| {
        format!("; ignored, because the client did not ask ({count} so far)")
    });
    let text = format!("{word}{to}{from}{relation}{gone}{ignored}");
    let mut details = Vec::new();
    if let Some(exe) = &signal.exe {
        details.push(detail("file", exe));
    }
    if !signal.cmdline.is_empty() {
        details.push(detail("command", &signal.cmdline.join(" ")));
    }
    if !signal.ancestry.is_empty() {
        let names: Vec<String> = signal.ancestry.iter().map(seen).collect();
        details.push(detail("started by", &names.join(", by ")));
    }
    (Tone::Warn, text, details)
}

/// Who sent it, by the table in which the kernel tells it; below it, what was seen of the sender.
pub fn traced(traced: &Traced) -> Told {
    let signal = signal_name(traced.number);
    let by = match &traced.comm {
        _ if traced.by_kernel() => "the kernel".into(),
        comm => process(comm.as_deref(), traced.sender),
    };
    let text = format!(
        "{signal} from {by} to {} ({}), {}",
        traced.to, traced.pid, traced.result
    );
    let details = if traced.cmdline.is_empty() {
        Vec::new()
    } else {
        vec![detail("command", &traced.cmdline.join(" "))]
    };
    (Tone::Warn, text, details)
}

/// Nobody is accused: this is who was there.
pub fn suspects(suspects: &Suspects) -> Told {
    let text = match suspects.who.len() {
        0 => "nobody was seen that speaks of ending processes".into(),
        1 => "1 process was there that could have done it".into(),
        many => format!("{many} processes were there that could have done it"),
    };
    let text = format!(
        "the {} was ended by nobody knows whom; {text}",
        suspects.part
    );
    (
        Tone::Plain,
        text,
        suspects.who.iter().map(suspect).collect(),
    )
}

/// `bash (4100), its command line speaks of ending processes: bash mcp-cleanup.sh`.
pub fn suspect(suspect: &Suspect) -> String {
    let command = match suspect.cmdline.join(" ") {
        line if line.is_empty() => line,
        line => format!(": {line}"),
    };
    let text = format!("{}, {}{command}", seen(&suspect.seen), suspect.why);
    one_line(&text, DETAIL_CHARS)
}

/// `claude (4711)`, or the pid alone.
fn process(comm: Option<&str>, pid: i32) -> String {
    match comm {
        Some(comm) => format!("{} ({pid})", one_line(comm, 40)),
        None => format!("pid {pid}"),
    }
}
