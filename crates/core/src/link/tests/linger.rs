//! A client whose shim was killed, and that comes back, told as short stories.
//! guards: Nothing of the session of a former client reaches the next client of a kept server.

use super::*;

fn kept() -> World {
    World::met(Limits::default(), Policy::default())
}

fn call(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

const SIGTERM: Cause = Cause::ShimSignal { number: 15 };

#[test]
fn an_eof_in_time_says_that_the_client_means_it() {
    let mut world = kept();
    world.input(Input::Stop(SIGTERM));
    assert!(world.link.doubted());
    assert_eq!(world.drain(), [""; 0]);
    world.ms += 99;
    world.input(Input::ClientEof);
    assert_eq!(world.drain(), ["close stdin"]);
    assert!(!world.link.doubted() && !world.link.away());
}

#[test]
fn without_one_the_server_is_kept_and_ends_with_its_time() {
    let mut world = kept();
    world.input(Input::Stop(SIGTERM));
    assert_eq!((world.wait(), world.ms), (Reason::Linger, 100));
    assert_eq!(world.drain(), ["linger", "tell lingering"]);
    assert_eq!(world.link.word(), "lingering");
    // The shim leaves, which is no news.
    world.input(Input::Stop(Cause::ShimKilled));
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!((world.wait(), world.ms), (Reason::Linger, 5_100));
    assert_eq!(
        world.drain(),
        ["linger over", "tell linger_ended", "close stdin"]
    );
    world.exits(Status::Code(0), true);
    world.empty();
    assert_eq!(world.drain(), ["tell exit", "tell teardown", "finish 0"]);
}

#[test]
fn a_server_that_cannot_be_continued_with_is_not_kept() {
    let unwanted = Limits {
        linger_ms: 0,
        ..Limits::default()
    };
    let mut unopened = World::up();
    unopened.client(INITIALIZE);
    let mut restarting = kept();
    restarting.exits(CRASH, false);
    restarting.drain();
    for mut world in [
        World::met(unwanted, Policy::default()),
        unopened,
        restarting,
    ] {
        world.input(Input::Stop(Cause::ShimKilled));
        assert!(!world.link.away());
        assert!(world.drain().contains(&"drop client".into()));
    }
}

#[test]
fn a_client_that_comes_back_gets_the_first_answer_to_its_opening() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.drain();
    world.ms += 4_000;
    world.input(Input::Reattached);
    assert_eq!(world.drain(), ["tell reattached"]);
    // A `server/discover` in between gets an error: this session is of the legacy era.
    assert_eq!(world.client(&ask(0, "server/discover")), Route::Replaced);
    assert_eq!(world.drain(), ["error for 0"]);
    let again = INITIALIZE.replace("\"id\":1", "\"id\":\"x\"");
    assert_eq!(world.client(&again), Route::Replaced);
    assert_eq!(world.drain(), ["result for \"x\""]);
    assert_eq!(world.client(INITIALIZED), Route::Replaced);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.client(INITIALIZED), Route::Pass, "only once");
    assert_eq!(world.client(&call("2")), Route::Replaced);
    assert_eq!(world.drain(), [format!("to server {}", call("1500000001"))]);
    assert_eq!(world.server(&answer("1500000001")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2"]);
}

#[test]
fn another_opening_takes_another_generation() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.drain();
    let other =
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"9"}}"#;
    assert_eq!(world.client(other), Route::Consumed);
    assert_eq!(world.drain(), ["tell restarting", "close stdin"]);
    assert_eq!(world.client(&ask(8, "ping")), Route::Later);
    world.exits(Status::Code(0), true);
    world.empty();
    assert_eq!(world.drain(), ["tell exit", "tell teardown", "spawn"]);
    world.input(Input::Started);
    assert_eq!(
        world.drain(),
        ["tell ready".to_string(), format!("to server {other}")]
    );
    assert_eq!(world.server(&greeting("7", "9")), Route::Pass);
    assert_eq!(world.client(INITIALIZED), Route::Pass);
}

