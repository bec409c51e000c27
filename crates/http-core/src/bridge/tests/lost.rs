//! Sessions that the server forgot.
//! guards: A session that the server forgot is opened again without an error for the client.

use super::*;

#[test]
fn a_lost_session_is_opened_again_unnoticed() {
    let mut play = Play::open(Retry::Safe);
    for line in [
        r#"{"id":"l","method":"logging/setLevel","params":{"level":"info"}}"#,
        r#"{"id":"u","method":"resources/subscribe","params":{"uri":"x:1"}}"#,
    ] {
        play.line(line);
        let id = String::from_utf8(look(line.as_bytes()).id.unwrap()).unwrap();
        play.json(play.last(), &format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    let refused = play.ask(&call(1));
    let other = play.ask(&call(2));
    play.said.clear();
    play.status(refused, 404, "gone");
    let greet = play.last();
    play.status(other, 404, "gone");
    assert_eq!(play.last(), greet, "opened once");
    let delete = play.sent.iter().find(|one| one.verb == Verb::Delete);
    let delete = delete.unwrap().exchange;
    assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
    play.status(delete, 404, "gone");
    assert_eq!(play.sessions_closed, ["s1"]);
    assert_eq!(play.method(greet), "initialize");
    assert_eq!(play.header(greet, headers::SESSION), None);
    let id = play.id(greet);
    play.line(&call(3));
    play.head(greet, 200, Content::Json, Some("s2"));
    play.body(greet, &OPENED.replace("\"id\":0", &format!("\"id\":{id}")));
    let confirm = play.last();
    assert_eq!(play.method(confirm), "notifications/initialized");
    play.accepted(confirm);
    let restored: Vec<ExchangeId> = play
        .sent
        .iter()
        .map(|one| one.exchange)
        .filter(|one| *one > confirm)
        .collect();
    assert_eq!(
        restored
            .iter()
            .map(|one| play.method(*one))
            .collect::<Vec<_>>(),
        ["logging/setLevel", "resources/subscribe"]
    );
    for one in &restored {
        let id = play.id(*one);
        play.json(*one, &format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    let again: Vec<&Sending> = play
        .sent
        .iter()
        .filter(|one| one.exchange > restored[1])
        .collect();
    assert_eq!(again.len(), 3, "{again:?}");
    let again: Vec<ExchangeId> = again.iter().map(|one| one.exchange).collect();
    for one in again {
        assert_eq!(play.header(one, headers::SESSION), Some("s2"));
        let id = look(&play.sending(one).body).id.unwrap();
        let id: u32 = String::from_utf8(id).unwrap().parse().unwrap();
        play.json(one, &result(id));
    }
    let mut said = play.said.clone();
    said.sort();
    assert_eq!(
        said,
        [
            result(1),
            result(2),
            result(3),
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into(),
        ]
    );
    assert_eq!(
        play.notes
            .iter()
            .map(|(session, _)| session.as_str())
            .collect::<Vec<_>>()
            .last(),
        Some(&"s2")
    );
}

#[test]
fn a_request_that_loses_two_sessions_is_answered() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    for session in ["s2", "s3"] {
        let refused = play.last();
        play.status(refused, 404, "");
        if !play.said.iter().any(|line| line.contains("twice")) {
            play.greet(session);
            play.accepted(play.last());
        }
    }
    assert_eq!(play.said.len(), 1, "{:?}", play.said);
    play.says(0, "twice in a row");
}

#[test]
fn a_server_that_says_it_with_400_is_understood() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    play.status(play.last(), 400, body);
    assert_eq!(play.method(play.last()), "initialize");
    assert!(play.said.is_empty());
}

#[test]
fn a_session_that_cannot_be_opened_again_is_told_and_tried_again() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    play.status(play.last(), 404, "");
    play.fails(play.last(), true);
    assert_eq!(play.said.len(), 1);
    play.says(0, "a new one could not be opened: h: connection refused");
    play.line(&call(2));
    assert_eq!(play.method(play.last()), "initialize");
}
