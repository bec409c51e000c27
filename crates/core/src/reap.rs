//! Whether a server that mainstay did not start is an orphan.
//!
//! [`judge`] gets the facts about all servers of the user at one moment and returns one verdict for each. It knows no file, no process and no
//! clock. A server is an orphan only if the kernel proved that no process outside of orphans holds the client's ends of its wire, and nothing
//! forbids ending it. Whatever is not proven is [`Verdict::Unsure`], with all reasons.
//!
//! Servers may hold each other's ends, because clients leak descriptors into the servers that they start later. So the verdict about one server
//! depends on the others: the orphans are the largest set of servers whose ends are held inside of the set only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mainstay_protocol::ids::Identity;
use serde::Serialize;

/// The client's end of one direction of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// No process holds it: the kernel says so.
    Gone,
    /// Only processes of the server's own tree hold it.
    OwnTree,
    /// These processes outside of the tree hold it.
    Held(Vec<Identity>),
    /// It is held, but it cannot be told by which process, or for which: by one whose descriptors we may not read, or by one of the tree that may
    /// pass the bytes on.
    Hidden,
}

/// The living process that has both ends of a server's wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The process.
    pub who: Identity,
    /// Its terminal is deleted, and its standard descriptors all lead there.
    pub lost_terminal: bool,
    /// It used no CPU while it was looked at.
    pub idle: bool,
}

/// What is known about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The first process of the server: the launcher, if there is one.
    pub server: Identity,
    /// All its processes.
    pub tree: Vec<Identity>,
    /// The command that makes two servers of one client equal.
    pub command: Vec<String>,
    /// Where its requests come from.
    pub input: FarEnd,
    /// Where its answers go.
    pub output: FarEnd,
    /// Its program shows that it is an MCP server.
    pub speaks: bool,
    /// How long it has run.
    pub age_ms: u64,
    /// What forbids ending it.
    pub shields: Vec<Block>,
    /// The client, if one is there.
    pub client: Option<Client>,
}

/// The verdict about one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its client is gone: it may be ended.
    Orphan,
    /// Its client runs without its terminal, and is idle.
    StaleClient,
    /// Its client has a newer server with the same command.
    Duplicate,
    /// A living process uses it.
    InUse,
    /// It is not proven to be any of these.
    Unsure,
}

impl Verdict {
    /// The verdict as people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::StaleClient => "stale client",
            Self::Duplicate => "duplicate",
            Self::InUse => "in use",
            Self::Unsure => "unsure",
        }
    }
}

/// A reason why a server is not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// This process holds one of the client's ends, but not both.
    HeldBy(Identity),
    /// It cannot be told which process uses its pipes.
    Hidden,
    /// The pipes may be those of its own children.
    OwnPipes,
    /// It listens on a port or a socket, so other processes may use it.
    Listens,
    /// Nothing shows that it speaks MCP.
    NoSign,
    /// It started only so long ago.
    Young(u64),
    /// It is, or has started, the process that asks.
    Caller,
    /// It belongs to this systemd service.
    Service(String),
    /// It runs in a container.
    Container,
    /// One of its processes is this client.
    IsClient(String),
    /// It is itself the client of this server.
    ClientOf(Identity),
    /// It belongs to mainstay.
    Ours,
    /// The config file protects it with this word.
    Protected(String),
    /// Its client has lost its terminal, but uses the CPU.
    Working(Identity),
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldBy(who) => write!(f, "process {} holds one end of its pipes", who.pid),
            Self::Hidden => f.write_str("it cannot be told which process uses its pipes"),
            Self::OwnPipes => f.write_str("its pipes may be those of its own children"),
            Self::Listens => f.write_str("it listens on a port or socket: others may use it"),
            Self::NoSign => f.write_str("nothing shows that it is an MCP server"),
            Self::Young(ms) => write!(f, "it started {} s ago", ms / 1_000),
            Self::Caller => f.write_str("this command runs below it"),
            Self::Service(name) => write!(f, "it belongs to the service {name}"),
            Self::Container => f.write_str("it runs in a container"),
            Self::IsClient(name) => write!(f, "one of its processes is a client: {name}"),
            Self::ClientOf(who) => write!(f, "it is the client of the server {}", who.pid),
            Self::Ours => f.write_str("it belongs to mainstay"),
            Self::Protected(word) => write!(f, "the config file protects `{word}`"),
            Self::Working(who) => write!(
                f,
                "its client {} has lost its terminal, but is working",
                who.pid
            ),
        }
    }
}