#[test]
fn late_answers_are_dropped_and_questions_without_a_client_get_an_error() {
    let mut world = kept();
    world.client(&call("2"));
    world.client(&call("3"));
    world.server(r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#);
    world.drain();
    world.input(Input::Stop(Cause::ShimKilled));
    let done = world.drain();
    assert!(done[0].starts_with("to server") && done[0].contains("the client is away"));
    assert_eq!(done[1..], ["linger", "tell lingering"]);
    assert_eq!(world.server(&answer("2")), Route::Consumed);
    assert_eq!(
        world.server(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#),
        Route::Consumed
    );
    assert!(world.drain()[0].contains("the client is away"));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.client(INITIALIZED);
    world.drain();
    for (id, label) in [("2", "1500000001"), ("3", "1500000002")] {
        assert_eq!(world.client(&call(id)), Route::Replaced);
        assert_eq!(world.drain(), [format!("to server {}", call(label))]);
    }
    // Late and repeated answers reach no client.
    assert_eq!(world.server(&answer("3")), Route::Consumed);
    assert_eq!(world.server(&answer("2")), Route::Consumed);
    assert_eq!(world.server(&answer("1500000002")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 3"]);
    assert_eq!(world.server(&answer("1500000002")), Route::Consumed);
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    assert_eq!(world.client(&cancel("2")), Route::Replaced);
    assert_eq!(
        world.drain(),
        [format!("to server {}", cancel("1500000001"))]
    );
    assert_eq!(
        world.client(&cancel("3")),
        Route::Consumed,
        "not the orphan"
    );
    assert_eq!(world.server(&answer("1500000001")), Route::Consumed);
    // The next generation has served no client before, so it needs no labels.
    world.dies_and_returns("1");
    world.drain();
    assert_eq!(world.client(&call("4")), Route::Pass);
    assert_eq!(world.server(&answer("4")), Route::Pass);
}

#[test]
fn a_second_answer_to_what_an_earlier_client_asked_is_nobodys() {
    let deadline = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    let mut world = World::met(deadline, Policy::default());
    world.client(&call("2"));
    assert_eq!(world.server(&answer("2")), Route::Pass);
    // One that we have answered, and one that was taken back.
    world.client(&call("3"));
    assert_eq!(world.wait(), Reason::Deadline);
    world.client(&call("4"));
    world
        .client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#);
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.client(INITIALIZED);
    for id in ["2", "3", "4"] {
        world.client(&call(id));
    }
    world.drain();
    for (id, own) in [
        ("2", "1500000001"),
        ("3", "1500000002"),
        ("4", "1500000003"),
    ] {
        assert_eq!(world.server(&answer(id)), Route::Consumed);
        assert_eq!(world.server(&answer(own)), Route::Replaced);
        assert_eq!(world.drain(), [format!("result for {id}")]);
    }
}

#[test]
fn a_cancelled_request_of_a_client_that_came_back_leaves_no_label() {
    let deadline = Limits {
        call_deadline_ms: 700,
        ..Limits::default()
    };
    let mut world = World::met(deadline, Policy::default());
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.client(&call("2"));
    world.drain();
    assert_eq!(world.wait(), Reason::Deadline);
    let told = world.drain();
    assert_eq!(told[0], "result for 2");
    assert!(told[1].contains("\"requestId\":1500000001"), "{told:?}");
    assert_eq!(world.server(&answer("1500000001")), Route::Consumed);
    assert_eq!(world.drain(), [""; 0]);
}

#[test]
fn progress_of_an_earlier_client_is_dropped() {
    let asks = |id: &str, token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{token}}}}}}}"#
        )
    };
    let reports = |token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    let mut world = kept();
    world.client(&asks("2", "2"));
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.client(INITIALIZED);
    world.drain();
    assert_eq!(world.client(&asks("2", "2")), Route::Replaced);
    let labelled = asks("1500000001", "1500000002");
    assert_eq!(world.drain(), [format!("to server {labelled}")]);
    assert_eq!(world.server(&reports("2")), Route::Consumed, "the orphan's");
    assert_eq!(world.server(&reports("1500000002")), Route::Replaced);
    assert_eq!(world.drain(), ["to client notifications/progress"]);
    assert_eq!(world.server(&answer("1500000001")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2"]);
    // A task reports on after the answer.
    assert_eq!(world.server(&reports("1500000002")), Route::Replaced);
    assert_eq!(world.drain(), ["to client notifications/progress"]);
}

#[test]
fn members_of_a_batch_get_labels_of_their_own() {
    let mut world = kept();
    world.client(&ask(2, "ping"));
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.drain();
    let batch = format!("[{},{}]", ask(2, "ping"), ask(3, "ping"));
    assert_eq!(world.client(&batch), Route::Replaced);
    let asked = ["1500000001", "1500000002"]
        .map(|label| ask(0, "ping").replace("\"id\":0", &format!("\"id\":{label}")));
    assert_eq!(world.drain(), asked.map(|line| format!("to server {line}")));
    let answers = format!(
        "[{},{},{}]",
        answer("2"),
        answer("1500000001"),
        answer("1500000002")
    );
    assert_eq!(world.server(&answers), Route::Replaced);
    assert_eq!(world.drain(), ["result for 2", "result for 3"]);
}

#[test]
fn subscriptions_are_cancelled_and_changed_lists_are_announced() {
    let mut world = kept();
    let wish =
        r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:\"1\""}}"#;
    world.client(wish);
    world.server(&answer("2"));
    world.input(Input::Stop(Cause::ShimKilled));
    assert_eq!(
        world.drain()[0],
        r#"to server {"jsonrpc":"2.0","id":"ms:own:00000007:1","method":"resources/unsubscribe","params":{"uri":"a:\"1\""}}"#
    );
    assert_eq!(
        world.server(&answer("\"ms:own:00000007:1\"")),
        Route::Consumed
    );
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    assert_eq!(world.server(changed), Route::Consumed);
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.drain();
    world.client(INITIALIZED);
    assert_eq!(
        world.drain(),
        [
            "to client notifications/tools/list_changed",
            "tell list_changed"
        ]
    );
}

