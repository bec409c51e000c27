//! Servers, and what stands before them, that are not as the book says.
//! guards: No HTTP server makes the bridge loop, leak a session or lose a request.

use super::*;

fn openings(play: &Play) -> usize {
    let bodies = play.sent.iter().map(|one| look(&one.body).method);
    bodies.filter(|method| method == "initialize").count()
}

fn deleted(play: &Play) -> Vec<&str> {
    let deletes = play.sent.iter().filter(|one| one.verb == Verb::Delete);
    deletes
        .filter_map(|one| play.header(one.exchange, headers::SESSION))
        .collect()
}

#[test]
fn a_server_that_knows_no_get_at_all_has_not_lost_the_session() {
    for status in [404, 400, 401, 501] {
        let (mut play, listen) = Play::listening(Retry::Safe);
        play.status(listen, status, "Cannot GET /mcp");
        play.wait(600_000);
        assert_eq!(openings(&play), 1, "{status}");
        assert_eq!(play.last(), listen, "it is not asked again: {status}");
        assert!(play.sessions_closed.is_empty() && deleted(&play).is_empty());
        // The session is used as before.
        play.line(&call(1));
        assert_eq!(play.header(play.last(), headers::SESSION), Some("s1"));
    }
}

#[test]
fn a_stream_that_was_there_and_is_refused_later_means_a_lost_session() {
    for (status, words) in [
        (404, ""),
        (400, "Bad Request: No valid session ID provided"),
    ] {
        let (mut play, listen) = Play::listening(Retry::Safe);
        play.stream(listen);
        play.give(Input::End(listen, End::Done));
        play.wait(limits::HTTP_RETRY_MS);
        play.status(play.last(), status, words);
        let greets = play.sent.iter().rposition(|one| one.verb == Verb::Post);
        assert_eq!(look(&play.sent[greets.unwrap()].body).method, "initialize");
        assert_eq!(openings(&play), 2, "{status}");
    }
}

#[test]
fn a_stream_that_ends_now_and_then_is_asked_for_again_soon() {
    let (mut play, mut listen) = Play::listening(Retry::Safe);
    for _ in 0..20 {
        play.stream(listen);
        play.now = play.now.after_ms(30_000);
        play.give(Input::End(listen, End::Done));
        play.wait(limits::HTTP_RETRY_MS);
        assert!(play.last() > listen, "a gateway ends it every 30 s");
        listen = play.last();
    }
    // One that ends at once is asked for more and more seldom.
    let before = listen;
    for _ in 0..3 {
        play.stream(listen);
        play.give(Input::End(listen, End::Done));
        play.wait(limits::HTTP_RETRY_MS);
        listen = play.last();
    }
    assert!(listen < before + 3, "it rests longer each time");
}

#[test]
fn sessions_that_are_lost_at_once_are_not_opened_for_ever() {
    // A balancer that does not send one session to one server: whatever follows the opening is refused.
    let mut play = Play::open(Retry::Safe);
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    play.status(play.last(), 404, "");
    let mut turns = 0;
    while play.method(play.last()) == "initialize" && turns < 10 {
        turns += 1;
        play.greet(&format!("s{}", turns + 1));
        // The confirmation, the notification once more, the stream: refused, all of them.
        for _ in 0..4 {
            let open: Vec<ExchangeId> = play.sent.iter().map(|one| one.exchange).collect();
            let last = *open.last().unwrap();
            if play.method(last) != "initialize" {
                play.status(last, 404, "");
            }
        }
    }
    assert!(turns <= 2, "{turns} sessions for one notification");
    assert!(
        deleted(&play).contains(&"s1"),
        "another server than the one that says 404 may have it"
    );
    let before = openings(&play);
    play.line(&call(1));
    for _ in 0..10 {
        if play.method(play.last()) == "initialize" {
            play.greet("sx");
        } else {
            play.status(play.last(), 404, "");
        }
    }
    assert!(openings(&play) <= before + 2, "{}", openings(&play));
    let answers = play.said.iter().filter(|line| line.contains("\"id\":1"));
    assert_eq!(answers.count(), 1, "{:?}", play.said);
}

