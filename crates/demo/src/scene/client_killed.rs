//! Two clients with the same three servers are killed at the same moment. One has started its servers through mainstay, the
//! other without it.

use std::os::fd::AsFd;

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::Limits;
use mainstay_report::measure::{fine, span};
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::announcements::Announcement;
use crate::commands;
use crate::role::Role;
use crate::role::client::{SERVERS, group_of};
use crate::role::helpers::TREE_SIZE;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen, paragraph};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "client_killed",
    title: "The client is killed (SIGKILL)",
    about: "It had 3 servers of 5 processes: the server, a child, a grandchild, a daemon in a session of its own and a \
            double-forked daemon with an empty environment.",
    run,
};

const BARE: &str = "bare";
const KEPT: &str = "kept";
/// Time between two updates of the progress line.
const TICK_MS: u64 = 100;

#[derive(Debug, Serialize)]
struct Facts {
    servers: Vec<Row>,
    /// The tier of the servers under mainstay.
    tier: String,
    /// Processes left of the servers without mainstay; the demo has ended them.
    bare_left: usize,
    /// Processes left of the servers under mainstay.
    kept_left: usize,
}

/// One server of the two clients.
#[derive(Debug, Serialize)]
struct Row {
    server: &'static str,
    ignores_eof: bool,
    bare: ServerTree,
    kept: ServerTree,
}

/// One server with its helpers.
#[derive(Debug, Serialize)]
struct ServerTree {
    members: Vec<Identity>,
    alive_before: usize,
    left: Vec<Seen>,
    /// Time from the kill of the client to the end of the last process; none if a process is left.
    empty_after_ms: Option<u64>,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("starting 2 clients with 3 servers each");
    for (role, group) in [(Role::BareClient, BARE), (Role::MainstayClient, KEPT)] {
        sandbox
            .command(&commands::role_args(role, group)?)
            .spawn()?;
    }
    let expected = 2 * (1 + SERVERS.len() * TREE_SIZE);
    let limit = Sandbox::limit();
    sandbox
        .announcements
        .wait_until(&sandbox.waiter, "the servers", limit, |announced| {
            announced.len() >= expected
        })?;
    let tier = sandbox
        .card(SERVERS[0].name)?
        .tier
        .map_or("-", |tier| tier.word())
        .to_owned();
    let clients = sandbox
        .announcements
        .take(|group| group == BARE || group == KEPT);
    let mut processes = ServerProcesses {
        members: sandbox
            .announcements
            .take(|_| true)
            .into_iter()
            .map(Member::new)
            .collect(),
    };
    let alive_before: Vec<bool> = processes.members.iter().map(Member::alive).collect();

    let killed = clock::now();
    for client in &clients {
        client.handle.signal(Signal::KILL)?;
    }
    processes.watch(sandbox, screen, killed)?;
    // Counted after the last process under mainstay has ended: the processes without mainstay that live now, stay.
    let rows = SERVERS
        .iter()
        .map(|server| Row {
            server: server.name,
            ignores_eof: server.role == Role::DeafServer,
            bare: processes.tree_of(BARE, server.name, &alive_before, killed),
            kept: processes.tree_of(KEPT, server.name, &alive_before, killed),
        })
        .collect();
    processes.end_bare();
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
            .all(|row| row.kept.alive_before == TREE_SIZE && row.bare.alive_before == TREE_SIZE);
        complete && self.kept_left == 0
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::default()];
        let head = format!(
            "{:<22}{:<24}{}",
            "", "without mainstay", "with `mainstay run`"
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
            "The demo has now ended the {} processes that were left. A server that ignores EOF gets SIGTERM after {}. \
             Contained here by: {}.",
            self.bare_left,
            span(Limits::default().grace_eof_ms),
            self.tier
        );
        lines.extend(paragraph(&note));
        lines
    }
}

impl ServerTree {
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

/// All processes except the clients.
struct ServerProcesses {
    members: Vec<Member>,
}

struct Member {
    announced: Announcement,
    ended: Option<Moment>,
}

impl Member {
    fn new(announced: Announcement) -> Self {
        Self {
            announced,
            ended: None,
        }
    }

    fn alive(&self) -> bool {
        !self.announced.handle.ended()
    }

    fn kept(&self) -> bool {
        self.announced.group.starts_with(KEPT)
    }
}

impl ServerProcesses {
    /// Notes when each process ends, until all processes under mainstay have ended or the time is up.
    fn watch(
        &mut self,
        sandbox: &Sandbox,
        screen: &mut Screen,
        since: Moment,
    ) -> Result<(), DemoError> {
        let limit = Sandbox::limit();
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
                "{}.{} s after the kill: {:>2} alive without mainstay, {:>2} with mainstay",
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
                .map(|member| member.announced.handle.as_fd())
                .collect();
            let ended = sandbox.waiter.wait(&fds, until)?;
            let now = clock::now();
            for (member, ended) in living.into_iter().zip(ended) {
                member.ended = ended.then_some(now);
            }
        }
    }

    fn tree_of(&self, client: &str, server: &str, before: &[bool], killed: Moment) -> ServerTree {
        let group = group_of(client, server);
        let members: Vec<(&Member, bool)> = self
            .members
            .iter()
            .zip(before.iter().copied())
            .filter(|(member, _)| member.announced.group == group)
            .collect();
        let left: Vec<Seen> = members
            .iter()
            .filter(|(member, _)| member.alive())
            .map(|(member, _)| Seen {
                who: member.announced.handle.who,
                comm: member.announced.what.clone(),
            })
            .collect();
        let last = members.iter().filter_map(|(member, _)| member.ended).max();
        ServerTree {
            members: members
                .iter()
                .map(|(member, _)| member.announced.handle.who)
                .collect(),
            alive_before: members.iter().filter(|(_, alive)| *alive).count(),
            empty_after_ms: last
                .filter(|_| left.is_empty())
                .map(|last| last.ms_since(killed)),
            left,
        }
    }

    /// Ends the processes without mainstay, by pid and start time.
    fn end_bare(&self) {
        let bare = self.members.iter().filter(|member| !member.kept());
        for Announcement { handle, .. } in bare.map(|member| &member.announced) {
            end(handle);
        }
    }
}

fn end(handle: &Handle) {
    // An error means that the process has ended already.
    handle.signal(Signal::KILL).ok();
}