#[test]
fn the_keeping_ends_with_the_server_the_client_or_a_word() {
    for (input, code) in [
        (Input::Stop(Cause::ClientGone), "close stdin"),
        (Input::Stop(Cause::Asked), "close stdin"),
        (
            Input::Renew(mainstay_protocol::event::RestartReason::Asked),
            "close stdin",
        ),
        (Input::StdoutClosed { tree_empty: false }, "close stdin"),
        (Input::Exited(exited(CRASH, false, true)), "tell exit"),
    ] {
        let mut world = kept();
        world.input(Input::Stop(Cause::ShimKilled));
        world.drain();
        world.input(input);
        let done = world.drain();
        assert_eq!(done[..3], ["linger over", "tell linger_ended", code]);
        assert!(!done.contains(&"spawn".into()));
        world.input(Input::Reattached);
        assert_eq!(world.drain(), [""; 0], "too late");
    }
}

#[test]
fn news_for_a_listening_request_come_under_its_own_id() {
    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let listen = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{META}}}}}"#
        )
    };
    let news = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    let mut world = World::up();
    let list = ask(1, "tools/list").replace('}', &format!(r#","params":{{{META}}}}}"#));
    world.client(&list);
    world.server(&answer("1"));
    world.client(&listen("2"));
    world.drain();
    world.input(Input::Stop(Cause::ShimKilled));
    assert!(world.drain()[0].contains("notifications/cancelled"));
    world.input(Input::Reattached);
    world.drain();
    assert_eq!(world.client(&listen("2")), Route::Replaced);
    assert_eq!(
        world.drain(),
        [format!("to server {}", listen("1500000001"))]
    );
    assert_eq!(world.server(&news("2")), Route::Consumed, "the orphan's");
    assert_eq!(world.server(&news("1500000001")), Route::Replaced);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("nothing for the client");
    };
    assert_eq!(String::from_utf8_lossy(&line).trim_end(), news("2"));
    // The server ends both listenings: the client's, and the orphan's, which has no client.
    assert_eq!(world.link.in_flight(), 1);
    assert_eq!(world.server(&taken_back("1500000001")), Route::Replaced);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("nothing for the client");
    };
    assert_eq!(String::from_utf8_lossy(&line).trim_end(), taken_back("2"));
    assert_eq!(
        (
            world.link.in_flight(),
            world.link.exchange.session().subscribed()
        ),
        (0, false)
    );
    assert_eq!(world.server(&taken_back("2")), Route::Consumed);
}

