//! Sentences about signals, and about the processes that ran when a sender was not seen.

use mainstay_protocol::event::{
    Origin, Part, Relation, Signal, Suspect, Suspects, Traced, signal_name,
};

use super::{DETAIL_CHARS, Told, detail, seen};
use crate::measure::count;
use crate::paint::Tone;
use crate::safe::one_line;

pub fn signal(signal: &Signal) -> Told {
    let word = signal_name(signal.number);
    let to = match signal.to {
        Part::Shim => String::new(),
        Part::Keeper | Part::Client | Part::Server => format!(" to the {}", signal.to),
    };
    let sender = match (&signal.comm, signal.relation) {
        // The kernel vouches for the pid only: the sender may have run another program when it sent the signal.
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

/// The sender, by the code that the kernel reports; below it, what was seen of the sender.
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

/// Processes that ran at that time; none of them is accused.
pub fn suspects(suspects: &Suspects) -> Told {
    let text = match suspects.who.len() {
        0 => "no process seen at that moment looks like one that ends others".into(),
        // Not all that could have done it are seen: a `kill` that is typed into a shell starts no process.
        some => format!(
            "{} among the processes seen at that moment",
            count(some, "suspect")
        ),
    };
    let text = format!(
        "the {} was ended and the sender is unknown; {text}",
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

/// `python 17509 (the client)`.
pub fn suspect_briefly(suspect: &Suspect) -> String {
    let name = one_line(&suspect.seen.comm, 40);
    format!("{name} {} ({})", suspect.seen.who.pid, suspect.why)
}

/// `claude (4711)`, or the pid alone.
fn process(comm: Option<&str>, pid: i32) -> String {
    match comm {
        Some(comm) => format!("{} ({pid})", one_line(comm, 40)),
        None => format!("pid {pid}"),
    }
}
