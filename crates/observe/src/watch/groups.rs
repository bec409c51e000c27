//! Decides which of the processes that share a pair of pipes is the server, so that each server is reported once.
//!
//! Processes with the same stdin from the same client are one group: a launcher, the shell that it starts, the server behind
//! them. The search for the server begins at the topmost process and goes down as long as it finds launchers. A launcher
//! without a server is reported after a while; a server that appears later is reported as the same server, moved. Pure: no
//! clock, no access to processes.

use std::collections::{HashMap, HashSet};

use mainstay_os::stdio::End;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{WATCH_BELOW_MS as BELOW_MS, WATCH_SETTLE_MS as SETTLE_MS};

use super::inspect::Candidate;
use super::launcher::launches;

/// A change to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A server has started, or was found running.
    New(Identity),
    /// A reported server is another process now, or runs another program.
    Moved { from: Identity, to: Identity },
    /// A server has ended; with its launchers.
    Gone(Box<Candidate>, Vec<Candidate>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Identity,
    stdin: End,
    /// Set if stdin is not a pipe or socket: then the process is a group of its own.
    alone: Option<Identity>,
}

#[derive(Debug)]
struct Member {
    seen: Candidate,
    since_ms: u64,
}

#[derive(Debug, Default)]
struct Group {
    members: Vec<Member>,
    reported: Option<Identity>,
    /// The reported process is a launcher.
    reported_launcher: bool,
    /// Processes that remained when the server ended: they are not reported as a server.
    left_behind: Vec<Identity>,
}

/// All watched processes.
#[derive(Debug, Default)]
pub struct Groups {
    by_key: HashMap<Key, Group>,
    keys: HashMap<Identity, Key>,
    /// Groups that may have a change to report; the others are skipped.
    open: HashSet<Key>,
}

impl Groups {
    /// Notes a process, and returns whether it is new.
    pub fn observe(&mut self, seen: Candidate, now_ms: u64) -> bool {
        let who = seen.who;
        let key = Key {
            client: seen.client.who,
            stdin: seen.stdin,
            alone: (!seen.stdin.talks()).then_some(who),
        };
        let key = *self.keys.entry(who).or_insert(key);
        self.open.insert(key);
        let group = self.by_key.entry(key).or_default();
        if let Some(member) = group
            .members
            .iter_mut()
            .find(|member| member.seen.who == who)
        {
            member.seen = seen;
            return false;
        }
        // A process that has run for long does not have to wait again.
        let since_ms = now_ms.saturating_sub(seen.age_ms);
        group.members.push(Member { seen, since_ms });
        true
    }

    /// The changes to report now; `at_once` skips the waiting times.
    pub fn decide(&mut self, now_ms: u64, at_once: bool) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        let groups = &mut self.by_key;
        self.open.retain(|key| {
            let Some(group) = groups.get_mut(key) else {
                return false;
            };
            changes.extend(group.decide(now_ms, at_once));
            group.wait_until().is_some()
        });
        changes
    }

    /// When the next waiting time ends.
    pub fn wake_ms(&self) -> Option<u64> {
        let groups = self.open.iter().filter_map(|key| self.by_key.get(key));
        groups.filter_map(Group::wait_until).min()
    }

    /// Notes the end of a process, and returns the changes to report.
    pub fn ended(&mut self, who: Identity) -> Vec<Change> {
        let Some(key) = self.keys.remove(&who) else {
            return Vec::new();
        };
        let Some(group) = self.by_key.get_mut(&key) else {
            return Vec::new();
        };
        let changes = group.ended(who);
        self.open.insert(key);
        if group.members.is_empty() {
            self.by_key.remove(&key);
            self.open.remove(&key);
        }
        changes
    }

    /// Reports the last process of a group that ends before anything was reported of the group.
    pub fn announce_last(&mut self, who: Identity) -> Option<Change> {
        let group = self.by_key.get_mut(self.keys.get(&who)?)?;
        let [member] = group.members.as_slice() else {
            return None;
        };
        let unreported = group.reported.is_none() && !group.left_behind.contains(&who);
        if !unreported || member.seen.forked_only {
            return None;
        }
        group.reported = Some(who);
        Some(Change::New(who))
    }

    pub fn contains(&self, who: Identity) -> bool {
        self.keys.contains_key(&who)
    }

    pub fn all(&self) -> impl Iterator<Item = Identity> {
        self.keys.keys().copied()
    }

    /// Those of selection more is to be expected: launchers alone, and forks.
    pub fn unclear(&self) -> impl Iterator<Item = Identity> + '_ {
        self.by_key
            .values()
            .filter(|group| group.reported.is_none() || group.reported_launcher)
            .filter_map(|group| Some(group.chosen()?.seen.who))
    }

    /// A watched process with its launchers.
    pub fn find(&self, who: Identity) -> Option<(&Candidate, Vec<&Candidate>)> {
        let group = self.by_key.get(self.keys.get(&who)?)?;
        let member = group.member(who)?;
        Some((&member.seen, group.launchers(who)))
    }

    /// The reported servers that still run.
    pub fn reported(&self) -> impl Iterator<Item = Identity> {
        self.by_key.values().filter_map(|group| group.reported)
    }
}

