//! What either side asks before the server is open, told as short stories.
//! guards: Requests before the opening are answered, and a remembered opening that turns out wrong is corrected.

use super::*;

/// A link whose opening the record has answered.
fn instant() -> World {
    let mut learned = World::met(Limits::default(), Policy::default());
    learned.drain();
    let remembered = learned.link.remembered().clone();
    let mut world = World::up();
    world.link.recall(remembered);
    world.client(INITIALIZE);
    assert_eq!(world.wait(), Reason::Instant);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.drain();
    world.client(INITIALIZED);
    world
}

#[test]
fn requests_held_behind_a_cached_opening_are_sent_even_after_the_clients_eof() {
    let mut world = instant();
    let call = ask(2, "tools/call");
    assert_eq!(world.client(&call), Route::Consumed);
    world.input(Input::ClientEof);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.server(&greeting("1", "1")), Route::Replaced);
    assert_eq!(
        world.drain(),
        [
            format!("to server {INITIALIZED}"),
            format!("to server {call}")
        ]
    );
    assert_eq!(world.server(&answer("2")), Route::Pass);
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
    assert_eq!(world.client(&call), Route::Consumed);
    assert_eq!(world.server(&refusal("1")), Route::Replaced);
    let told = world.drain();
    assert!(told.contains(&"tell server_changed".into()), "{told:?}");
    assert!(
        !told.iter().any(|line| line.starts_with("result")),
        "{told:?}"
    );
    renewed(&mut world);
    world.input(Input::Started);
    world.drain();
    // What comes meanwhile waits, too.
    assert_eq!(world.client(&ask(3, "tools/call")), Route::Later);
    world.server(&greeting("\"ms:own:00000007:1\"", "1"));
    let told = world.drain();
    assert!(
        told.contains(&format!("to server {INITIALIZED}")),
        "{told:?}"
    );
    assert!(told.contains(&format!("to server {call}")), "{told:?}");
    assert_eq!(world.server(&answer("2")), Route::Pass);
    assert_eq!(world.link.word(), "ready");
    // The next session opens from the record again.
    let remembered = world.link.remembered().clone();
    let mut next = World::up();
    next.link.recall(remembered);
    next.client(INITIALIZE);
    assert_eq!(next.wait(), Reason::Instant);
}

#[test]
fn a_server_that_always_refuses_the_opening_is_given_up_and_each_call_is_answered() {
    let mut world = instant();
    world.client(&ask(2, "tools/call"));
    assert_eq!(world.server(&refusal("1")), Route::Replaced);
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
    // The link continues and answers in text.
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
    assert_eq!(world.server(&refusal("1")), Route::Replaced);
    let told = world.drain();
    assert!(told.contains(&"result for 2".into()), "{told:?}");
}

#[test]
fn requests_held_behind_a_cached_opening_are_not_sent_after_the_client_is_gone() {
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
    assert_eq!(world.server(PING), Route::Pass);
    assert_eq!(world.client(&answer("0")), Route::Pass);

    let mut world = World::met(Limits::default(), Policy::default());
    world.exits(CRASH, true);
    world.empty();
    world.input(Input::Started);
    world.drain();
    assert_eq!(world.link.word(), "greeting");
    let call = ask(2, "tools/call");
    assert_eq!(world.client(&call), Route::Later);
    assert_eq!(world.server(PING), Route::Replaced);
    assert_eq!(world.drain(), ["to client ping"]);
    // What lies before the answer makes way for it, and keeps its turn.
    assert_eq!(world.client(&call), Route::Consumed);
    assert_eq!(world.client(&answer("\"ms:2:1\"")), Route::Replaced);
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
    assert_eq!(world.client(INITIALIZED), Route::Later);
    assert_eq!(world.server(PING), Route::Replaced);
    world.drain();
    // A killed keeper's successor has the record, and nothing of what is held.
    assert_eq!(world.client(INITIALIZED), Route::Consumed);
    assert!(world.link.exchange.session().initialized());
    world.server(&greeting("\"ms:own:00000007:1\"", "1"));
    let told = world.drain();
    let initialized = format!("to server {INITIALIZED}");
    let times = told.iter().filter(|line| **line == initialized).count();
    assert_eq!(times, 1, "{told:?}");
}

