//! Two clients with the same three servers are killed at the same moment: one started them bare, one through mainstay.

use std::os::fd::AsFd;

use mainstay_core::clock::Moment;
use mainstay_core::event::Seen;
use mainstay_core::ids::Identity;
use mainstay_core::limits::Limits;
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::act::client::{SERVERS, party_of};
use crate::demo::act::family::SIZE;
use crate::demo::door;
use crate::demo::roll::Present;
use crate::demo::screen::{Line, Screen, paragraph};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::view::measure::{fine, span};
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "client_killed",
    title: "The client is killed (SIGKILL)",
    about: "It had 3 servers of 5 processes: the server, a child, a grandchild, a daemon in a session of its own and a \
            double-forked daemon with an empty environment.",
    play,
};

const BARE: &str = "bare";
const KEPT: &str = "kept";
/// How often the progress is written anew.
const TICK_MS: u64 = 100;

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    servers: Vec<Row>,
    /// How the trees were held.
    tier: String,
    /// Left of those that were started bare; the demo ended them afterwards.
    bare_left: usize,
    /// Left of those that were started through mainstay.
    kept_left: usize,
}

/// One server of the client's configuration.
#[derive(Debug, Serialize)]
struct Row {
    server: &'static str,
    ignores_eof: bool,
    bare: Family,
    kept: Family,
}

/// One server with its helpers.
#[derive(Debug, Serialize)]
struct Family {
    members: Vec<Identity>,
    alive_before: usize,
    left: Vec<Seen>,
    /// From the kill of the client to the end of the last one; none if somebody is left.
    empty_after_ms: Option<u64>,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("starting 2 clients with 3 servers each");
    for (act, party) in [(Act::BareClient, BARE), (Act::KeptClient, KEPT)] {
        stage.command(&door::words(act, party)?).spawn()?;
    }
    let everybody = 2 * (1 + SERVERS.len() * SIZE);
    let limit = Stage::limit();
    stage
        .roll
        .until(&stage.watch, "the servers", limit, |present| {
            present.len() >= everybody
        })?;
    let tier = stage
        .card(SERVERS[0].name)?
        .tier
        .map_or("-", |tier| tier.word())
        .to_owned();
    let clients = stage.roll.take(|party| party == BARE || party == KEPT);
    let mut cast = Cast {
        members: stage
            .roll
            .take(|_| true)
            .into_iter()
            .map(Member::new)
            .collect(),
    };
    let alive_before: Vec<bool> = cast.members.iter().map(Member::alive).collect();

    let killed = clock::now();
    for client in &clients {
        client.handle.signal(Signal::KILL)?;
    }
    cast.watch(stage, screen, killed)?;
    // Looked at once more when the last one of mainstay's has gone: whoever of the others is there now, stays.
    let rows = SERVERS
        .iter()
        .map(|server| Row {
            server: server.name,
            ignores_eof: server.act == Act::DeafServer,
            bare: cast.family(BARE, server.name, &alive_before, killed),
            kept: cast.family(KEPT, server.name, &alive_before, killed),
        })
        .collect();
    cast.end_bare();
    let facts = Facts::new(rows, tier);
    Outcome::of(facts.held(), &facts, facts.lines())
}

impl Facts {
    fn new(servers: Vec<Row>, tier: String) -> Self {
        Self {
            bare_left: servers.iter().map(|row| row.bare.left.len()).sum(),
            kept_left: servers.iter().map(|row| row.kept.left.len()).sum(),
            servers,
            tier,
        }
    }

