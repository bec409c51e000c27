//! The processes that may have ended one of ours, when no sender is known.

use mainstay_os::census::{self, Stat};
use mainstay_os::clock;
use mainstay_protocol::event::{Seen, Suspect, Suspicion, speaks_of_ending};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{SUSPECT_YOUNG_MS, SUSPECTS_MS, SUSPECTS_NAMED};
use mainstay_protocol::redact;

use super::sender::short;

/// The suspects, as far as they were found in time.
pub struct Search {
    pub found: Vec<Suspect>,
    /// Processes that were looked at.
    pub looked_at: u32,
    /// Whether all were looked at.
    pub all: bool,
}

/// Looks for suspects, the client first. Bounded in time: the youngest processes come before the others, because a program that
/// ends others is often started for that. `spared`: processes of the server's own tree, which hold that tree alive and so have
/// not ended it.
pub fn search(client: Option<Identity>, spared: &[Identity]) -> Search {
    let until = clock::now().after_ms(SUSPECTS_MS);
    let uid = rustix::process::geteuid().as_raw();
    let mut pids = census::pids().unwrap_or_default();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    if let Some(client) = client {
        pids.insert(0, client.pid);
    }
    let mut found: Vec<Suspect> = Vec::new();
    let mut looked_at = 0;
    let mut all = true;
    for pid in pids {
        // The client, which comes first, is looked at in any case.
        if looked_at > 0 && (clock::now() >= until || found.len() >= SUSPECTS_NAMED) {
            all = false;
            break;
        }
        looked_at += 1;
        let known = found.iter().any(|suspect| suspect.seen.who.pid == pid);
        let spared = spared.iter().any(|who| who.pid == pid);
        if known || spared || census::uid(pid) != Some(uid) {
            continue;
        }
        found.extend(suspect(pid, client));
    }
    found.sort_by_key(|suspect| suspect.why);
    Search {
        found,
        looked_at,
        all,
    }
}

fn suspect(pid: i32, client: Option<Identity>) -> Option<Suspect> {
    let stat = census::stat(pid).ok().filter(|stat| !stat.dead())?;
    let cmdline = census::cmdline(pid);
    let why = if Some(stat.who()) == client {
        Suspicion::Client
    } else if is_ours(&stat.comm) {
        // They end nothing but their own trees, and what a dead one of them left.
        return None;
    } else if speaks_of_ending(&stat.comm, &cmdline) {
        Suspicion::Name
    } else if client.is_some_and(|client| young(&stat) && below(&stat, client)) {
        Suspicion::BelowClient
    } else {
        return None;
    };
    let words = redact::words(&cmdline);
    Some(Suspect {
        cmdline: words.iter().take(8).map(|word| short(word)).collect(),
        seen: Seen {
            who: stat.who(),
            comm: stat.comm,
        },
        why,
    })
}

/// Whether this is the short name of a process of mainstay's.
fn is_ours(comm: &str) -> bool {
    const NAMES: [&str; 8] = [
        "mainstay",
        "mainstay-serve",
        "mainstay-trace",
        "mcp-guard",
        "mcp-keeper",
        "mcp-witness",
        "mcp-sweep",
        "mcp-helper",
    ];
    NAMES.contains(&comm)
}

fn young(stat: &Stat) -> bool {
    let age = clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start));
    age < SUSPECT_YOUNG_MS
}

fn below(stat: &Stat, client: Identity) -> bool {
    census::ancestors(stat).contains(&client)
}