/// The verdict, with the reasons why it is not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is spared; empty for an orphan.
    pub blocks: Vec<Block>,
}

/// One verdict for each server, in the same order. `min_age_ms`: a younger server is no orphan yet.
pub fn judge(all: &[Facts], min_age_ms: u64) -> Vec<Judged> {
    let orphans = orphans(all, min_age_ms);
    let newest = newest(all);
    let verdicts = all.iter().enumerate().map(|(place, facts)| {
        if orphans.contains(&place) {
            return Judged {
                verdict: Verdict::Orphan,
                blocks: Vec::new(),
            };
        }
        match &facts.client {
            Some(client) => with_client(facts, client, &newest),
            None => Judged {
                verdict: Verdict::Unsure,
                blocks: blocks(place, all, &orphans, min_age_ms),
            },
        }
    });
    verdicts.collect()
}

fn with_client(facts: &Facts, client: &Client, newest: &BTreeMap<Key<'_>, Identity>) -> Judged {
    let (verdict, block) = match (client.lost_terminal, client.idle) {
        (true, true) => (Verdict::StaleClient, None),
        (true, false) => (Verdict::Unsure, Some(Block::Working(client.who))),
        (false, _) if newest.get(&key(facts, client)) != Some(&facts.server) => {
            (Verdict::Duplicate, None)
        }
        (false, _) => (Verdict::InUse, None),
    };
    let mut blocks = facts.shields.clone();
    blocks.extend(block);
    Judged { verdict, blocks }
}

type Key<'a> = (Identity, &'a [String]);

fn key<'a>(facts: &'a Facts, client: &Client) -> Key<'a> {
    (client.who, &facts.command)
}

/// Of equal servers of one client, the one that started last.
fn newest(all: &[Facts]) -> BTreeMap<Key<'_>, Identity> {
    let mut newest: BTreeMap<Key<'_>, Identity> = BTreeMap::new();
    let order = |who: Identity| (who.start, who.pid);
    for facts in all {
        if let Some(client) = &facts.client {
            let entry = newest.entry(key(facts, client)).or_insert(facts.server);
            if order(facts.server) > order(*entry) {
                *entry = facts.server;
            }
        }
    }
    newest
}

/// The largest set of servers that nothing forbids to end and whose ends are held inside of the set only.
fn orphans(all: &[Facts], min_age_ms: u64) -> BTreeSet<usize> {
    let none = BTreeSet::new();
    let may_be = |&place: &usize| {
        let blocks = blocks(place, all, &none, min_age_ms);
        // The holders are judged below: they may be orphans themselves.
        blocks.iter().all(|block| matches!(block, Block::HeldBy(_)))
    };
    let mut found: BTreeSet<usize> = (0..all.len()).filter(may_be).collect();
    loop {
        let inside = processes(all, &found);
        let kept: BTreeSet<usize> = found
            .iter()
            .copied()
            .filter(|&place| outside(&all[place], &inside).is_empty())
            .collect();
        if kept.len() == found.len() {
            return kept;
        }
        found = kept;
    }
}

fn processes(all: &[Facts], places: &BTreeSet<usize>) -> BTreeSet<Identity> {
    let trees = places.iter().flat_map(|&place| &all[place].tree);
    trees.copied().collect()
}

