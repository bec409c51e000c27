//! One cell: one tree under one cause in one tier, with real processes, and the word for its outcome.

use std::path::Path;

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::tier::Tier;
use mainstay_testkit::card::{Card, members};
use mainstay_testkit::client::Client;
use mainstay_testkit::puppet::Puppet;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

use crate::cause::{Aftermath, Cause};
use crate::tree::Tree;

/// No process was left.
pub const ENDED: &str = "✓";
/// The client went on with the same server. Then no process was left.
pub const SAME: &str = "✓ same server";
/// The client went on with a new server. Then no process was left.
pub const NEW: &str = "✓ new server";
/// The next start ended the processes that were left.
pub const SWEPT: &str = "next start";
/// A chain that a sweep may or may not catch by its environment.
pub const SWEPT_OR_NOT: &str = "next start, or not";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub tier: Tier,
    pub cause: Cause,
    pub tree: Tree,
}

/// The outcome of a cell.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The text for the page.
    pub word: String,
    /// The text for the log only: the steps of the ladder and how long it took.
    pub rungs: String,
}

impl Cell {
    /// True if it must not run beside others: it needs the machine, or another cell's start could sweep its leftovers.
    pub fn alone(self) -> bool {
        self.tree == Tree::Hundreds || self.cause.aftermath() == Aftermath::Swept
    }

    /// Plays the cell. Panics if something is wrong.
    pub fn play(self, mainstay: &Path) -> Outcome {
        let stage = if self.cause.aftermath() == Aftermath::Swept {
            Stage::alone()
        } else {
            Stage::new()
        };
        let options = [
            "--tier",
            self.tier.word(),
            "--require-tier",
            self.tier.word(),
            "--grace-eof",
            "300ms",
            "--grace-term",
            "300ms",
            "--linger",
            self.cause.linger(),
        ];
        let argv = run(
            mainstay,
            &options,
            stage.unruly(self.tree.habits(self.may_stay())),
        );
        let mut puppet = Puppet::start(&stage, self.cause.plan(), &argv);
        let card = stage.card();
        let old = Old {
            server: puppet.call_pids(),
            tree: self.tree_in_place(&stage, &card),
            chains: self.tree == Tree::Comets,
        };
        let puppet = self.cause.strike(puppet, &card);
        let word = match (self.cause.aftermath(), puppet) {
            (Aftermath::Ended, client) => {
                // A client that lives on does so until all other processes are gone.
                stage.census.assert_empty();
                drop(client);
                ENDED
            }
            (Aftermath::SameServer, Some(puppet)) => goes_on(&stage, puppet, &old, SAME),
            (Aftermath::NewServer, Some(puppet)) => goes_on(&stage, puppet, &old, NEW),
            (Aftermath::Swept, Some(puppet)) => self.swept(&stage, puppet, &old, mainstay),
            (Aftermath::SameServer | Aftermath::NewServer | Aftermath::Swept, None) => {
                unreachable!("these causes leave the client alone")
            }
        };
        stage.census.assert_empty();
        Outcome {
            word: word.to_owned(),
            rungs: self.told(&stage),
        }
    }

    /// Checks the teardown events: one for each keeper that survived to take its tree down. Returns the steps of the last one.
    fn told(self, stage: &Stage) -> String {
        let teardowns = stage.events("teardown");
        // If all our processes are killed and no process outlives us, there is no next start either.
        let due = usize::from(self.cause.aftermath() != Aftermath::Swept || self.outlives_us());
        assert_eq!(teardowns.len(), due, "teardowns told: {teardowns:?}");
        for teardown in &teardowns {
            let left = &teardown["left"];
            assert_eq!(left, &json!([]), "a process was left: {teardown}");
            let why = serde_json::from_value(teardown["cause"].clone());
            assert!(
                why.is_ok_and(|why| self.cause.tells(&why)),
                "another cause: {teardown}"
            );
        }
        teardowns.last().map(rungs).unwrap_or_default()
    }

    /// Waits until the whole tree exists and is recorded. Returns its processes.
    fn tree_in_place(self, stage: &Stage, card: &Card) -> Vec<Identity> {
        let tree: Vec<Identity> = stage
            .census
            .living()
            .iter()
            // A process that has only just executed itself still has the program's name.
            .filter(|stat| stat.comm.contains(stage.census.mark()) || stat.comm == "unruly")
            .map(mainstay_os::census::Stat::who)
            .collect();
        assert!(
            tree.len() >= self.tree.size(),
            "the tree is not complete: {tree:?}"
        );
        let tree = if self.tree == Tree::Comets {
            // The processes of a chain seen above have exited by now. The server stays.
            until("the chains fly", || chains(stage, card).then_some(()));
            card.server.into_iter().collect()
        } else {
            tree
        };
        if self.cause.aftermath() != Aftermath::Ended {
            until("the tree is recorded", || {
                let recorded = members(&card.dir);
                tree.iter().all(|who| recorded.contains(who)).then_some(())
            });
        }
        tree
    }

