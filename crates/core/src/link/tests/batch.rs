//! Batches of answers, told as short stories.
//! guards: Each member of a batch is tracked and answered as a request of its own.

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
    assert_eq!(world.client(&format!("[{asked}]")), Route::Pass);
    assert_eq!(world.wait(), Reason::Deadline);
    let told = world.drain();
    for id in [2, 3] {
        let answer = format!("result for {id}");
        assert!(told.contains(&answer), "{told:?}");
    }
    world
}

#[test]
fn late_answers_to_requests_that_we_answered_are_dropped_from_a_batch() {
    let mut world = both_late();
    let late = format!("[{},{}]", answer("2"), answer("3"));
    assert_eq!(world.server(&late), Route::Replaced);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.link.exchange.requests().late_answers(), 0);
    // No answer is late: batches are forwarded unchanged.
    world.client(&ask(4, "tools/call"));
    assert_eq!(world.server(&format!("[{}]", answer("4"))), Route::Pass);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn the_neighbours_of_a_late_answer_reach_the_client() {
    let mut world = both_late();
    world.client(&ask(4, "tools/call"));
    let news = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    let mixed = format!("[{},{news},{}]", answer("3"), answer("4"));
    assert_eq!(world.server(&mixed), Route::Replaced);
    assert_eq!(
        world.drain(),
        ["to client notifications/message", "result for 4"]
    );
    assert_eq!(world.link.in_flight(), 0);
    assert_eq!(world.server(&answer("2")), Route::Consumed);
}

#[test]
fn an_answer_to_a_request_of_ours_is_of_no_use_to_the_client() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.client(&ask(2, "tools/call"));
    let mixed = format!("[{},{}]", answer("\"ms:own:00000007:7\""), answer("2"));
    assert_eq!(world.server(&mixed), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2"]);
}

#[test]
fn a_late_answer_in_a_long_batch_is_swallowed() {
    let fill = "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let long = answer("4").replace("{}", &format!("\"{fill}\""));
    let batch = format!("[{long},{}]\n", answer("2"));
    let mut scanner = Scanner::new();
    scanner.feed(&batch.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
    let known = scanner.known();
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

/// A long batch of the server's, held whole.
fn long_from_server(world: &mut World, batch: &str) {
    let mut scanner = Scanner::new();
    scanner.feed(&batch.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
    let route = world.link.server_known(scanner.known().as_ref());
    assert_eq!(route, Route::Gather);
    let line = format!("{batch}\n");
    let mut scanner = Scanner::new();
    scanner.feed(line.as_bytes());
    world.link.server_piece(line.as_bytes());
    let now = world.now();
    world.link.gathered_from_server(now, &scanner.frame());
}

/// The same of the client's.
fn long_from_client(world: &mut World, batch: &str) -> Route {
    let now = world.now();
    let mut scanner = Scanner::new();
    scanner.feed(&batch.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
    let route = world.link.client_cut(now, scanner.known().as_ref());
    if route == Route::Gather {
        let line = format!("{batch}\n");
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        world.link.client_piece(line.as_bytes());
        world.link.gathered_from_client(now, &scanner.frame());
    }
    route
}

fn fill() -> String {
    "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES)
}

#[test]
fn a_long_batch_closes_what_it_answers_and_goes_on_as_it_came() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.client(&ask(2, "tools/call"));
    world.client(&ask(3, "tools/call"));
    let long = answer("2").replace("{}", &format!("\"{}\"", fill()));
    let batch = format!("[{long}, {}]", answer("3"));
    long_from_server(&mut world, &batch);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("nothing for the client")
    };
    assert_eq!(line, format!("{batch}\n").into_bytes());
    assert_eq!(world.link.in_flight(), 0);
    world.link.delivered_to(u64::MAX);
    let mut killed = World::over(snapshot(&world), Some(lost()));
    let told = killed.drain();
    assert!(
        told.contains(&"result for 2".into()),
        "not written yet: {told:?}"
    );
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    let mut killed = World::over(snapshot(&world), Some(lost()));
    assert!(!killed.drain().contains(&"result for 2".into()));
}

#[test]
fn a_long_batch_of_the_clients_is_tracked_wherever_it_goes() {
    let call = ask(2, "tools/call").replace('}', &format!(",\"params\":\"{}\"}}", fill()));
    let batch = format!("[{call},{}]", ask(3, "tools/call"));
    let mut world = World::met(Limits::default(), Policy::default());
    assert_eq!(long_from_client(&mut world, &batch), Route::Gather);
    assert_eq!(world.drain(), [format!("to server {batch}")]);
    assert_eq!(world.link.in_flight(), 2);
    world.exits(CRASH, true);
    let told = world.drain();
    for id in [2, 3] {
        assert!(told.contains(&format!("result for {id}")), "{told:?}");
    }

    let limits = Limits {
        restart_budget: 1,
        ..Limits::default()
    };
    let mut world = World::met(limits, Policy::default());
    world.exits(CRASH, true);
    world.empty();
    world.drain();
    assert_eq!(world.link.word(), "abandoned");
    assert_eq!(long_from_client(&mut world, &batch), Route::Gather);
    assert_eq!(world.drain(), ["result for 2", "result for 3"]);
}

#[test]
fn a_batch_of_the_clients_that_cannot_be_held_is_answered_as_one() {
    let mut world = World::met(Limits::default(), Policy::default());
    let fill = "x".repeat(mainstay_protocol::limits::HELD_LINE_BYTES);
    let batch = format!("[{},\"{fill}\"]", ask(2, "tools/call"));
    let batch = format!("{}{batch}", " ".repeat(4));
    assert_eq!(long_from_client(&mut world, &batch), Route::Gather);
    assert_eq!(world.drain(), ["error for null"]);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn a_question_within_a_batch_has_its_label_and_its_answer() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.dies_and_returns("1");
    world.drain();
    let question = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    let news = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    assert_eq!(
        world.server(&format!("[{news},{question}]")),
        Route::Replaced
    );
    assert_eq!(
        world.drain(),
        ["to client notifications/message", "to client roots/list"]
    );
    for said in [answer("\"ms:2:1\""), format!("[{}]", answer("\"ms:2:2\""))] {
        assert_eq!(world.client(&said), Route::Replaced);
        assert_eq!(
            world.drain(),
            [r#"to server {"jsonrpc":"2.0","id":0,"result":{}}"#]
        );
        assert!(!world.link.exchange.client_is_asked());
        world.server(question);
        world.drain();
    }
}
