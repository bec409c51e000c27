//! `--memory-max`: a server that has grown beyond it gives way between two requests, in the middle of one only after the drain
//! time; a limit that it cannot live with is told, not tried for ever.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_testkit::stage::Stage;
use play::{end, gone, lives, noted, open, pid, renewal, touch};
use serde_json::json;

/// Between nine tenths of it and all of it, so that it is above what it may have, and below what a kernel would kill it for.
const MAX: &str = "200MiB";
const MIB: u64 = 183;

#[test]
fn between_two_requests() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--memory-max", MAX], &[]);
    let first = client.wire.call("grow", &json!({"mib": MIB})).unwrap()["pid"]
        .as_i64()
        .unwrap();
    // It may be seen while the call is still on its way; what counts is that nothing was when the server went.
    let told = renewal(&stage, "memory");
    assert!(
        told["why"]["memory"]["bytes"].as_u64().unwrap() > MIB << 20,
        "{told}"
    );
    gone(first);
    assert_ne!(pid(&mut client), first);
    let exit = stage.event("exit");
    assert_eq!(exit["in_flight"], 0, "{exit}");
    assert_eq!(exit["out_of_memory"], json!(null), "it went by itself");
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_call_in_flight_is_finished_first() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--memory-max", MAX, "--drain", "1h"], &[]);
    let call = json!({"name": "grow", "arguments": {"mib": MIB, "until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    let told = renewal(&stage, "memory");
    assert_eq!(told["in_flight"], 1, "{told}");
    let first = noted(&stage, "grown", |note| note["grown"] == MIB)["pid"]
        .as_i64()
        .unwrap();
    assert!(lives(first));
    touch(&stage, "done");
    let answer = client.wire.answer(call).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["pid"], first);
    assert_ne!(pid(&mut client), first);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn after_the_drain_time_the_call_is_answered_for_it() {
    let stage = Stage::new();
    let options = ["--memory-max", MAX, "--drain", "100ms", "--grace-eof", "1s"];
    let mut client = open(&stage, &options, &[]);
    let call = json!({"name": "grow", "arguments": {"mib": MIB, "until": "never"}});
    let answer = client.wire.request("tools/call", &call).unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("MCP server 'plain' was restarted (its memory reached "),
        "{text}"
    );
    assert!(
        text.contains("the request may or may not have taken effect"),
        "{text}"
    );
    pid(&mut client);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_limit_below_what_it_needs_is_told() {
    let stage = Stage::new();
    // Hard enough to be measured, too small for any Python: the kernel, where it helps, ends it the same way.
    let options = [
        "--memory-max",
        "4MiB",
        "--restart-budget",
        "2",
        "--tier",
        "subreaper",
    ];
    let mut client = open(&stage, &options, &[]);
    let abandoned = stage.event("abandoned");
    assert!(
        abandoned["last"]
            .as_str()
            .unwrap()
            .starts_with("its memory reached "),
        "{abandoned}"
    );
    let answer = client.wire.request("tools/list", &json!({})).unwrap();
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("it ended 2 times within 60 s, last: its memory reached "),
        "{text}"
    );
    client.finish();
    stage.census.assert_empty();
}
