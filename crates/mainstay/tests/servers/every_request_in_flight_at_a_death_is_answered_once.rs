//! Hundreds of requests are in flight when the server is killed. Each gets exactly one answer: from the next generation if it is
//! safe to send it again, otherwise from us. Requests that arrive during the death are served as usual.
//! guards: Every request in flight at a death gets exactly one answer.

use crate::support::scene::{Scene, answers, content};
use mainstay_testkit::wire::trouble;
use serde_json::{Value, json};

/// Methods, their parameters, and whether they may be sent again.
const KINDS: [(&str, &str, bool); 8] = [
    ("tools/call", r#"{"name":"look","arguments":{}}"#, false),
    ("tools/list", "{}", true),
    ("tools/call", r#"{"name":"add","arguments":{}}"#, false),
    ("ping", "{}", true),
    ("resources/read", r#"{"uri":"file:///a"}"#, true),
    ("custom/method", "{}", false),
    ("logging/setLevel", r#"{"level":"info"}"#, true),
    ("prompts/list", "{}", true),
];

fn ask(scene: &mut Scene, n: usize) -> i64 {
    let (method, params, _) = KINDS[n % KINDS.len()];
    let params: Value = serde_json::from_str(params).unwrap();
    scene.client.wire.ask(method, &params).unwrap()
}

#[test]
fn hundreds_of_requests_in_flight_at_a_death_are_answered_once() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    for generation in 1..=3 {
        scene.mute();
        let before: Vec<i64> = (0..320).map(|n| ask(&mut scene, n)).collect();
        scene.sync();
        scene.kill(generation);
        // Requests from here on go to the next generation.
        scene.exit(generation);
        let after: Vec<i64> = (0..320).map(|n| ask(&mut scene, n)).collect();
        let ids: Vec<i64> = before.iter().chain(&after).copied().collect();
        let all = scene.read_answers(&ids);
        assert_eq!(all.len(), ids.len(), "one answer each, and nothing else");
        for (n, id) in before.iter().enumerate() {
            let (method, _, again) = KINDS[n % KINDS.len()];
            let [answer] = answers(&all, *id)[..] else {
                panic!("{id}: not one answer")
            };
            if again {
                assert!(answer.get("result").is_some(), "{method}: {answer}");
            } else {
                let words = trouble(answer);
                assert!(words.contains("(SIGKILL)"), "{method}: {words}");
                assert!(
                    words.contains("may or may not have taken effect"),
                    "{words}"
                );
            }
        }
        for (n, id) in after.iter().enumerate() {
            let (method, params, _) = KINDS[n % KINDS.len()];
            let [answer] = answers(&all, *id)[..] else {
                panic!("{id}: not one answer")
            };
            match method {
                "tools/call" => {
                    let generation = generation + 1;
                    assert_eq!(content(answer)["generation"], generation, "{params}");
                }
                "custom/method" => assert_eq!(answer["error"]["code"], -32601),
                _ => assert!(answer.get("result").is_some(), "{method}: {answer}"),
            }
        }
        let exit = scene.exit(generation);
        assert_eq!(exit["in_flight"], 320);
        assert_eq!(exit["kept"], 200);
        assert_eq!(scene.replayed(generation + 1)["resent"], 200);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn members_of_a_batch_in_flight_at_a_death_are_answered_once() {
    let mut scene = Scene::open(&[], &[]);
    scene.mute();
    let batch: Vec<Value> = ["tools/list", "custom/method", "ping"]
        .iter()
        .zip(100..)
        .map(|(method, id)| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}))
        .collect();
    scene.client.wire.send(&json!(batch)).unwrap();
    scene.sync();
    scene.kill(1);
    let all = scene.read_answers(&[100, 101, 102]);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_cancelled_request_gets_no_answer() {
    let mut scene = Scene::open(&[], &[]);
    scene.mute();
    let wire = &mut scene.client.wire;
    let cancelled = ["tools/list", "custom/method"].map(|method| {
        let id = wire.ask(method, &json!({})).unwrap();
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        wire.send(&cancel).unwrap();
        id
    });
    let open = wire.ask("prompts/list", &json!({})).unwrap();
    scene.sync();
    scene.kill(1);
    let all = scene.read_answers(&[open]);
    assert_eq!(all.len(), 1, "{cancelled:?}: {all:?}");
    let heard = scene.heard();
    assert!(!heard.contains(&"tools/list".to_owned()), "{heard:?}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}
