//! `--call-deadline`: the call is answered with an error that says what happened, it is cancelled at the server, its late answer
//! is not shown, and the server lives on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use play::{end, next, noted, open, touch};
use serde_json::json;

#[test]
fn answered_cancelled_and_alive() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--call-deadline", "2s"], &[]);
    let started = noted(&stage, "it has started", |note| !note["started"].is_null());
    let server = started["pid"].as_i64().unwrap();
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    let answer = next(&mut client);
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(call), &json!(true))
    );
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    for part in [
        "MCP server 'plain' has not answered tools/call within the call deadline",
        "it was told to cancel and goes on running",
        "the request may or may not have taken effect",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let event = stage.event("call_deadline");
    assert_eq!(event["request"], "tools/call", "{event}");

    // The server goes on as soon as it can; its own answer to the call does not come through.
    touch(&stage, "done");
    let asked = client.wire.ask("ping", &json!({})).unwrap();
    assert_eq!(next(&mut client)["id"], asked);
    let cancelled = noted(&stage, "it was told to cancel", |note| {
        note["heard"]["method"] == "notifications/cancelled"
    });
    assert_eq!(cancelled["heard"]["params"]["requestId"], call);
    assert_eq!(cancelled["pid"], server);
    // On a slow machine the deadline may pass for this one, too.
    let serves = until("it serves on", || {
        let said = client.wire.call("pid", &json!({})).unwrap();
        said["pid"].as_i64()
    });
    assert_eq!(serves, server);
    assert!(stage.events("renewal").is_empty() && stage.events("exit").is_empty());
    end(client);
    stage.census.assert_empty();
}
