//! A link is listed a moment after its server has started. From then on it answers commands, and a command that names it earlier
//! waits.
//! guards: A listed link answers at once, and a command that names it earlier waits for it.

use std::fs;
use std::io::{BufRead, BufReader};

use crate::support::scene::Scene;
use crate::support::tapping::saying;
use mainstay_testkit::wait::until;
use serde_json::Value;

/// Each start is another race between the keeper and a command.
const STARTS: usize = 10;

#[test]
fn a_link_answers_as_soon_as_its_card_exists() {
    for _ in 0..STARTS {
        let scene = Scene::open(&[], &[]);
        // Asks right after the first look that finds the card.
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
fn a_command_waits_for_the_card_of_a_new_link() {
    for _ in 0..STARTS {
        let scene = Scene::open(&[], &[]);
        let stopped = scene.mainstay(&["stop", "unruly"]);
        assert!(stopped.status.success(), "{stopped:?}");
        let Scene { mut client, stage } = scene;
        client.finish();
        stage.census.assert_empty();
    }
}
