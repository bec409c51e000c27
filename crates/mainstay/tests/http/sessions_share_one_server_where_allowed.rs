//! `serve --share`: sessions of the legacy era share one server and notice nothing of each other.
//! guards: Legacy sessions share a server only if the user allows it, and notice nothing of each other.

use std::ffi::OsString;

use crate::support::front::{self, Connection, Front, alive, call, gone, request};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const LINKS: &str = "mainstay_links";

fn shared(habits: &[&str]) -> Front {
    Front::start(&["--share"], habits)
}

#[test]
fn a_shared_server_ends_with_the_last_session() {
    let front = shared(&[]);
    let sessions: Vec<_> = (0..4).map(|_| front.session()).collect();
    let server = sessions[0].server();
    for session in &sessions {
        assert_eq!(session.server(), server, "the same one");
        assert_eq!(session.opening["result"], sessions[0].opening["result"]);
    }
    assert_eq!(front.metric(LINKS), 1);
    assert_eq!(front.metric("mainstay_sessions_open"), 4);
    for session in &sessions[1..] {
        assert_eq!(session.delete().status, 200);
        assert_eq!(session.post(&request(1, "ping", &json!({}))).status, 404);
    }
    assert_eq!(sessions[0].server(), server, "it goes on for the last one");
    assert_eq!(sessions[0].delete().status, 200);
    gone(server);
    front.metric_is(LINKS, 0);
    assert_ne!(front.session().server(), server, "the next one has another");
    front.finish();
}

#[test]
fn sessions_with_the_same_ids_and_tokens_get_their_own_answers() {
    let front = shared(&[]);
    let sessions: Vec<_> = (0..6).map(|_| front.session()).collect();
    let mut all: Vec<Connection> = sessions
        .iter()
        .zip(1..)
        .map(|(session, n)| {
            let params =
                json!({"name": "steps", "arguments": {"n": n}, "_meta": {"progressToken": 1}});
            session.asking(&request(1, "tools/call", &params))
        })
        .collect();
    for (one, steps) in all.iter_mut().zip(1..) {
        one.head();
        for step in 1..=steps {
            let progress = one.message();
            assert_eq!(
                (
                    &progress["params"]["progressToken"],
                    &progress["params"]["progress"]
                ),
                (&json!(1), &json!(step))
            );
        }
        let answer = one.message();
        assert_eq!(
            (
                &answer["id"],
                &answer["result"]["structuredContent"]["steps"]
            ),
            (&json!(1), &json!(steps))
        );
        assert_eq!(one.event(), None);
    }
    assert_eq!(front.metric(LINKS), 1);
    front.finish();
}