#[test]
fn requests_that_are_refused_together_open_one_session_and_keep_their_order() {
    let mut play = Play::open(Retry::Never);
    for id in 1..=20 {
        play.line(&call(id));
    }
    let refused: Vec<ExchangeId> = play
        .sent
        .iter()
        .rev()
        .take(20)
        .map(|one| one.exchange)
        .collect();
    for exchange in refused.iter().rev() {
        play.status(*exchange, 404, "");
    }
    assert_eq!(openings(&play), 2);
    play.greet("s2");
    play.accepted(play.last());
    let again: Vec<String> = play
        .sent
        .iter()
        .filter(|one| {
            play.header(one.exchange, headers::SESSION) == Some("s2") && one.verb == Verb::Post
        })
        .filter(|one| play.method(one.exchange) == "tools/call")
        .map(|one| String::from_utf8(look(&one.body).id.unwrap()).unwrap())
        .collect();
    let expected: Vec<String> = (1..=20).map(|id: u32| format!("{id}")).collect();
    assert_eq!(again, expected);
    assert!(play.said.is_empty());
}

#[test]
fn a_400_that_may_mean_something_else_forgets_no_session() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let body =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no terminal session 5"}}"#;
    play.status(play.last(), 400, body);
    assert_eq!(deleted(&play), ["s1"], "it may be there still");
    assert!(play.sessions_closed.is_empty());
    play.greet("s2");
    play.accepted(play.last());
    let again = play
        .sent
        .iter()
        .rfind(|one| look(&one.body).method == "tools/call")
        .unwrap();
    play.status(again.exchange, 400, body);
    assert_eq!(play.said.len(), 1);
    assert!(
        play.said[0].contains("no terminal session 5"),
        "the server's own words: {:?}",
        play.said
    );
    assert_eq!(openings(&play), 2, "and it is not opened a third time");
}

#[test]
fn a_late_session_is_noted_before_it_is_closed() {
    let mut play = Play::new(Retry::Safe);
    let first = play.ask(OPENING);
    play.line(&OPENING.replace("\"id\":0", "\"id\":1"));
    play.head(first, 200, Content::Json, Some("late"));
    assert_eq!(deleted(&play), ["late"]);
    assert!(play.notes.iter().any(|(session, _)| session == "late"));
    play.fails(play.last(), false);
    assert_eq!(play.sessions_unclosed, ["late"]);
}

#[test]
fn a_refusal_that_opens_a_session_all_the_same_is_no_leak() {
    let mut play = Play::new(Retry::Safe);
    let opening = play.ask(OPENING);
    play.head(opening, 500, Content::Json, Some("odd"));
    play.body(opening, "");
    assert_eq!(deleted(&play), ["odd"]);
    assert!(play.notes.iter().any(|(session, _)| session == "odd"));
}

#[test]
fn an_event_id_that_cannot_be_sent_back_is_none() {
    for id in ["", "a\u{1}b", "\u{7f}"] {
        let mut play = Play::open(Retry::Never);
        let first = play.ask(&call(1));
        play.stream(first);
        play.event(first, Some(id), "");
        play.give(Input::End(first, End::Done));
        play.wait(60_000);
        assert_eq!(play.last(), first, "{id:?}");
        assert_eq!(play.said.len(), 1, "{id:?}");
    }
    let mut play = Play::open(Retry::Never);
    let first = play.ask(&call(1));
    play.stream(first);
    play.event(first, Some("straße"), "");
    play.give(Input::End(first, End::Done));
    play.wait(1_000);
    assert_eq!(
        play.header(play.last(), headers::LAST_EVENT),
        Some("straße")
    );
}

