//! A server that is idle, silent, uses no processor and leaves every question unanswered, though it used to answer, is
//! replaced; the next request is served by the next generation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use play::{MODERN, answers_probes, end, freeze, gone, modern, noted, open, pid, probing, start};
use serde_json::json;

#[test]
fn stopped_while_idle() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let first = answers_probes(&stage, &mut client);
    freeze(first);
    let renewal = play::renewal(&stage, "unresponsive");
    assert_eq!(
        (&renewal["generation"], &renewal["in_flight"]),
        (&json!(1), &json!(0)),
        "{renewal}"
    );
    assert!(
        renewal["why"]["unresponsive"]["lost"].as_u64() >= Some(2),
        "{renewal}"
    );
    gone(first);
    let second = pid(&mut client);
    assert_ne!(first, second);
    assert_eq!(stage.event("replayed")["generation"], 2);
    // It did not hear the end of its stdin.
    let teardown = stage.event("teardown");
    assert!(
        teardown["rungs"].as_array().unwrap().len() > 1,
        "{teardown}"
    );
    assert_eq!(teardown["left"], json!([]));
    end(client);
    stage.census.assert_empty();
}

#[test]
fn in_the_modern_era_it_is_asked_what_that_era_knows() {
    let stage = Stage::new();
    let mut client = start(&stage, &probing(&[]), &[]);
    let call = modern(json!({"name": "pid"}));
    let served_by = |client: &mut Client| {
        let answer = client.wire.request("tools/call", &call).unwrap();
        answer["result"]["structuredContent"]["pid"]
            .as_i64()
            .unwrap()
    };
    let first = served_by(&mut client);
    let probe = |note: &serde_json::Value| note["heard"]["method"] == "server/discover";
    let asked = noted(&stage, "a probe", probe);
    let meta = &asked["heard"]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], MODERN);
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
    noted(&stage, "another one, so the first was answered", |note| {
        probe(note) && note != &asked
    });
    freeze(first);
    play::renewal(&stage, "unresponsive");
    assert_ne!(served_by(&mut client), first);
    assert!(!play::methods(&stage).contains(&"ping".into()));
    end(client);
    stage.census.assert_empty();
}
