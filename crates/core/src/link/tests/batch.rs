//! Batches of answers, told as short stories.

use super::*;

/// A link whose calls have a deadline.
fn impatient() -> World {
    let limits = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    World::met(limits, Policy::default())
}

/// Both were asked in one batch, and we have answered both.
fn both_late() -> World {
    let mut world = impatient();
    let asked = [ask(2, "tools/call"), ask(3, "tools/call")].join(",");
    assert_eq!(world.client(&format!("[{asked}]")), Route::Forward);
    assert_eq!(world.wait(), Reason::Deadline);
    let told = world.drain();
    for id in [2, 3] {
        let answer = format!("result for {id}");
        assert!(told.contains(&answer), "{told:?}");
    }
    world
}

#[test]
fn what_we_have_answered_ourselves_is_swallowed_in_a_batch_too() {
    let mut world = both_late();
    let late = format!("[{},{}]", answer("2"), answer("3"));
    assert_eq!(world.server(&late), Route::Instead);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.link.inflight.settled(), 0);
    // Nothing is late any more: batches go on as they come.
    world.client(&ask(4, "tools/call"));
    assert_eq!(world.server(&format!("[{}]", answer("4"))), Route::Forward);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn the_neighbours_of_a_late_answer_reach_the_client() {
    let mut world = both_late();
    world.client(&ask(4, "tools/call"));
    let news = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    let mixed = format!("[{},{news},{}]", answer("3"), answer("4"));
    assert_eq!(world.server(&mixed), Route::Instead);
    assert_eq!(
        world.drain(),
        ["to client notifications/message", "result for 4"]
    );
    assert_eq!(world.link.in_flight(), 0);
    assert_eq!(world.server(&answer("2")), Route::Drop);
}

#[test]
fn an_answer_to_a_request_of_ours_is_of_no_use_to_the_client() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.client(&ask(2, "tools/call"));
    let mixed = format!("[{},{}]", answer("\"ms:own:00000007:7\""), answer("2"));
    assert_eq!(world.server(&mixed), Route::Instead);
    assert_eq!(world.drain(), ["result for 2"]);
}

#[test]
fn a_long_batch_is_held_whole_while_a_late_answer_may_be_in_it() {
    let fill = "x".repeat(crate::limits::WHOLE_LINE_BYTES);
    let long = answer("4").replace("{}", &format!("\"{fill}\""));
    let batch = format!("[{long},{}]\n", answer("2"));
    let mut scanner = Scanner::new();
    scanner.feed(&batch.as_bytes()[..crate::limits::WHOLE_LINE_BYTES]);
    let known = scanner.known();
    assert_eq!(
        impatient().link.server_known(known.as_ref()),
        Route::Forward
    );

    let mut world = both_late();
    world.client(&ask(4, "tools/call"));
    assert_eq!(world.link.server_known(known.as_ref()), Route::Gather);
    let mut scanner = Scanner::new();
    scanner.feed(batch.as_bytes());
    world.link.server_piece(batch.as_bytes());
    let now = world.now();
    world.link.gathered_from_server(now, &scanner.frame());
    assert_eq!(world.drain(), ["result for 4"]);
    assert_eq!(world.link.in_flight(), 0);
}
