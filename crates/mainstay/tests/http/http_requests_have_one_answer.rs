//! Whatever an HTTP server does, each request of the client has exactly one answer, and that answer says what happened.
//! guards: Every request over HTTP gets exactly one answer, whatever the server does.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::bridged::{Bridged, argv};
use mainstay_testkit::client::Launch;
use mainstay_testkit::httpd::{Fault, Httpd, Manner};
use mainstay_testkit::stage::{Source, Stage};
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

#[test]
fn answers_as_json_and_as_events_come_once() {
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

/// The record has answered the opening, so the link retries the real one: one refusal by the server costs the client nothing.
#[test]
fn requests_after_a_refused_recorded_handshake_are_answered_once() {
    let mut first = Bridged::open(&[]);
    first.ask("tools/list", &json!({}));
    let (stage, http) = first.finish();
    http.next("initialize", Fault::LateStatus(500, "busy"));
    let mut play = Bridged::on(stage, http, &[]);
    play.client.wire.initialize().unwrap();
    let waits = play
        .client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "echo", "arguments": {"said": "hello"}}),
        )
        .unwrap();
    play.http.heard("initialize", 2);
    assert_eq!(
        play.stage.events("from_cache").len(),
        1,
        "the record has answered"
    );
    play.http.release();
    let answer = play.client.wire.answer(waits).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["said"], "hello",
        "{answer}"
    );
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello"
    );
    let (_, http) = play.finish();
    assert_eq!(http.open(), 0);
}

/// The program file is upgraded or removed while it runs. The next bridge still runs the program that is running.
#[test]
fn requests_are_answered_after_our_own_program_was_removed() {
    let stage = Stage::new();
    let http = Httpd::start();
    let mut words = argv(&http, &[]);
    let copy = stage.path("mainstay-copy");
    stage.program(&copy, Source::Copy(Path::new(&words[0])));
    words[0] = copy.clone().into();
    let client = Launch::new(&stage, &words).start();
    let mut play = Bridged {
        client,
        stage,
        http,
    };
    play.client.wire.initialize().unwrap();
    for turn in 1..=3 {
        let bridge = play
            .stage
            .card_that("a bridge is there", |card| card.json["generation"] == turn)
            .server
            .unwrap();
        match turn {
            1 => std::fs::remove_file(&copy).unwrap(),
            // The file that is now in its place would not work.
            _ => std::fs::write(&copy, "no program").unwrap(),
        }
        kill_process(Pid::from_raw(bridge.pid).unwrap(), Signal::KILL).unwrap();
        let answer = play.call("echo");
        assert_eq!(
            answer["result"]["structuredContent"]["said"], "hello",
            "{answer}"
        );
    }
    let card = play.stage.card();
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", card.server.unwrap().pid));
    assert_eq!(comm.unwrap(), "mainstay\n");
    play.finish();
}

/// A body of this content type that ends with its connection.
fn raw(kind: &str, body: &str) -> Fault {
    Fault::Raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}"
    ))
}

/// Waits until the bridge has opened the GET stream.
fn listened(play: &Bridged) {
    until("GET was tried", || {
        let sent = play.http.sent();
        sent.iter().any(|one| one.verb == "GET").then_some(())
    });
}

#[test]
fn every_valid_form_of_an_http_answer_is_understood() {
    let mut play = Bridged::open(&[]);
    let good =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"said":"so"}}}"#;
    let halves = good.split_at(16);
    for (kind, body) in [
        ("application/json; charset=utf-8", good.to_string()),
        ("Application/JSON", format!("\u{feff}\r\n  {good}\n")),
        ("application/json", format!("[{good}]")),
        (
            "text/event-stream; charset=utf-8",
            format!("data: {good}\n\n"),
        ),
        (
            "TEXT/event-stream",
            format!("event: message\r\ndata:{good}\r\n\r\n"),
        ),
        ("text/event-stream", format!("data: {good}\r\r")),
        (
            "text/event-stream",
            format!(
                "\u{feff}: a comment\n\nretry: 10\n\ndata:\n\nevent: other\ndata: x\n\ndata: {good}\n\n"
            ),
        ),
        (
            "text/event-stream",
            format!("data: {}\ndata: {}\n\n", halves.0, halves.1),
        ),
    ] {
        play.http.next("tools/call", raw(kind, &body));
        let answer = play.call("write");
        assert_eq!(
            answer["result"]["structuredContent"]["said"], "so",
            "{kind} {body:?}: {answer}"
        );
    }
    play.finish();
}

