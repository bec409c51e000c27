//! A table that has no room left: whatever is answered by us waits for a place like any other request, so that a keeper
//! that is killed before that is written is followed by one that answers.
//! guards: A request that finds the table full waits for a place, also if mainstay will answer it itself.

use super::*;

const SLOTS: u32 = 16;

/// Fills every place of the table with requests that stay unanswered.
fn fill(world: &mut World, places: u32) {
    for id in 0..places {
        world.client(&ask(100 + id, "tools/call"));
    }
    world.drain();
}

#[test]
fn with_a_full_table_a_request_waits_even_if_the_cache_could_answer() {
    let mut first = World::met(Limits::default(), Policy::default());
    first.client(&ask(2, "tools/list"));
    first.server(r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}]}}"#);
    let remembered = first.link.remembered().clone();

    let mut world = World::up();
    world.link.recall(remembered);
    world.client(INITIALIZE);
    fill(&mut world, SLOTS - 1);
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.drain(), ["result for 1", "tell from_cache"]);
    assert_eq!(world.client(&ask(2, "tools/list")), Route::Later);
    assert_eq!(world.drain(), [""; 0]);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.client(&ask(2, "tools/list")), Route::Replaced);
    let mut next = World::over(snapshot(&world), Some(lost()));
    assert!(next.drain().contains(&"error for 2".into()));
}

#[test]
fn with_a_full_table_a_server_discover_waits_even_if_its_refusal_is_cached() {
    let mut first = World::up();
    first.client(&ask(9, "server/discover"));
    first.exits(CRASH, true);
    first.empty();
    first.input(Input::Started);
    first.client(INITIALIZE);
    first.server(&greeting("1", "1"));
    let remembered = first.link.remembered().clone();

    let mut world = World::up();
    world.link.recall(remembered);
    fill(&mut world, SLOTS);
    let discover = ask(2, "server/discover");
    assert_eq!(world.client(&discover), Route::Later);
    world.client(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":100}}"#,
    );
    assert_eq!(world.client(&discover), Route::Replaced);
    assert_eq!(world.drain(), ["error for 2", "tell from_cache"]);
}

#[test]
fn with_a_full_table_the_opening_of_a_client_that_came_back_waits() {
    let mut world = World::met(Limits::default(), Policy::default());
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    fill(&mut world, SLOTS);
    for opening in [INITIALIZE, &ask(1, "server/discover")] {
        assert_eq!(world.client(opening), Route::Later);
    }
    assert_eq!(world.drain(), [""; 0]);
    world.client(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":100}}"#,
    );
    world.drain();
    assert_eq!(world.client(INITIALIZE), Route::Replaced);
    assert_eq!(world.drain(), ["result for 1"]);
}

#[test]
fn with_a_full_table_a_long_request_to_an_abandoned_server_waits() {
    let limits = Limits {
        restart_budget: 1,
        ..Limits::default()
    };
    let mut world = World::met(limits, Policy::default());
    world.exits(CRASH, true);
    world.empty();
    fill(&mut world, SLOTS);
    let line = ask(2, "tools/call");
    let mut scanner = Scanner::new();
    scanner.feed(line.as_bytes());
    let now = world.now();
    let frame = scanner.frame();
    assert_eq!(world.link.client_cut(now, Some(&frame)), Route::Later);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.link.client_cut(now, Some(&frame)), Route::Consumed);
    assert_eq!(world.link.in_flight(), 1);
}
