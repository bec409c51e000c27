//! The transport of 2024: one stream, and an endpoint beside it.
//! guards: A server with the transport of 2024 is recognised and used.

use super::*;
use alloc::string::ToString;

#[test]
fn an_old_server_is_found_and_spoken_to_at_its_endpoint() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.status(play.last(), 405, "");
    let stream = play.last();
    assert_eq!(play.sending(stream).verb, Verb::Get);
    play.stream(stream);
    let endpoint = sse::Event {
        name: "endpoint".into(),
        id: None,
        retry_ms: None,
        data: b"/messages?s=1".to_vec(),
    };
    play.give(Input::Event(stream, endpoint.clone()));
    let opening = play.last();
    assert_eq!(play.sending(opening).to.as_deref(), Some("/messages?s=1"));
    play.accepted(opening);
    play.event(stream, None, OPENED);
    assert_eq!(play.said, [OPENED]);
    play.line(INITIALIZED);
    play.accepted(play.last());
    play.line(&call(1));
    play.accepted(play.last());
    play.event(stream, None, &result(1));
    play.line(&call(2));
    play.accepted(play.last());
    let third = play.ask(&list(3));
    play.accepted(third);
    play.give(Input::End(stream, End::Done));
    play.wait(1_000);
    assert_eq!(play.said.len(), 3, "{:?}", play.said);
    play.says(2, "the server ended its event stream");
    // The list may be asked for again, in a new session.
    let stream = play.last();
    assert_eq!(play.sending(stream).verb, Verb::Get);
    play.stream(stream);
    play.give(Input::Event(stream, endpoint));
    let greet = play.last();
    let id = play.id(greet);
    play.accepted(greet);
    play.event(
        stream,
        None,
        &OPENED.replace("\"id\":0", &format!("\"id\":{id}")),
    );
    play.accepted(play.last());
    let again = play.last();
    assert_eq!(play.method(again), "tools/list");
    play.accepted(again);
    play.event(stream, None, &result(3));
    assert_eq!(play.said.last(), Some(&result(3)));
    play.give(Input::Eof);
    assert!(play.done);
}

#[test]
fn a_server_of_neither_kind_is_told_with_its_first_refusal() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.status(play.last(), 404, "nothing here");
    play.status(play.last(), 404, "nothing here");
    assert_eq!(play.said.len(), 1);
    play.says(0, "HTTP 404 (not found)");
    assert_eq!(look(play.said[0].as_bytes()).kind, Kind::Error);
}

#[test]
fn only_so_many_requests_are_with_an_old_server_and_the_others_wait_in_order() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.status(play.last(), 405, "");
    let stream = play.last();
    play.stream(stream);
    let endpoint = sse::Event {
        name: "endpoint".into(),
        id: None,
        retry_ms: None,
        data: b"/messages".to_vec(),
    };
    play.give(Input::Event(stream, endpoint));
    play.accepted(play.last());
    play.event(stream, None, OPENED);
    play.line(INITIALIZED);
    play.accepted(play.last());
    let most = limits::HTTP_EXCHANGES as u32;
    for id in 1..=most {
        play.line(&call(id));
        play.accepted(play.last());
    }
    let last = play.last();
    for id in 1..=3 {
        play.line(&call(most + id));
    }
    assert_eq!(play.last(), last, "they wait");
    // What needs no answer does not.
    play.line(r#"{"method":"notifications/progress","params":{}}"#);
    assert_eq!(play.method(play.last()), "notifications/progress");
    play.accepted(play.last());
    play.line(&format!(
        r#"{{"method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
        most + 2
    ));
    for id in [7, 3] {
        play.event(stream, None, &result(id));
        play.accepted(play.last());
    }
    assert_eq!(play.id(play.last()), (most + 3).to_string());
    assert_eq!(play.bridge.in_flight(), most as usize);
    assert_eq!(play.said[1..], [result(7), result(3)]);
}
