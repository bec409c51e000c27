//! The record of one session answers the next one at once while its server still starts: the opening, the list, a ping. A call
//! waits for the server. The server waits for a file, which the test creates only after the answers have arrived.
//! guards: A session whose configuration has a record is opened before its server has started.

use crate::support::play::{end, learn, modern, next, notes, pid, start, touch};
use mainstay_testkit::stage::Stage;
use serde_json::json;

const GATED: [&str; 2] = ["--gate", "gate"];

#[test]
fn initialize_and_lists_are_answered_before_the_server_is_up() {
    let stage = Stage::new();
    touch(&stage, "gate");
    let learned = learn(&stage, &[], &GATED);
    std::fs::remove_file(stage.path("gate")).unwrap();

    let mut client = start(&stage, &[], &GATED);
    let opened = client.wire.initialize().unwrap();
    assert_eq!(opened["serverInfo"]["name"], "plain");
    let listed = client.wire.request("tools/list", &json!({})).unwrap();
    assert_eq!(listed["result"], learned);
    assert_eq!(
        client.wire.request("ping", &json!({})).unwrap()["result"],
        json!({})
    );
    let call = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    let passed = notes(&stage)
        .iter()
        .filter(|note| note["passed"] == true)
        .count();
    assert_eq!(
        passed, 1,
        "only the first session's server has come through"
    );

    touch(&stage, "gate");
    let answer = next(&mut client);
    assert_eq!(
        answer["id"], call,
        "nothing but the answer: the lists are the same"
    );
    let server = answer["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    assert_eq!(server, pid(&mut client));
    // The server itself got the client's own opening once, and the call after it.
    let heard: Vec<_> = notes(&stage)
        .into_iter()
        .filter(|note| note["pid"] == server)
        .filter_map(|note| note["heard"]["method"].as_str().map(str::to_owned))
        .collect();
    // Our own request for the list may come before a call that was still in the client's pipe.
    let own: Vec<_> = heard
        .iter()
        .filter(|&method| method != "tools/list")
        .collect();
    assert_eq!(
        own[..3],
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert_eq!(
        heard
            .iter()
            .filter(|method| *method == "initialize")
            .count(),
        1
    );
    let instant = stage.events("from_cache");
    let of: Vec<_> = instant
        .iter()
        .map(|event| event["method"].clone())
        .collect();
    assert_eq!(of, ["initialize", "tools/list"]);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn modern_discover_and_lists_are_answered_before_the_server_is_up() {
    let stage = Stage::new();
    touch(&stage, "gate");
    let mut client = start(&stage, &[], &GATED);
    let ask = modern(json!({}));
    let discovered = client.wire.request("server/discover", &ask).unwrap();
    let listed = client.wire.request("tools/list", &ask).unwrap();
    end(client);
    std::fs::remove_file(stage.path("gate")).unwrap();

    let mut client = start(&stage, &[], &GATED);
    let again = client.wire.request("server/discover", &ask).unwrap();
    assert_eq!(again["result"], discovered["result"]);
    let again = client.wire.request("tools/list", &ask).unwrap();
    assert_eq!(again["result"], listed["result"]);
    let call = modern(json!({"name": "pid"}));
    let call = client.wire.ask("tools/call", &call).unwrap();
    let passed = notes(&stage)
        .iter()
        .filter(|note| note["passed"] == true)
        .count();
    assert_eq!(passed, 1);
    touch(&stage, "gate");
    let answer = next(&mut client);
    assert_eq!(answer["id"], call);
    assert!(
        answer["result"]["structuredContent"]["pid"].is_i64(),
        "{answer}"
    );
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_refused_discover_before_initialize_is_answered_from_the_record() {
    let stage = Stage::new();
    let flags = ["--gate", "gate", "--legacy"];
    touch(&stage, "gate");
    let mut client = start(&stage, &[], &flags);
    let ask = modern(json!({}));
    let refused = client.wire.request("server/discover", &ask).unwrap();
    client.wire.initialize().unwrap();
    let listed = client.wire.request("tools/list", &json!({})).unwrap();
    end(client);
    std::fs::remove_file(stage.path("gate")).unwrap();

    let mut client = start(&stage, &[], &flags);
    let again = client.wire.request("server/discover", &ask).unwrap();
    assert_eq!(again["error"], refused["error"]);
    client.wire.initialize().unwrap();
    let again = client.wire.request("tools/list", &json!({})).unwrap();
    assert_eq!(again["result"], listed["result"]);
    touch(&stage, "gate");
    // The server itself does not get the request, because some servers fix their era by it.
    let server = pid(&mut client);
    let notes = notes(&stage);
    let mut heard = notes.iter().filter(|note| note["pid"] == server);
    let first = heard.find_map(|note| note["heard"]["method"].as_str());
    assert_eq!(first, Some("initialize"));
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_late_list_of_the_server_is_used_for_the_next_session() {
    let stage = Stage::new();
    let ask = modern(json!({}));
    touch(&stage, "gate");
    let mut client = start(&stage, &[], &GATED);
    client.wire.request("tools/list", &ask).unwrap();
    end(client);
    let shown = |names: &str, listed: &serde_json::Value| {
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        let tools: Vec<_> = tools.filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(tools.join(" "), names);
    };
    std::fs::write(stage.path("tools"), "pid block").unwrap();
    for names in ["pid", "pid block"] {
        std::fs::remove_file(stage.path("gate")).unwrap();
        let mut client = start(&stage, &[], &GATED);
        shown(names, &client.wire.request("tools/list", &ask).unwrap());
        let call = modern(json!({"name": "pid"}));
        let call = client.wire.ask("tools/call", &call).unwrap();
        touch(&stage, "gate");
        client.wire.answer(call).unwrap();
        end(client);
    }
    stage.census.assert_empty();
}

#[test]
fn a_call_right_before_the_clients_end_is_answered_by_the_server() {
    let stage = Stage::new();
    touch(&stage, "gate");
    learn(&stage, &[], &GATED);
    std::fs::remove_file(stage.path("gate")).unwrap();

    let mut client = start(&stage, &[], &GATED);
    client.wire.initialize().unwrap();
    let call = json!({"name": "pid"});
    let call = client.wire.ask("tools/call", &call).unwrap();
    client.wire.close_write();
    let second = stage.event("from_cache")["id"].clone();
    stage.event_that("pipe_end", |event| {
        event["pipe"] == "client_stdin" && event["id"] == second
    });
    touch(&stage, "gate");
    let answer = next(&mut client);
    assert_eq!(answer["id"], call);
    let pid = &answer["result"]["structuredContent"]["pid"];
    assert!(pid.is_i64(), "{answer}");
    end(client);
    stage.census.assert_empty();
}
