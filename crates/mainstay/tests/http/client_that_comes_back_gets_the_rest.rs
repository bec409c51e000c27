//! Streams of `serve`: messages of a request go on its own stream, all other messages on the GET stream. A lost connection loses
//! no message.
//! guards: A client of `serve` that reconnects gets every message that it missed.

use crate::support::front::{self, Front, call, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

#[test]
fn a_missed_answer_is_sent_again_on_reconnect() {
    let front = Front::start(&["--sse-keep-alive", "50ms"], &[]);
    let session = front.session();
    let server = Pid::from_raw(session.server()).unwrap();
    // An answer that takes long becomes a stream, which starts with an event id to resume from. This server is stopped until the
    // client is back.
    kill_process(server, Signal::STOP).unwrap();
    let mut first = session.asking(&call(7, "echo", &json!({})));
    assert_eq!(
        first.head().header("content-type"),
        Some("text/event-stream")
    );
    let primed = first.event().unwrap();
    assert_eq!(primed.data, "");
    let id = primed.id.unwrap();
    first.drop_it();
    let mut again = session.news(Some(&id));
    assert_eq!(again.head().status, 200);
    kill_process(server, Signal::CONT).unwrap();
    assert_eq!(again.message()["id"], 7);
    assert_eq!(again.event(), None, "and that is all");
    // A second resume gets the answer too, because it was kept.
    let mut twice = session.news(Some(&id));
    assert_eq!(twice.head().status, 200);
    assert_eq!(twice.message()["id"], 7);
    for unknown in ["99-1", "nonsense", ""] {
        assert_eq!(
            session.news(Some(unknown)).answer().status,
            400,
            "{unknown}"
        );
    }
    front.finish();
}

#[test]
fn progress_continues_after_a_reconnect() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    let params = json!({"name": "steps", "arguments": {"n": 5}, "_meta": {"progressToken": "t"}});
    let mut first = session.asking(&request(7, "tools/call", &params));
    first.head();
    let events: Vec<_> = std::iter::from_fn(|| first.event()).collect();
    let messages = |events: &[front::Event]| -> Vec<Value> {
        let with = events.iter().filter(|event| !event.data.is_empty());
        with.map(|event| serde_json::from_str(&event.data).unwrap())
            .collect()
    };
    let all = messages(&events);
    assert_eq!(all.len(), 6, "five steps and an answer: {all:?}");
    assert_eq!(all[5]["id"], 7);
    let third = events
        .iter()
        .find(|event| event.data.contains("\"progress\":3"))
        .unwrap();
    let mut again = session.news(third.id.as_deref());
    again.head();
    let rest: Vec<_> = std::iter::from_fn(|| again.event()).collect();
    assert_eq!(messages(&rest), all[3..]);
    front.finish();
}

#[test]
fn a_reconnect_gets_everything_after_its_last_event() {
    let front = Front::start(
        &[],
        &["--capabilities", r#"{"tools":{"listChanged":true}}"#],
    );
    let session = front.session();
    let beginning = |connection: &mut front::Connection| {
        connection.head();
        let primed = connection.event().unwrap();
        assert_eq!(primed.data, "");
        primed.id.unwrap()
    };
    // The first progress message starts the stream.
    let params = json!({"name": "steps", "arguments": {"n": 2}, "_meta": {"progressToken": "t"}});
    let mut first = session.asking(&request(7, "tools/call", &params));
    let id = beginning(&mut first);
    first.drop_it();
    let mut again = session.news(Some(&id));
    again.head();
    assert_eq!(again.message()["params"]["progress"], 1);
    assert_eq!(again.message()["params"]["progress"], 2);
    assert_eq!(again.message()["id"], 7);
    // Messages that waited in the GET stream are sent again too.
    let changed = json!({"method": "notifications/tools/list_changed"});
    session.call(8, "news", &changed);
    let mut news = session.news(None);
    let id = beginning(&mut news);
    news.drop_it();
    let mut again = session.news(Some(&id));
    again.head();
    assert_eq!(again.message()["method"], changed["method"]);
    front.finish();
}

#[test]
fn messages_without_a_reader_are_sent_on_reconnect() {
    let front = Front::start(
        &[],
        &["--capabilities", r#"{"tools":{"listChanged":true}}"#],
    );
    let session = front.session();
    let changed = json!({"method": "notifications/tools/list_changed"});
    session.call(1, "news", &changed);
    let mut news = session.news(None);
    news.head();
    let mut ids = Vec::new();
    let mut next = |connection: &mut front::Connection| loop {
        let event = connection.event().unwrap();
        if !event.data.is_empty() {
            ids.push(event.id.clone().unwrap());
            return serde_json::from_str::<Value>(&event.data).unwrap();
        }
    };
    assert_eq!(next(&mut news)["method"], changed["method"], "from before");
    session.call(2, "news", &changed);
    assert_eq!(next(&mut news)["method"], changed["method"]);
    news.drop_it();
    session.call(3, "news", &changed);
    let mut again = session.news(Some(&ids[1]));
    again.head();
    assert_eq!(
        again.message()["method"],
        changed["method"],
        "what came meanwhile"
    );
    // A server's question goes on the stream of the request in flight. The client's answer reaches the server.
    let mut asking = session.asking(&call(
        4,
        "ask",
        &json!({"method": "roots/list", "wait": true}),
    ));
    asking.head();
    let question = asking.message();
    assert_eq!(question["method"], "roots/list");
    let answered =
        session.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}));
    assert_eq!((answered.status, answered.body.len()), (202, 0));
    assert_eq!(asking.message()["id"], 4);
    assert_eq!(asking.event(), None);
    front.finish();
}
