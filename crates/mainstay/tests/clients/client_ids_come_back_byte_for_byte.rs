//! Any id that a client uses comes back byte for byte as it was written, in an answer of the server, of the next generation, and
//! of ours.
//! guards: The ids of a client come back byte for byte, whichever process answers.

use crate::support::scene::Scene;
use mainstay_testkit::killers;
use serde_json::{Value, json};

const TOKENS: [&str; 8] = [
    "1.0",
    "\"1\"",
    "1152921504606846976",
    "-0",
    "1e3",
    "\"\\u0061b\\/\"",
    "\"\"",
    "9007199254740993.0",
];

/// `TOKENS`, and some that are too long for the table of requests in flight.
fn tokens() -> Vec<String> {
    let mut all: Vec<String> = TOKENS.iter().map(ToString::to_string).collect();
    all.extend(long_tokens());
    all
}

fn long_tokens() -> [String; 4] {
    [
        format!("\"{}\"", "x".repeat(103)),
        "7".repeat(120),
        format!("\"{}\"", "\\u00e4\\/".repeat(40)),
        format!("\"{}\"", "y".repeat(4_094)),
    ]
}

fn ask(scene: &Scene, token: &str, rest: &str) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},{rest}}}\n");
    scene.client.wire.send_bytes(line.as_bytes()).unwrap();
}

/// The next answer. The successor of a killed keeper may write a newline first, in case a line was torn.
fn answer(scene: &mut Scene) -> String {
    loop {
        let line = scene.client.wire.line().unwrap().expect("an answer");
        if !line.trim_ascii().is_empty() {
            return String::from_utf8(line).unwrap();
        }
    }
}

#[test]
fn ids_are_unchanged_in_our_own_answers_after_a_death() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    let call = r#""method":"tools/call","params":{"name":"add"}"#;
    scene.mute();
    for token in tokens() {
        ask(&scene, &token, call);
    }
    scene.sync();
    scene.kill(1);
    for token in tokens() {
        let line = answer(&mut scene);
        let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},\"result\":");
        assert!(line.starts_with(&start), "{token}: {line}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn ids_are_unchanged_in_answers_of_the_next_generation() {
    // Ids that the unruly server itself writes as it read them.
    let kept = ["1.0", "\"1\"", "1152921504606846976", "\"\""].map(String::from);
    let kept = [&kept[..], &long_tokens()].concat();
    let mut scene = Scene::open(&[], &[]);
    scene.mute();
    for token in &kept {
        ask(
            &scene,
            token,
            r#""method":"resources/read","params":{"uri":"a:b"}"#,
        );
    }
    scene.sync();
    scene.kill(1);
    let mut seen: Vec<String> = kept.iter().map(|_| answer(&mut scene)).collect();
    for token in kept {
        let id = format!("\"id\":{token},");
        let at = seen.iter().position(|line| line.contains(&id));
        let line = seen.remove(at.unwrap_or_else(|| panic!("{token}: {seen:?}")));
        assert!(line.contains("generation 2"), "{line}");
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn ids_of_any_length_are_unchanged_in_answers_of_the_server() {
    let mut scene = Scene::open(&[], &[]);
    let call = r#""method":"tools/call","params":{"name":"look","arguments":{},"_meta":{"progressToken":1}}"#;
    for token in long_tokens() {
        ask(&scene, &token, call);
        let line = answer(&mut scene);
        assert!(line.contains(&format!("\"id\":{token}")), "{line}");
        assert!(line.contains("generation"), "{line}");
    }
    // An id of 5,000 bytes is refused at once, in an answer with the same id.
    let absurd = format!("\"{}\"", "z".repeat(5_000));
    ask(&scene, &absurd, call);
    let line = answer(&mut scene);
    assert!(
        line.contains(&absurd) && line.contains("too long"),
        "{line}"
    );
    // A later request with the same id is a new request.
    let token = &long_tokens()[0];
    scene.mute();
    ask(&scene, token, call);
    let cancel = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{token}}}}}"#
    );
    scene
        .client
        .wire
        .send_bytes(format!("{cancel}\n").as_bytes())
        .unwrap();
    scene.sync();
    scene.kill(1);
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0], "it was cancelled");
}

#[test]
fn ids_are_unchanged_in_answers_of_a_killed_keepers_successor() {
    let mut scene = Scene::open(&[], &[]);
    let call = r#""method":"tools/call","params":{"name":"add"}"#;
    scene.mute();
    for token in long_tokens() {
        ask(&scene, &token, call);
    }
    scene.sync();
    killers::at_once(&[scene.stage.card().keeper.unwrap()]);
    for token in long_tokens() {
        let line = answer(&mut scene);
        assert!(line.contains(&format!("\"id\":{token},")), "{line}");
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer["result"]["isError"] == true, "{answer}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
