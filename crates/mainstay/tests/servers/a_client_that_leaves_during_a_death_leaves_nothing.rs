//! The client closes its pipe or is killed while no server runs: between two generations, in the middle of a replay, or after the
//! server was given up. Its requests are answered, and no process is left.
//! guards: A client that leaves while no server runs gets answers to its requests and leaves no process.

use crate::support::scene::{self, Scene, argv, messages};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use serde_json::json;

/// The option that makes the second generation wait for a file that never appears.
fn stuck(stage: &Stage) -> [String; 2] {
    let never = stage.path("never");
    ["2..".into(), format!("--start-when {}", never.display())]
}

fn state(stage: &Stage, word: &str) {
    until(&format!("the state `{word}`"), || {
        let cards = stage.cards();
        cards.iter().find(|card| card.json["state"] == word)?;
        Some(())
    });
}

/// Kills the servers of a link until it is in this state.
fn bring_to(scene: &Scene, word: &str) {
    let mut generation = 1;
    if word == "waiting" {
        // The first restart is immediate, and each later one waits longer than the last. A slow test must still find the link
        // waiting. The wait must also be longer than a server that does not read may delay the client's EOF.
        while generation < 6 {
            scene.kill(generation);
            generation += 1;
            scene.replayed(generation);
        }
    }
    scene.kill(generation);
    state(&scene.stage, word);
}

fn habits(stage: &Stage, word: &str) -> Vec<String> {
    match word {
        "greeting" => {
            let [range, habit] = stuck(stage);
            vec!["--in".into(), range, habit]
        }
        _ => Vec::new(),
    }
}

fn budget(word: &str) -> [&'static str; 2] {
    let budget = if word == "abandoned" { "1" } else { "100" };
    ["--restart-budget", budget]
}

#[test]
fn a_client_that_closes_its_pipe_during_a_server_death_leaves_nothing() {
    for word in ["waiting", "greeting", "abandoned"] {
        let stage = Stage::new();
        let habits = habits(&stage, word);
        let habits: Vec<&str> = habits.iter().map(String::as_str).collect();
        let argv = argv(&stage, &budget(word), &habits);
        let mut scene = Scene::on(stage, &argv);
        scene.client.wire.initialize().unwrap();
        bring_to(&scene, word);
        let ids = [
            scene.ask_call("look", &json!({})),
            scene.client.wire.ask("tools/list", &json!({})).unwrap(),
        ];
        let (_, rest) = scene.client.finish();
        let rest = messages(&rest);
        let story = || scene.stage.story();
        assert_eq!(rest.len(), 2, "{word}: {rest:?}\n{}", story());
        for id in ids {
            let [answer] = scene::answers(&rest, id)[..] else {
                panic!("{word}: {id}")
            };
            // Between two generations, the next one may have started in time.
            if word != "waiting" {
                assert!(!trouble(answer).is_empty());
            }
        }
        scene.stage.census.assert_empty();
    }
}

#[test]
fn a_client_killed_during_a_server_death_leaves_nothing() {
    for word in ["waiting", "greeting", "abandoned"] {
        let stage = Stage::new();
        let habits = habits(&stage, word);
        let habits: Vec<&str> = habits.iter().map(String::as_str).collect();
        let argv = argv(&stage, &budget(word), &habits);
        let puppet = Puppet::start(&stage, Plan::default(), &argv);
        let kill = |generation: u32| {
            let card = stage.card_that("names that generation", |card| {
                card.json["generation"] == generation
            });
            mainstay_testkit::killers::at_once(&[card.server.unwrap()]);
        };
        kill(1);
        if word == "waiting" {
            for generation in 2..=6 {
                stage.event_that("ready", |event| event["generation"] == generation);
                kill(generation);
            }
        }
        state(&stage, word);
        puppet.kill();
        stage.census.assert_empty();
    }
}