/// The holders of its ends that are not in this set.
fn outside(facts: &Facts, inside: &BTreeSet<Identity>) -> Vec<Identity> {
    let ends = [&facts.input, &facts.output].into_iter();
    let mut holders: Vec<Identity> = ends
        .flat_map(|end| match end {
            FarEnd::Held(by) => by.as_slice(),
            FarEnd::Gone | FarEnd::OwnTree | FarEnd::Hidden => &[],
        })
        .copied()
        .filter(|who| !inside.contains(who))
        .collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Why a server is not an orphan, all reasons.
fn blocks(place: usize, all: &[Facts], orphans: &BTreeSet<usize>, min_age_ms: u64) -> Vec<Block> {
    let facts = &all[place];
    let mut blocks = facts.shields.clone();
    if !facts.speaks {
        blocks.push(Block::NoSign);
    }
    if facts.input == FarEnd::Hidden || facts.output == FarEnd::Hidden {
        blocks.push(Block::Hidden);
    }
    if facts.age_ms < min_age_ms {
        blocks.push(Block::Young(facts.age_ms));
    }
    blocks.extend(served(facts, all).map(Block::ClientOf));
    let holders = outside(facts, &processes(all, orphans));
    blocks.extend(holders.into_iter().map(Block::HeldBy));
    blocks
}

/// A server that this one is the client of. A client is older than its servers; a younger holder got the end by a leak.
fn served(facts: &Facts, all: &[Facts]) -> Option<Identity> {
    let serves = |other: &&Facts| {
        other.speaks
            && other.server != facts.server
            && [&other.input, &other.output].iter().all(|end| match end {
                FarEnd::Held(by) => by
                    .iter()
                    .any(|who| facts.tree.contains(who) && who.start <= other.server.start),
                FarEnd::Gone | FarEnd::OwnTree | FarEnd::Hidden => false,
            })
    };
    all.iter().find(serves).map(|other| other.server)
}

#[cfg(test)]
mod tests {
    //! guards: A server is an orphan only if no process outside of orphans holds the client's ends of its wire, and nothing forbids ending it.

    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn who(pid: i32) -> Identity {
        Identity {
            pid,
            start: pid as u64,
        }
    }

    /// A server whose client was killed.
    fn gone(pid: i32) -> Facts {
        Facts {
            server: who(pid),
            tree: vec![who(pid)],
            command: vec!["server".into()],
            input: FarEnd::Gone,
            output: FarEnd::Gone,
            speaks: true,
            age_ms: 60_000,
            shields: Vec::new(),
            client: None,
        }
    }

    /// A server of this living client.
    fn used(pid: i32, client: i32) -> Facts {
        Facts {
            input: FarEnd::Held(vec![who(client)]),
            output: FarEnd::Held(vec![who(client)]),
            client: Some(Client {
                who: who(client),
                lost_terminal: false,
                idle: false,
            }),
            ..gone(pid)
        }
    }

    fn verdicts(all: &[Facts]) -> Vec<Verdict> {
        let judged = judge(all, 10_000);
        judged.into_iter().map(|judged| judged.verdict).collect()
    }

    fn one(facts: Facts) -> (Verdict, Vec<Block>) {
        let judged = judge(&[facts], 10_000).remove(0);
        (judged.verdict, judged.blocks)
    }

    #[test]
    fn an_orphan_has_lost_both_ends() {
        for (input, output, verdict) in [
            (FarEnd::Gone, FarEnd::Gone, Verdict::Orphan),
            (FarEnd::OwnTree, FarEnd::Gone, Verdict::Orphan),
            (FarEnd::OwnTree, FarEnd::OwnTree, Verdict::Orphan),
            (FarEnd::Gone, FarEnd::Hidden, Verdict::Unsure),
            (FarEnd::Hidden, FarEnd::Gone, Verdict::Unsure),
            (FarEnd::Gone, FarEnd::Held(vec![who(7)]), Verdict::Unsure),
            (FarEnd::Held(vec![who(7)]), FarEnd::Gone, Verdict::Unsure),
        ] {
            let facts = Facts {
                input: input.clone(),
                output: output.clone(),
                ..gone(10)
            };
            assert_eq!(one(facts).0, verdict, "{input:?} {output:?}");
        }
    }

    #[test]
    fn every_shield_spares_and_is_told() {
        for shield in [
            Block::Caller,
            Block::Service("agent.service".into()),
            Block::Container,
            Block::OwnPipes,
            Block::Listens,
            Block::IsClient("Codex".into()),
            Block::Ours,
            Block::Protected("files".into()),
        ] {
            let facts = Facts {
                shields: vec![shield.clone()],
                ..gone(10)
            };
            assert_eq!(one(facts), (Verdict::Unsure, vec![shield]));
        }
        let silent = Facts {
            speaks: false,
            ..gone(10)
        };
        assert_eq!(one(silent), (Verdict::Unsure, vec![Block::NoSign]));
        let young = Facts {
            age_ms: 9_999,
            ..gone(10)
        };
        assert_eq!(one(young), (Verdict::Unsure, vec![Block::Young(9_999)]));
    }

    #[test]
    fn all_reasons_are_told() {
        let facts = Facts {
            speaks: false,
            input: FarEnd::Held(vec![who(7)]),
            output: FarEnd::Hidden,
            shields: vec![Block::Container],
            ..gone(10)
        };
        let told: Vec<_> = one(facts).1.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "it runs in a container",
                "nothing shows that it is an MCP server",
                "it cannot be told which process uses its pipes",
                "process 7 holds one end of its pipes",
            ]
        );
    }

    #[test]
    fn servers_that_hold_only_each_others_ends_are_orphans() {
        // The client leaked its ends of 10 into 11, and its ends of 11 into 12.
        let leaked = |pid, into: i32| Facts {
            input: FarEnd::Held(vec![who(into)]),
            output: FarEnd::Held(vec![who(into)]),
            ..gone(pid)
        };
        let all = [leaked(10, 11), leaked(11, 12), gone(12)];
        assert_eq!(verdicts(&all), [Verdict::Orphan; 3]);
        // The last one is in use: then the others are reachable from a living process.
        let all = [leaked(10, 11), leaked(11, 12), used(12, 1)];
        assert_eq!(
            verdicts(&all),
            [Verdict::Unsure, Verdict::Unsure, Verdict::InUse]
        );
        // The last one is protected, so it is no orphan, and its word counts.
        let protected = Facts {
            shields: vec![Block::Container],
            ..gone(12)
        };
        let all = [leaked(10, 11), leaked(11, 12), protected];
        assert_eq!(verdicts(&all), [Verdict::Unsure; 3]);
    }

    #[test]
    fn an_end_that_leaked_into_another_program_spares() {
        let leaked = Facts {
            input: FarEnd::Held(vec![who(50)]),
            ..gone(10)
        };
        assert_eq!(one(leaked), (Verdict::Unsure, vec![Block::HeldBy(who(50))]));
    }

    #[test]
    fn a_server_that_is_a_client_is_spared() {
        let gateway = gone(10);
        let behind = Facts {
            client: None,
            ..used(11, 10)
        };
        let judged = judge(&[gateway, behind], 10_000);
        assert_eq!(judged[0].verdict, Verdict::Unsure);
        assert_eq!(judged[0].blocks, [Block::ClientOf(who(11))]);
        assert_eq!(judged[1].verdict, Verdict::Unsure);
    }

    #[test]
    fn of_equal_servers_of_one_client_the_newest_is_in_use() {
        let other = Facts {
            command: vec!["other".into()],
            ..used(13, 1)
        };
        let all = [used(12, 1), used(10, 1), used(11, 2), other];
        assert_eq!(
            verdicts(&all),
            [
                Verdict::InUse,
                Verdict::Duplicate,
                Verdict::InUse,
                Verdict::InUse
            ]
        );
    }

    #[test]
    fn a_client_without_its_terminal_is_stale_if_it_is_idle() {
        for (lost_terminal, idle, verdict) in [
            (true, true, Verdict::StaleClient),
            (true, false, Verdict::Unsure),
            (false, true, Verdict::InUse),
        ] {
            let mut facts = used(10, 1);
            facts.client = Some(Client {
                who: who(1),
                lost_terminal,
                idle,
            });
            assert_eq!(one(facts).0, verdict, "{lost_terminal} {idle}");
        }
    }
}
