//! A server that dies too often is given up. Every pending or later request is answered at once with how the server ended, its
//! last lines on stderr, and the next step. The client's pipe stays open.
//! guards: Once a server is given up, every request is answered at once with the reason and the next step.

use crate::support::scene::{Scene, answers};
use mainstay_testkit::wire::trouble;
use serde_json::{Value, json};

fn check(answer: &Value) {
    let words = trouble(answer);
    for part in [
        "'unruly' is not running",
        "ended 2 times within 60 s",
        "exit code 7",
        "mainstay restart unruly",
        "mainstay why unruly",
        "fatal: the disk is full",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn every_request_to_a_server_that_was_given_up_is_answered_at_once() {
    let mut scene = Scene::open(
        &["--restart-budget", "2"],
        &[
            "--stderr",
            "fatal: the disk is full",
            "--exit-code",
            "7",
            "--dies-of",
            "add",
        ],
    );
    let first = scene.call("add", &json!({}));
    assert!(trouble(&first).contains("it is started again"), "{first}");
    scene.replayed(2);
    // These were pending at the last death, so the server may have started on them.
    let mut pending = vec![scene.ask_call("sleep", &json!({"ms": 3_600_000}))];
    pending.push(scene.ask_call("add", &json!({})));
    let wire = &mut scene.client.wire;
    pending.push(wire.ask("tools/list", &json!({})).unwrap());
    pending.push(wire.ask("custom/method", &json!({})).unwrap());
    let all = scene.read_answers(&pending);
    assert_eq!(all.len(), pending.len());
    for (place, id) in pending.iter().enumerate() {
        let answer = answers(&all, *id)[0];
        check(answer);
        // The server may never have read the requests after the call that killed it. The answer says so then.
        let sent = trouble(answer).contains("was sent before that");
        let unread = place > 1 && trouble(answer).contains("was not sent to it");
        assert!(sent || unread, "{answer}");
        let reads_only = place == 2;
        let doubtful = trouble(answer).contains("may or may not");
        assert_eq!(doubtful, sent && !reads_only, "{answer}");
        if place == 3 {
            assert_eq!(answer["error"]["data"]["safeToRetry"], unread, "{answer}");
        }
    }
    let abandoned = scene.stage.event("abandoned");
    assert_eq!(abandoned["deaths"], 2);
    scene.state("abandoned");
    // Later requests.
    let later: Vec<i64> = (0..200)
        .map(|n| match n % 4 {
            0 => scene.ask_call("look", &json!({})),
            1 => scene.client.wire.ask("tools/list", &json!({})).unwrap(),
            2 => scene.client.wire.ask("ping", &json!({})).unwrap(),
            _ => scene
                .client
                .wire
                .ask("resources/subscribe", &json!({"uri": "x:y"}))
                .unwrap(),
        })
        .collect();
    let all = scene.read_answers(&later);
    assert_eq!(all.len(), later.len());
    let mut order = all.iter().map(|answer| answer["id"].as_i64().unwrap());
    assert!(later.iter().all(|id| order.next() == Some(*id)));
    for answer in &all {
        check(answer);
        assert!(trouble(answer).contains("was not sent to it"), "{answer}");
        if let Some(error) = answer.get("error") {
            assert_eq!(error["code"], -32603);
            assert_eq!(error["data"]["reason"], "abandoned");
            assert_eq!(error["data"]["safeToRetry"], true);
            assert_eq!(error["data"]["stderr"], json!(["fatal: the disk is full"]));
        }
    }
    assert_eq!(scene.stage.events("start").len(), 2);
    // A request that is too long to be held is answered too.
    let long = scene.ask_call("look", &json!({"pad": "x".repeat(1 << 20)}));
    let answer = scene.client.wire.answer(long).unwrap();
    check(&answer);
    let (status, rest) = scene.client.finish();
    assert_eq!((status.code(), rest), (Some(7), Vec::new()));
    scene.stage.census.assert_empty();
}
