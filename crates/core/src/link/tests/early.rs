//! What either side asks before the server is open, told as short stories.

use super::*;

/// A link whose opening the record has answered.
fn instant() -> World {
    let mut learned = World::met(Limits::default(), Policy::default());
    learned.drain();
    let remembered = learned.link.remembered().unwrap().clone();
    let mut world = World::up();
    world.link.recall(remembered);
    world.client(INITIALIZE);
    assert_eq!(world.wait(), Reason::Instant);
    world.link.written();
    world.drain();
    world.client(INITIALIZED);
    world
}

#[test]
fn what_was_asked_behind_an_instant_opening_is_asked_also_after_the_clients_end() {
    let mut world = instant();
    let call = ask(2, "tools/call");
    assert_eq!(world.client(&call), Route::Drop);
    world.input(Input::ClientEof);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.server(&greeting("1", "1")), Route::Instead);
    assert_eq!(
        world.drain(),
        [
            format!("to server {INITIALIZED}"),
            format!("to server {call}")
        ]
    );
    assert_eq!(world.server(&answer("2")), Route::Forward);
    assert_eq!(world.drain(), ["close stdin"]);
}

/// A refusal of the opening, under this id.
fn refusal(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"busy"}}}}"#)
}

/// The refused generation is gone, and the next one is started.
fn renewed(world: &mut World) {
    world.exits(Status::Code(0), true);
    world.empty();
    let mut told = world.drain();
    if told.last().is_none_or(|last| last != "spawn") {
        assert_eq!(world.wait(), Reason::Respawn);
        told = world.drain();
    }
    assert_eq!(told.last().map(String::as_str), Some("spawn"), "{told:?}");
}

#[test]
fn a_refused_opening_that_the_record_has_answered_is_tried_by_the_next_generation() {
    let mut world = instant();
    let call = ask(2, "tools/call");
    assert_eq!(world.client(&call), Route::Drop);
    assert_eq!(world.server(&refusal("1")), Route::Instead);
    let told = world.drain();
    assert!(told.contains(&"tell differs".into()), "{told:?}");
    assert!(
        !told.iter().any(|line| line.starts_with("result")),
        "{told:?}"
    );
    renewed(&mut world);
    world.input(Input::Started);
    world.drain();
    // What comes meanwhile waits, too.
    assert_eq!(world.client(&ask(3, "tools/call")), Route::Hold);
    world.server(&greeting("\"ms:own:00000007:1\"", "1"));
    let told = world.drain();
    assert!(
        told.contains(&format!("to server {INITIALIZED}")),
        "{told:?}"
    );
    assert!(told.contains(&format!("to server {call}")), "{told:?}");
    assert_eq!(world.server(&answer("2")), Route::Forward);
    assert_eq!(world.link.word(), "ready");
    // The next session opens from the record again.
    let remembered = world.link.remembered().unwrap().clone();
    let mut next = World::up();
    next.link.recall(remembered);
    next.client(INITIALIZE);
    assert_eq!(next.wait(), Reason::Instant);
}

#[test]
fn one_that_is_always_refused_is_given_up_and_each_call_is_answered() {
    let mut world = instant();
    world.client(&ask(2, "tools/call"));
    assert_eq!(world.server(&refusal("1")), Route::Instead);
    let mut told = world.drain();
    for turn in 1.. {
        assert!(turn < 20, "it is given up");
        world.exits(Status::Code(0), true);
        world.empty();
        told.extend(world.drain());
        if told.iter().any(|line| line == "result for 2") {
            break;
        }
        if told.last().is_none_or(|last| last != "spawn") {
            assert_eq!(world.wait(), Reason::Respawn);
            told.extend(world.drain());
        }
        world.input(Input::Started);
        world.drain();
        world.server(&refusal(&format!("\"ms:own:00000007:{turn}\"")));
        told.extend(world.drain());
    }
    let answers = told.iter().filter(|line| line.starts_with("result for"));
    assert_eq!(answers.count(), 1, "{told:?}");
    // The link goes on, in words.
    world.client(&ask(3, "tools/call"));
    assert_eq!(world.drain(), ["result for 3"]);
    assert!(
        !told.iter().any(|line| line.starts_with("finish")),
        "{told:?}"
    );
}

#[test]
fn after_the_clients_end_a_refused_opening_answers_what_waits() {
    let mut world = instant();
    world.client(&ask(2, "tools/call"));
    world.input(Input::ClientEof);
    world.drain();
    assert_eq!(world.server(&refusal("1")), Route::Instead);
    let told = world.drain();
    assert!(told.contains(&"result for 2".into()), "{told:?}");
}

#[test]
fn but_not_when_nobody_waits_for_it_any_more() {
    let mut world = instant();
    world.client(&ask(2, "tools/call"));
    world.input(Input::Stop(Cause::ClientGone));
    world.drain();
    world.server(&greeting("1", "1"));
    assert_eq!(world.drain(), [""; 0]);
}

#[test]
fn a_server_that_asks_before_it_is_opened_has_its_answer() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
    let mut world = instant();
    assert_eq!(world.server(PING), Route::Forward);
    assert_eq!(world.client(&answer("0")), Route::Forward);

    let mut world = World::met(Limits::default(), Policy::default());
    world.exits(CRASH, true);
    world.empty();
    world.input(Input::Started);
    world.drain();
    assert_eq!(world.link.word(), "greeting");
    let call = ask(2, "tools/call");
    assert_eq!(world.client(&call), Route::Hold);
    assert_eq!(world.server(PING), Route::Instead);
    assert_eq!(world.drain(), ["to client ping"]);
    // What lies before the answer makes way for it, and keeps its turn.
    assert_eq!(world.client(&call), Route::Drop);
    assert_eq!(world.client(&answer("\"ms:2:1\"")), Route::Instead);
    assert_eq!(
        world.drain(),
        [r#"to server {"jsonrpc":"2.0","id":0,"result":{}}"#]
    );
    world.server(&greeting("\"ms:own:00000007:1\"", "1"));
    let told = world.drain();
    assert!(told.contains(&format!("to server {call}")), "{told:?}");
    assert_eq!(world.link.word(), "ready");
}

#[test]
fn that_the_client_knows_of_the_opening_is_noted_and_not_held() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(&greeting("1", "1"));
    world.exits(CRASH, true);
    world.empty();
    world.input(Input::Started);
    world.drain();
    assert_eq!(world.client(INITIALIZED), Route::Hold);
    assert_eq!(world.server(PING), Route::Instead);
    world.drain();
    // A killed keeper's successor has the record, and nothing of what is held.
    assert_eq!(world.client(INITIALIZED), Route::Drop);
    assert_ne!(world.link.head.initialized, 0);
    world.server(&greeting("\"ms:own:00000007:1\"", "1"));
    let told = world.drain();
    let initialized = format!("to server {INITIALIZED}");
    let times = told.iter().filter(|line| **line == initialized).count();
    assert_eq!(times, 1, "{told:?}");
}