const REFUSED: &str =
    r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found"}}"#;

/// A link of a configuration whose server has refused `server/discover` with this line.
fn refused(policy: Policy, line: &str) -> World {
    let mut learned = World::up();
    learned.client(&ask(0, "server/discover"));
    assert_eq!(learned.server(line), Route::Pass);
    learned.client(INITIALIZE);
    learned.server(&greeting("1", "1"));
    let remembered = learned.link.remembered().clone();
    let mut world = World::with(Limits::default(), policy, memory(), None);
    world.link.recall(remembered.from_disk());
    world.drain();
    world
}

#[test]
fn a_remembered_refusal_of_discover_is_given_at_once_and_not_asked_for() {
    let mut world = refused(Policy::default(), REFUSED);
    world.input(Input::Started);
    world.drain();
    assert_eq!(world.client(&ask(7, "server/discover")), Route::Replaced);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("no answer")
    };
    let expected = REFUSED.replace("\"id\":0", "\"id\":7") + "\n";
    assert_eq!(String::from_utf8(line).unwrap(), expected);
    assert_eq!(world.drain(), ["tell from_cache"]);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    // The opening that follows is the server's first line.
    assert_eq!(world.client(INITIALIZE), Route::Pass);
    assert_eq!(world.wait(), Reason::Instant);
}

#[test]
fn a_remembered_refusal_of_discover_starts_no_lazy_server() {
    let lazy = Policy {
        lazy: true,
        ..Policy::default()
    };
    let mut world = refused(lazy, REFUSED);
    assert_eq!(world.client(&ask(7, "server/discover")), Route::Replaced);
    assert_eq!(world.drain(), ["error for 7", "tell from_cache"]);
    assert_eq!(world.client(INITIALIZE), Route::Replaced);
    assert_eq!(world.drain(), ["result for 1", "tell from_cache"]);
}

#[test]
fn a_refusal_of_the_moment_or_of_a_modern_server_is_not_remembered() {
    for code in ["-32603", "-32000", "-32022", "-32020", "1"] {
        let mut world = refused(Policy::default(), &REFUSED.replace("-32601", code));
        world.input(Input::Started);
        world.drain();
        assert_eq!(
            world.client(&ask(7, "server/discover")),
            Route::Pass,
            "{code}"
        );
    }
}

#[test]
fn a_server_of_another_version_is_asked_again_in_the_next_session() {
    let info = |version: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"1","capabilities":{{}},"serverInfo":{{"name":"s","version":"{version}"}}}}}}"#
        )
    };
    let mut world = World::up();
    world.client(&ask(0, "server/discover"));
    world.server(REFUSED);
    world.client(INITIALIZE);
    world.server(&info("1.0"));
    for (version, asked) in [("1.0", false), ("2.0", true)] {
        let remembered = world.link.remembered().clone();
        world = World::up();
        world.link.recall(remembered.from_disk());
        assert_eq!(world.client(&ask(0, "server/discover")), Route::Replaced);
        world.client(INITIALIZE);
        world.server(&info(version));
        let known = world.link.remembered().refusal().is_some();
        assert_eq!(known, !asked, "{version}");
        let mut remembered = world.link.remembered().clone();
        remembered.learn_legacy();
        remembered.learn_refusal(br#"{"code":-32601,"message":"Method not found"}"#);
        world.link.recall(remembered);
    }
}

#[test]
fn an_opening_that_is_refused_takes_the_refusal_of_discover_back() {
    let mut world = refused(Policy::default(), REFUSED);
    world.input(Input::Started);
    world.client(&ask(7, "server/discover"));
    world.client(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"9"}}"#,
    );
    world.server(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"modern only"}}"#);
    assert!(world.link.remembered().refusal().is_none());
}

/// A request of the modern era.
fn modern(id: u32, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

fn list(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"{tool}"}}]}}}}"#)
}

