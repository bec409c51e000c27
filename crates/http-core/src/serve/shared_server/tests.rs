//! guards: Ids, tokens and subscriptions of sessions that share a server are kept apart.

use super::*;
use serde_json::{Value, json};

/// The id that the server sees.
fn own(key: u64) -> &'static str {
    format!("h{key}-{:032x}", 0xA).leak()
}

fn value(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

/// A server that two sessions share.
fn server() -> SharedServer {
    let mut server = SharedServer::new(|| 0xA);
    assert_eq!(value(&server.open("1"))["id"], own(0));
    assert_eq!(server.greeting(), None);
    let told = hear(
        &mut server,
        &json!({"jsonrpc": "2.0", "id": own(0), "result": {"protocolVersion": "2025-06-18", "capabilities": {}}}),
    );
    assert_eq!(
        told,
        [(
            None,
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        )]
    );
    server.join(1);
    server.join(2);
    server
}

fn read(out: Vec<To>) -> Vec<(Option<u64>, Value)> {
    out.into_iter()
        .map(|to| match to {
            To::Server(line) => {
                assert_eq!(line.last(), Some(&b'\n'));
                (None, value(&line))
            }
            To::Session(session, line) => (Some(session), value(&line)),
        })
        .collect()
}

fn told(lines: Vec<Vec<u8>>) -> Vec<To> {
    lines.into_iter().map(To::Server).collect()
}

fn hear(server: &mut SharedServer, line: &Value) -> Vec<(Option<u64>, Value)> {
    read(server.heard(&serde_json::to_vec(line).unwrap()))
}

fn say(server: &mut SharedServer, session: u64, message: &Value) -> Vec<(Option<u64>, Value)> {
    let line = format!("{message}\n").into_bytes();
    read(server.said(session, &Posted::read(&line).unwrap(), &line))
}

fn ask(
    server: &mut SharedServer,
    session: u64,
    method: &str,
    params: &Value,
) -> (Option<u64>, Value) {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut out = say(server, session, &request);
    assert_eq!(out.len(), 1, "{out:?}");
    out.remove(0)
}

#[test]
fn the_opening_is_kept_and_one_that_fails_too() {
    assert_eq!(server().greeting().unwrap().unwrap().version, "2025-06-18");
    let mut server = SharedServer::new(|| 0xA);
    server.open("1");
    let out = hear(
        &mut server,
        &json!({"jsonrpc": "2.0", "id": own(0), "error": {"code": 1, "message": "no"}}),
    );
    assert_eq!(out, []);
    assert_eq!(server.greeting(), Some(None));
}

#[test]
fn the_same_id_and_token_of_two_sessions() {
    let mut server = server();
    let call = json!({"name": "a", "_meta": {"progressToken": "t"}});
    let (_, first) = ask(&mut server, 1, "tools/call", &call);
    let (_, second) = ask(&mut server, 2, "tools/call", &call);
    assert_eq!(
        (&first["id"], &second["id"]),
        (&json!(own(1)), &json!(own(2)))
    );
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": own(2), "progress": 1}});
    let out = hear(&mut server, &progress);
    assert_eq!(
        (out[0].0, &out[0].1["params"]["progressToken"]),
        (Some(2), &json!("t"))
    );
    let answer = |id: &str| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let out = hear(&mut server, &answer(own(1)));
    assert_eq!(
        out,
        [(Some(1), json!({"jsonrpc": "2.0", "id": 1, "result": {}}))]
    );
    assert_eq!(hear(&mut server, &answer(own(1))), [], "once");
    assert_eq!(server.in_flight(), 1);
}

#[test]
fn only_the_calls_of_a_client_that_cancels_or_leaves_are_cancelled() {
    let mut server = server();
    ask(&mut server, 1, "tools/call", &json!({}));
    ask(&mut server, 2, "tools/call", &json!({}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let out = say(&mut server, 1, &cancel);
    assert_eq!(
        (out[0].0, &out[0].1["params"]["requestId"]),
        (None, &json!(own(1)))
    );
    assert_eq!(say(&mut server, 1, &cancel), [], "that was it");
    let out = read(told(server.leave(2)));
    assert_eq!(out[0].1["params"]["requestId"], own(2));
    assert_eq!((server.in_flight(), server.is_empty()), (0, false));
    assert_eq!(
        hear(
            &mut server,
            &json!({"jsonrpc": "2.0", "id": own(2), "result": {}})
        ),
        []
    );
    assert_eq!(read(told(server.leave(1))), []);
    assert!(server.is_empty());
    assert_eq!(say(&mut server, 1, &cancel), [], "it is over");
}

#[test]
fn questions_of_the_server_are_refused_with_a_message() {
    let mut server = server();
    ask(&mut server, 1, "tools/call", &json!({}));
    let out = hear(
        &mut server,
        &json!({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}}),
    );
    assert_eq!(
        (out[0].0, &out[0].1["id"], &out[0].1["error"]["code"]),
        (None, &json!(7), &json!(-32601))
    );
    let out = hear(
        &mut server,
        &json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
    );
    assert_eq!(
        out,
        [(None, json!({"jsonrpc": "2.0", "id": "p", "result": {}}))]
    );
    assert_eq!(
        say(
            &mut server,
            1,
            &json!({"jsonrpc": "2.0", "id": 7, "result": {}})
        ),
        [],
        "no client asked"
    );
}

#[test]
fn the_opening_of_a_session_never_reaches_the_server() {
    let mut server = server();
    for method in ["initialized", "roots/list_changed", "progress"] {
        let told =
            json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": {}});
        assert_eq!(say(&mut server, 1, &told), [], "{method}");
    }
    let (to, answer) = ask(&mut server, 1, "initialize", &json!({}));
    assert_eq!((to, &answer["error"]["code"]), (Some(1), &json!(-32600)));
    let own = json!({"jsonrpc": "2.0", "method": "notifications/of/its/own"});
    assert_eq!(say(&mut server, 1, &own), [(None, own.clone())]);
}

#[test]
fn resources_are_heeded_until_the_last_one_lets_go() {
    let mut server = server();
    let uri = |uri: &str| json!({"uri": uri});
    let updated = |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    let to = |out: Vec<(Option<u64>, Value)>| out.into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    for session in [1, 2] {
        assert_eq!(
            ask(
                &mut server,
                session,
                "resources/subscribe",
                &uri("file:///a")
            )
            .0,
            None
        );
    }
    ask(&mut server, 2, "resources/subscribe", &uri("file:///b"));
    assert_eq!(
        to(hear(&mut server, &updated("file:///a"))),
        [Some(1), Some(2)]
    );
    assert_eq!(
        to(hear(&mut server, &updated("file:///b/c"))),
        [Some(2)],
        "a part of it"
    );
    assert_eq!(hear(&mut server, &updated("file:///bc")), []);
    let (receiver, answer) = ask(&mut server, 1, "resources/unsubscribe", &uri("file:///a"));
    assert_eq!(
        (receiver, &answer["result"]),
        (Some(1), &json!({})),
        "the other one goes on"
    );
    assert_eq!(to(hear(&mut server, &updated("file:///a"))), [Some(2)]);
    let out = read(told(server.leave(2)));
    let mut ended: Vec<_> = out
        .iter()
        .filter(|(_, line)| line["method"] == "resources/unsubscribe")
        .map(|(_, line)| line["params"]["uri"].as_str().unwrap())
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, ["file:///a", "file:///b"]);
}

#[test]
fn each_reads_the_log_as_it_wished() {
    let mut server = server();
    let message = |level: &str| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": 1}});
    assert_eq!(
        hear(&mut server, &message("emergency")),
        [],
        "no client asked for logs"
    );
    let (_, told) = ask(
        &mut server,
        1,
        "logging/setLevel",
        &json!({"level": "info"}),
    );
    assert_eq!(told["params"]["level"], "info");
    let (_, told) = ask(
        &mut server,
        2,
        "logging/setLevel",
        &json!({"level": "error"}),
    );
    assert_eq!(
        (&told["params"]["level"], &told["id"]),
        (&json!("info"), &json!(own(2))),
        "the first one wants more"
    );
    assert_eq!(hear(&mut server, &message("debug")), []);
    assert_eq!(hear(&mut server, &message("notice")).len(), 1);
    assert_eq!(hear(&mut server, &message("critical")).len(), 2);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(
        hear(&mut server, &changed).len(),
        2,
        "changes of lists go to all clients"
    );
    let (_, told) = ask(
        &mut server,
        2,
        "logging/setLevel",
        &json!({"level": "nonsense"}),
    );
    assert_eq!(told["params"]["level"], "nonsense", "the server's affair");
}

proptest::proptest! {
    #[test]
    fn any_line_of_a_server_is_taken(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120)) {
        let mut server = server();
        let _out = server.heard(&line);
    }
}
