//! The servers that the events know by name, for messages about a name that is not known.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;

use mainstay_protocol::event::Event;
use mainstay_report::{Exit, Report};
use mainstay_store::config::file::nearest;
use mainstay_store::ledger::backwards;
use mainstay_store::ledger::files::EventFile;
use mainstay_store::ledger::read;
use memchr::memmem;

/// The names of all servers that were started or could not be started. Leases, hosts and `serve` have events too, and are none.
pub fn servers(files: &[EventFile]) -> io::Result<Vec<String>> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut last: Option<memmem::Finder<'static>> = None;
    let start = memmem::Finder::new(b"\"event\":\"start");
    let flow = backwards::lines(files, |_, line| {
        if start.find(line).is_some()
            && last.as_ref().is_none_or(|last| last.find(line).is_none())
            && let Ok(event) = serde_json::from_slice::<Event>(line)
            && matches!(event.what.name(), "start" | "start_failed")
        {
            last = Some(memmem::Finder::new(&read::server_bytes(&event.server)).into_owned());
            seen.insert(event.server);
        }
        ControlFlow::<()>::Continue(())
    })?;
    debug_assert!(flow.is_continue());
    Ok(seen.into_iter().collect())
}

/// The error for a name that no server has.
pub fn unknown(target: &str, names: &[String]) -> Report {
    let report = Report::new(Exit::NotFound, format!("no server is called `{target}`"));
    match (nearest(target, names), names) {
        (_, []) => report.hint("no server has run under mainstay yet"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("known servers: {}", names.join(", "))),
    }
}