/// A link of the modern era that has a record and a server that is up and says nothing.
fn slow() -> World {
    let mut learned = World::up();
    learned.client(&modern(1, "tools/list"));
    learned.server(&list(1, "old"));
    learned.client(&modern(2, "prompts/list"));
    learned.server(r#"{"jsonrpc":"2.0","id":2,"result":{"prompts":[]}}"#);
    let remembered = learned.link.remembered().clone();
    let mut world = World::up();
    world.link.recall(remembered.from_disk());
    world
}

#[test]
fn in_the_modern_era_the_client_waits_once_for_a_slow_server() {
    let mut world = slow();
    assert_eq!(world.client(&modern(1, "tools/list")), Route::Pass);
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.ms, Limits::default().instant_opening_ms);
    assert_eq!(world.drain(), ["result for 1", "tell from_cache"]);
    world.ms += 5;
    let asked = world.ms;
    assert_eq!(world.client(&modern(2, "prompts/list")), Route::Pass);
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.ms, asked, "at once");
    assert_eq!(world.drain(), ["result for 2", "tell from_cache"]);
    // The server speaks: from now on the client waits for it again.
    assert_eq!(world.server(&list(1, "old")), Route::Consumed);
    world.ms += 5;
    let asked = world.ms;
    world.client(&modern(3, "prompts/list"));
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.ms, asked + Limits::default().instant_opening_ms);
}

#[test]
fn a_late_list_of_the_modern_era_corrects_the_record() {
    let mut world = slow();
    world.client(&modern(1, "tools/list"));
    world.wait();
    world.drain();
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.server(&list(1, "new")), Route::Consumed);
    let known = world.link.remembered().list(None, Which::Tools);
    assert_eq!(known, Some(br#"{"tools":[{"name":"new"}]}"#.as_slice()));
    let answers = world.link.remembered().answers().unwrap();
    assert_eq!(answers.params_digest, None);
    assert!(answers.parts[1].is_some() && answers.parts[2].is_none());
}

#[test]
fn a_cached_list_is_checked_even_if_the_client_cannot_be_told() {
    let plain =
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1","capabilities":{"tools":{}}}}"#;
    let mut learned = World::up();
    learned.client(INITIALIZE);
    learned.server(plain);
    learned.client(&ask(2, "tools/list"));
    learned.server(&list(2, "old"));
    let remembered = learned.link.remembered().clone();
    let mut world = World::up();
    world.link.recall(remembered.from_disk());
    world.client(INITIALIZE);
    world.wait();
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.client(&ask(2, "tools/list")), Route::Replaced);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.drain();
    world.server(plain);
    let asked = world.drain();
    assert!(
        asked.iter().any(|line| line.contains("tools/list")),
        "{asked:?}"
    );
    let id = r#""id":"ms:own:00000007:1""#;
    world.server(&list(0, "new").replace("\"id\":0", id));
    let told = world.drain();
    assert!(
        !told.iter().any(|line| line.contains("list_changed")),
        "{told:?}"
    );
    let remembered = world.link.remembered();
    let digest = remembered.openings()[0].params_digest;
    let known = remembered.list(Some(digest), Which::Tools);
    assert_eq!(known, Some(br#"{"tools":[{"name":"new"}]}"#.as_slice()));
}

#[test]
fn a_list_that_the_server_does_not_have_is_refused_from_the_record_too() {
    let refusal = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no prompts"}}}}"#)
    };
    let mut learned = World::met(Limits::default(), Policy::default());
    learned.client(&ask(2, "prompts/list"));
    learned.server(&refusal(2));
    let mut world = World::up();
    world
        .link
        .recall(learned.link.remembered().clone().from_disk());
    world.client(INITIALIZE);
    world.wait();
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.drain();
    assert_eq!(world.client(&ask(3, "prompts/list")), Route::Replaced);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("no answer")
    };
    assert_eq!(String::from_utf8(line).unwrap(), refusal(3) + "\n");
    // The server says something else of itself: it may have prompts by now.
    world.server(&greeting("1", "1").replace("tools", "prompts"));
    let digest = world.link.remembered().openings()[0].params_digest;
    let known = world
        .link
        .remembered()
        .list_refusal(Some(digest), Which::Prompts);
    assert_eq!(known, None);
}
