//! Every request has one answer, the server's or ours.
//! guards: Every request over `run --url` has exactly one answer, from the server or from us.

use super::*;

#[test]
fn what_the_server_has_not_seen_is_tried_a_few_times() {
    let mut play = Play::open(Retry::Never);
    play.line(&call(1));
    for _ in 0..=limits::HTTP_AGAIN_MS.len() {
        assert!(play.said.is_empty());
        play.fails(play.last(), true);
        play.wait(1_000);
    }
    assert_eq!(play.said.len(), 1);
    play.says(
        0,
        "cannot be reached: h: connection refused; tools/call was not sent",
    );
    play.line(&call(2));
    play.fails(play.last(), true);
    play.wait(1_000);
    play.json(play.last(), &result(2));
    assert_eq!(play.said[1..], [result(2)]);
}

#[test]
fn what_broke_off_and_then_cannot_be_repeated_is_not_called_unsent() {
    let mut play = Play::open(Retry::Safe);
    play.line(&list(1));
    play.fails(play.last(), false);
    play.wait(1_000);
    for _ in 0..=limits::HTTP_AGAIN_MS.len() {
        assert!(play.said.is_empty());
        play.fails(play.last(), true);
        play.wait(1_000);
    }
    play.says(0, "did not finish its answer to a list request");
    assert!(!play.said[0].contains("not sent"), "{}", play.said[0]);
}

#[test]
fn refusals_are_told_with_the_servers_own_words_where_there_are_any() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    play.status(play.last(), 401, "<html>secret</html>");
    play.says(0, "HTTP 401 (unauthorized)");
    assert!(!play.said[0].contains("secret"));
    play.line(&call(2));
    play.status(
        play.last(),
        400,
        r#"{"error":{"code":-32602,"message":"no"}}"#,
    );
    assert_eq!(
        play.said[1],
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}"#
    );
    let page = play.ask(&call(3));
    play.head(page, 200, Content::Other("text/html".into()), None);
    play.body(page, "<html>");
    play.says(2, "`text/html` where JSON");
    play.line(&call(4));
    play.give(Input::End(play.last(), End::TooLong));
    play.says(3, "more than 16 MiB");
    let accepted = play.ask(&call(5));
    play.accepted(accepted);
    play.says(4, "without an answer");
    play.line(&list(6));
    play.status(play.last(), 503, "");
    play.wait(1_000);
    play.json(play.last(), &result(6));
    assert_eq!(play.said[5], result(6), "a passing trouble is waited for");
}

#[test]
fn only_the_first_answer_counts() {
    let mut play = Play::open(Retry::Safe);
    let request = play.ask(&call(1));
    play.stream(request);
    for id in [7, 1, 1] {
        play.event(request, None, &result(id));
    }
    play.give(Input::End(request, End::Done));
    assert_eq!(play.said, [result(1)]);
    play.line(&call(2));
    play.json(play.last(), &format!("[{},\n{}]", result(2), result(2)));
    assert_eq!(play.said[1..], [result(2)]);
}

#[test]
fn questions_of_the_server_reach_the_client_and_its_answers_the_server() {
    let mut play = Play::open(Retry::Annotated);
    let request = play.ask(&call(1));
    play.stream(request);
    let question = r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}"#;
    play.event(request, None, question);
    assert_eq!(play.said, [question]);
    let answer = play.ask(r#"{"jsonrpc":"2.0","id":5,"result":{"x":1}}"#);
    assert_eq!(
        play.sending(answer).body,
        br#"{"jsonrpc":"2.0","id":5,"result":{"x":1}}"#
    );
    play.accepted(answer);
    play.line(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(play.last(), answer, "no request waits for it");
}

#[test]
fn a_line_that_is_too_long_is_answered() {
    let mut play = Play::open(Retry::Safe);
    play.give(Input::LongLine(Some(b"7".to_vec()), "tools/call".into()));
    play.says(0, "longer than 16 MiB");
}

#[test]
fn an_answer_is_known_however_its_id_is_written() {
    let mut play = Play::open(Retry::Safe);
    let line = r#"{"id":"a\/b","method":"tools/call","params":{"name":"t"}}"#;
    let exchange = play.ask(line);
    play.json(exchange, r#"{"id":"a/b","result":{}}"#);
    let exchange = play.ask(&call(1));
    play.json(exchange, r#"{"id":1.0,"result":{}}"#);
    assert_eq!(
        play.said,
        [r#"{"id":"a/b","result":{}}"#, r#"{"id":1.0,"result":{}}"#]
    );
}

#[test]
fn requests_that_have_rested_go_out_in_the_order_of_asking() {
    let mut play = Play::open(Retry::Safe);
    let first = play.ask(&list(9));
    let second = play.ask(&list(10));
    play.fails(second, false);
    play.fails(first, false);
    play.wait(1_000);
    let again: Vec<String> = [play.last() - 1, play.last()]
        .map(|one| play.id(one))
        .into();
    assert_eq!(again, ["9", "10"]);
}

#[test]
fn a_client_that_begins_anew_has_both_answers_and_the_later_session() {
    let mut play = Play::new(Retry::Safe);
    let first = play.ask(OPENING);
    let second = play.ask(&OPENING.replace("\"id\":0", "\"id\":1"));
    play.says(0, "the client has begun another session");
    play.head(second, 200, Content::Json, Some("s2"));
    play.body(second, &OPENED.replace("\"id\":0", "\"id\":1"));
    play.head(first, 200, Content::Json, Some("s1"));
    play.body(first, &OPENED.replace("2025-06-18", "2025-03-26"));
    assert_eq!(play.said.len(), 2);
    let delete = play.sent.iter().find(|one| one.verb == Verb::Delete);
    let delete = delete.unwrap().exchange;
    assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
    let exchange = play.ask(&call(2));
    assert_eq!(play.header(exchange, headers::SESSION), Some("s2"));
    assert_eq!(play.header(exchange, headers::VERSION), Some("2025-06-18"));
}

#[test]
fn an_opening_cannot_be_taken_back() {
    let mut play = Play::new(Retry::Safe);
    let opening = play.ask(OPENING);
    play.line(&call(1));
    play.line(r#"{"method":"notifications/cancelled","params":{"requestId":0}}"#);
    assert_eq!(play.last(), opening, "all of it waits");
    play.head(opening, 200, Content::Json, Some("s1"));
    play.body(opening, OPENED);
    assert_eq!(play.said, [OPENED]);
    play.json(play.last(), &result(1));
    assert_eq!(play.said[1], result(1));
}