fn taken_back(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

#[test]
fn a_listening_that_the_server_ends_is_over() {
    const LISTEN: &str = r#"{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let mut world = World::up();
    world.client(LISTEN);
    assert_eq!(
        (
            world.link.in_flight(),
            world.link.exchange.session().subscribed()
        ),
        (1, true)
    );
    assert_eq!(world.server(&taken_back("2")), Route::Pass);
    assert_eq!(
        (
            world.link.in_flight(),
            world.link.exchange.session().subscribed()
        ),
        (0, false)
    );
    // What ends by its answer is the server's to answer.
    world.client(&ask(3, "tools/call"));
    assert_eq!(world.server(&taken_back("3")), Route::Pass);
    assert_eq!(world.link.in_flight(), 1);
}

#[test]
fn the_opening_that_the_record_answered_is_forgotten_with_who_was_asked() {
    let remembered = kept().link.remembered().clone();
    let mut world = World::up();
    world.link.recall(remembered);
    world.client(INITIALIZE);
    assert_eq!(world.wait(), Reason::Instant);
    world.link.written_to(u64::MAX);
    world.link.delivered_to(u64::MAX);
    world.client(INITIALIZED);
    world.dies_and_returns("1");
    world.drain();
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(&INITIALIZE.replace("\"id\":1", "\"id\":0"));
    world.client(INITIALIZED);
    world.client(&call("1"));
    world.drain();
    // The id of the opening that the dead server never answered.
    assert_eq!(world.server(&answer("1500000001")), Route::Replaced);
    assert_eq!(world.drain(), ["result for 1"]);
}

#[test]
fn long_lines_of_an_earlier_client_are_dropped() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.client(INITIALIZE);
    world.drain();
    let fill = "x".repeat(mainstay_protocol::limits::WHOLE_LINE_BYTES);
    let batch = format!(
        "[{},{}]",
        ask(2, "ping"),
        ask(3, "ping").replace('}', &format!(r#","params":{{"a":"{fill}"}}}}"#))
    );
    let routed = |world: &mut World, line: &str| {
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        world.link.server_known(scanner.known().as_ref())
    };
    let gathered = |line: &str| {
        let line = format!("{line}\n");
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        (line, scanner)
    };
    let (line, scanner) = gathered(&batch);
    let now = world.now();
    assert_eq!(
        world.link.client_cut(now, Some(&scanner.frame())),
        Route::Gather
    );
    world.link.client_piece(line.as_bytes());
    world.link.gathered_from_client(now, &scanner.frame());
    assert_eq!(world.drain().len(), 2);
    assert_eq!(routed(&mut world, &answer("2")), Route::Consumed);
    assert_eq!(routed(&mut world, &answer("1500000001")), Route::Gather);
    let answers = format!(
        "[{},{}]",
        answer("1500000002").replace("{}", &format!(r#"{{"a":"{fill}"}}"#)),
        answer("1500000001")
    );
    assert_eq!(routed(&mut world, &answers), Route::Gather);
    let (line, scanner) = gathered(&answers);
    world.link.server_piece(line.as_bytes());
    world.link.gathered_from_server(now, &scanner.frame());
    assert_eq!(world.drain(), ["result for 3", "result for 2"]);
}

/// The question that a newcomer leads to, and its answer.
fn question(told: &[String]) -> String {
    let asked = told.iter().find_map(|told| told.strip_prefix("to server "));
    let asked: serde_json::Value = serde_json::from_str(asked.unwrap()).unwrap();
    assert_eq!(asked["method"], "ping");
    answer(&asked["id"].to_string())
}

#[test]
fn a_server_that_answers_is_handed_over() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.drain();
    assert_eq!(world.link.judged(), None);
    world.input(Input::Newcomer { changed: None });
    assert_eq!(world.link.judged(), None);
    let answer = question(&world.drain());
    world.server(&answer);
    assert_eq!(world.link.judged(), Some(true));
    world.input(Input::Reattached);
    assert_eq!(world.drain(), ["tell reattached"]);
    assert_eq!(world.client(INITIALIZE), Route::Replaced);
    assert_eq!(world.drain(), ["result for 1"]);
}

#[test]
fn a_kept_server_that_does_not_answer_in_time_is_replaced_without_an_eof() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Newcomer { changed: None });
    let late = question(&world.drain());
    assert_eq!((world.wait(), world.ms), (Reason::Linger, 1_000));
    assert_eq!(world.link.judged(), Some(false));
    world.server(&late);
    assert_eq!(world.link.judged(), Some(false));
    world.input(Input::Reattached);
    assert_eq!(world.drain(), ["tell reattached"]);
    world.client(INITIALIZE);
    assert_eq!(world.drain(), ["tell restarting", "terminate"]);
}

#[test]
fn a_kept_server_whose_code_has_changed_is_replaced_without_a_probe() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.drain();
    let changed = Some("server.py".into());
    world.input(Input::Newcomer { changed });
    assert_eq!(world.link.judged(), Some(false));
    world.input(Input::Reattached);
    assert_eq!(world.drain(), ["tell reattached"]);
    world.client(INITIALIZE);
    assert_eq!(world.drain(), ["tell restarting", "close stdin"]);
}

