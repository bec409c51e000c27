//! Whatever token a client uses as an id comes back as it was written, from the server, from the next one, and from us.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use scene::Scene;
use serde_json::json;

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

fn ask(scene: &Scene, token: &str, rest: &str) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},{rest}}}\n");
    scene.client.wire.send_bytes(line.as_bytes()).unwrap();
}

fn answer(scene: &mut Scene) -> String {
    let line = scene.client.wire.line().unwrap();
    String::from_utf8(line.expect("an answer")).unwrap()
}

#[test]
fn from_us_at_a_death() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    let call = r#""method":"tools/call","params":{"name":"add"}"#;
    scene.mute();
    for token in TOKENS {
        ask(&scene, token, call);
    }
    scene.sync();
    scene.kill(1);
    for token in TOKENS {
        let line = answer(&mut scene);
        let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},\"result\":");
        assert!(line.starts_with(&start), "{token}: {line}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn from_the_next_generation() {
    // What the unruly server itself writes as it read it.
    const KEPT: [&str; 4] = ["1.0", "\"1\"", "1152921504606846976", "\"\""];
    let mut scene = Scene::open(&[], &[]);
    scene.mute();
    for token in KEPT {
        ask(
            &scene,
            token,
            r#""method":"resources/read","params":{"uri":"a:b"}"#,
        );
    }
    scene.sync();
    scene.kill(1);
    let mut seen: Vec<String> = KEPT.iter().map(|_| answer(&mut scene)).collect();
    for token in KEPT {
        let id = format!("\"id\":{token},");
        let at = seen.iter().position(|line| line.contains(&id));
        let line = seen.remove(at.unwrap_or_else(|| panic!("{token}: {seen:?}")));
        assert!(line.contains("generation 2"), "{line}");
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}
