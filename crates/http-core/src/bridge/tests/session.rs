//! The life of a session: noted, used, closed however the client ends.
//! guards: A session is on the disk before the client sees it, and is closed however the client ends.

use super::*;

#[test]
fn a_session_is_noted_before_the_client_sees_it() {
    let mut play = Play::new(Retry::Safe);
    let opening = play.ask(OPENING);
    assert_eq!(play.header(opening, headers::SESSION), None);
    assert_eq!(play.header(opening, headers::VERSION), None);
    assert_eq!(
        play.header(opening, "accept"),
        Some("application/json, text/event-stream")
    );
    play.line(&list(1));
    assert_eq!(play.sent.len(), 1, "nothing passes before the opening");
    play.head(opening, 200, Content::Json, Some("s1"));
    assert_eq!(
        play.notes,
        [("s1".into(), Some("2025-11-25".into()))],
        "with the head already"
    );
    assert!(play.said.is_empty());
    play.body(opening, OPENED);
    assert_eq!(play.said, [OPENED]);
    assert_eq!(
        play.notes[1].1.as_deref(),
        Some("2025-06-18"),
        "and with the version that was agreed on"
    );
    let next = play.last();
    assert_eq!(play.method(next), "tools/list");
    assert_eq!(play.header(next, headers::SESSION), Some("s1"));
    assert_eq!(play.header(next, headers::VERSION), Some("2025-06-18"));
}

#[test]
fn a_session_that_cannot_be_noted_is_closed_and_not_shown() {
    let mut play = Play::new(Retry::Safe);
    play.refuse_notes = true;
    let opening = play.ask(OPENING);
    play.line(&list(1));
    play.head(opening, 200, Content::Json, Some("s1"));
    let delete = play.last();
    assert_eq!(play.sending(delete).verb, Verb::Delete);
    assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
    play.body(opening, OPENED);
    play.status(delete, 200, "");
    assert_eq!(play.sessions_closed, ["s1"]);
    assert_eq!(play.said.len(), 2, "{:?}", play.said);
    play.says(0, "no space left on device; make room");
}

#[test]
fn the_end_of_the_client_closes_the_session() {
    for (status, body, closed) in [
        (200, "", true),
        (202, "", true),
        (404, "", true),
        (405, "", true),
        (400, "Bad Request: no valid session", true),
        (400, "what?", false),
        (500, "", false),
    ] {
        let mut play = Play::open(Retry::Safe);
        play.give(Input::Eof);
        let delete = play.last();
        assert_eq!(play.sending(delete).verb, Verb::Delete);
        assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
        assert_eq!(play.header(delete, headers::VERSION), Some("2025-06-18"));
        assert!(!play.done);
        play.status(delete, status, body);
        assert_eq!(
            (play.sessions_closed.len(), play.sessions_unclosed.len()),
            (usize::from(closed), usize::from(!closed)),
            "{status}"
        );
        assert!(play.done);
    }
}

#[test]
fn a_server_that_does_not_answer_the_delete_is_not_waited_for_for_ever() {
    let mut play = Play::open(Retry::Safe);
    play.give(Input::Term);
    play.wait(limits::HTTP_FAREWELL_MS - 1);
    assert!(!play.done);
    play.wait(2);
    assert!(play.done);
    assert_eq!(play.sessions_unclosed, ["s1"], "it stays written down");
}

#[test]
fn what_is_in_flight_has_its_time_after_eof_and_none_after_a_signal() {
    let mut play = Play::open(Retry::Safe);
    let request = play.ask(&call(1));
    play.give(Input::Eof);
    assert_eq!(play.last(), request, "no delete yet");
    play.json(request, &result(1));
    assert_eq!(play.said, [result(1)]);
    assert_eq!(play.sending(play.last()).verb, Verb::Delete);

    let mut play = Play::open(Retry::Safe);
    let request = play.ask(&call(1));
    play.give(Input::Eof);
    play.give(Input::Term);
    assert!(play.closed.contains(&request));
    assert_eq!(play.sending(play.last()).verb, Verb::Delete);
}

#[test]
fn a_session_that_appears_at_the_very_end_is_closed_too() {
    let mut play = Play::new(Retry::Safe);
    let opening = play.ask(OPENING);
    play.give(Input::Term);
    assert!(!play.done);
    play.head(opening, 200, Content::Json, Some("late"));
    assert_eq!(play.notes[0].0, "late");
    let delete = play.last();
    assert_eq!(play.header(delete, headers::SESSION), Some("late"));
    play.status(delete, 200, "");
    assert_eq!(play.sessions_closed, ["late"]);
    assert!(play.done);
}

#[test]
fn a_client_that_begins_anew_leaves_no_session_behind() {
    let mut play = Play::open(Retry::Safe);
    play.line(&OPENING.replace("\"id\":0", "\"id\":50"));
    let delete = &play.sent[play.sent.len() - 2];
    assert_eq!(delete.verb, Verb::Delete);
    assert_eq!(play.method(play.last()), "initialize");
}