#[test]
fn a_resumption_that_is_refused_is_settled_by_the_rules() {
    for status in [400, 405, 410] {
        let mut play = Play::open(Retry::Safe);
        let first = play.ask(&call(1));
        play.stream(first);
        play.event(first, Some("e1"), "");
        play.give(Input::End(first, End::Done));
        play.wait(1_000);
        play.status(play.last(), status, "");
        assert!(
            play.said[0].contains("did not finish its answer")
                && play.said[0].contains(&format!("{status}")),
            "{:?}",
            play.said
        );
        // What only reads is sent again.
        let first = play.ask(&list(2));
        play.stream(first);
        play.event(first, Some("e2"), "");
        play.give(Input::End(first, End::Done));
        play.wait(1_000);
        play.status(play.last(), status, "");
        play.wait(1_000);
        assert_eq!(play.method(play.last()), "tools/list");
        assert_eq!(play.said.len(), 1);
    }
}

#[test]
fn what_needs_no_answer_waits_before_it_is_sent_again() {
    let mut play = Play::open(Retry::Never);
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    for wait in limits::HTTP_AGAIN_MS {
        let before = play.last();
        play.fails(before, true);
        assert_eq!(play.last(), before, "it rests");
        play.wait(wait);
        assert!(play.last() > before);
    }
    let before = play.last();
    play.fails(before, true);
    play.wait(60_000);
    assert_eq!(play.last(), before);
    assert!(
        play.told
            .iter()
            .any(|text| text.contains("roots/list_changed"))
    );
    // A busy server is asked again when it said so.
    let busy = play.ask(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    play.give(Input::Head(
        busy,
        Head {
            status: 503,
            content: Content::Other(String::new()),
            session: None,
            retry_after_ms: Some(2_000),
        },
    ));
    play.body(busy, "");
    play.wait(1_999);
    assert_eq!(play.last(), busy);
    play.wait(1);
    assert!(play.last() > busy);
}

#[test]
fn a_confirmation_that_rests_goes_before_everything_else() {
    let mut play = Play::greeted(Retry::Safe);
    play.fails(play.last(), true);
    play.line(&call(1));
    play.wait(limits::HTTP_AGAIN_MS[0]);
    assert_eq!(play.method(play.last()), "notifications/initialized");
    play.accepted(play.last());
    assert!(
        play.sent
            .iter()
            .any(|one| look(&one.body).method == "tools/call")
    );
}

#[test]
fn nothing_new_goes_out_once_sessions_are_being_closed() {
    let mut play = Play::open(Retry::Safe);
    play.line(&list(1));
    play.fails(play.last(), true);
    play.give(Input::Term);
    let delete = play.last();
    assert_eq!(play.sending(delete).verb, Verb::Delete);
    play.wait(1_000);
    assert_eq!(play.last(), delete, "what rested stays where it is");
    play.head(delete, 200, Content::Other(String::new()), None);
    assert!(play.done);
    // No session is opened that would not be used.
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.fails(play.last(), true);
    play.give(Input::Term);
    assert!(play.done && openings(&play) == 1);
}

#[test]
fn an_opening_with_unknown_outcome_is_reported() {
    let mut play = Play::new(Retry::Never);
    let opening = play.ask(OPENING);
    assert_eq!(play.openings, [opening]);
    play.fails(opening, false);
    assert_eq!(play.unknown, [opening]);
    assert!(play.openings.is_empty());
    // The server has not seen it, so no session is open.
    let mut play = Play::new(Retry::Never);
    play.line(OPENING);
    play.fails(play.last(), true);
    assert!(play.openings.is_empty() && play.unknown.is_empty());
    // The head of the answer is there: first the note of the session is written, then the note of the opening is removed.
    let mut play = Play::new(Retry::Never);
    play.line(OPENING);
    play.head(play.last(), 200, Content::Json, Some("s1"));
    assert!(play.openings.is_empty() && play.notes.len() == 1);
    // No head came before the end.
    let mut play = Play::new(Retry::Never);
    let opening = play.ask(OPENING);
    play.give(Input::Eof);
    play.wait(60_000);
    assert!(play.done);
    assert_eq!(play.unknown, [opening]);
}

#[test]
fn an_array_within_an_array_is_no_message() {
    // Deeper than any stack: it is looked at once, not once for each bracket.
    let deep = 200_000;
    let nested = "[".repeat(deep) + &"]".repeat(deep);
    let within = format!("[[{}],{}]", result(1), result(2));
    let mut play = Play::open(Retry::Never);
    let (first, second) = (play.ask(&call(1)), play.ask(&call(2)));
    play.json(first, &nested);
    assert_eq!(play.said.len(), 1);
    play.says(0, "without an answer in it");
    play.json(second, &within);
    assert_eq!(play.said[1..], [result(2)]);
    // The same on a stream, and from the client.
    let (third, before) = (play.ask(&call(3)), play.sent.len());
    play.stream(third);
    play.event(third, None, &nested);
    play.event(third, None, &format!("[[{}]]", result(3)));
    play.line(&nested);
    play.line(&format!("[[{}]]", call(4)));
    assert_eq!((play.said.len(), play.sent.len()), (2, before));
    play.event(third, None, &format!("[{}]", result(3)));
    play.line(&format!("[{}]", call(4)));
    assert_eq!(play.said[2..], [result(3)]);
    assert_eq!(play.id(play.last()), "4");
}

/// An event that says how long to wait.
fn waits(play: &mut Play, exchange: ExchangeId, retry_ms: u64) {
    play.give(Input::Event(
        exchange,
        sse::Event {
            name: String::new(),
            id: Some(b"e1".into()),
            retry_ms: Some(retry_ms),
            data: Vec::new(),
        },
    ));
}

/// The waits before each new exchange while this is done to it.
fn rests(play: &mut Play, times: usize, mut fate: impl FnMut(&mut Play, ExchangeId)) -> Vec<u64> {
    let mut rests = Vec::new();
    for _ in 0..times {
        let (last, since) = (play.last(), play.now);
        fate(play, last);
        while play.last() == last {
            let at = play.bridge.wake_at().unwrap();
            play.now = play.now.max(at);
            play.give(Input::Tick);
        }
        rests.push(play.now.ms_since(since));
    }
    rests
}

#[test]
fn a_server_that_wants_no_wait_is_not_asked_in_a_loop() {
    let down = |play: &mut Play, last| play.fails(last, true);
    let ill = |play: &mut Play, last| play.status(last, 503, "");
    let ends = |play: &mut Play, last| {
        play.stream(last);
        waits(play, last, 0);
        play.give(Input::End(last, End::Done));
    };
    let (least, first) = (limits::HTTP_RETRY_LEAST_MS, limits::HTTP_RETRY_MS);
    let grown = |n: u32| first << n;
    // The stream for what comes unasked.
    for fate in [down, ill] {
        let (mut play, _) = Play::listening(Retry::Safe);
        assert_eq!(rests(&mut play, 3, ends), [least; 3]);
        assert_eq!(
            rests(&mut play, 5, fate),
            [grown(1), grown(2), grown(3), grown(4), grown(5)]
        );
        assert_eq!(
            rests(&mut play, 5, fate)[4],
            limits::HTTP_RETRY_MOST_MS,
            "it grows no further"
        );
    }
    // The rest of an answer.
    for fate in [down, ill] {
        let mut play = Play::open(Retry::Safe);
        play.line(&call(1));
        assert_eq!(rests(&mut play, 3, ends), [least; 3]);
        assert_eq!(
            rests(&mut play, 4, fate),
            [grown(1), grown(2), grown(3), grown(4)]
        );
    }
    // One that wants a longer wait has it.
    let (mut play, _) = Play::listening(Retry::Safe);
    let asks = |play: &mut Play, last| {
        play.stream(last);
        waits(play, last, 3_000);
        play.give(Input::End(last, End::Done));
    };
    assert_eq!(rests(&mut play, 2, asks), [3_000; 2]);
}
