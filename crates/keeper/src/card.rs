//! The link's card, made of what the parts know now.

use mainstay_clients::behaviour;
use mainstay_os::census;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use mainstay_store::registry::card::{Card, VERSION};

use super::connection::Connection;
use super::guard::Guard;
use super::plan::Plan;
use super::server::Running;
use super::shim::Shim;

/// The card as it is now.
pub fn card(
    plan: &Plan,
    keeper: Identity,
    shim: &Shim,
    guard: &Guard<'_>,
    connection: &Connection<'_>,
) -> Card {
    let (link, server) = (connection.link(), connection.server());
    let client = connection.client().who();
    let ladder_ms = ladder_ms(plan, server);
    Card {
        v: VERSION,
        id: plan.id,
        name: plan.name.clone(),
        argv: plan.words(),
        cwd: plan.directory(),
        state: link.word().into(),
        generation: link.generation(),
        started_at: plan.origin.started_at.clone(),
        realm: plan.origin.realm.clone(),
        shim: (!link.away()).then(|| seen(shim.who().pid)).flatten(),
        guard: seen(guard.who().pid),
        keeper: seen(keeper.pid),
        // Another process may have the number of a launcher that has left.
        server: server
            .and_then(|server| seen(server.who().pid).filter(|seen| seen.who == server.who())),
        client: client
            .and_then(|client| seen(client.pid))
            .map(behaviour::called),
        tier: server.map(Running::tier),
        why_not: server.map_or_else(Vec::new, |server| server.why_not().to_vec()),
        leaf: server
            .and_then(|server| server.tree().leaf())
            .map(|path| path.to_string_lossy().into_owned()),
        detached: plan.origin.detached.clone(),
        ladder_ms,
        restart_ms: plan.limits.drain_ms + ladder_ms + plan.limits.opening_ms,
        lease: plan.lease.clone(),
        members: Vec::new(),
        traffic: None,
    }
}

/// The longest time that the stop ladder may take.
pub fn ladder_ms(plan: &Plan, server: Option<&Running>) -> u64 {
    let limits = &plan.limits;
    let contained = server.is_some_and(Running::in_container);
    let kills = if contained { 2 } else { 1 };
    2 * limits.grace_eof_ms + limits.grace_term_ms + kills * limits.kill_confirm_ms
}

fn seen(pid: i32) -> Option<Seen> {
    census::stat(pid).ok().map(|stat| Seen {
        who: stat.who(),
        comm: stat.comm,
    })
}
