//! Event streams that break, stay open, or are kept for what comes unasked.
//! guards: A broken event stream is resumed, or its requests are answered.

use super::*;

#[test]
fn a_broken_stream_with_ids_is_resumed() {
    let mut play = Play::open(Retry::Never);
    let first = play.ask(&call(1));
    play.stream(first);
    play.event(first, Some("e1"), "");
    play.event(
        first,
        Some("e2"),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
    );
    play.fails(first, false);
    assert_eq!(play.said.len(), 1);
    play.wait(limits::HTTP_RETRY_MS);
    let resumed = play.last();
    assert_eq!(play.sending(resumed).verb, Verb::Get);
    assert_eq!(play.header(resumed, headers::LAST_EVENT), Some("e2"));
    assert_eq!(play.header(resumed, headers::SESSION), Some("s1"));
    play.fails(resumed, true);
    play.wait(2 * limits::HTTP_RETRY_MS);
    let resumed = play.last();
    play.stream(resumed);
    play.event(resumed, Some("e3"), &result(1));
    play.give(Input::End(resumed, End::Done));
    assert_eq!(play.said[1..], [result(1)]);
}

#[test]
fn a_stream_that_is_never_there_again_is_given_up() {
    let mut play = Play::open(Retry::Safe);
    let first = play.ask(&call(1));
    play.stream(first);
    play.event(first, Some("e1"), "");
    play.fails(first, false);
    let mut failed = first;
    for _ in 0..1_000 {
        play.wait(limits::HTTP_RETRY_MS);
        if play.last() > failed {
            failed = play.last();
            play.fails(failed, true);
        }
    }
    assert_eq!(play.said.len(), 1, "{:?}", play.said);
    assert!(
        play.said[0].contains("may or may not have taken effect"),
        "it had begun to answer: {:?}",
        play.said
    );
    let tries = play.sent.iter().filter(|one| one.verb == Verb::Get).count();
    assert!((5..20).contains(&tries), "{tries}");
}

#[test]
fn a_broken_stream_without_ids_is_settled_by_the_rules() {
    for (retry, line, again) in [
        (Retry::Safe, list(1), true),
        (Retry::Safe, call(1), false),
        (Retry::Annotated, call(1), true),
        (Retry::Never, list(1), false),
    ] {
        let mut play = Play::open(retry);
        play.line(&list(9));
        play.json(
            play.last(),
            r#"{"id":9,"result":{"tools":[{"name":"t","annotations":{"readOnlyHint":true}}]}}"#,
        );
        play.said.clear();
        let first = play.ask(&line);
        play.stream(first);
        play.fails(first, false);
        play.wait(1_000);
        assert_eq!(play.last() != first, again, "{line}");
        if again {
            play.fails(play.last(), false);
            play.wait(5_000);
        }
        assert_eq!(play.said.len(), 1, "{line}: {:?}", play.said);
        play.says(0, "did not finish its answer");
    }
}

#[test]
fn a_stream_that_stays_open_after_its_answer_is_broken_off() {
    let mut play = Play::open(Retry::Safe);
    let request = play.ask(&call(1));
    play.stream(request);
    play.event(request, None, &result(1));
    play.wait(limits::HTTP_SPENT_MS);
    assert!(play.closed.contains(&request));
}

#[test]
fn the_stream_for_what_comes_unasked_is_kept_open() {
    let (mut play, listen) = Play::listening(Retry::Safe);
    assert_eq!(play.header(listen, "accept"), Some("text/event-stream"));
    play.stream(listen);
    let news = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    play.event(listen, Some("n1"), news);
    assert_eq!(play.said, [news]);
    play.give(Input::End(listen, End::Done));
    play.wait(limits::HTTP_RETRY_MS);
    let again = play.last();
    assert_eq!(play.header(again, headers::LAST_EVENT), Some("n1"));
    play.fails(again, true);
    play.wait(limits::HTTP_RETRY_MOST_MS);
    let third = play.last();
    assert!(third > again);
    play.status(third, 404, "");
    assert_eq!(
        play.method(play.last()),
        "initialize",
        "the server was restarted"
    );
}
