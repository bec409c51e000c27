//! A link is listed a moment after its server has started. From then on it can be asked, and a command that names it earlier waits.

mod scene;
mod tapping;

use std::fs;
use std::io::{BufRead, BufReader};

use mainstay_testkit::wait::until;
use scene::Scene;
use serde_json::Value;
use tapping::saying;

/// Each start is another race between the keeper and a visitor.
const STARTS: usize = 10;

#[test]
fn as_soon_as_its_card_is_there() {
    for _ in 0..STARTS {
        let scene = Scene::open(&[], &[]);
        // No longer than until the first look that finds the card.
        let run = scene.stage.path(".local/state/mainstay/run");
        let link = until("a card", || {
            let mut links = fs::read_dir(&run).ok()?.flatten();
            links.find(|link| link.path().join("card.json").exists())
        });
        let mut answer = String::new();
        BufReader::new(saying(&link.path(), b"{\"do\":\"status\"}\n"))
            .read_line(&mut answer)
            .unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        scene.finish();
    }
}

#[test]
fn by_a_command_that_comes_before_its_card() {
    for _ in 0..STARTS {
        let scene = Scene::open(&[], &[]);
        let stopped = scene.mainstay(&["stop", "unruly"]);
        assert!(stopped.status.success(), "{stopped:?}");
        let Scene { mut client, stage } = scene;
        client.finish();
        stage.census.assert_empty();
    }
}
