//! With `--memory-max`, a server above the limit is replaced between two requests. In the middle of a request it is replaced only
//! after the drain time. A limit that the server cannot live with is reported and not tried for ever.
//! guards: A server above `--memory-max` is replaced between two requests, or after the drain time.

use crate::support::play::{end, gone, lives, noted, open, pid, restarting_event, touch};
use mainstay_testkit::stage::Stage;
use serde_json::json;

/// Between nine tenths of the limit and all of it: above what it may have, and below what the kernel would kill it for.
const MAX: &str = "200MiB";
const MIB: u64 = 183;

#[test]
fn a_server_above_its_memory_is_replaced_between_two_requests() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--memory-max", MAX], &[]);
    let first = client.wire.call("grow", &json!({"mib": MIB})).unwrap()["pid"]
        .as_i64()
        .unwrap();
    // The excess may be seen while the call is still in flight. What counts is that no call was in flight when the server ended.
    let told = restarting_event(&stage, "memory");
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
fn a_server_above_its_memory_finishes_its_call_first() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--memory-max", MAX, "--drain", "1h"], &[]);
    let call = json!({"name": "grow", "arguments": {"mib": MIB, "until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    let told = restarting_event(&stage, "memory");
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
fn a_server_above_its_memory_is_replaced_after_the_drain_time() {
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
fn a_memory_limit_below_what_the_server_needs_is_reported() {
    let stage = Stage::new();
    // Large enough to be measured, too small for any Python. Where the kernel enforces the limit, it ends the server in the same
    // way.
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
