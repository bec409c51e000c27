//! One cell: one tree under one cause in one tier, with real processes, and the word for how it went.

use std::path::Path;

use mainstay_core::ids::Identity;
use mainstay_core::tier::Tier;
use mainstay_os::identity;
use mainstay_testkit::card::{Card, members};
use mainstay_testkit::client::Client;
use mainstay_testkit::puppet::Puppet;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::Value;

use crate::cause::{Aftermath, Cause};
use crate::tree::Tree;

/// Nobody was left.
pub const ENDED: &str = "✓";
/// The client went on with the same server; then nobody was left.
pub const SAME: &str = "✓ same server";
/// The client went on with a new server; then nobody was left.
pub const NEW: &str = "✓ new server";
/// The next start ended who was left.
pub const SWEPT: &str = "next start";
/// A chain that no sweep can be sure to catch by its environment.
pub const SWEPT_OR_NOT: &str = "next start, or not";

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub tier: Tier,
    pub cause: Cause,
    pub tree: Tree,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the page says.
    pub word: &'static str,
    /// What only the log says: the rungs and how long it took.
    pub rungs: String,
}

impl Cell {
    /// Whether it must not run beside others: it needs the machine, or another cell's start could sweep its leftovers.
    pub fn alone(self) -> bool {
        self.tree == Tree::Hundreds || self.cause.aftermath() == Aftermath::Swept
    }

    /// Plays it. Panics when something is wrong.
    pub fn play(self, mainstay: &Path) -> Outcome {
        let stage = Stage::new();
        let options = [
            "--tier",
            self.tier.word(),
            "--require-tier",
            self.tier.word(),
            "--grace-eof",
            "300ms",
            "--grace-term",
            "300ms",
        ];
        let argv = run(mainstay, &options, stage.unruly(self.tree.habits()));
        let puppet = Puppet::start(&stage, self.cause.plan(), &argv);
        let card = stage.card();
        let old = self.tree_in_place(&stage, &card);
        let puppet = self.cause.strike(puppet, &card);
        let word = match (self.cause.aftermath(), puppet) {
            (Aftermath::Ended, client) => {
                // A client that lives on does so until everybody else is gone.
                stage.census.assert_empty();
                drop(client);
                ENDED
            }
            (Aftermath::SameServer, Some(puppet)) => self.goes_on(&stage, puppet, &old, SAME),
            (Aftermath::NewServer, Some(puppet)) => self.goes_on(&stage, puppet, &old, NEW),
            (Aftermath::Swept, Some(puppet)) => self.swept(&stage, puppet, mainstay),
            (Aftermath::SameServer | Aftermath::NewServer | Aftermath::Swept, None) => {
                unreachable!("these causes leave the client alone")
            }
        };
        stage.census.assert_empty();
        let teardown = stage.events("teardown");
        for event in &teardown {
            assert_eq!(
                event["left"],
                serde_json::json!([]),
                "somebody was left: {event}"
            );
        }
        Outcome {
            word,
            rungs: teardown.last().map(rungs).unwrap_or_default(),
        }
    }

    /// Waits until the whole tree is there and recorded; who it is.
    fn tree_in_place(self, stage: &Stage, card: &Card) -> Vec<Identity> {
        let tree: Vec<Identity> = stage
            .census
            .living()
            .iter()
            // One that has only just executed itself still has the program's name.
            .filter(|stat| stat.comm.contains(stage.census.mark()) || stat.comm == "unruly")
            .map(mainstay_os::census::Stat::who)
            .collect();
        assert!(
            tree.len() >= self.tree.size(),
            "the tree is not complete: {tree:?}"
        );
        if self.tree == Tree::Comets {
            return Vec::new();
        }
        if self.cause.aftermath() != Aftermath::Ended {
            until("the tree is recorded", || {
                let recorded = members(&card.dir);
                tree.iter().all(|who| recorded.contains(who)).then_some(())
            });
        }
        tree
    }

    /// The client asks again and is answered; then it closes.
    fn goes_on(
        self,
        stage: &Stage,
        mut puppet: Puppet,
        old: &[Identity],
        word: &'static str,
    ) -> &'static str {
        let pids = puppet.call_pids();
        let [Some(pid)] = pids[..] else {
            panic!("no answer after the kill: {pids:?}");
        };
        let of_old = old.iter().any(|who| who.pid == pid);
        if word == SAME {
            assert!(
                of_old || self.tree == Tree::Comets,
                "another server answered: {pid}"
            );
        } else {
            assert!(!of_old, "a server of a lost keeper answered: {pid}");
            let left: Vec<_> = old.iter().filter(|who| identity::alive(**who)).collect();
            assert!(left.is_empty(), "of the old tree still alive: {left:?}");
        }
        puppet.close();
        stage.census.assert_empty();
        word
    }

    /// Nobody of ours is left; the next start of anything in the same HOME ends who is.
    fn swept(self, stage: &Stage, puppet: Puppet, mainstay: &Path) -> &'static str {
        if !self.tree.outlives_us() {
            stage.census.assert_empty();
            return ENDED;
        }
        assert!(
            !stage.census.living().is_empty(),
            "nobody is left, so this proves nothing"
        );
        let mut next = Client::open(
            stage,
            &run(
                mainstay,
                &["--tier", self.tier.word()],
                stage.unruly::<&str>(&[]),
            ),
        );
        // By its environment a fork-and-exit chain is caught or not; by its leaf it is.
        if self.tree == Tree::Comets && self.tier == Tier::Subreaper {
            next.finish();
            drop(puppet);
            return SWEPT_OR_NOT;
        }
        let sweep = stage.event("sweep");
        assert_eq!(
            sweep["left"],
            serde_json::json!([]),
            "somebody was left: {sweep}"
        );
        next.finish();
        drop(puppet);
        SWEPT
    }
}

fn rungs(teardown: &Value) -> String {
    let rungs: Vec<&str> = teardown["rungs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    format!(
        "{} {} ms, {} ended",
        rungs.join("+"),
        teardown["ms"],
        teardown["ended"]
    )
}