    /// None of our processes is left. The next start of any server in the same HOME ends the rest.
    fn swept(self, stage: &Stage, puppet: Puppet, old: &Old, mainstay: &Path) -> &'static str {
        if !self.outlives_us() {
            stage.census.assert_empty();
            return ENDED;
        }
        assert!(
            !stage.census.living().is_empty(),
            "no process is left, so this proves nothing (or another start by this user has swept)"
        );
        let options = ["--tier", self.tier.word()];
        let argv = run(mainstay, &options, stage.unruly::<&str>(&[]));
        let mut next = Client::open(stage, &argv);
        // For a fork-and-exit chain, only the event shows it.
        let sure = !self.may_stay();
        if sure && self.tree == Tree::Comets {
            stage.event("leftovers_ended");
        }
        // The lock keeps other tests away, but not a mainstay in daily use, whose start may be "the next start". So the end of
        // the left processes counts here. `sweep_spares_other_processes` checks the event.
        until("the next start ends who is left", || {
            old.tree
                .iter()
                .all(|who| !identity::alive(*who))
                .then_some(())
        });
        next.finish();
        drop(puppet);
        for sweep in stage.events("leftovers_ended") {
            let left = &sweep["left"];
            assert_eq!(left, &json!([]), "a process was left: {sweep}");
        }
        if sure { SWEPT } else { SWEPT_OR_NOT }
    }

    /// True if not even the next start is sure to end all processes: a fork-and-exit chain may or may not be caught by its
    /// environment. By its cgroup it always is.
    fn may_stay(self) -> bool {
        self.cause.aftermath() == Aftermath::Swept
            && self.tree == Tree::Comets
            && self.tier == Tier::Subreaper
    }

    /// True if a process lives on when none of ours does. Only in these two tiers a process can outlive us.
    fn outlives_us(self) -> bool {
        match self.tier {
            Tier::Subreaper | Tier::Cgroup => self.tree.outlives_us(),
            Tier::Scope | Tier::Pidns => false,
        }
    }
}

/// The state before the kill.
struct Old {
    /// The pid that the server itself reports.
    server: Vec<Option<i32>>,
    /// The tree as seen from here, without chains.
    tree: Vec<Identity>,
    /// Whether it had fork-and-exit chains. The next generation has none.
    chains: bool,
}

/// Whether a fork-and-exit chain runs beside the server that the card names.
fn chains(stage: &Stage, card: &Card) -> bool {
    let server: Vec<Identity> = card.server.into_iter().collect();
    !stage.census.members_beside(&server).is_empty()
}

/// The client sends another request, gets an answer, and closes.
fn goes_on(stage: &Stage, mut puppet: Puppet, old: &Old, word: &'static str) -> &'static str {
    let pids = puppet.call_pids();
    assert!(matches!(pids[..], [Some(_)]), "no answer after the kill");
    let alive = |who: &&Identity| identity::alive(**who);
    if word == SAME {
        assert_eq!(pids, old.server, "another server answered");
        assert!(
            old.tree.iter().all(|who| alive(&who)),
            "the tree was touched"
        );
        assert!(
            !old.chains || chains(stage, &stage.card()),
            "the chains were ended"
        );
    } else {
        // In a PID namespace a new server may have the old one's pid, so the test checks which processes are alive.
        let left: Vec<_> = old.tree.iter().filter(alive).collect();
        assert!(left.is_empty(), "of the old tree still alive: {left:?}");
        let next = stage.card_that("names the next server", |card| {
            card.server.is_some_and(|who| !old.tree.contains(&who))
        });
        assert!(!old.chains || !chains(stage, &next), "the chains fly on");
    }
    puppet.close();
    stage.census.assert_empty();
    word
}

fn rungs(teardown: &Value) -> String {
    let rungs: Vec<&str> = teardown["rungs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    format!(
        "{}: {} {} ms, {} ended",
        teardown["cause"],
        rungs.join("+"),
        teardown["ms"],
        teardown["ended"]
    )
}