#[test]
fn a_session_that_leaves_or_cancels_does_not_touch_the_others() {
    let front = shared(&[]);
    let (one, other) = (front.session(), front.session());
    let server = one.server();
    let sleep = |id: i64| call(id, "sleep", &json!({"ms": 600_000}));
    let mut ended = one.asking(&sleep(7));
    let mut cancelled = other.asking(&sleep(7));
    let mut answered = other.asking(&call(8, "sleep", &json!({"ms": 1_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 6);
    assert_eq!(one.delete().status, 200);
    let answer = ended.answer().last();
    assert!(answer["error"]["message"].is_string(), "{answer}");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(other.post(&cancel).status, 202);
    let answer = cancelled.answer().last();
    assert_eq!(
        (&answer["id"], &answer["error"]["message"]),
        (&json!(7), &json!("the client cancelled the request"))
    );
    assert_eq!(answered.answer().last()["id"], 8, "the rest goes on");
    until("the server hears of both", || {
        let heard = other.heard();
        let cancelled = heard
            .iter()
            .filter(|line| line.contains("notifications/cancelled"));
        (cancelled.count() == 2).then_some(())
    });
    assert_eq!(other.server(), server);
    front.finish();
}

#[test]
fn notifications_of_a_shared_server_reach_all_sessions() {
    let front = shared(&["--capabilities", r#"{"tools":{"listChanged":true}}"#]);
    let sessions = [front.session(), front.session()];
    let mut news: Vec<_> = sessions.iter().map(|session| session.news(None)).collect();
    for one in &mut news {
        assert_eq!(one.head().status, 200);
    }
    let changed = json!({"method": "notifications/tools/list_changed"});
    sessions[0].call(1, "news", &changed);
    for one in &mut news {
        assert_eq!(one.message()["method"], changed["method"]);
    }
    // A question of the server reaches no client, and still gets an answer.
    let asked = sessions[1].call(4, "ask", &json!({"method": "roots/list", "wait": true}));
    assert_eq!(asked["id"], 4, "{asked}");
    let heard = sessions[0].heard().join("\n");
    assert!(heard.contains("cannot ask any of them"), "{heard}");
    assert_eq!(heard.matches("\"initialize\"").count(), 1, "{heard}");
    assert_eq!(
        heard.matches("notifications/initialized").count(),
        1,
        "{heard}"
    );
    front.finish();
}

#[test]
fn the_death_of_a_shared_server_ends_no_session() {
    let front = shared(&[]);
    let sessions = [front.session(), front.session()];
    let first = sessions[0].server();
    let mut waiting = sessions[1].asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 4);
    // The server reads in order, so it has read the earlier request.
    assert_eq!(sessions[0].server(), first);
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let answer = waiting.answer().last();
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(7), &json!(true)),
        "{answer}"
    );
    let second = sessions[0].server();
    assert_ne!(first, second);
    assert_eq!(sessions[1].server(), second);
    // When it is stopped for good, all sessions end, each with an answer.
    let mut waiting = sessions[1].asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 8);
    let output = front
        .stage
        .command(front::mainstay())
        .args(["stop", "unruly"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(waiting.answer().last()["id"], 7);
    for session in &sessions {
        until("the session is over", || {
            (session.delete().status == 404).then_some(())
        });
    }
    assert_ne!(front.session().server(), second);
    front.finish();
}

#[test]
fn a_session_of_another_version_has_its_own_server() {
    let front = Front::start(&["--share"], &["--version", "2025-11-25"]);
    let shared = front.session();
    let mut connection = front.connect();
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    connection.post(&[], &request(0, "initialize", &params));
    let answer = connection.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.header("mcp-session-id").is_some());
    assert_eq!(answer.last()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(front.metric(LINKS), 2);
    assert!(alive(shared.server()));
    front.finish();
}

#[test]
fn clients_that_left_early_do_not_keep_the_shared_server() {
    let front = shared(&["--start-when", "GO"]);
    let opening: Value = request(0, "initialize", &json!({"protocolVersion": "2025-11-25"}));
    let mut connection = front.connect();
    connection.post(&[], &opening);
    front.metric_is(LINKS, 1);
    connection.drop_it();
    front.metric_is(LINKS, 0);
    assert_eq!(front.metric("mainstay_sessions_opened_total"), 0);
    std::fs::write(front.stage.path("GO"), "").unwrap();
    assert!(front.session().server() > 0);
    front.finish();
}

#[test]
fn the_config_file_can_allow_sharing() {
    let stage = Stage::new();
    let directory = stage.path(".config/mainstay");
    std::fs::create_dir_all(&directory).unwrap();
    let argv = stage.unruly::<&str>(&[]);
    let words: Vec<_> = argv.iter().map(|word| word.to_str().unwrap()).collect();
    let args = serde_json::to_string(&words[1..]).unwrap();
    let table = |name: &str, more: &str| {
        format!(
            "[server.{name}]\ncommand = {:?}\nargs = {args}\n{more}\n",
            words[0]
        )
    };
    let text = table("alone", "") + &table("together", "share = true");
    std::fs::write(directory.join("config.toml"), text).unwrap();
    let words: [OsString; 0] = [];
    let front = Front::on(stage, &words);
    let pids = |path: &str| {
        let sessions = [front.session_at(path), front.session_at(path)];
        [sessions[0].server(), sessions[1].server()]
    };
    let [one, other] = pids("/together/mcp");
    assert_eq!(one, other);
    let [one, other] = pids("/alone/mcp");
    assert_ne!(one, other);
    front.finish();
}

#[test]
fn repeated_keys_reach_no_request_of_another_session() {
    let front = shared(&[]);
    let (victim, attacker) = (front.session(), front.session());
    let mut waiting = victim.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    let heard = attacker.heard();
    let called = heard
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|message| message["params"]["name"] == "sleep")
        .unwrap();
    let params = json!({"name": "echo", "arguments": {"text": "attack"}});
    for id in ["\"h1\"", "\"h2\"", &called["id"].to_string()] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{params},"id":{id}}}"#
        );
        let mut connection = attacker.connect();
        attacker.send(&mut connection, "POST", &[], body.as_bytes());
        let answer = connection.answer();
        assert_eq!((answer.status, answer.code()), (400, -32600), "{body}");
    }
    attacker.call(8, "crash", &json!({"signal": 9}));
    let answer = waiting.answer().last();
    assert_eq!(answer["id"], 7);
    assert!(!answer.to_string().contains("attack"), "{answer}");
    front.finish();
}
