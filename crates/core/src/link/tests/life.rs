//! From one generation to the next, told as short stories.
//! guards: The next generation gets log level and subscriptions before the traffic of the client, and a busy server is never ended for being slow.

use mainstay_protocol::event::RestartReason;
use mainstay_protocol::policy::Retry;

use super::*;

fn safe() -> Policy {
    Policy::default()
}

fn call(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

#[test]
fn level_and_subscriptions_come_back_before_the_clients_traffic() {
    let mut world = World::met(Limits::default(), safe());
    let level = r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}"#;
    let wish = |id: u32, verb: &str, uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{verb}","params":{{"uri":"{uri}"}}}}"#
        )
    };
    for (id, line) in [
        (2, level.to_string()),
        (3, wish(3, "subscribe", "a:1")),
        (4, wish(4, "subscribe", "a:2")),
        (5, wish(5, "unsubscribe", "a:1")),
    ] {
        assert_eq!(world.client(&line), Route::Pass);
        world.server(&answer(&id.to_string()));
    }
    // One that was refused is not repeated.
    world.client(&wish(6, "subscribe", "a:3"));
    world.server(r#"{"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"no"}}"#);
    world.dies_and_returns("1");
    let sent = world.drain();
    assert_eq!(
        sent,
        [
            format!("to server {INITIALIZED}"),
            format!(
                "to server {}",
                level.replace("\"id\":2", "\"id\":\"ms:own:00000007:2\"")
            ),
            format!(
                "to server {}",
                wish(4, "subscribe", "a:2").replace("\"id\":4", "\"id\":\"ms:own:00000007:3\"")
            ),
        ]
    );
    assert_eq!(world.client(&ask(7, "ping")), Route::Later);
    world.server(&answer("\"ms:own:00000007:2\""));
    assert_eq!(world.client(&ask(7, "ping")), Route::Later);
    world.server(&answer("\"ms:own:00000007:3\""));
    assert_eq!(world.drain(), ["tell ready"]);
    assert_eq!(world.client(&ask(7, "ping")), Route::Pass);
}

#[test]
fn of_two_requests_for_one_setting_the_last_one_asked_counts() {
    let mut world = World::met(Limits::default(), safe());
    let level = |id: u32, level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        )
    };
    let wish = |id: u32, verb: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{verb}","params":{{"uri":"a:1"}}}}"#
        )
    };
    for line in [
        level(2, "error"),
        wish(3, "subscribe"),
        wish(4, "read"),
        level(5, "debug"),
        wish(6, "unsubscribe"),
        level(7, "info"),
        level(8, "alert"),
    ] {
        world.client(&line);
    }
    // The later ones are answered first; of those that are never answered, 2 is older than what lasts, and 8 is not.
    for id in ["7", "5", "6", "3"] {
        assert_eq!(world.server(&answer(id)), Route::Pass);
    }
    assert_eq!(world.dies_and_returns("1")[0], "error for 2");
    let replayed = level(7, "info").replace(":7", ":\"ms:own:00000007:2\"");
    assert_eq!(
        world.drain(),
        [INITIALIZED.into(), replayed].map(|line: String| format!("to server {line}"))
    );
    world.server(&answer("\"ms:own:00000007:2\""));
    assert_eq!(
        world.drain()[..2],
        [wish(4, "read"), level(8, "alert")].map(|line| format!("to server {line}"))
    );
}

#[test]
fn a_request_that_kills_two_generations_is_not_sent_a_third_time() {
    let mut world = World::met(Limits::default(), safe());
    world.client(&ask(2, "resources/read"));
    assert_eq!(world.dies_and_returns("1"), ["tell exit", "spawn"]);
    assert!(
        world
            .drain()
            .iter()
            .any(|line| line.contains("resources/read"))
    );
    let told = world.dies_and_returns("2");
    assert_eq!(told[0], "error for 2");
}