#[test]
fn a_server_that_closes_each_stream_is_polled_until_it_answers() {
    // The first event has an id and no data, then the connection closes, again and again.
    let mut play = Bridged::open(&[]);
    listened(&play);
    for turn in 0..3 {
        let verb = if turn == 0 { "tools/call" } else { "GET" };
        play.http.next(
            verb,
            raw(
                "text/event-stream",
                &format!("id: turn-{turn}\nretry: 10\ndata:\n\n"),
            ),
        );
    }
    let answer = r#"{"jsonrpc":"2.0","id":NUMBER,"result":{"structuredContent":{"said":"late"}}}"#;
    let id = play
        .client
        .wire
        .ask("tools/call", &json!({"name": "write"}))
        .unwrap();
    let answer = answer.replace("NUMBER", &id.to_string());
    play.http.next(
        "GET",
        raw(
            "text/event-stream",
            &format!("id: last\ndata: {answer}\n\n"),
        ),
    );
    let answer = play.client.wire.answer(id).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["said"], "late",
        "{answer}"
    );
    let sent = play.http.sent();
    let asked: Vec<&str> = sent
        .iter()
        .filter_map(|one| one.headers.get("last-event-id").map(String::as_str))
        .collect();
    assert_eq!(asked, ["turn-0", "turn-1", "turn-2"]);
    let polls = sent
        .iter()
        .filter(|one| one.headers.contains_key("last-event-id"));
    for one in polls {
        assert_eq!(one.headers["mcp-session-id"], "session-1");
        assert_eq!(one.headers["mcp-protocol-version"], "2025-11-25");
        assert_eq!(one.headers["accept"], "text/event-stream");
    }
    assert_eq!(play.http.count("tools/call"), 1);
    play.finish();
}

#[test]
fn a_redirect_to_another_host_is_reported_and_not_followed() {
    let elsewhere = Httpd::start();
    let http = Httpd::start();
    let mut play = Bridged::on(Stage::new(), http, &["--header", "X-Key: hunter2"]);
    play.client.wire.initialize().unwrap();
    for status in [301, 302, 303, 307, 308] {
        play.http.next(
            "tools/call",
            Fault::Raw(format!(
                "HTTP/1.1 {status} X\r\nlocation: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                elsewhere.url()
            )),
        );
        let answer = play.call("write");
        assert!(trouble(&answer).contains("moved elsewhere"), "{answer}");
    }
    assert!(elsewhere.sent().is_empty());
    play.finish();
}

#[test]
fn an_old_server_that_sends_messages_elsewhere_is_not_followed() {
    let elsewhere = Httpd::start();
    let http = Httpd::start();
    http.old();
    let endpoint = elsewhere.url();
    http.always(
        "GET",
        raw(
            "text/event-stream",
            &format!("event: endpoint\ndata: {endpoint}\n\n: stay\n"),
        ),
    );
    let mut play = Bridged::on(
        Stage::new(),
        http,
        &["--no-cache", "--header", "X-Key: hunter2"],
    );
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = play.ask("initialize", &params);
    assert!(answer.get("error").is_some(), "{answer}");
    assert!(elsewhere.sent().is_empty(), "{:?}", elsewhere.sent());
    play.finish();
}

#[test]
fn a_server_without_get_keeps_its_one_session() {
    let http = Httpd::start();
    http.always("GET", Fault::Status(404, "Cannot GET /mcp"));
    let mut play = Bridged::on(Stage::new(), http, &[]);
    play.client.wire.initialize().unwrap();
    listened(&play);
    for _ in 0..5 {
        play.call("write");
    }
    assert_eq!(play.http.opened(), 1);
    let (_, http) = play.finish();
    assert_eq!((http.open(), http.deleted()), (0, vec!["session-1".into()]));
}

