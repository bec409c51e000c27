//! MCP servers that do not run under mainstay, so that signals to and from them can be told from all others.
//!
//! A killed process can no longer be asked what it was. So new processes are looked at once a second, while they live.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use mainstay_clients::speaks::{Depth, Program};
use mainstay_keeper::default_name;
use mainstay_os::{census, clock};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{TRACE_KNOWN_MS as STAYS_MS, WATCH_LIST_MS as LIST_MS};
use mainstay_store::paths::Paths;

use crate::watch::inspect::{Candidate, Found, Inspector};
use crate::watch::selection::Selection;

/// A younger process may still become a server: a shell that runs it, a launcher that loads it.
const SETTLED_MS: u64 = 10_000;

/// A larger binary is not searched: signals that come meanwhile would wait.
const BINARY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The servers that are known.
#[derive(Debug)]
pub struct KnownServers {
    uid: u32,
    next: Moment,
    /// Processes that were looked at and will not change.
    settled: HashSet<i32>,
    /// With the time at which each was last seen.
    known: HashMap<Identity, (String, Moment)>,
    /// Which binaries speak MCP: to search one takes long.
    binaries: HashMap<PathBuf, bool>,
}

impl KnownServers {
    /// The servers of this user; none until the first look.
    pub fn new(uid: u32) -> Self {
        Self {
            uid,
            next: clock::now(),
            settled: HashSet::new(),
            known: HashMap::new(),
            binaries: HashMap::new(),
        }
    }

    /// When to look again.
    pub fn next(&self) -> Moment {
        self.next
    }

    /// Looks at the processes that are new.
    pub fn refresh(&mut self, paths: &Paths) {
        let now = clock::now();
        self.next = now.after_ms(LIST_MS);
        let Ok(pids) = census::pids() else {
            return;
        };
        let there: HashSet<i32> = pids.iter().copied().collect();
        self.settled.retain(|pid| there.contains(pid));
        for (who, (_, seen)) in &mut self.known {
            if there.contains(&who.pid) {
                *seen = now;
            }
        }
        self.known
            .retain(|_, (_, seen)| seen.after_ms(STAYS_MS) >= now);
        let mut inspector = Inspector::of_user(&Selection::All, paths, self.uid);
        let mut found: Vec<Candidate> = Vec::new();
        for pid in pids {
            if self.settled.contains(&pid) {
                continue;
            }
            match inspector.inspect(pid) {
                Found::Server(candidate) => found.push(*candidate),
                Found::NotYet => {}
                Found::NotAServer => self.settle(pid),
            }
        }
        self.note(&found, now);
    }

    /// The name of a server, by its pid and, if it is known, its start time.
    pub fn name(&self, pid: i32, start: Option<u64>) -> Option<String> {
        let same = |who: &Identity| who.pid == pid && start.is_none_or(|start| start == who.start);
        let (_, (name, _)) = self.known.iter().find(|(who, _)| same(who))?;
        Some(name.clone())
    }

    /// Notes the processes that speak MCP, with the launchers before them: they have the same pipes.
    fn note(&mut self, found: &[Candidate], now: Moment) {
        for candidate in found.iter().filter(|one| one.ours.is_none()) {
            if !self.speaks(candidate.who.pid) {
                self.settle(candidate.who.pid);
                continue;
            }
            let words: Vec<OsString> = candidate.argv.iter().map(OsString::from).collect();
            let name = default_name::of(&words);
            let before = found.iter().filter(|other| other.stdin == candidate.stdin);
            for who in before.map(|other| other.who) {
                self.known.insert(who, (name.clone(), now));
                self.settle(who.pid);
            }
        }
    }

    fn speaks(&mut self, pid: i32) -> bool {
        let program = Program::at(pid);
        let Some(binary) = program.binary() else {
            return program.speaks(Depth::Texts).is_some();
        };
        let known = self.binaries.entry(binary.to_owned());
        *known.or_insert_with(|| {
            let small = |meta: fs::Metadata| meta.len() <= BINARY_BYTES_MAX;
            fs::metadata(binary).is_ok_and(small) && program.speaks(Depth::Binaries).is_some()
        })
    }

    fn settle(&mut self, pid: i32) {
        let age_ms = census::stat(pid).map_or(u64::MAX, |stat| {
            clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start))
        });
        if age_ms > SETTLED_MS {
            self.settled.insert(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    fn a_script_that_speaks_mcp_over_a_pipe_is_known_by_its_name_and_start() {
        let _alone = mainstay_store::scratch::Place::alone();
        let file = std::env::temp_dir().join(format!("deaf-{}.sh", std::process::id()));
        fs::write(&file, "# serverInfo tools/list\nread line\n").unwrap();
        let start = |argument: &str| {
            let mut command = Command::new("sh");
            let command = command.arg(argument).stdin(Stdio::piped());
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut server = start(file.to_str().unwrap());
        let mut other = start("-s");
        let mut servers = KnownServers::new(rustix::process::geteuid().as_raw());
        let who = mainstay_os::identity::of(server.id() as i32).unwrap();
        // A fork that has not called `exec` yet is looked at again.
        while servers.name(who.pid, None).is_none() {
            servers.refresh(&Paths::nowhere());
        }
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert_eq!(
            servers.name(who.pid, Some(who.start)).as_deref(),
            Some(name)
        );
        assert_eq!(servers.name(who.pid, Some(who.start + 1)), None);
        assert_eq!(servers.name(other.id() as i32, None), None);
        for child in [&mut server, &mut other] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        fs::remove_file(file).unwrap();
        // A killed server is still known when the signal is read.
        servers.refresh(&Paths::nowhere());
        assert!(servers.name(who.pid, Some(who.start)).is_some());
    }
}