    fn held(&self) -> bool {
        let complete = self
            .servers
            .iter()
            .all(|row| row.kept.alive_before == SIZE && row.bare.alive_before == SIZE);
        complete && self.kept_left == 0
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::default()];
        let head = format!(
            "{:<22}{:<24}{}",
            "", "started bare", "through `mainstay run`"
        );
        lines.push(Line::new(Tone::Strong, head));
        for row in &self.servers {
            let name = if row.ignores_eof {
                format!("{} (ignores EOF)", row.server)
            } else {
                row.server.into()
            };
            let (bare_tone, bare) = row.bare.words();
            let (kept_tone, kept) = row.kept.words();
            lines.push(
                Line::new(Tone::Plain, format!("{name:<22}"))
                    .and(bare_tone, format!("{bare:<24}"))
                    .and(kept_tone, kept),
            );
        }
        lines.push(Line::default());
        let note = format!(
            "The {} that were left have now been ended by the demo. A server that ignores EOF has {} of grace, \
             then it gets SIGTERM. Held here by: {}.",
            self.bare_left,
            span(Limits::default().grace_eof_ms),
            self.tier
        );
        lines.extend(paragraph(&note));
        lines
    }
}

impl Family {
    fn words(&self) -> (Tone, String) {
        match self.empty_after_ms {
            Some(ms) => (Tone::Good, format!("0 left after {}", fine(ms))),
            None => (
                Tone::Bad,
                format!("{} of {} left alive", self.left.len(), self.alive_before),
            ),
        }
    }
}

/// Everybody but the clients.
struct Cast {
    members: Vec<Member>,
}

struct Member {
    present: Present,
    ended: Option<Moment>,
}

impl Member {
    fn new(present: Present) -> Self {
        Self {
            present,
            ended: None,
        }
    }

    fn alive(&self) -> bool {
        !self.present.handle.ended()
    }

    fn kept(&self) -> bool {
        self.present.party.starts_with(KEPT)
    }
}

impl Cast {
    /// Notes when each of them ends, until all of mainstay's have, or nobody believes in it any more.
    fn watch(&mut self, stage: &Stage, screen: &mut Screen, since: Moment) -> Result<(), Trouble> {
        let limit = Stage::limit();
        loop {
            let left = |kept: bool| {
                self.members
                    .iter()
                    .filter(|member| member.kept() == kept && member.ended.is_none())
                    .count()
            };
            let now = clock::now();
            if left(true) == 0 || now >= limit {
                return Ok(());
            }
            let seconds = now.ms_since(since) / 100;
            screen.progress(&format!(
                "{}.{} s after the kill: {:>2} alive of the bare, {:>2} of mainstay's",
                seconds / 10,
                seconds % 10,
                left(false),
                left(true)
            ));
            let until = if screen.live() {
                limit.min(now.after_ms(TICK_MS))
            } else {
                limit
            };
            let living: Vec<&mut Member> = self
                .members
                .iter_mut()
                .filter(|member| member.ended.is_none())
                .collect();
            let fds: Vec<_> = living
                .iter()
                .map(|member| member.present.handle.as_fd())
                .collect();
            let ended = stage.watch.wait(&fds, until)?;
            let now = clock::now();
            for (member, ended) in living.into_iter().zip(ended) {
                member.ended = ended.then_some(now);
            }
        }
    }

    fn family(&self, client: &str, server: &str, before: &[bool], killed: Moment) -> Family {
        let party = party_of(client, server);
        let members: Vec<(&Member, bool)> = self
            .members
            .iter()
            .zip(before.iter().copied())
            .filter(|(member, _)| member.present.party == party)
            .collect();
        let left: Vec<Seen> = members
            .iter()
            .filter(|(member, _)| member.alive())
            .map(|(member, _)| Seen {
                who: member.present.handle.who,
                comm: member.present.part.clone(),
            })
            .collect();
        let last = members.iter().filter_map(|(member, _)| member.ended).max();
        Family {
            members: members
                .iter()
                .map(|(member, _)| member.present.handle.who)
                .collect(),
            alive_before: members.iter().filter(|(_, alive)| *alive).count(),
            empty_after_ms: last
                .filter(|_| left.is_empty())
                .map(|last| last.ms_since(killed)),
            left,
        }
    }

    /// Ends those that nobody else ends, by pid and start time.
    fn end_bare(&self) {
        let bare = self.members.iter().filter(|member| !member.kept());
        for Present { handle, .. } in bare.map(|member| &member.present) {
            end(handle);
        }
    }
}

fn end(handle: &Handle) {
    // One that has ended is what we want.
    handle.signal(Signal::KILL).ok();
}