#[test]
fn many_requests_that_lose_their_session_at_once_share_the_new_one() {
    let mut play = Bridged::open(&[]);
    play.http.forget();
    let ids: Vec<i64> = (0..50)
        .map(|_| {
            let params = json!({"name": "write", "arguments": {"said": "hello"}});
            play.client.wire.ask("tools/call", &params).unwrap()
        })
        .collect();
    let mut open: BTreeSet<i64> = ids.into_iter().collect();
    while !open.is_empty() {
        let line = play.client.wire.line().unwrap().unwrap();
        let line: Value = serde_json::from_slice(&line).unwrap();
        if let Some(id) = line["id"].as_i64() {
            assert!(open.remove(&id), "once: {line}");
            assert_eq!(
                line["result"]["structuredContent"]["said"], "hello",
                "{line}"
            );
        }
    }
    assert_eq!(play.http.opened(), 2);
    play.finish();
}

#[test]
fn a_server_that_forgets_every_session_is_reported_once_per_request() {
    let mut play = Bridged::open(&[]);
    play.http.always("tools/call", Fault::Status(404, ""));
    let before = play.http.opened();
    let answer = play.call("write");
    assert!(trouble(&answer).contains("twice in a row"), "{answer}");
    let sent = play.http.count("tools/call");
    assert_eq!(sent, 2, "once more, and no more");
    assert!(play.http.opened() <= before + 2);
    play.http.mend();
    assert_eq!(
        play.call("write")["result"]["structuredContent"]["said"],
        "hello"
    );
    // Some servers answer this instead.
    play.http.next(
        "tools/call",
        Fault::Status(400, "Bad Request: No valid session ID provided"),
    );
    assert_eq!(
        play.call("write")["result"]["structuredContent"]["said"],
        "hello"
    );
    let (_, http) = play.finish();
    http.empty();
}

#[test]
fn every_misbehaviour_has_its_own_message() {
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
        (
            raw("application/json", "{\"jsonrpc\": garbage"),
            "without an answer in it",
        ),
        (
            raw(
                "application/json",
                r#"{"jsonrpc":"2.0","id":"not mine","result":{}}"#,
            ),
            "without an answer in it",
        ),
        (
            Fault::Raw("this is not HTTP at all\r\n\r\n".into()),
            "what came back is not HTTP",
        ),
        (
            Fault::Raw(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"
                    .into(),
            ),
            "end of file before message length reached",
        ),
        (
            Fault::Raw("HTTP/1.1 429 X\r\nretry-after: 3600\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".into()),
            "HTTP 429 (too many requests)",
        ),
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
    let bridge = play.stage.card().server.unwrap().pid;
    let status = std::fs::read_to_string(format!("/proc/{bridge}/status")).unwrap();
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 80 << 10, "50 MB are not held: {most} KiB");
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
    // A request that only reads is sent again.
    for fault in [
        Fault::Drop,
        Fault::Break { with_id: false },
        Fault::Status(503, ""),
        Fault::Raw(
            "HTTP/1.1 429 X\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                .into(),
        ),
    ] {
        play.http.next("tools/list", fault);
        assert!(play.ask("tools/list", &json!({}))["result"]["tools"].is_array());
    }
    // A stream with event ids is resumed where it broke off.
    play.http.next("tools/call", Fault::Break { with_id: true });
    assert_eq!(
        play.call("write")["result"]["structuredContent"]["said"],
        "hello"
    );
    play.finish();
}

#[test]
fn an_unreachable_server_is_reported_soon_and_used_when_it_is_back() {
    let stage = Stage::new();
    let http = Httpd::start();
    http.stop();
    let mut play = Bridged::on(stage, http, &["--no-cache"]);
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
        "no server had read it: {answer}"
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
fn messages_of_the_get_stream_reach_the_client() {
    let http = Httpd::start();
    http.streams();
    let mut play = Bridged::on(Stage::new(), http, &[]);
    play.client.wire.initialize().unwrap();
    let news = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:1"}});
    play.http.say(news.clone());
    let line = play.client.wire.line().unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), news);
    // A question of the server, and the client's answer to it.
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
fn a_server_of_the_2024_transport_is_supported() {
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
    let mut play = Bridged::start(&["--no-cache"]);
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
    // A cancellation ends the stream.
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
