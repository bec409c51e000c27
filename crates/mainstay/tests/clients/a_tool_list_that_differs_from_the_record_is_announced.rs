//! The record has answered, and then the server answers otherwise. Another list is announced and read again. Another protocol
//! version ends the session with an explanation. The record is corrected.
//! guards: If the server differs from the record that answered for it, the client is told or the session ends with an explanation.

use std::fs;

use crate::support::play::{end, learn, next, start, touch};
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

const GATED: [&str; 2] = ["--gate", "gate"];

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

#[test]
fn list_changed_comes_once_and_the_next_session_gets_the_new_list() {
    let stage = Stage::new();
    touch(&stage, "gate");
    learn(&stage, &[], &GATED);
    fs::remove_file(stage.path("gate")).unwrap();
    fs::write(stage.path("tools"), "pid block").unwrap();

    let mut client = start(&stage, &[], &GATED);
    client.wire.initialize().unwrap();
    let listed = client.wire.request("tools/list", &json!({})).unwrap();
    assert_eq!(names(&listed["result"]), ["pid"], "as remembered");
    touch(&stage, "gate");
    let told = next(&mut client);
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    let listed = client.wire.request("tools/list", &json!({})).unwrap();
    assert_eq!(names(&listed["result"]), ["pid", "block"]);
    end(client);
    assert_eq!(stage.events("list_changed").len(), 1);

    fs::remove_file(stage.path("gate")).unwrap();
    let mut client = start(&stage, &[], &GATED);
    client.wire.initialize().unwrap();
    let listed = client.wire.request("tools/list", &json!({})).unwrap();
    assert_eq!(names(&listed["result"]), ["pid", "block"]);
    touch(&stage, "gate");
    end(client);
    stage.census.assert_empty();
}

#[test]
fn another_version_ends_the_session_and_is_explained() {
    let stage = Stage::new();
    touch(&stage, "gate");
    learn(&stage, &[], &GATED);
    fs::remove_file(stage.path("gate")).unwrap();
    fs::write(stage.path("version"), "2024-11-05").unwrap();

    let mut client = start(&stage, &[], &GATED);
    client.wire.initialize().unwrap();
    let call = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    touch(&stage, "gate");
    let answer = client.wire.answer(call).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        text,
        "MCP server 'plain' cannot go on with this session: it speaks protocol version 2024-11-05, the client was told 2025-11-25 by \
         the record of an earlier session; connect again"
    );
    // The link ends by itself, so that the client sees it and can connect again.
    let rest = client.wire.rest().unwrap();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    client.wait();
    let differs = stage.event("server_changed");
    assert!(
        differs["what"].as_str().unwrap().contains("2024-11-05"),
        "{differs}"
    );

    // The new version is in the record now.
    fs::remove_file(stage.path("gate")).unwrap();
    let mut client = start(&stage, &[], &GATED);
    let opened = client.wire.initialize().unwrap();
    assert_eq!(opened["protocolVersion"], "2024-11-05");
    touch(&stage, "gate");
    end(client);
    stage.census.assert_empty();
}
