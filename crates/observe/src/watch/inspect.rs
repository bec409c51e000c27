//! Decides for one process after the other whether it talks to a client over its stdin and stdout.
//!
//! Cheap checks come first. An [`Inspector`] lives for one pass over the processes and caches what it reads from `/proc`. A
//! process that ends meanwhile, or that we may not read, is not a server in this pass; the next pass checks it again.

use std::collections::HashMap;

use mainstay_clients::speaks::{Depth, Program, may_run_script};
use mainstay_os::census::{self, Stat};
use mainstay_os::stdio::{self, End, Held};
use mainstay_os::{clock, wires};
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_protocol::limits::WATCH_SETTLE_MS;
use mainstay_protocol::redact;
use mainstay_report::short_id::short;
use mainstay_store::paths::Paths;
use mainstay_store::registry::{self, Card};
use serde::Serialize;

use super::selection::Selection;

/// The search for a client goes up this many parents at most.
const MAX_ANCESTORS: usize = 64;

/// A process that looks like a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub who: Identity,
    pub ppid: i32,
    pub comm: String,
    /// Arguments; values that look like a secret are hidden.
    pub argv: Vec<String>,
    pub stdin: End,
    pub stdout: End,
    /// The process at the other end of its stdin.
    pub client: Seen,
    /// Age at the time of the inspection.
    pub age_ms: u64,
    pub rss_kib: u64,
    /// It was forked but has not called `exec` yet, so its arguments are still its parent's.
    pub forked_only: bool,
    /// The link, if the process runs under mainstay.
    pub ours: Option<OurLink>,
}

/// The mainstay link that a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OurLink {
    /// The id of the link.
    pub id: LinkId,
    /// The name of the server, if this user can read the link's card.
    pub server: Option<String>,
    /// The first digits of the id: enough for commands.
    pub short_id: String,
    /// The client of the link, if this user can read the link's card.
    pub client: Option<Seen>,
    /// The server process, if the line is about mainstay's own process, which the client has started in its place.
    pub process: Option<Seen>,
    /// Resident memory of that server process.
    pub rss_kib: Option<u64>,
}

/// The result for one process.
pub enum Found {
    Server(Box<Candidate>),
    /// A fork that has not called `exec` yet: inspect it again.
    NotYet,
    NotAServer,
}

/// One pass over processes, with a cache of what was read.
pub struct Inspector<'a> {
    selection: &'a Selection,
    paths: &'a Paths,
    uid: u32,
    now_ms: u64,
    stats: HashMap<i32, Option<Stat>>,
    held: HashMap<i32, Held>,
    clients: HashMap<i32, bool>,
    links: Option<Links>,
}

#[derive(Default)]
struct Links {
    /// The link of each shim.
    shims: HashMap<Identity, LinkId>,
    links: HashMap<LinkId, OurLink>,
}

impl<'a> Inspector<'a> {
    pub fn new(selection: &'a Selection, paths: &'a Paths) -> Self {
        Self::of_user(selection, paths, rustix::process::geteuid().as_raw())
    }

    /// A pass over the processes of this user.
    pub fn of_user(selection: &'a Selection, paths: &'a Paths, uid: u32) -> Self {
        Self {
            selection,
            paths,
            uid,
            now_ms: clock::since_boot_ms(),
            stats: HashMap::new(),
            held: HashMap::new(),
            clients: HashMap::new(),
            links: None,
        }
    }

    /// Inspects one process.
    pub fn inspect(&mut self, pid: i32) -> Found {
        match self.selection {
            Selection::All => self.inspect_any(pid),
            Selection::Process(_) | Selection::Client(_) => self.inspect_below_client(pid),
        }
    }

    fn inspect_any(&mut self, pid: i32) -> Found {
        if census::uid(pid) != Some(self.uid) {
            return Found::NotAServer;
        }
        let (stdin, stdout) = ends(pid);
        if !(stdin.talks() && stdout.talks()) {
            return not_yet(pid);
        }
        let Some(stat) = self.living(pid) else {
            return Found::NotAServer;
        };
        let peers = (stdio::peer(stdin), stdio::peer(stdout));
        for above in self.ancestors(&stat) {
            let held = self.held_by(above.pid);
            if held.feeds(stdin, peers.0) && held.hears(stdout, peers.1) {
                if self.is_shim(&stat) {
                    return Found::NotAServer;
                }
                return self.candidate(&stat, (stdin, stdout), &above, None);
            }
        }
        not_yet(pid)
    }