#[test]
fn nothing_is_sent_again_if_the_user_wants_none_of_it() {
    let policy = Policy {
        retry: Retry::Never,
        ..safe()
    };
    let mut world = World::met(Limits::default(), policy);
    world.client(&ask(2, "tools/list"));
    assert_eq!(world.dies_and_returns("1")[0], "error for 2");
}

#[test]
fn a_tool_that_says_it_only_reads_is_called_again_if_the_user_believes_it() {
    for (retry, name, expected) in [
        (Retry::Annotated, "reads", "tell exit"),
        (Retry::Annotated, "writes", "result for 3"),
        (Retry::Safe, "reads", "result for 3"),
    ] {
        let mut world = World::met(Limits::default(), Policy { retry, ..safe() });
        world.client(&ask(2, "tools/list"));
        world.server(
            r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}},{"name":"writes"}]}}"#,
        );
        world.client(&call(3, name));
        assert_eq!(world.dies_and_returns("1")[0], expected, "{retry:?} {name}");
    }
}

#[test]
fn too_many_deaths_end_in_answers_at_once_until_a_trial_holds() {
    let limits = Limits {
        restart_budget: 2,
        ..Limits::default()
    };
    let mut world = World::met(limits, safe());
    world.dies_and_returns("1");
    world.drain();
    world.client(&ask(2, "tools/list"));
    world.exits(CRASH, true);
    world.empty();
    assert_eq!(
        world.drain(),
        ["error for 2", "tell exit", "tell abandoned"]
    );
    assert_eq!(world.link.word(), "abandoned");
    assert_eq!(world.client(&ask(3, "tools/list")), Route::Replaced);
    assert_eq!(world.drain(), ["error for 3"]);
    // A trial that fails leaves everything as it was.
    assert_eq!(world.wait(), Reason::Trial);
    assert_eq!(world.drain(), ["spawn"]);
    world.input(Input::Started);
    assert_eq!(world.client(&ask(4, "tools/list")), Route::Replaced);
    world.exits(CRASH, true);
    world.empty();
    assert_eq!(world.link.word(), "abandoned");
    world.drain();
    // One that greets is forgiven.
    world.wait();
    world.drain();
    world.greets_again("3");
    assert_eq!(world.link.word(), "ready");
    assert_eq!(world.client(&ask(5, "tools/list")), Route::Pass);
}

#[test]
fn a_restart_waits_for_what_is_in_flight_and_holds_what_is_new() {
    let mut world = World::met(Limits::default(), safe());
    world.client(&call(2, "x"));
    world.input(Input::Renew(RestartReason::Asked));
    assert_eq!(world.drain(), ["tell restarting"]);
    assert_eq!(world.client(&call(3, "y")), Route::Consumed);
    assert_eq!(world.server(&answer("2")), Route::Pass);
    assert_eq!(world.drain(), ["close stdin"]);
    world.exits(Status::Code(0), true);
    world.empty();
    assert_eq!(world.drain(), ["tell exit", "tell teardown", "spawn"]);
    world.greets_again("1");
    let sent = world.drain();
    assert_eq!(sent.last(), Some(&format!("to server {}", call(3, "y"))));
    assert_eq!(world.server(&answer("3")), Route::Pass);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn a_restart_does_not_wait_for_ever() {
    let mut world = World::met(Limits::default(), safe());
    world.client(&call(2, "x"));
    world.input(Input::Renew(RestartReason::Asked));
    assert_eq!(world.wait(), Reason::Drained);
    assert_eq!(world.drain(), ["tell restarting", "close stdin"]);
    world.exits(Status::Code(0), true);
    assert_eq!(world.drain(), ["result for 2", "tell exit"]);
}

#[test]
fn questions_of_each_generation_get_their_own_ids() {
    let mut world = World::met(Limits::default(), safe());
    let asks = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    assert_eq!(world.server(asks), Route::Pass);
    let told = world.dies_and_returns("1");
    assert!(
        told.contains(&"to client notifications/cancelled".into()),
        "{told:?}"
    );
    world.drain();
    // The late answer to the dead one goes nowhere.
    assert_eq!(world.client(&answer("0")), Route::Consumed);
    assert_eq!(world.server(asks), Route::Replaced);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("no question")
    };
    let asked: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert!(asked["id"].is_string());
    assert_eq!(
        world.client(&answer(&asked["id"].to_string())),
        Route::Replaced
    );
    assert_eq!(world.drain(), [format!("to server {}", answer("0"))]);
}

