//! One look at processes: which of them talk to a client over their stdin and stdout.
//!
//! It asks the cheap question first, and remembers for the length of one look what it has asked. A process that ends
//! meanwhile, or that we may not look at, is no candidate; it is asked again at the next look.

use std::collections::HashMap;

use mainstay_core::event::Seen;
use mainstay_core::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_core::limits::WATCH_SETTLE_MS;
use mainstay_core::redact;
use mainstay_os::census::{self, Stat};
use mainstay_os::clock;
use mainstay_os::stdio::{self, End, Held};
use serde::Serialize;

use super::whom::Whom;
use crate::paths::Paths;
use crate::registry;

/// Nobody has that many launchers.
const ANCESTORS: usize = 64;

/// A process that looks like a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub who: Identity,
    /// Its parent now.
    pub ppid: i32,
    /// Its short name.
    pub comm: String,
    /// Its arguments, without what looks like a secret.
    pub argv: Vec<String>,
    /// What its stdin is.
    pub stdin: End,
    /// What its stdout is.
    pub stdout: End,
    /// Who is at the other end.
    pub client: Seen,
    /// How old it was when it was looked at.
    pub age_ms: u64,
    /// Resident memory then.
    pub rss_kib: u64,
    /// It has not run a program of its own yet.
    pub forked_only: bool,
    /// What it is to us, if it runs under mainstay.
    pub ours: Option<Ours>,
}

/// A process of a link of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ours {
    /// The link.
    pub id: LinkId,
    /// The server's name, if the link has a card here.
    pub server: Option<String>,
}

/// What was found about one process.
pub enum Found {
    /// It looks like a server.
    Server(Box<Candidate>),
    /// It may become one: a fork that has not run its program yet.
    Later,
    /// It does not.
    Nobody,
}

/// One look.
pub struct Look<'a> {
    whom: &'a Whom,
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
    shims: HashMap<Identity, Ours>,
    names: HashMap<LinkId, String>,
}

impl<'a> Look<'a> {
    /// A new one, which knows nothing yet.
    pub fn new(whom: &'a Whom, paths: &'a Paths) -> Self {
        Self {
            whom,
            paths,
            uid: rustix::process::geteuid().as_raw(),
            now_ms: clock::since_boot_ms(),
            stats: HashMap::new(),
            held: HashMap::new(),
            clients: HashMap::new(),
            links: None,
        }
    }

    /// Looks at one process.
    pub fn at(&mut self, pid: i32) -> Found {
        match self.whom {
            Whom::All => self.of_anybody(pid),
            Whom::Process(_) | Whom::Client(_) => self.of_a_client(pid),
        }
    }

    fn of_anybody(&mut self, pid: i32) -> Found {
        if census::uid(pid) != Some(self.uid) {
            return Found::Nobody;
        }
        let (stdin, stdout) = (stdio::end(pid, 0), stdio::end(pid, 1));
        if !(stdin.talks() && stdout.talks()) {
            return later(pid);
        }
        let Some(stat) = self.living(pid) else {
            return Found::Nobody;
        };
        let peers = (stdio::peer(stdin), stdio::peer(stdout));
        for above in self.ancestors(&stat) {
            let held = self.held_by(above.pid);
            if held.feeds(stdin, peers.0) && held.hears(stdout, peers.1) {
                return self.candidate(&stat, (stdin, stdout), &above, None);
            }
        }
        later(pid)
    }

    fn of_a_client(&mut self, pid: i32) -> Found {
        let Some(stat) = self.living(pid) else {
            return Found::Nobody;
        };
        let above = self.ancestors(&stat);
        let Some(place) = above.iter().position(|above| self.is_client(above)) else {
            return Found::Nobody;
        };
        // The client itself, and whoever stands between it and the process.
        let between = &above[..=place];
        if let Some(ours) = self.links().shims.get(&stat.who()).cloned() {
            let ends = (stdio::end(pid, 0), stdio::end(pid, 1));
            return self.candidate(&stat, ends, &above[place], Some(ours));
        }
        let (stdin, stdout) = (stdio::end(pid, 0), stdio::end(pid, 1));
        if stdin == End::Hidden && between.len() == 1 {
            return self.candidate(&stat, (stdin, stdout), &above[place], None);
        }
        if !stdin.talks() {
            return later(pid);
        }
        let peer = stdio::peer(stdin);
        let Some(feeder) = between
            .iter()
            .position(|above| self.held_by(above.pid).feeds(stdin, peer))
        else {
            return later(pid);
        };
        // Whoever feeds it may be a server itself: then this is that server's own affair.
        if feeder < place && self.talks_upwards(&above[feeder], &above[feeder + 1..=place]) {
            return Found::Nobody;
        }
        let feeder = above[feeder].clone();
        self.candidate(&stat, (stdin, stdout), &feeder, None)
    }

