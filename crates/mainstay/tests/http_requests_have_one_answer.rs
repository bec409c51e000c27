//! Whatever an HTTP server does, each request of the client's has exactly one answer, and that says what happened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bridged;
use bridged::{Bridged, trouble};
use mainstay_testkit::httpd::{Fault, Httpd, Manner};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

#[test]
fn in_either_manner() {
    for manner in [Manner::Json, Manner::Events] {
        let http = Httpd::start();
        http.manner(manner);
        let mut play = Bridged::on(Stage::new(), http, &[]);
        play.client.wire.initialize().unwrap();
        assert_eq!(
            play.call("echo")["result"]["structuredContent"]["said"],
            "hello"
        );
        let sent = play.http.sent();
        let call = sent
            .iter()
            .find(|one| one.method() == "tools/call")
            .unwrap();
        assert_eq!(call.headers["mcp-session-id"], "session-1");
        assert_eq!(call.headers["mcp-protocol-version"], "2025-11-25");
        assert_eq!(
            call.headers["accept"],
            "application/json, text/event-stream"
        );
        let (_, http) = play.finish();
        assert_eq!(http.open(), 0);
    }
}

#[test]
fn every_misbehaviour_has_its_words() {
    let mut play = Bridged::open(&[]);
    for (fault, words) in [
        (Fault::Drop, "did not finish its answer to tools/call"),
        (Fault::Break { with_id: false }, "did not finish its answer"),
        (Fault::Status(401, "secret"), "HTTP 401 (unauthorized)"),
        (Fault::Status(403, "secret"), "HTTP 403 (forbidden)"),
        (Fault::Status(500, "secret"), "HTTP 500 (server error)"),
        (Fault::Html, "`text/html` where JSON"),
        (Fault::Huge(50 << 20), "more than 16 MiB"),
        (Fault::Endless, "more than 16 MiB"),
        (Fault::Silent, "without an answer in it"),
    ] {
        let before = play.http.count("tools/call");
        play.http.next("tools/call", fault.clone());
        let answer = play.call("write");
        assert!(trouble(&answer).contains(words), "{fault:?}: {answer}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
        assert_eq!(
            play.http.count("tools/call"),
            before + 1,
            "it is not sent twice: {fault:?}"
        );
    }
    play.http.next("tools/call", Fault::Twice);
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello"
    );
    let marker = play.call("echo");
    assert_eq!(
        marker["result"]["structuredContent"]["said"], "hello",
        "no second answer came between"
    );
    // What only reads is sent again.
    for fault in [
        Fault::Drop,
        Fault::Break { with_id: false },
        Fault::Status(503, ""),
    ] {
        play.http.next("tools/list", fault);
        assert!(play.ask("tools/list", &json!({}))["result"]["tools"].is_array());
    }
    // What has event ids goes on where it broke off.
    play.http.next("tools/call", Fault::Break { with_id: true });
    assert_eq!(
        play.call("write")["result"]["structuredContent"]["said"],
        "hello"
    );
    play.finish();
}

#[test]
fn nobody_there_is_told_soon_and_somebody_there_again_is_found() {
    let stage = Stage::new();
    let http = Httpd::start();
    http.stop();
    let mut play = Bridged::on(stage, http, &["--no-record"]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = play.ask("initialize", &params);
    assert!(
        trouble(&answer).contains("cannot be reached")
            && trouble(&answer).contains("connection refused"),
        "{answer}"
    );
    play.http.resume();
    play.client.wire.initialize().unwrap();
    play.http.stop();
    let id = play
        .client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "write", "arguments": {"said": "late"}}),
        )
        .unwrap();
    play.http.resume();
    let answer = play.client.wire.answer(id).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["said"], "late",
        "nobody had seen it: {answer}"
    );
    let (_, http) = play.finish();
    assert_eq!(http.open(), 0);
}