#[test]
fn another_protocol_version_ends_the_session() {
    let mut world = World::met(Limits::default(), safe());
    world.client(&ask(2, "tools/list"));
    world.exits(CRASH, true);
    world.empty();
    world.input(Input::Started);
    world.drain();
    world.server(&greeting("\"ms:own:00000007:1\"", "2"));
    assert_eq!(
        world.drain(),
        ["tell server_changed", "error for 2", "close stdin"]
    );
}

#[test]
fn a_changed_list_is_announced_once() {
    for (tool, expected) in [("a", 0), ("b", 1)] {
        let mut world = World::met(Limits::default(), safe());
        let list = |id: &str, tool: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"{tool}"}}]}}}}"#)
        };
        world.client(&ask(2, "tools/list"));
        world.server(&list("2", "a"));
        world.dies_and_returns("1");
        assert!(world.drain().last().unwrap().contains("tools/list"));
        assert_eq!(
            world.server(&list("\"ms:own:00000007:2\"", tool)),
            Route::Consumed
        );
        let told = world.drain();
        let changed = told
            .iter()
            .filter(|line| line.contains("tools/list_changed"));
        assert_eq!(changed.count(), expected, "{told:?}");
    }
}

#[test]
fn an_idle_server_is_put_to_rest_and_woken() {
    let limits = Limits {
        hibernate_ms: 5_000,
        ..Limits::default()
    };
    let mut world = World::met(limits, safe());
    assert_eq!(world.wait(), Reason::Idle);
    assert_eq!(world.drain(), ["tell restarting", "close stdin"]);
    // A request that comes too late waits for the next generation.
    assert_eq!(world.client(&call(2, "x")), Route::Later);
    world.exits(Status::Code(0), true);
    world.empty();
    assert_eq!(world.drain(), ["tell exit", "tell teardown"]);
    assert_eq!(world.link.word(), "resting");
    assert_eq!(world.client(&ask(3, "ping")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 3"]);
    assert_eq!(world.client(&call(2, "x")), Route::Later);
    assert_eq!(world.drain(), ["spawn"]);
    world.greets_again("1");
    assert_eq!(world.client(&call(2, "x")), Route::Pass);
}

#[test]
fn a_task_or_a_question_of_ours_is_weighed_before_rest() {
    let limits = Limits {
        hibernate_ms: 70_000,
        ..Limits::default()
    };
    // Its answers to probes every 30 s do not put it off.
    let mut world = World::met(limits.clone(), safe());
    let begun = world.now();
    while world.wait() != Reason::Idle {
        for output in world.drain() {
            assert!(output.contains("ping"), "{output}");
        }
        world.server(&answer("\"ms:own:00000007:1\""));
        world.server(&answer("\"ms:own:00000007:2\""));
    }
    assert_eq!(world.now().ms_since(begun), 70_000);
    // An open task does, for as long as it is kept.
    let mut world = World::met(
        Limits {
            probe_idle_ms: 0,
            ..limits
        },
        safe(),
    );
    world.client(&call(2, "long"));
    world.server(
        r#"{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"working","ttl":600000}}}"#,
    );
    let begun = world.now();
    assert_eq!(world.wait(), Reason::Idle);
    assert_eq!(world.now().ms_since(begun), 600_000);
}

#[test]
fn a_changed_file_that_does_not_start_waits_for_the_next_change() {
    let changed = || {
        Input::Renew(RestartReason::Changed {
            path: "src/a.py".into(),
        })
    };
    let mut world = World::met(Limits::default(), safe());
    world.input(changed());
    world.exits(Status::Code(0), true);
    world.empty();
    let told = world.drain();
    assert_eq!(told.last().map(String::as_str), Some("spawn"), "{told:?}");
    world.input(Input::Started);
    world.exits(CRASH, true);
    world.empty();
    let told = world.drain();
    assert!(told.contains(&"tell abandoned".into()), "{told:?}");
    assert_eq!(world.client(&call(2, "x")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2"]);
    world.input(changed());
    assert_eq!(world.drain(), ["spawn"]);
}

#[test]
fn a_server_at_rest_is_not_woken_by_a_changed_file() {
    let limits = Limits {
        hibernate_ms: 5_000,
        ..Limits::default()
    };
    let mut world = World::met(limits, safe());
    world.wait();
    let changed = RestartReason::Changed {
        path: "src/a.py".into(),
    };
    world.input(Input::Renew(changed.clone()));
    world.exits(Status::Code(0), true);
    world.empty();
    world.drain();
    world.input(Input::Renew(changed));
    assert_eq!((world.link.word(), world.drain()), ("resting", Vec::new()));
    world.input(Input::Renew(RestartReason::Asked));
    assert_eq!(world.drain(), ["spawn"]);
}

#[test]
fn a_limit_of_memory_that_it_cannot_live_with_is_given_up() {
    let limits = Limits {
        restart_budget: 2,
        ..Limits::default()
    };
    let above = || Input::Renew(RestartReason::Memory { bytes: 9 << 20 });
    let mut world = World::met(limits, safe());
    world.input(above());
    // It is still above while it goes, which is no news.
    world.input(above());
    world.exits(Status::Code(0), true);
    world.empty();
    assert!(world.drain().contains(&"spawn".into()));
    world.greets_again("1");
    world.drain();
    world.input(above());
    world.exits(Status::Code(0), true);
    world.empty();
    assert!(world.drain().contains(&"tell abandoned".into()));
}

#[test]
fn an_idle_server_that_answers_no_more_is_replaced_and_a_busy_one_never() {
    let mut world = World::met(Limits::default(), safe());
    assert_eq!(world.wait(), Reason::Health);
    let told = world.drain();
    assert!(told[0].contains("ping"), "{told:?}");
    world.server(&answer("\"ms:own:00000007:1\""));
    world.drain();
    for _ in 0..20 {
        world.wait();
        for output in world.drain() {
            if output == "measure" {
                world.input(Input::Measured {
                    cpu_ms: 7,
                    traced: false,
                });
            }
        }
        if world.link.word() == "restarting" {
            break;
        }
    }
    assert_eq!(world.link.word(), "restarting");
    let mut busy = World::met(Limits::default(), safe());
    busy.client(&call(2, "long"));
    assert_eq!(busy.link.wake_at(), None);
}

/// Lets an hour and a half pass in which the server says nothing and uses no processor time; after how many seconds it is
/// replaced.
fn replaced_after(world: &mut World) -> Option<u64> {
    let begun = world.ms;
    while world.link.word() != "restarting" {
        let (at, _) = world.link.wake_at()?;
        if at.ms_since(Moment(0)) > begun + 5_400_000 {
            return None;
        }
        world.wait();
        for output in world.drain() {
            if output == "measure" {
                let (cpu_ms, traced) = (7, false);
                world.input(Input::Measured { cpu_ms, traced });
            }
        }
    }
    Some((world.ms - begun) / 1_000)
}

#[test]
fn a_server_may_still_be_at_what_was_taken_back() {
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let answers_probes = |limits: Limits| {
        let mut world = World::met(limits, safe());
        assert_eq!(world.wait(), Reason::Health);
        world.server(&answer("\"ms:own:00000007:1\""));
        world.drain();
        world
    };
    let mut idle = answers_probes(Limits::default());
    assert_eq!(replaced_after(&mut idle), Some(60));
    // By the client: for an hour, or until it answers what it was asked later.
    let mut world = answers_probes(Limits::default());
    world.client(&call(2, "long"));
    world.client(cancel);
    assert_eq!(replaced_after(&mut world), Some(3_630));
    let mut world = answers_probes(Limits::default());
    world.client(&call(2, "long"));
    world.client(cancel);
    assert_eq!(world.wait(), Reason::Health);
    world.server(&answer("\"ms:own:00000007:2\""));
    assert_eq!(replaced_after(&mut world), Some(60));
    // Requests answered before the cancellation, and requests that the server never saw, do not delay the replacement.
    let mut world = answers_probes(Limits::default());
    world.client(&call(2, "quick"));
    world.server(&answer("2"));
    world.client(cancel);
    assert_eq!(replaced_after(&mut world), Some(60));
    // By us.
    let limits = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    let mut world = answers_probes(limits);
    world.client(&call(2, "long"));
    assert_eq!(world.wait(), Reason::Deadline);
    assert_eq!(replaced_after(&mut world), Some(3_630));
}

#[test]
fn a_server_with_an_open_task_is_busy() {
    const WORKING: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"working","ttl":600000}}}"#;
    const OVER: &str = r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed"}}"#;
    let met = || {
        let mut world = World::up();
        world.client(INITIALIZE);
        world.server(&greeting("1", "1").replace(r#""tools":"#, r#""tasks":{},"tools":"#));
        world.client(&call(2, "long"));
        world
    };
    let mut world = met();
    world.server(WORKING);
    assert_eq!(world.link.wake_at(), None);
    world.server(OVER);
    assert_eq!(world.wait(), Reason::Health);
    // Its answer does not pass on the fast path either.
    let mut world = met();
    let now = world.now();
    let line = format!("{WORKING}\n");
    assert_eq!(world.link.results(now, line.as_bytes(), 0, |_| {}), 0);
    // A killed keeper's successor knows of it, too.
    let memory = snapshot(&world);
    let mut world = World::with(Limits::default(), safe(), memory, Some(lost()));
    world.drain();
    world.greets_again("1");
    world.client(&call(2, "long"));
    world.server(WORKING);
    world.drain();
    assert_eq!(world.link.wake_at(), None);
    // What it keeps in memory is gone with it.
    world.dies_and_returns("2");
    assert_eq!(world.wait(), Reason::Health);
}

#[test]
fn nothing_is_asked_of_a_server_whose_era_is_not_settled() {
    let mut world = World::up();
    world.client(&ask(1, "server/discover"));
    world.server(&answer("1"));
    assert_eq!(world.link.wake_at(), None);
    // Both eras are open to the client, and each settles it.
    let mut legacy = World::up();
    legacy.client(&ask(1, "server/discover"));
    legacy.server(&answer("1"));
    legacy.client(&INITIALIZE.replace(r#""id":1"#, r#""id":2"#));
    legacy.server(&greeting("2", "1"));
    assert_eq!(legacy.wait(), Reason::Health);
    assert!(legacy.drain()[0].contains("ping"));
    let meta = r#","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    world.client(&ask(2, "tools/list").replace('}', meta));
    world.server(&answer("2"));
    assert_eq!(world.wait(), Reason::Health);
    assert!(world.drain()[0].contains("server/discover"));
}

#[test]
fn before_the_era_is_fixed_an_expired_discover_is_not_cancelled_at_the_server() {
    let limits = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    let mut world = World::with(limits, safe(), memory(), None);
    world.input(Input::Started);
    world.drain();
    world.client(&ask(1, "server/discover"));
    assert_eq!(world.wait(), Reason::Deadline);
    assert_eq!(world.drain(), ["error for 1", "tell call_deadline"]);
    assert_eq!(world.server(&answer("1")), Route::Consumed);
}

#[test]
fn a_call_beyond_its_deadline_is_answered_and_cancelled() {
    let limits = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    let mut world = World::met(limits, safe());
    world.client(&call(2, "x"));
    assert_eq!(world.wait(), Reason::Deadline);
    let told = world.drain();
    assert_eq!(told[0], "result for 2");
    assert!(told[1].contains("notifications/cancelled"));
    assert_eq!(world.server(&answer("2")), Route::Consumed);
    assert_eq!(world.client(&call(3, "x")), Route::Pass);
}

#[test]
fn a_slow_server_is_opened_from_the_record_and_compared_later() {
    let mut first = World::met(Limits::default(), safe());
    first.client(&ask(2, "tools/list"));
    first.server(r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}]}}"#);
    let remembered = first.link.remembered().clone();

    let mut world = World::up();
    world.link.recall(remembered);
    world.client(&INITIALIZE.replace("\"id\":1", "\"id\":\"x\""));
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.drain(), ["result for \"x\"", "tell from_cache"]);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.client(INITIALIZED), Route::Consumed);
    assert_eq!(world.client(&ask(2, "tools/list")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2", "tell from_cache"]);
    assert_eq!(world.client(&call(3, "a")), Route::Consumed);
    assert_eq!(world.drain(), [""; 0]);
    // The server itself is up: nothing of that is the client's, and the list is looked at.
    assert_eq!(world.server(&greeting("\"x\"", "1")), Route::Replaced);
    let sent = world.drain();
    assert_eq!(sent[0], format!("to server {INITIALIZED}"));
    assert_eq!(sent[1], format!("to server {}", call(3, "a")));
    assert!(sent[2].contains("tools/list"), "{sent:?}");
    assert_eq!(world.server(&answer("3")), Route::Pass);
}

#[test]
fn requests_held_for_a_server_that_differs_get_one_answer() {
    let first = World::met(Limits::default(), safe());
    let mut world = World::up();
    world.link.recall(first.link.remembered().clone());
    world.client(INITIALIZE);
    world.client(&call(2, "x"));
    assert_eq!(world.wait(), Reason::Instant);
    world.client(&call(3, "x"));
    world.drain();
    assert_eq!(world.server(&greeting("1", "2")), Route::Replaced);
    let told = world.drain();
    assert_eq!(
        told[..3],
        ["tell server_changed", "result for 2", "result for 3"]
    );
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!(world.server(&answer("2")), Route::Consumed, "too late");
}

#[test]
fn a_request_that_the_record_answered_is_not_sent_again() {
    let meta = r#","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let list = ask(1, "tools/list").replace('}', meta);
    let mut first = World::up();
    first.client(&list);
    first.server(r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#);

    let mut world = World::up();
    world.link.recall(first.link.remembered().clone());
    world.client(&list);
    assert_eq!(world.wait(), Reason::Instant);
    assert_eq!(world.drain(), ["result for 1", "tell from_cache"]);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    // Another one under its id, which is nothing to be sent again, does not bring it back.
    world.client(&ask(1, "vendor/odd").replace('}', meta));
    world.exits(CRASH, true);
    assert_eq!(world.drain()[0], "error for 1");
}

#[test]
fn a_server_whose_opening_the_record_answered_is_one() {
    let remembered = {
        let first = World::met(Limits::default(), safe());
        first.link.remembered().clone()
    };
    let lazy = Policy {
        lazy: true,
        ..safe()
    };
    let mut first = World::with(Limits::default(), lazy, memory(), None);
    first.link.recall(remembered);
    assert_eq!(first.client(INITIALIZE), Route::Replaced);
    // Killed before that was written: its successor asks a server, and that one's death is a death.
    let mut next = World::with(Limits::default(), lazy, snapshot(&first), Some(lost()));
    next.input(Input::Started);
    next.drain();
    next.exits(CRASH, true);
    next.empty();
    assert!(next.drain().contains(&"spawn".into()));
}

#[test]
fn the_record_leaves_alone_what_no_server_was_asked() {
    let mut first = World::up();
    first.client(&ask(1, "server/discover"));
    first.server(&answer("1"));
    let remembered = first.link.remembered().clone();

    let mut world = World::up();
    world.link.recall(remembered);
    world.client(&call(2, "x"));
    world.input(Input::Renew(RestartReason::Asked));
    assert_eq!(world.client(&ask(3, "server/discover")), Route::Consumed);
    world.drain();
    // It waits for the next server, which answers it: once.
    assert_eq!(world.wait(), Reason::Drained);
    assert_eq!(world.drain(), ["close stdin"]);
    world.exits(Status::Code(0), true);
    world.empty();
    world.input(Input::Started);
    let discover = format!("to server {}", ask(3, "server/discover"));
    assert!(world.drain().contains(&discover));
    assert_eq!(world.server(&answer("3")), Route::Pass);
}

#[test]
fn lines_that_the_dead_server_had_not_read_go_to_the_next_generation() {
    let policy = Policy {
        retry: Retry::Never,
        ..safe()
    };
    let mut world = World::met(Limits::default(), policy);
    for id in [2, 3, 4] {
        assert_eq!(world.client(&call(id, "x")), Route::Pass);
    }
    // The third was answered, the second read and not answered, the others are still in the pipe.
    world.server(&answer("4"));
    let unread = format!(
        "{}\n{INITIALIZED}\n{}\n{}",
        call(3, "x"),
        call(4, "x"),
        "{\"cut"
    );
    world.link.unread(unread.as_bytes());
    let told = world.dies_and_returns("1");
    assert_eq!(told, ["result for 2", "tell exit", "spawn"]);
    let sent = world.drain();
    let calls: Vec<&String> = sent.iter().filter(|line| line.contains("call")).collect();
    assert_eq!(calls, [&format!("to server {}", call(3, "x"))]);
    assert_eq!(world.server(&answer("3")), Route::Pass);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn unread_lines_go_before_held_lines() {
    let policy = Policy {
        retry: Retry::Never,
        ..safe()
    };
    let mut world = World::met(Limits::default(), policy);
    assert_eq!(world.client(&call(2, "x")), Route::Pass);
    world.input(Input::Renew(RestartReason::Asked));
    assert_eq!(
        world.client(&call(3, "x")),
        Route::Consumed,
        "it is held back"
    );
    world.drain();
    world.link.unread(format!("{}\n", call(2, "x")).as_bytes());
    world.dies_and_returns("1");
    let sent = world.drain();
    let calls: Vec<&String> = sent.iter().filter(|line| line.contains("call")).collect();
    let expected = [2, 3].map(|id| format!("to server {}", call(id, "x")));
    assert_eq!(calls, [&expected[0], &expected[1]], "in the client's order");
}

#[test]
fn changed_lists_are_announced_if_the_user_wants_it() {
    let policy = Policy {
        advertise: true,
        ..safe()
    };
    let mut world = World::with(Limits::default(), policy, memory(), None);
    world.input(Input::Started);
    world.client(INITIALIZE);
    world.drain();
    let plain = greeting("1", "1").replace(r#"{"listChanged":true}"#, "{}");
    assert_eq!(world.server(&plain), Route::Replaced);
    let Some(Output::ToClient(told)) = world.link.next() else {
        panic!("no answer")
    };
    assert!(String::from_utf8(told).unwrap().contains("listChanged"));
    assert!(world.link.next().is_none());
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    assert_eq!((world.link.in_flight(), world.link.word()), (0, "ready"));
    // The next generation is not taken for another server because of that.
    world.exits(CRASH, true);
    world.empty();
    world.input(Input::Started);
    world.drain();
    world.server(&plain.replace("\"id\":1", "\"id\":\"ms:own:00000007:1\""));
    assert_eq!(world.drain(), ["tell ready"]);
}

/// The words of our answers, by id.
fn words(world: &mut World) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    while let Some(output) = world.link.next() {
        if let Output::ToClient(line) = output {
            let answer: serde_json::Value = serde_json::from_slice(&line).unwrap();
            all.push((answer["id"].as_i64().unwrap(), answer.to_string()));
        }
    }
    all
}

#[test]
fn a_request_that_a_server_may_have_begun_is_never_called_unsent() {
    let limits = Limits {
        restart_budget: 1,
        ..Limits::default()
    };
    let policy = Policy {
        retry: Retry::Never,
        ..safe()
    };
    let mut world = World::met(limits, policy);
    world.client(&call(2, "x"));
    world.client(&ask(3, "custom/method"));
    world.client(&ask(4, "tools/list"));
    world.client(&call(5, "x"));
    world.client(&ask(6, "custom/method"));
    // The last two are still in the pipe.
    let unread = format!("{}\n{}\n", call(5, "x"), ask(6, "custom/method"));
    world.link.unread(unread.as_bytes());
    world.exits(CRASH, true);
    world.empty();
    assert_eq!(world.link.word(), "abandoned");
    world.client(&ask(7, "custom/method"));
    let told = words(&mut world);
    let may = "may or may not have taken effect";
    let unsent = "was not sent to it";
    let expected = [
        (2, may, ""),
        (3, may, "\"safeToRetry\":false"),
        (4, "the request can be repeated", "\"safeToRetry\":true"),
        (5, unsent, ""),
        (6, unsent, "\"safeToRetry\":true"),
        (7, unsent, "\"safeToRetry\":true"),
    ];
    for (id, part, data) in expected {
        let (_, text) = told.iter().find(|(told, _)| *told == id).unwrap();
        assert!(text.contains(part) && text.contains(data), "{id}: {text}");
        assert_eq!(part == unsent, text.contains("not sent"), "{id}: {text}");
        assert!(text.contains("is not running: it ended once"), "{text}");
    }
}

#[test]
fn a_request_that_an_earlier_generation_read_is_never_called_unsent() {
    let limits = Limits {
        restart_budget: 2,
        ..Limits::default()
    };
    let policy = Policy {
        retry: Retry::Annotated,
        ..safe()
    };
    let mut world = World::met(limits, policy);
    world.client(&ask(2, "tools/list"));
    world.server(
        r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}}]}}"#,
    );
    world.client(&call(3, "reads"));
    world.dies_and_returns("1");
    world.drain();
    world
        .link
        .unread(format!("{}\n", call(3, "reads")).as_bytes());
    world.exits(CRASH, true);
    world.empty();
    assert_eq!(world.link.word(), "abandoned");
    let told = words(&mut world);
    assert_eq!(told[0].0, 3);
    assert!(told[0].1.contains("may or may not"), "{told:?}");
}

#[test]
fn a_request_that_the_version_before_a_bad_change_read_is_never_called_unsent() {
    let mut world = World::met(Limits::default(), safe());
    world.client(&ask(2, "tools/list"));
    let path = "src/a.py".into();
    world.input(Input::Renew(RestartReason::Changed { path }));
    world.client(&call(3, "x"));
    while !world.drain().contains(&"close stdin".into()) {
        world.wait();
    }
    world.exits(Status::Code(0), true);
    world.empty();
    world.drain();
    world.input(Input::Started);
    world.exits(CRASH, true);
    world.empty();
    let told = words(&mut world);
    assert_eq!((told[0].0, told[1].0, told.len()), (2, 3, 2));
    let sent = "a list request was sent before that and not answered; the request can be repeated";
    assert!(told[0].1.contains(sent), "{told:?}");
    assert!(
        told[1].1.contains("tools/call was not sent to a server"),
        "{told:?}"
    );
}
