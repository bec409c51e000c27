//! Ends orphans, and on request stale clients, each after a new proof.

use std::collections::BTreeSet;

use mainstay_core::reap::{FarEnd, Verdict};
use mainstay_os::end_tree::{Patience, end_tree};
use mainstay_os::sweep::Outcome;
use mainstay_os::wires;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::Limits;
use serde::Serialize;

use super::{Server, is_stale};

/// What became of one tree.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// The server's name, or the client's.
    pub name: String,
    /// Its first process.
    #[serde(flatten)]
    pub who: Identity,
    /// How many processes were ended.
    pub ended: usize,
    /// The processes that are still there.
    pub left: Vec<Seen>,
    /// Why it was spared after all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spared: Option<String>,
}

/// One tree that may be ended.
#[derive(Clone, Debug)]
pub enum Victim<'a> {
    /// An orphan.
    Orphan(&'a Server),
    /// A client without its terminal, with its servers.
    Stale(&'a Seen),
}

/// What may be ended, orphans first.
pub fn victims(servers: &[Server], stale: bool) -> Vec<Victim<'_>> {
    let orphans = servers
        .iter()
        .filter(|server| server.verdict == Verdict::Orphan);
    let mut victims: Vec<Victim<'_>> = orphans.map(Victim::Orphan).collect();
    if stale {
        let mut met = BTreeSet::new();
        let clients = servers
            .iter()
            .filter(|server| server.verdict == Verdict::StaleClient);
        let clients = clients.filter(|server| server.blocked.is_empty());
        for client in clients.filter_map(|server| server.client.as_ref()) {
            if met.insert(client.who) {
                victims.push(Victim::Stale(client));
            }
        }
    }
    victims
}

/// Ends one tree. `orphans` are all processes of orphans: they may hold each other's ends.
pub fn end(victim: &Victim<'_>, orphans: &BTreeSet<Identity>) -> Done {
    let limits = Limits::default();
    let patience = Patience {
        term_ms: limits.grace_term_ms,
        kill_ms: limits.kill_confirm_ms,
    };
    let (name, who, outcome) = match victim {
        Victim::Orphan(server) => {
            let mut proof = || still_orphan(server, orphans);
            let outcome = end_tree(&server.members(), patience, &mut proof);
            (server.name.clone(), server.who, outcome)
        }
        Victim::Stale(client) => {
            let mut proof = || is_stale(client.who);
            let outcome = end_tree(&[client.who], patience, &mut proof);
            (client.comm.clone(), client.who, outcome)
        }
    };
    let spared = outcome
        .is_none()
        .then(|| "it is not the same any more".to_owned());
    let Outcome { ended, left } = outcome.unwrap_or_default();
    Done {
        name,
        who,
        ended: ended.len(),
        left,
        spared,
    }
}

/// All processes of the orphans.
pub fn processes_of_orphans(servers: &[Server]) -> BTreeSet<Identity> {
    let orphans = servers
        .iter()
        .filter(|server| server.verdict == Verdict::Orphan);
    let processes = orphans.flat_map(|server| &server.group.tree);
    processes.map(mainstay_os::census::Stat::who).collect()
}

/// The proof again, just before the signal.
fn still_orphan(server: &Server, orphans: &BTreeSet<Identity>) -> bool {
    let Some(now) = wires::look_again(&server.group) else {
        return false;
    };
    let same = now.wire == server.group.wire;
    same && [&now.input, &now.output].iter().all(|end| match end {
        FarEnd::Gone | FarEnd::OwnTree => true,
        FarEnd::Held(by) => by.iter().all(|who| orphans.contains(who)),
        FarEnd::Hidden => false,
    })
}
