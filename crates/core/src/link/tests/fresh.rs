//! Lines that a killed keeper had read and taken note of, but not passed on: they are routed once, and answered once.
//! guards: A request that a killed keeper had read but not sent is sent by its successor and answered once.

use super::*;

/// Takes over from a keeper that was killed before it could say that these lines had been routed.
fn taken_over(first: &World, fresh: &str) -> World {
    let memory = snapshot(first);
    let mut next = World::made(Limits::default(), Policy::default(), memory);
    next.link.never_sent(fresh.as_bytes(), None);
    next.link.begin(Moment(0), Some(lost()));
    next
}

#[test]
fn a_call_that_was_noted_and_not_sent_is_not_answered_by_us() {
    let mut first = World::up();
    let (sent, fresh, half) = (
        ask(4, "tools/call"),
        ask(5, "tools/call"),
        ask(6, "tools/call"),
    );
    for line in [&sent, &fresh, &half] {
        assert_eq!(first.client(line), Route::Pass);
    }
    // Of the last one a part has come so far.
    let known = half.find("params").unwrap_or(half.len());
    let inbox = format!("{fresh}\n{}", &half[..known]);
    let mut next = taken_over(&first, &inbox);
    assert_eq!(next.drain(), ["result for 4", "tell keeper_lost", "spawn"]);
    assert_eq!(next.link.in_flight(), 0);
    next.input(Input::Started);
    next.drain();
    for line in [&fresh, &half] {
        assert_eq!(next.client(line), Route::Pass);
    }
    assert_eq!(next.link.in_flight(), 2);
}

#[test]
fn an_opening_that_was_not_sent_is_sent_once() {
    let mut first = World::over(memory(), None);
    first.input(Input::Started);
    first.client(INITIALIZE);
    let mut next = taken_over(&first, &format!("{INITIALIZE}\n"));
    assert_eq!(next.drain(), ["tell keeper_lost", "spawn"]);
    next.input(Input::Started);
    assert!(!next.drain().iter().any(|line| line.contains("initialize")));
    assert_eq!(next.client(INITIALIZE), Route::Pass);
    assert_eq!(next.server(&answer("1")), Route::Pass);
    assert_eq!(next.link.in_flight(), 0);
}

#[test]
fn a_batch_that_was_not_sent_is_not_answered_by_us() {
    let mut first = World::up();
    let batch = format!("[{},{}]", ask(4, "ping"), ask(5, "tools/call"));
    first.client(&batch);
    assert_eq!(first.link.in_flight(), 2);
    let mut next = taken_over(&first, &format!("{batch}\n"));
    assert_eq!(next.drain(), ["tell keeper_lost", "spawn"]);
    assert_eq!(next.link.in_flight(), 0);
}