    /// Whether a process is fed by one of these above it.
    fn talks_upwards(&mut self, process: &Stat, above: &[Stat]) -> bool {
        let stdin = stdio::end(process.pid, 0);
        let peer = stdio::peer(stdin);
        stdin.talks()
            && above
                .iter()
                .any(|above| self.held_by(above.pid).feeds(stdin, peer))
    }

    /// Whether a process is one whose servers are watched.
    pub fn is_client(&mut self, stat: &Stat) -> bool {
        match self.whom {
            Whom::Process(who) => stat.who() == *who,
            Whom::Client(signature) => *self
                .clients
                .entry(stat.pid)
                .or_insert_with(|| signature.fits(stat.pid, &stat.comm)),
            Whom::All => false,
        }
    }

    fn candidate(
        &mut self,
        stat: &Stat,
        (stdin, stdout): (End, End),
        client: &Stat,
        ours: Option<Ours>,
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

    fn tagged(&mut self, pid: i32) -> Option<Ours> {
        let tag: Tag = census::variable(pid, TAG_VARIABLE)?.parse().ok()?;
        let server = self.links().names.get(&tag.link).cloned();
        Some(Ours {
            id: tag.link,
            server,
        })
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
        while next > 0 && found.len() < ANCESTORS {
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
            for listed in registry::list(self.paths).unwrap_or_default() {
                let Some(card) = listed.card else { continue };
                let ours = Ours {
                    id: card.id,
                    server: Some(card.name.clone()),
                };
                if let Some(shim) = card.shim {
                    links.shims.insert(shim.who, ours);
                }
                links.names.insert(card.id, card.name);
            }
            links
        })
    }
}

/// A fork that has not run its program yet has not got its pipes either; one that is older never will.
fn later(pid: i32) -> Found {
    let Ok(stat) = census::stat(pid) else {
        return Found::Nobody;
    };
    let age_ms = clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start));
    if age_ms < WATCH_SETTLE_MS && census::forked_only(pid) {
        return Found::Later;
    }
    Found::Nobody
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_os::identity;
    use std::process::{Command, Stdio};

    fn looks_like_a_server(whom: &Whom, pid: i32) -> bool {
        let paths = Paths::nowhere();
        let mut look = Look::new(whom, &paths);
        matches!(look.at(pid), Found::Server(_))
    }

    /// The same pid with another start time is another process: whoever has a dead client's pid now has no servers here.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    fn a_client_is_pid_and_start_time_and_a_server_has_its_pipes() {
        let _alone = crate::scratch::Place::alone();
        let me = identity::me().unwrap();
        let mut command = Command::new("cat");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let pid = server.id() as i32;
        assert!(looks_like_a_server(&Whom::Process(me), pid));
        assert!(looks_like_a_server(&Whom::All, pid));
        let reused = Identity {
            start: me.start + 1,
            ..me
        };
        assert!(!looks_like_a_server(&Whom::Process(reused), pid));
        // A client that closes its end is no client any more.
        let stdout = server.stdout.take();
        drop(server.stdin.take());
        server.wait().unwrap();
        drop(stdout);
        assert!(!looks_like_a_server(&Whom::All, pid));
        let mut command = Command::new("sh");
        let command = command.args(["-c", "read line"]).stdout(Stdio::null());
        let mut other = command.stdin(Stdio::piped()).spawn().unwrap();
        let pid = other.id() as i32;
        assert!(!looks_like_a_server(&Whom::All, pid), "it talks to nobody");
        assert!(
            looks_like_a_server(&Whom::Process(me), pid),
            "as the report saw one"
        );
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