#[test]
fn a_session_that_the_server_forgot_is_opened_again_unnoticed() {
    let mut play = Bridged::open(&[]);
    play.ask("logging/setLevel", &json!({"level": "warning"}));
    play.ask("resources/subscribe", &json!({"uri": "x:1"}));
    play.http.forget();
    assert_eq!(
        play.call("write")["result"]["structuredContent"]["said"],
        "hello"
    );
    let sent: Vec<String> = play
        .http
        .sent()
        .iter()
        .map(|one| one.method().to_string())
        .collect();
    let from = sent
        .iter()
        .rposition(|method| method == "initialize")
        .unwrap();
    let again: Vec<&str> = sent[from..]
        .iter()
        .map(String::as_str)
        .filter(|method| !method.is_empty())
        .collect();
    assert_eq!(again[..2], ["initialize", "notifications/initialized"]);
    let mut restored = again[2..4].to_vec();
    restored.sort_unstable();
    assert_eq!(restored, ["logging/setLevel", "resources/subscribe"]);
    assert_eq!(again.last(), Some(&"tools/call"));
    assert_eq!(play.http.opened(), 2);
    let closed = play.stage.event("session_closed");
    assert_eq!(closed["by"], "server");
    let (_, http) = play.finish();
    assert_eq!((http.open(), http.deleted()), (0, vec!["session-2".into()]));
}

#[test]
fn what_the_server_says_unasked_reaches_the_client() {
    let http = Httpd::start();
    http.streams();
    let mut play = Bridged::on(Stage::new(), http, &[]);
    play.client.wire.initialize().unwrap();
    let news = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}});
    play.http.say(news.clone());
    let line = play.client.wire.line().unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), news);
    // A question of the server's, and the client's answer to it.
    play.http
        .say(json!({"jsonrpc": "2.0", "id": 77, "method": "roots/list"}));
    let line = play.client.wire.line().unwrap().unwrap();
    let question: Value = serde_json::from_slice(&line).unwrap();
    play.client
        .wire
        .send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}))
        .unwrap();
    until("the answer is there", || {
        let sent = play.http.sent();
        sent.iter()
            .find(|one| one.message["id"] == 77 && one.message.get("result").is_some())?;
        Some(())
    });
    play.finish();
}

#[test]
fn an_old_server_is_spoken_to_in_the_old_way() {
    let http = Httpd::start();
    http.old();
    let mut play = Bridged::on(Stage::new(), http, &[]);
    play.client.wire.initialize().unwrap();
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello"
    );
    let sent = play.http.sent();
    assert!(
        sent.iter()
            .any(|one| one.path == "/messages?s=1" && one.method() == "tools/call")
    );
    play.finish();
}

#[test]
fn modern_requests_have_their_headers_and_open_nothing() {
    let mut play = Bridged::start(&["--no-record"]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let discovered = play.ask("server/discover", &json!({"_meta": meta}));
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28");
    let answer = play.ask(
        "tools/call",
        &json!({"name": "echo", "arguments": {"said": "modern"}, "_meta": meta}),
    );
    assert_eq!(answer["result"]["structuredContent"]["said"], "modern");
    let sent = play.http.sent();
    let call = sent
        .iter()
        .find(|one| one.method() == "tools/call")
        .unwrap();
    assert_eq!(call.headers["mcp-method"], "tools/call");
    assert_eq!(call.headers["mcp-name"], "echo");
    assert_eq!(call.headers["mcp-protocol-version"], "2026-07-28");
    assert!(!call.headers.contains_key("mcp-session-id"));
    // A cancel is the end of the stream.
    play.http.next("tools/call", Fault::Hold);
    let id = play
        .client
        .wire
        .ask("tools/call", &json!({"name": "write", "_meta": meta}))
        .unwrap();
    play.http.heard("tools/call", 2);
    play.client.wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).unwrap();
    let answer = play.ask("tools/list", &json!({"_meta": meta}));
    assert!(answer["result"]["tools"].is_array());
    assert_eq!(play.http.count("notifications/cancelled"), 0);
    let (_, http) = play.finish();
    assert_eq!(http.opened(), 0);
}
