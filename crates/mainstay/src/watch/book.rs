//! Which of the processes that share a server's pipes is the server, and what is told of it: once, when it is clear.
//!
//! Whoever has the same stdin from the same client is one group: a launcher, the shell that it starts, the server behind
//! them. The server is found by going down from the first of them while it is a launcher. A launcher alone is given a
//! moment, then told as such; the server behind it is told as the same one, moved. No clock, no process: pure.

use std::collections::{HashMap, HashSet};

use mainstay_core::ids::Identity;
use mainstay_core::limits::{WATCH_BELOW_MS as BELOW_MS, WATCH_SETTLE_MS as SETTLE_MS};
use mainstay_os::stdio::End;

use super::launcher::launches;
use super::look::Candidate;

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// A server is there.
    New(Identity),
    /// The server that was told is another process now, or runs another program.
    Moved {
        /// Who was told.
        from: Identity,
        /// Who it is now.
        to: Identity,
    },
    /// A server is gone.
    Gone(Candidate, Vec<Candidate>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Identity,
    stdin: End,
    /// Somebody without a pipe is alone.
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
    told: Option<Identity>,
    /// Who was told is a launcher.
    as_launcher: bool,
    /// Who stayed behind when the server went: they are not told as a server again.
    spent: Vec<Identity>,
}

/// Everybody who is watched.
#[derive(Debug, Default)]
pub struct Book {
    groups: HashMap<Key, Group>,
    keys: HashMap<Identity, Key>,
    /// Groups of which something may be to be told: all others are not even looked at.
    open: HashSet<Key>,
}

impl Book {
    /// Takes note of a process; whether it is new.
    pub fn see(&mut self, seen: Candidate, now_ms: u64) -> bool {
        let who = seen.who;
        let key = Key {
            client: seen.client.who,
            stdin: seen.stdin,
            alone: (!seen.stdin.talks()).then_some(who),
        };
        let key = *self.keys.entry(who).or_insert(key);
        self.open.insert(key);
        let group = self.groups.entry(key).or_default();
        if let Some(member) = group
            .members
            .iter_mut()
            .find(|member| member.seen.who == who)
        {
            member.seen = seen;
            return false;
        }
        // Somebody that has been there for long has had its moment.
        let since_ms = now_ms.saturating_sub(seen.age_ms);
        group.members.push(Member { seen, since_ms });
        true
    }

    /// What is to be told now; `at_once` gives nobody a moment.
    pub fn decide(&mut self, now_ms: u64, at_once: bool) -> Vec<Tell> {
        let mut tells: Vec<Tell> = Vec::new();
        let groups = &mut self.groups;
        self.open.retain(|key| {
            let Some(group) = groups.get_mut(key) else {
                return false;
            };
            tells.extend(group.decide(now_ms, at_once));
            group.waits().is_some()
        });
        tells
    }

    /// When somebody's moment is over.
    pub fn wake_ms(&self) -> Option<u64> {
        let groups = self.open.iter().filter_map(|key| self.groups.get(key));
        groups.filter_map(Group::waits).min()
    }

    /// Takes note of an end; what is to be told of it.
    pub fn ended(&mut self, who: Identity) -> Vec<Tell> {
        let Some(key) = self.keys.remove(&who) else {
            return Vec::new();
        };
        let Some(group) = self.groups.get_mut(&key) else {
            return Vec::new();
        };
        let tells = group.ended(who);
        self.open.insert(key);
        if group.members.is_empty() {
            self.groups.remove(&key);
            self.open.remove(&key);
        }
        tells
    }

    /// The last one of a group that ends before anything was told of it: it is told all the same.
    pub fn insist(&mut self, who: Identity) -> Option<Tell> {
        let group = self.groups.get_mut(self.keys.get(&who)?)?;
        let [member] = group.members.as_slice() else {
            return None;
        };
        let unheard = group.told.is_none() && !group.spent.contains(&who);
        if !unheard || member.seen.forked_only {
            return None;
        }
        group.told = Some(who);
        Some(Tell::New(who))
    }

    /// Whether this process is in the book.
    pub fn knows(&self, who: Identity) -> bool {
        self.keys.contains_key(&who)
    }

    /// Everybody in the book.
    pub fn everybody(&self) -> impl Iterator<Item = Identity> {
        self.keys.keys().copied()
    }

