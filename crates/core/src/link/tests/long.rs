//! Lines that are too long to be held, told as short stories.
//! guards: A line that is too long to be buffered is answered once, also if the server or the keeper dies in the middle of it.

use mainstay_protocol::event::RestartReason;

use super::*;

/// A call that is longer than what is held of a line.
fn long_call(id: u32) -> String {
    let fill = "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let call = r#""method":"tools/call","params":{"name":"t","fill":""#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},{call}{fill}"}}}}"#)
}

impl World {
    /// The beginning of a line from the client.
    fn cut(&mut self, line: &str) -> Route {
        let now = self.now();
        let mut scanner = Scanner::new();
        scanner.feed(&line.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
        self.link.client_cut(now, scanner.known().as_ref())
    }

    /// The end of one that went nowhere.
    fn lost(&mut self, line: &str) {
        let now = self.now();
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        self.link.client_lost(now, &scanner.frame());
    }

    /// The end of one that was gathered.
    fn gathers(&mut self, line: &str) {
        let now = self.now();
        let line = format!("{line}\n");
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        self.link.client_piece(line.as_bytes());
        self.link.gathered_from_client(now, &scanner.frame());
    }
}

/// A link whose client came back, so that it is told apart from an earlier one.
fn reattached() -> World {
    let mut world = World::met(Limits::default(), Policy::default());
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.drain();
    world
}

fn abandoned() -> World {
    let limits = Limits {
        restart_budget: 1,
        ..Limits::default()
    };
    let mut world = World::met(limits, Policy::default());
    world.exits(CRASH, true);
    world.empty();
    assert_eq!(world.link.word(), "abandoned");
    world.drain();
    world
}

#[test]
fn a_request_that_an_abandoned_server_will_not_see_is_answered_at_its_end() {
    let mut world = abandoned();
    let call = long_call(2);
    assert_eq!(world.cut(&call), Route::Consumed);
    assert_eq!(world.drain(), [""; 0]);
    world.lost(&call);
    assert_eq!(world.drain(), ["result for 2"]);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn a_long_request_that_a_server_may_have_begun_is_not_called_unsent() {
    let mut world = abandoned();
    let call = long_call(2);
    for (cut, unsent) in [(true, true), (false, false)] {
        if cut {
            world.cut(&call);
        }
        world.lost(&call);
        let Some(Output::ToClient(told)) = world.link.next() else {
            panic!("no answer")
        };
        let told = String::from_utf8(told).unwrap();
        assert_eq!(told.contains("was not sent"), unsent, "{told}");
        assert_eq!(told.contains("may or may not"), !unsent, "{told}");
        world.link.written_to(u64::MAX);
        world.link.delivered_to(u64::MAX);
        assert_eq!(world.link.in_flight(), 0);
    }
}

#[test]
fn or_by_the_next_keeper_if_the_beginning_is_gone_with_this_one() {
    let mut world = abandoned();
    assert_eq!(world.cut(&long_call(2)), Route::Consumed);
    let mut next = World::over(snapshot(&world), Some(lost()));
    assert_eq!(next.drain()[0], "result for 2");
}

#[test]
fn a_long_request_is_not_answered_twice() {
    let mut world = abandoned();
    let call = long_call(2);
    world.cut(&call);
    world.input(Input::Renew(RestartReason::Asked));
    world.input(Input::StartFailed {
        problem: "no such file".into(),
        hint: String::new(),
        code: 127,
    });
    assert!(world.drain().contains(&"result for 2".into()));
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.lost(&call);
    assert_eq!(world.drain(), [""; 0]);
}

#[test]
fn a_request_that_is_gathered_is_in_flight_from_its_beginning() {
    let call = long_call(2);
    let mut killed = reattached();
    assert_eq!(killed.cut(&call), Route::Gather);
    let mut next = World::over(snapshot(&killed), Some(lost()));
    assert_eq!(next.drain()[0], "result for 2");

    let mut world = reattached();
    world.cut(&call);
    world.gathers(&call);
    assert!(world.drain()[0].contains("1500000001"));
    assert_eq!(world.link.in_flight(), 1);
}

#[test]
fn two_long_lines_that_pass_each_other_are_two() {
    let mut world = reattached();
    world.client(&ask(2, "prompts/get"));
    world.drain();
    let now = world.now();
    let fill = "y".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let line = answer("1500000001").replace("{}", &format!(r#"{{"a":"{fill}"}}"#)) + "\n";
    let mut scanner = Scanner::new();
    scanner.feed(line.as_bytes());
    let frame = scanner.frame();
    assert_eq!(world.link.server_known(Some(&frame)), Route::Gather);
    let (begins, ends) = line.as_bytes().split_at(line.len() / 2);
    world.link.server_piece(begins);
    let call = long_call(3);
    assert_eq!(world.cut(&call), Route::Gather);
    world.link.server_piece(ends);
    world.link.gathered_from_server(now, &frame);
    assert_eq!(world.drain(), ["result for 2"]);
    world.gathers(&call);
    let told = call.replace("\"id\":3", "\"id\":1500000002");
    assert_eq!(world.drain(), [format!("to server {told}")]);
}

/// The beginning of a long line from the server.
fn begins(world: &mut World, line: &str) -> Route {
    let mut scanner = Scanner::new();
    scanner.feed(&line.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
    world.link.server_known(scanner.begun().as_ref())
}

/// The second generation of a server, whose look at the lists is over.
fn second() -> World {
    let mut world = World::met(Limits::default(), Policy::default());
    world.dies_and_returns("1");
    world.drain();
    world
}

#[test]
fn a_result_with_its_id_last_passes_in_later_generations_too() {
    let fill = "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let long = |id: &str| format!(r#"{{"result":{{"a":"{fill}"}},"jsonrpc":"2.0","id":{id}}}"#);
    let mut world = second();
    world.client(&ask(7, "tools/call"));
    assert_eq!(begins(&mut world, &long("7")), Route::Pass);
    // An answer that we learn from may be behind it.
    world.client(&ask(8, "tools/list"));
    assert_eq!(begins(&mut world, &long("7")), Route::Gather);
    world.server(&answer("8"));
    assert_eq!(begins(&mut world, &long("7")), Route::Pass);
    // A question would need a label.
    let asks = format!(r#"{{"params":{{"a":"{fill}"}},"method":"m","id":7}}"#);
    assert_eq!(begins(&mut world, &asks), Route::Gather);
}

#[test]
fn an_unanswered_probe_does_not_hold_back_the_clients_result() {
    let mut world = World::met(Limits::default(), Policy::default());
    while world.wait() != Reason::Health {}
    assert!(world.drain().iter().any(|told| told.contains("ping")));
    let fill = "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let long = format!(r#"{{"result":{{"a":"{fill}"}},"jsonrpc":"2.0","id":7}}"#);
    assert_eq!(
        begins(&mut world, &long),
        Route::Gather,
        "it is no client's"
    );
    world.client(&ask(7, "tools/call"));
    assert_eq!(begins(&mut world, &long), Route::Pass);
}

#[test]
fn a_question_that_is_too_long_answers_no_request_of_the_same_id() {
    let mut world = second();
    world.client(&ask(7, "tools/call"));
    world.drain();
    let fill = "x".repeat(mainstay_protocol::limits::HELD_LINE_BYTES);
    let line =
        format!("{{\"id\":7,\"method\":\"sampling/createMessage\",\"params\":\"{fill}\"}}\n");
    assert_eq!(begins(&mut world, &line), Route::Gather);
    let now = world.now();
    let mut scanner = Scanner::new();
    scanner.feed(line.as_bytes());
    world.link.server_piece(line.as_bytes());
    world.link.gathered_from_server(now, &scanner.frame());
    let told = world.drain();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with(r#"to server {"jsonrpc":"2.0","id":7,"error":"#),
        "{told:?}"
    );
    assert_eq!(world.link.in_flight(), 1);
    assert_eq!(world.server(&answer("7")), Route::Pass);
}

#[test]
fn a_half_forwarded_request_whose_id_comes_after_the_last_death_is_answered() {
    let mut world = abandoned();
    let now = world.now();
    let mut scanner = Scanner::new();
    let line = format!("{}\n", long_call(2));
    scanner.feed(line.as_bytes());
    world.link.client_known(now, &scanner.frame());
    let Some(Output::ToClient(told)) = world.link.next() else {
        panic!("no answer")
    };
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("may or may not"), "{told}");
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn a_request_that_a_killed_keeper_had_half_passed_on_is_answered_by_its_id_at_the_end() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.server(r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#);
    // The dead server had asked the client under the id 3, and the client may ask under the same.
    for (begun, id, told) in [
        (Begun::Unknown, 7, &["error for 7"][..]),
        (Begun::Unknown, 3, &[]),
        (Begun::Answers, 3, &[]),
        (Begun::Asks, 3, &["error for 3"]),
    ] {
        let mut next = World::made(Limits::default(), Policy::default(), snapshot(&world));
        next.link.never_sent(b"", Some(begun));
        next.link.begin(Moment(0), Some(lost()));
        next.drain();
        let rest = format!("xx\"}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n");
        let mut scanner = Scanner::within_a_line(begun);
        scanner.feed(rest.as_bytes());
        let now = next.now();
        next.link.client_lost(now, &scanner.frame());
        assert_eq!(next.drain(), told);
    }
}

#[test]
fn a_call_whose_long_answer_is_half_at_the_client_has_no_deadline() {
    let fill = "y".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let id_first = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"text":"{fill}"}}}}"#);
    let id_last = format!(r#"{{"result":{{"text":"{fill}"}},"jsonrpc":"2.0","id":2}}"#);
    for answer in [id_first, id_last] {
        let limits = Limits {
            call_deadline_ms: 700,
            ..Limits::default()
        };
        let mut world = World::met(limits, Policy::default());
        world.client(&ask(2, "tools/call"));
        let mut scanner = Scanner::new();
        scanner.feed(&answer.as_bytes()[..mainstay_protocol::limits::WHOLE_LINE_BYTES]);
        assert_eq!(
            world.link.server_known(scanner.begun().as_ref()),
            Route::Pass
        );
        world.ms += 800;
        world.input(Input::Tick);
        assert_eq!(world.drain(), [""; 0], "the client has half of the answer");
        scanner.feed(
            format!(
                "{}\n",
                &answer[mainstay_protocol::limits::WHOLE_LINE_BYTES..]
            )
            .as_bytes(),
        );
        let now = world.now();
        let route = world.link.server_line_unseen(now, &scanner.frame());
        assert_eq!(route, Route::Pass);
        assert_eq!(world.link.in_flight(), 0);
        // The next call has its deadline again.
        world.client(&ask(3, "tools/call"));
        world.ms += 800;
        world.input(Input::Tick);
        assert_eq!(world.drain()[0], "result for 3");
    }
}

#[test]
fn a_request_that_comes_after_a_failed_start_is_answered_before_its_beginning_is_gone() {
    let mut world = World::over(memory(), None);
    world.input(Input::StartFailed {
        problem: "no such file".into(),
        hint: String::new(),
        code: 127,
    });
    assert_eq!(world.link.word(), "failed");
    world.drain();
    let call = long_call(2);
    assert_eq!(world.cut(&call), Route::Replaced);
    assert_eq!(world.drain()[0], "result for 2");
    let mut next = World::over(snapshot(&world), Some(lost()));
    assert_eq!(next.drain()[0], "result for 2", "it was not written");
    world.link.written_to(u64::MAX);
    world.lost(&call);
    assert_eq!(world.drain(), [""; 0], "one answer");
    let mut next = World::over(snapshot(&world), Some(lost()));
    assert!(!next.drain().contains(&"result for 2".into()));
}