    fn inspect_below_client(&mut self, pid: i32) -> Found {
        let Some(stat) = self.living(pid) else {
            return Found::NotAServer;
        };
        let above = self.ancestors(&stat);
        let Some(place) = above.iter().position(|above| self.is_client(above)) else {
            return Found::NotAServer;
        };
        // The client itself, and the processes between it and this process.
        let between = &above[..=place];
        if let Some(id) = self.links().shims.get(&stat.who()).copied() {
            let ends = ends(pid);
            let ours = self.link(id);
            return self.candidate(&stat, ends, &above[place], Some(ours));
        }
        let (stdin, stdout) = ends(pid);
        if stdin == End::Hidden && between.len() == 1 {
            return self.candidate(&stat, (stdin, stdout), &above[place], None);
        }
        if !stdin.talks() {
            return not_yet(pid);
        }
        let peer = stdio::peer(stdin);
        let Some(feeder) = between
            .iter()
            .position(|above| self.held_by(above.pid).feeds(stdin, peer))
        else {
            return not_yet(pid);
        };
        // If the process that writes its stdin is a server itself, this is a helper of that server.
        if feeder < place && self.fed_by_any(&above[feeder], &above[feeder + 1..=place]) {
            return Found::NotAServer;
        }
        let feeder = above[feeder].clone();
        self.candidate(&stat, (stdin, stdout), &feeder, None)
    }

    /// Whether one of these ancestors writes to the stdin of the process.
    fn fed_by_any(&mut self, process: &Stat, above: &[Stat]) -> bool {
        let (stdin, _) = ends(process.pid);
        let peer = stdio::peer(stdin);
        stdin.talks()
            && above
                .iter()
                .any(|above| self.held_by(above.pid).feeds(stdin, peer))
    }

    /// Whether the servers of this process are watched.
    pub fn is_client(&mut self, stat: &Stat) -> bool {
        match self.selection {
            Selection::Process(who) => stat.who() == *who,
            Selection::Client(client) => *self
                .clients
                .entry(stat.pid)
                .or_insert_with(|| client.matches(stat.pid, &stat.comm)),
            Selection::All => false,
        }
    }

    fn candidate(
        &mut self,
        stat: &Stat,
        (stdin, stdout): (End, End),
        client: &Stat,
        ours: Option<OurLink>,
    ) -> Found {
        let pid = stat.pid;
        let ours = ours.or_else(|| self.tagged(pid));
        let mut argv = redact::words(&census::cmdline(pid));
        if argv.is_empty() {
            argv.push(format!("[{}]", stat.comm));
        }
        let born_ms = clock::ticks_ms(stat.start);
        Found::Server(Box::new(Candidate {
            who: stat.who(),
            ppid: stat.ppid,
            comm: stat.comm.clone(),
            argv,
            stdin,
            stdout,
            client: Seen {
                who: client.who(),
                comm: client.comm.clone(),
            },
            age_ms: self.now_ms.saturating_sub(born_ms),
            rss_kib: census::memory(pid).rss_kib,
            forked_only: census::forked_only(pid),
            ours,
        }))
    }

    fn tagged(&mut self, pid: i32) -> Option<OurLink> {
        let tag: Tag = census::variable(pid, TAG_VARIABLE)?.parse().ok()?;
        Some(OurLink {
            process: None,
            rss_kib: None,
            ..self.link(tag.link)
        })
    }

    /// What is known about a link, for its shim.
    fn link(&mut self, id: LinkId) -> OurLink {
        let known = self.links().links.get(&id).cloned();
        let mut ours = known.unwrap_or_else(|| OurLink {
            id,
            server: None,
            short_id: id.to_string(),
            client: None,
            process: None,
            rss_kib: None,
        });
        let process = ours.process.as_ref();
        ours.rss_kib = process.map(|seen| census::memory(seen.who.pid).rss_kib);
        ours
    }

    /// Whether it is the process that a client starts in place of a server: with `--all`, the server itself is shown. A young one may not
    /// have its card yet.
    fn is_shim(&mut self, stat: &Stat) -> bool {
        let runs = || {
            census::cmdline(stat.pid)
                .get(1)
                .is_some_and(|verb| verb == "run")
        };
        (stat.comm == "mainstay" && runs()) || self.links().shims.contains_key(&stat.who())
    }