impl Group {
    fn member(&self, who: Identity) -> Option<&Member> {
        self.members.iter().find(|member| member.seen.who == who)
    }

    /// The server, as far as it can be seen now.
    fn chosen(&self) -> Option<&Member> {
        let inside = |pid: i32| self.members.iter().any(|member| member.seen.who.pid == pid);
        let mut at = self
            .members
            .iter()
            .filter(|member| !inside(member.seen.ppid))
            .min_by_key(|member| member.seen.who.start)?;
        let mut steps = 0;
        while launches(&at.seen.argv) && steps < self.members.len() {
            steps += 1;
            let below = self.members.iter();
            let below = below.filter(|member| member.seen.ppid == at.seen.who.pid);
            let left_behind = |member: &&Member| self.left_behind.contains(&member.seen.who);
            match below.min_by_key(|member| (left_behind(member), member.seen.who)) {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(at)
    }

    fn launchers(&self, of: Identity) -> Vec<&Candidate> {
        let mut found = Vec::new();
        let mut next = self.member(of).map(|member| member.seen.ppid);
        while let Some(pid) = next {
            let above = self
                .members
                .iter()
                .find(|member| member.seen.who.pid == pid);
            let Some(above) = above.filter(|_| found.len() < self.members.len()) else {
                break;
            };
            found.push(&above.seen);
            next = Some(above.seen.ppid);
        }
        found.reverse();
        found
    }

    /// When the chosen process may be reported, if it is not reported yet.
    fn wait_until(&self) -> Option<u64> {
        if self.reported.is_some() && !self.reported_launcher {
            return None;
        }
        let chosen = self.chosen()?;
        let who = chosen.seen.who;
        let waits = !self.left_behind.contains(&who) && self.reported != Some(who);
        waits.then(|| chosen.since_ms + self.wait_ms(chosen))
    }

    /// How long this process waits before it is reported.
    fn wait_ms(&self, member: &Member) -> u64 {
        let below = |other: &Member| other.seen.who.pid == member.seen.ppid;
        if launches(&member.seen.argv) || member.seen.forked_only {
            SETTLE_MS
        } else if self.members.iter().any(below) {
            // A launcher script may run other programs before the server.
            BELOW_MS
        } else {
            0
        }
    }

    fn decide(&mut self, now_ms: u64, at_once: bool) -> Option<Change> {
        let chosen = self.chosen()?;
        let who = chosen.seen.who;
        let launcher = launches(&chosen.seen.argv);
        let too_early = !at_once && now_ms < chosen.since_ms + self.wait_ms(chosen);
        let change = match self.reported {
            _ if too_early => None,
            // Processes that a server starts are not servers of the client.
            Some(reported) if !self.reported_launcher || (reported == who && launcher) => None,
            Some(from) => Some(Change::Moved { from, to: who }),
            None => (!self.left_behind.contains(&who)).then_some(Change::New(who)),
        };
        if change.is_some() {
            self.reported = Some(who);
            self.reported_launcher = launcher;
        }
        change
    }

    fn ended(&mut self, who: Identity) -> Vec<Change> {
        let launchers: Vec<Candidate> = self.launchers(who).into_iter().cloned().collect();
        let Some(place) = self
            .members
            .iter()
            .position(|member| member.seen.who == who)
        else {
            return Vec::new();
        };
        let gone = self.members.remove(place).seen;
        self.left_behind.retain(|&left_behind| left_behind != who);
        if self.reported != Some(who) {
            return Vec::new();
        }
        // If a launcher ends and its server stays, the server is reported as the same one.
        if self.reported_launcher
            && let Some(successor) = self.chosen()
        {
            let to = successor.seen.who;
            self.reported_launcher = launches(&successor.seen.argv);
            self.reported = Some(to);
            return vec![Change::Moved { from: who, to }];
        }
        self.reported = None;
        self.left_behind = self.members.iter().map(|member| member.seen.who).collect();
        vec![Change::Gone(gone.into(), launchers)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::event::Seen;

    fn who(pid: i32) -> Identity {
        Identity { pid, start: 1 }
    }

    fn seen(pid: i32, ppid: i32, words: &str) -> Candidate {
        Candidate {
            who: who(pid),
            ppid,
            comm: String::new(),
            argv: words.split(' ').map(str::to_owned).collect(),
            stdin: End::Pipe(7),
            stdout: End::Pipe(8),
            client: Seen {
                who: who(1),
                comm: "claude".into(),
            },
            age_ms: 0,
            rss_kib: 0,
            forked_only: false,
            ours: None,
        }
    }

    #[test]
    fn a_chain_of_launchers_is_reported_once_as_its_server() {
        let mut groups = Groups::default();
        groups.observe(seen(10, 1, "npx x"), 0);
        assert_eq!(groups.decide(0, false), []);
        assert_eq!(groups.wake_ms(), Some(SETTLE_MS));
        groups.observe(seen(11, 10, "sh -c x"), 5);
        assert_eq!(groups.decide(5, false), []);
        groups.observe(seen(12, 11, "node x.js"), 10);
        assert_eq!(groups.decide(10, false), []);
        assert_eq!(groups.wake_ms(), Some(10 + BELOW_MS));
        assert_eq!(groups.decide(10 + BELOW_MS, false), [Change::New(who(12))]);
        let (_, launchers) = groups.find(who(12)).unwrap();
        let launchers: Vec<i32> = launchers.iter().map(|seen| seen.who.pid).collect();
        assert_eq!(launchers, [10, 11]);
        // A helper of the server that inherits its pipes is not a server.
        groups.observe(seen(13, 12, "git fetch"), 300);
        assert_eq!(groups.decide(9_000, false), []);
        assert_eq!(groups.ended(who(13)), []);
        let [Change::Gone(gone, launchers)] = &groups.ended(who(12))[..] else {
            panic!("it is gone")
        };
        assert_eq!((gone.who, launchers.len()), (who(12), 2));
        // The launchers that remain are not reported as servers.
        assert_eq!(groups.decide(99_999, false), []);
        // The next server of the same launcher is reported.
        groups.observe(seen(14, 11, "node x.js"), 100_000);
        assert_eq!(groups.decide(101_000, false), [Change::New(who(14))]);
        for pid in [14, 11, 10] {
            groups.ended(who(pid));
        }
        assert!(groups.by_key.is_empty() && groups.keys.is_empty());
    }

    #[test]
    fn a_slow_launcher_is_reported_and_its_server_counts_as_the_same_one() {
        let mut groups = Groups::default();
        groups.observe(seen(10, 1, "npx x"), 0);
        assert_eq!(groups.decide(SETTLE_MS, false), [Change::New(who(10))]);
        groups.observe(seen(12, 10, "node x.js"), 9_000);
        let moved = |from, to| Change::Moved {
            from: who(from),
            to: who(to),
        };
        assert_eq!(groups.decide(9_000, false), []);
        assert_eq!(groups.wake_ms(), Some(9_000 + BELOW_MS));
        assert_eq!(groups.decide(9_000 + BELOW_MS, false), [moved(10, 12)]);
        assert_eq!(groups.wake_ms(), None);
        assert_eq!(groups.decide(9_999, false), []);
        assert!(matches!(groups.ended(who(12))[..], [Change::Gone(..)]));

        // A launcher that replaces itself with the server (`exec`).
        let mut groups = Groups::default();
        groups.observe(seen(20, 1, "sh -c x"), 0);
        assert_eq!(groups.decide(0, true), [Change::New(who(20))]);
        assert!(!groups.observe(seen(20, 1, "node x.js"), 1));
        assert_eq!(groups.decide(1, false), [moved(20, 20)]);

        // A launcher that ends while its server stays.
        let mut groups = Groups::default();
        groups.observe(seen(30, 1, "npx x"), 0);
        groups.decide(SETTLE_MS, false);
        groups.observe(seen(31, 30, "node x.js"), SETTLE_MS + 1);
        assert_eq!(groups.ended(who(30)), [moved(30, 31)]);
    }

    #[test]
    fn a_script_counts_as_server_and_a_fork_waits_for_its_exec() {
        let mut groups = Groups::default();
        let mut fork = seen(10, 1, "claude");
        fork.forked_only = true;
        groups.observe(fork, 0);
        assert_eq!(groups.decide(1, false), []);
        groups.observe(seen(10, 1, "bash proxy.sh"), 2);
        assert_eq!(groups.decide(2, false), [Change::New(who(10))]);
        groups.observe(seen(11, 10, "cat"), 3);
        assert_eq!(groups.decide(9_999, false), []);
    }

    #[test]
    fn programs_before_the_server_are_not_reported_but_a_failed_start_is() {
        let mut groups = Groups::default();
        groups.observe(seen(10, 1, "npx x"), 0);
        groups.observe(seen(11, 10, "uname -a"), 5);
        assert_eq!(groups.decide(100, false), []);
        assert_eq!(groups.ended(who(11)), []);
        // The launcher ends too: then the launcher itself is reported.
        assert_eq!(groups.announce_last(who(10)), Some(Change::New(who(10))));
        assert!(matches!(groups.ended(who(10))[..], [Change::Gone(..)]));
    }

    #[test]
    fn processes_without_a_pipe_are_not_grouped() {
        let mut groups = Groups::default();
        for pid in [10, 11] {
            let mut shim = seen(pid, 1, "mainstay run");
            shim.stdin = End::Null;
            groups.observe(shim, 0);
        }
        assert_eq!(groups.decide(0, false).len(), 2);
        assert_eq!(groups.reported().count(), 2);
    }
}
