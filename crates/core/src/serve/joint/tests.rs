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
fn joint() -> Joint {
    let mut joint = Joint::new(|| 0xA);
    assert_eq!(value(&joint.open("1"))["id"], own(0));
    assert_eq!(joint.greeting(), None);
    let told = hear(
        &mut joint,
        &json!({"jsonrpc": "2.0", "id": own(0), "result": {"protocolVersion": "2025-06-18", "capabilities": {}}}),
    );
    assert_eq!(
        told,
        [(
            None,
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        )]
    );
    joint.join(1);
    joint.join(2);
    joint
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

fn hear(joint: &mut Joint, line: &Value) -> Vec<(Option<u64>, Value)> {
    read(joint.heard(&serde_json::to_vec(line).unwrap()))
}

fn say(joint: &mut Joint, session: u64, message: &Value) -> Vec<(Option<u64>, Value)> {
    let line = format!("{message}\n").into_bytes();
    read(joint.said(session, &Posted::read(&line).unwrap(), &line))
}

fn ask(joint: &mut Joint, session: u64, method: &str, params: &Value) -> (Option<u64>, Value) {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut out = say(joint, session, &request);
    assert_eq!(out.len(), 1, "{out:?}");
    out.remove(0)
}

#[test]
fn the_opening_is_kept_and_one_that_fails_too() {
    assert_eq!(joint().greeting().unwrap().unwrap().version, "2025-06-18");
    let mut joint = Joint::new(|| 0xA);
    joint.open("1");
    let out = hear(
        &mut joint,
        &json!({"jsonrpc": "2.0", "id": own(0), "error": {"code": 1, "message": "no"}}),
    );
    assert_eq!(out, []);
    assert_eq!(joint.greeting(), Some(None));
}

#[test]
fn the_same_id_and_token_of_two_sessions() {
    let mut joint = joint();
    let call = json!({"name": "a", "_meta": {"progressToken": "t"}});
    let (_, first) = ask(&mut joint, 1, "tools/call", &call);
    let (_, second) = ask(&mut joint, 2, "tools/call", &call);
    assert_eq!(
        (&first["id"], &second["id"]),
        (&json!(own(1)), &json!(own(2)))
    );
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": own(2), "progress": 1}});
    let out = hear(&mut joint, &progress);
    assert_eq!(
        (out[0].0, &out[0].1["params"]["progressToken"]),
        (Some(2), &json!("t"))
    );
    let answer = |id: &str| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let out = hear(&mut joint, &answer(own(1)));
    assert_eq!(
        out,
        [(Some(1), json!({"jsonrpc": "2.0", "id": 1, "result": {}}))]
    );
    assert_eq!(hear(&mut joint, &answer(own(1))), [], "once");
    assert_eq!(joint.in_flight(), 1);
}

#[test]
fn who_cancels_or_leaves_is_cancelled_and_nobody_else() {
    let mut joint = joint();
    ask(&mut joint, 1, "tools/call", &json!({}));
    ask(&mut joint, 2, "tools/call", &json!({}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let out = say(&mut joint, 1, &cancel);
    assert_eq!(
        (out[0].0, &out[0].1["params"]["requestId"]),
        (None, &json!(own(1)))
    );
    assert_eq!(say(&mut joint, 1, &cancel), [], "that was it");
    let out = read(joint.leave(2));
    assert_eq!(out[0].1["params"]["requestId"], own(2));
    assert_eq!((joint.in_flight(), joint.is_empty()), (0, false));
    assert_eq!(
        hear(
            &mut joint,
            &json!({"jsonrpc": "2.0", "id": own(2), "result": {}})
        ),
        []
    );
    assert_eq!(read(joint.leave(1)), []);
    assert!(joint.is_empty());
    assert_eq!(say(&mut joint, 1, &cancel), [], "it is over");
}

#[test]
fn what_the_server_asks_is_refused_in_words() {
    let mut joint = joint();
    ask(&mut joint, 1, "tools/call", &json!({}));
    let out = hear(
        &mut joint,
        &json!({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}}),
    );
    assert_eq!(
        (out[0].0, &out[0].1["id"], &out[0].1["error"]["code"]),
        (None, &json!(7), &json!(-32601))
    );
    let out = hear(
        &mut joint,
        &json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
    );
    assert_eq!(
        out,
        [(None, json!({"jsonrpc": "2.0", "id": "p", "result": {}}))]
    );
    assert_eq!(
        say(
            &mut joint,
            1,
            &json!({"jsonrpc": "2.0", "id": 7, "result": {}})
        ),
        [],
        "nobody asked"
    );
}

#[test]
fn the_opening_of_a_session_never_reaches_the_server() {
    let mut joint = joint();
    for method in ["initialized", "roots/list_changed", "progress"] {
        let told =
            json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": {}});
        assert_eq!(say(&mut joint, 1, &told), [], "{method}");
    }
    let (to, answer) = ask(&mut joint, 1, "initialize", &json!({}));
    assert_eq!((to, &answer["error"]["code"]), (Some(1), &json!(-32600)));
    let own = json!({"jsonrpc": "2.0", "method": "notifications/of/its/own"});
    assert_eq!(say(&mut joint, 1, &own), [(None, own.clone())]);
}

#[test]
fn resources_are_heeded_until_the_last_one_lets_go() {
    let mut joint = joint();
    let uri = |uri: &str| json!({"uri": uri});
    let updated = |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    let to = |out: Vec<(Option<u64>, Value)>| out.into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    for session in [1, 2] {
        assert_eq!(
            ask(
                &mut joint,
                session,
                "resources/subscribe",
                &uri("file:///a")
            )
            .0,
            None
        );
    }
    ask(&mut joint, 2, "resources/subscribe", &uri("file:///b"));
    assert_eq!(
        to(hear(&mut joint, &updated("file:///a"))),
        [Some(1), Some(2)]
    );
    assert_eq!(
        to(hear(&mut joint, &updated("file:///b/c"))),
        [Some(2)],
        "a part of it"
    );
    assert_eq!(hear(&mut joint, &updated("file:///bc")), []);
    let (to_whom, answer) = ask(&mut joint, 1, "resources/unsubscribe", &uri("file:///a"));
    assert_eq!(
        (to_whom, &answer["result"]),
        (Some(1), &json!({})),
        "the other one goes on"
    );
    assert_eq!(to(hear(&mut joint, &updated("file:///a"))), [Some(2)]);
    let out = read(joint.leave(2));
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
    let mut joint = joint();
    let message = |level: &str| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": 1}});
    assert_eq!(
        hear(&mut joint, &message("emergency")),
        [],
        "nobody asked for logs"
    );
    let (_, told) = ask(&mut joint, 1, "logging/setLevel", &json!({"level": "info"}));
    assert_eq!(told["params"]["level"], "info");
    let (_, told) = ask(
        &mut joint,
        2,
        "logging/setLevel",
        &json!({"level": "error"}),
    );
    assert_eq!(
        (&told["params"]["level"], &told["id"]),
        (&json!("info"), &json!(own(2))),
        "the first one wants more"
    );
    assert_eq!(hear(&mut joint, &message("debug")), []);
    assert_eq!(hear(&mut joint, &message("notice")).len(), 1);
    assert_eq!(hear(&mut joint, &message("critical")).len(), 2);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(
        hear(&mut joint, &changed).len(),
        2,
        "news of lists are for everybody"
    );
    let (_, told) = ask(
        &mut joint,
        2,
        "logging/setLevel",
        &json!({"level": "nonsense"}),
    );
    assert_eq!(told["params"]["level"], "nonsense", "the server's affair");
}

proptest::proptest! {
    #[test]
    fn any_line_of_a_server_is_taken(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120)) {
        let mut joint = joint();
        let _out = joint.heard(&line);
    }
}