    fn living(&mut self, pid: i32) -> Option<Stat> {
        self.stat(pid).filter(|stat| !stat.dead())
    }

    fn stat(&mut self, pid: i32) -> Option<Stat> {
        let stat = self.stats.entry(pid);
        stat.or_insert_with(|| census::stat(pid).ok()).clone()
    }

    fn ancestors(&mut self, of: &Stat) -> Vec<Stat> {
        let mut found: Vec<Stat> = Vec::new();
        let mut next = of.ppid;
        while next > 0 && found.len() < MAX_ANCESTORS {
            let Some(stat) = self.stat(next) else { break };
            next = stat.ppid;
            found.push(stat);
        }
        found
    }

    fn held_by(&mut self, pid: i32) -> &Held {
        self.held.entry(pid).or_insert_with(|| Held::by(pid))
    }

    fn links(&mut self) -> &Links {
        self.links.get_or_insert_with(|| {
            let mut links = Links::default();
            let listed = registry::list(self.paths).unwrap_or_default();
            let cards: Vec<Card> = listed.into_iter().filter_map(|one| one.card).collect();
            let ids: Vec<LinkId> = cards.iter().map(|card| card.id).collect();
            let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
            for card in &cards {
                if let Some(shim) = &card.shim {
                    links.shims.insert(shim.who, card.id);
                }
                let ours = OurLink {
                    id: card.id,
                    server: Some(card.name.clone()),
                    short_id: short(card.id, &ids, &names),
                    client: card.client.clone(),
                    process: card.server.clone(),
                    rss_kib: None,
                };
                links.links.insert(card.id, ours);
            }
            links
        })
    }
}

/// Its input and output: descriptors 0 and 1, or those to which a server has moved them. Other programs than servers have such descriptors, too, so
/// the program must speak MCP.
fn ends(pid: i32) -> (End, End) {
    let ends = (stdio::end(pid, 0), stdio::end(pid, 1));
    if ends.0 == End::Null
        // The cheap question first: on a machine with thousands of processes, few run a script.
        && may_run_script(pid)
        && let Some(wire) = wires::of(pid).filter(wires::Wire::moved)
        && Program::at(pid).speaks(Depth::Texts).is_some()
    {
        return (wire.input, wire.output);
    }
    ends
}

/// A process without the right pipes: a young fork gets them when it calls `exec`, an older process never does.
fn not_yet(pid: i32) -> Found {
    let Ok(stat) = census::stat(pid) else {
        return Found::NotAServer;
    };
    let age_ms = clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start));
    if age_ms < WATCH_SETTLE_MS && census::forked_only(pid) {
        return Found::NotYet;
    }
    Found::NotAServer
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_os::identity;
    use std::process::{Command, Stdio};

    fn is_server(selection: &Selection, pid: i32) -> bool {
        let paths = Paths::nowhere();
        let mut inspector = Inspector::new(selection, &paths);
        matches!(inspector.inspect(pid), Found::Server(_))
    }

    /// The same pid with another start time is another process, so a process that got a dead client's pid has no servers here.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    fn a_server_needs_its_clients_pipes_and_a_reused_client_pid_does_not_count() {
        let _alone = mainstay_store::scratch::Place::alone();
        let me = identity::me().unwrap();
        let mut command = Command::new("cat");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let pid = server.id() as i32;
        assert!(is_server(&Selection::Process(me), pid));
        assert!(is_server(&Selection::All, pid));
        let reused = Identity {
            start: me.start + 1,
            ..me
        };
        assert!(!is_server(&Selection::Process(reused), pid));
        // Once the client has closed its ends, the process has no client.
        let stdout = server.stdout.take();
        drop(server.stdin.take());
        server.wait().unwrap();
        drop(stdout);
        assert!(!is_server(&Selection::All, pid));
        let mut command = Command::new("sh");
        let command = command.args(["-c", "read line"]).stdout(Stdio::null());
        let mut other = command.stdin(Stdio::piped()).spawn().unwrap();
        let pid = other.id() as i32;
        assert!(
            !is_server(&Selection::All, pid),
            "its stdout is not read by a client"
        );
        assert!(
            is_server(&Selection::Process(me), pid),
            "a direct child with a piped stdin counts, whatever its stdout is"
        );
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