    /// Those of whom more is to be expected: launchers alone, and forks.
    pub fn unclear(&self) -> impl Iterator<Item = Identity> + '_ {
        self.groups
            .values()
            .filter(|group| group.told.is_none() || group.as_launcher)
            .filter_map(|group| Some(group.chosen()?.seen.who))
    }

    /// A process in the book, with its launchers.
    pub fn find(&self, who: Identity) -> Option<(&Candidate, Vec<&Candidate>)> {
        let group = self.groups.get(self.keys.get(&who)?)?;
        let member = group.member(who)?;
        Some((&member.seen, group.launchers(who)))
    }

    /// The servers that were told and have not gone.
    pub fn told(&self) -> impl Iterator<Item = Identity> {
        self.groups.values().filter_map(|group| group.told)
    }
}

impl Group {
    fn member(&self, who: Identity) -> Option<&Member> {
        self.members.iter().find(|member| member.seen.who == who)
    }

    /// Who the server is, as far as can be seen.
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
            let spent = |member: &&Member| self.spent.contains(&member.seen.who);
            match below.min_by_key(|member| (spent(member), member.seen.who)) {
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

    /// When the moment of somebody who is to be told is over.
    fn waits(&self) -> Option<u64> {
        if self.told.is_some() && !self.as_launcher {
            return None;
        }
        let chosen = self.chosen()?;
        let who = chosen.seen.who;
        let waits = !self.spent.contains(&who) && self.told != Some(who);
        waits.then(|| chosen.since_ms + self.moment_ms(chosen))
    }

    /// How long somebody may be there untold.
    fn moment_ms(&self, member: &Member) -> u64 {
        let below = |other: &Member| other.seen.who.pid == member.seen.ppid;
        if launches(&member.seen.argv) || member.seen.forked_only {
            SETTLE_MS
        } else if self.members.iter().any(below) {
            // A script runs other programs before its server.
            BELOW_MS
        } else {
            0
        }
    }

    fn decide(&mut self, now_ms: u64, at_once: bool) -> Option<Tell> {
        let chosen = self.chosen()?;
        let who = chosen.seen.who;
        let launcher = launches(&chosen.seen.argv);
        let moment = !at_once && now_ms < chosen.since_ms + self.moment_ms(chosen);
        let tell = match self.told {
            _ if moment => None,
            // What a server starts is its own affair.
            Some(told) if !self.as_launcher || (told == who && launcher) => None,
            Some(from) => Some(Tell::Moved { from, to: who }),
            None => (!self.spent.contains(&who)).then_some(Tell::New(who)),
        };
        if tell.is_some() {
            self.told = Some(who);
            self.as_launcher = launcher;
        }
        tell
    }

    fn ended(&mut self, who: Identity) -> Vec<Tell> {
        let launchers: Vec<Candidate> = self.launchers(who).into_iter().cloned().collect();
        let Some(place) = self
            .members
            .iter()
            .position(|member| member.seen.who == who)
        else {
            return Vec::new();
        };
        let gone = self.members.remove(place).seen;
        self.spent.retain(|&spent| spent != who);
        if self.told != Some(who) {
            return Vec::new();
        }
        // A launcher may leave and its server stay: that one is told next, as the same server.
        if self.as_launcher
            && let Some(heir) = self.chosen()
        {
            let to = heir.seen.who;
            self.as_launcher = launches(&heir.seen.argv);
            self.told = Some(to);
            return vec![Tell::Moved { from: who, to }];
        }
        self.told = None;
        self.spent = self.members.iter().map(|member| member.seen.who).collect();
        vec![Tell::Gone(gone, launchers)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::event::Seen;

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
    fn a_chain_of_launchers_is_told_once() {
        let mut book = Book::default();
        book.see(seen(10, 1, "npx x"), 0);
        assert_eq!(book.decide(0, false), []);
        assert_eq!(book.wake_ms(), Some(SETTLE_MS));
        book.see(seen(11, 10, "sh -c x"), 5);
        assert_eq!(book.decide(5, false), []);
        book.see(seen(12, 11, "node x.js"), 10);
        assert_eq!(book.decide(10, false), []);
        assert_eq!(book.wake_ms(), Some(10 + BELOW_MS));
        assert_eq!(book.decide(10 + BELOW_MS, false), [Tell::New(who(12))]);
        let (_, launchers) = book.find(who(12)).unwrap();
        let launchers: Vec<i32> = launchers.iter().map(|seen| seen.who.pid).collect();
        assert_eq!(launchers, [10, 11]);
        // A helper of the server that inherits its pipes is no server.
        book.see(seen(13, 12, "git fetch"), 300);
        assert_eq!(book.decide(9_000, false), []);
        assert_eq!(book.ended(who(13)), []);
        let [Tell::Gone(gone, launchers)] = &book.ended(who(12))[..] else {
            panic!("it is gone")
        };
        assert_eq!((gone.who, launchers.len()), (who(12), 2));
        // Those left behind are not told as servers.
        assert_eq!(book.decide(99_999, false), []);
        // The next server of the same launcher is.
        book.see(seen(14, 11, "node x.js"), 100_000);
        assert_eq!(book.decide(101_000, false), [Tell::New(who(14))]);
        for pid in [14, 11, 10] {
            book.ended(who(pid));
        }
        assert!(book.groups.is_empty() && book.keys.is_empty());
    }

    #[test]
    fn a_slow_launcher_is_told_and_its_server_is_the_same_one() {
        let mut book = Book::default();
        book.see(seen(10, 1, "npx x"), 0);
        assert_eq!(book.decide(SETTLE_MS, false), [Tell::New(who(10))]);
        book.see(seen(12, 10, "node x.js"), 9_000);
        let moved = |from, to| Tell::Moved {
            from: who(from),
            to: who(to),
        };
        assert_eq!(book.decide(9_000, false), []);
        assert_eq!(book.wake_ms(), Some(9_000 + BELOW_MS));
        assert_eq!(book.decide(9_000 + BELOW_MS, false), [moved(10, 12)]);
        assert_eq!(book.wake_ms(), None);
        assert_eq!(book.decide(9_999, false), []);
        assert!(matches!(book.ended(who(12))[..], [Tell::Gone(..)]));

        // One that runs the server in its own place.
        let mut book = Book::default();
        book.see(seen(20, 1, "sh -c x"), 0);
        assert_eq!(book.decide(0, true), [Tell::New(who(20))]);
        assert!(!book.see(seen(20, 1, "node x.js"), 1));
        assert_eq!(book.decide(1, false), [moved(20, 20)]);

        // One that leaves, and its server stays.
        let mut book = Book::default();
        book.see(seen(30, 1, "npx x"), 0);
        book.decide(SETTLE_MS, false);
        book.see(seen(31, 30, "node x.js"), SETTLE_MS + 1);
        assert_eq!(book.ended(who(30)), [moved(30, 31)]);
    }

    #[test]
    fn a_script_is_a_server_and_a_fork_waits_for_its_program() {
        let mut book = Book::default();
        let mut fork = seen(10, 1, "claude");
        fork.forked_only = true;
        book.see(fork, 0);
        assert_eq!(book.decide(1, false), []);
        book.see(seen(10, 1, "bash proxy.sh"), 2);
        assert_eq!(book.decide(2, false), [Tell::New(who(10))]);
        book.see(seen(11, 10, "cat"), 3);
        assert_eq!(book.decide(9_999, false), []);
    }

    #[test]
    fn what_a_script_runs_before_its_server_is_not_told_and_a_failed_start_is() {
        let mut book = Book::default();
        book.see(seen(10, 1, "npx x"), 0);
        book.see(seen(11, 10, "uname -a"), 5);
        assert_eq!(book.decide(100, false), []);
        assert_eq!(book.ended(who(11)), []);
        // The launcher gives up, too: then this was all there was to be seen.
        assert_eq!(book.insist(who(10)), Some(Tell::New(who(10))));
        assert!(matches!(book.ended(who(10))[..], [Tell::Gone(..)]));
    }

    #[test]
    fn everybody_has_a_group_of_its_own_without_a_pipe() {
        let mut book = Book::default();
        for pid in [10, 11] {
            let mut shim = seen(pid, 1, "mainstay run");
            shim.stdin = End::Null;
            book.see(shim, 0);
        }
        assert_eq!(book.decide(0, false).len(), 2);
        assert_eq!(book.told().count(), 2);
    }
}
