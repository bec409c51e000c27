//! With `--call-deadline`, the call gets an error that says what happened, and the server gets a cancellation. Its late answer is
//! dropped, and the server lives on.
//! guards: A call that exceeds its deadline gets an error, and its server lives on.

use crate::support::play::{end, next, noted, open, touch};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::json;

#[test]
fn a_call_past_its_deadline_gets_an_error_and_the_server_stays() {
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

    // The server goes on as soon as it can. Its own answer to the call is dropped.
    touch(&stage, "done");
    let asked = client.wire.ask("ping", &json!({})).unwrap();
    assert_eq!(next(&mut client)["id"], asked);
    let cancelled = noted(&stage, "it was told to cancel", |note| {
        note["heard"]["method"] == "notifications/cancelled"
    });
    assert_eq!(cancelled["heard"]["params"]["requestId"], call);
    assert_eq!(cancelled["pid"], server);
    // On a slow machine the deadline may pass for this call too.
    let serves = until("it serves on", || {
        let said = client.wire.call("pid", &json!({})).unwrap();
        said["pid"].as_i64()
    });
    assert_eq!(serves, server);
    assert!(stage.events("restarting").is_empty() && stage.events("exit").is_empty());
    end(client);
    stage.census.assert_empty();
}