/// A newcomer that gives up does not decide for the next one.
#[test]
fn each_newcomer_has_the_server_asked() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    let changed = Some("server.py".into());
    world.input(Input::Newcomer { changed });
    world.drain();
    world.input(Input::Newcomer { changed: None });
    assert_eq!(world.link.judged(), None);
    let answer = question(&world.drain());
    world.server(&answer);
    assert_eq!(world.link.judged(), Some(true));
}

/// Shows the opening of a client that came back, with the keeper killed at each kill point; then its successor is shown it.
fn reopened_at_every_kill_point(opening: &str) -> Vec<Vec<String>> {
    extern crate std;
    use mainstay_protocol::kill_point::{Killed, set_fuse};
    use std::panic::{self, AssertUnwindSafe};

    let mut all = Vec::new();
    for point in 0.. {
        let mut world = kept();
        let level =
            r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}"#;
        world.client(level);
        world.server(&answer("2"));
        world.input(Input::Stop(Cause::ShimKilled));
        world.input(Input::Reattached);
        world.drain();
        set_fuse(Some(point));
        let lived = panic::catch_unwind(AssertUnwindSafe(|| world.client(opening)));
        set_fuse(None);
        let mut next = World::made(Limits::default(), Policy::default(), snapshot(&world));
        next.link
            .never_sent(format!("{opening}\n").as_bytes(), None);
        next.link.begin(Moment(0), Some(lost()));
        next.input(Input::Started);
        let mut heard = next.drain();
        if next.link.word() == "greeting" {
            next.server(&greeting("\"ms:own:00000007:1\"", "1"));
            next.server(&answer("\"ms:own:00000007:2\""));
            heard.extend(next.drain());
        }
        if next.client(opening) == Route::Pass {
            heard.push(format!("to server {opening}"));
        }
        heard.extend(next.drain());
        heard.retain(|word| !word.starts_with("tell "));
        all.push(heard);
        let Err(end) = lived else {
            assert!(point > 3, "{point} kill points");
            return all;
        };
        assert!(end.is::<Killed>(), "at kill point {point}");
    }
    unreachable!("the loop ends with the last kill point")
}

#[test]
fn a_keeper_killed_while_a_client_opens_again_leaves_one_opening_to_replay() {
    let again = INITIALIZE.replace("\"id\":1", "\"id\":\"x\"");
    for (point, heard) in reopened_at_every_kill_point(&again).iter().enumerate() {
        let count = |word: &str| heard.iter().filter(|it| it.contains(word)).count();
        assert_eq!(
            count("\"initialize\""),
            1,
            "at kill point {point}: {heard:?}"
        );
        // The server is opened by us, and knows the level; or it is opened by the client, which has set none.
        let ours = heard[1].contains("ms:own:");
        assert_eq!(
            count("debug"),
            usize::from(ours),
            "at kill point {point}: {heard:?}"
        );
        assert_eq!(count("result for \"x\""), usize::from(ours), "{heard:?}");
    }
}

#[test]
fn or_opens_in_another_way() {
    let other =
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"9"}}"#;
    for (point, heard) in reopened_at_every_kill_point(other).iter().enumerate() {
        let ours = heard[1].contains("ms:own:");
        let theirs = heard.contains(&format!("to server {other}"));
        // Before anything was noted the kept server's opening is replayed, and the other one takes another generation.
        let replaced = heard.last().is_some_and(|last| last == "close stdin");
        assert!(
            ours != theirs && ours == replaced,
            "at kill point {point}: {heard:?}"
        );
    }
}

#[test]
fn a_client_that_came_back_opens_though_its_shim_was_signalled() {
    let mut world = kept();
    world.input(Input::Stop(Cause::ShimKilled));
    world.input(Input::Reattached);
    world.input(Input::Stop(SIGTERM));
    assert!(world.link.doubted());
    world.drain();
    let again = INITIALIZE.replace("\"id\":1", "\"id\":\"x\"");
    assert_eq!(world.client(&again), Route::Replaced);
    assert_eq!(world.drain(), ["result for \"x\""]);
    assert!(
        world.link.doubted(),
        "the signal may still be the client's wish"
    );
    assert_eq!(world.client(INITIALIZED), Route::Replaced);
}
