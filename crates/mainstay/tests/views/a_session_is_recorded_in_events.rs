//! The events of one plain session: how it started, how it ended, and that no process is left.
//! guards: A session's start, end and empty tree are in the events.

use mainstay_testkit::built::under_test;
use mainstay_testkit::card;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

#[test]
fn events_record_a_session_from_start_to_end() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let server = stage.unruly::<&str>(&[]);
    let options = [
        "--name",
        "plain",
        "--tier",
        "subreaper",
        "--grace-eof",
        "60s",
    ];
    let mut client = Client::open(&stage, &run(mainstay, &options, server.clone()));
    let seen = stage.card();
    let pid = seen.server.unwrap().pid;
    assert!(client.finish().0.success());
    stage.census.assert_empty();

    let all = card::events(stage.home());
    for event in &all {
        assert_eq!(
            (&event["v"], &event["server"]),
            (&json!(1), &json!("plain"))
        );
        assert_eq!(event["id"], seen.id.as_str(), "{event}");
    }
    let words =
        |event: &&Value| ["start", "exit", "teardown"].contains(&event["event"].as_str().unwrap());
    let [start, exit, teardown] = all.iter().filter(words).collect::<Vec<_>>()[..] else {
        panic!("{all:#?}");
    };

    let argv: Vec<String> = server
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        (&start["event"], &start["generation"]),
        (&json!("start"), &json!(1))
    );
    assert_eq!((&start["argv"], &start["pid"]), (&json!(argv), &json!(pid)));
    assert_eq!(start["cwd"], stage.home().to_str().unwrap());
    assert_eq!(start["tier"], "subreaper");
    assert!(start["why_not"].is_array(), "{start}");
    assert_eq!(start["client"]["pid"], std::process::id());

    assert_eq!(
        (&exit["event"], &exit["pid"]),
        (&json!("exit"), &json!(pid))
    );
    assert_eq!(exit["status"], json!({"code": 0}));
    assert_eq!(exit["in_flight"], 0);
    assert!(exit["usage"]["max_rss_kib"].as_u64().unwrap() > 0, "{exit}");

    assert_eq!(
        (&teardown["event"], &teardown["cause"]),
        (&json!("teardown"), &json!("client_eof"))
    );
    assert_eq!(
        (&teardown["rungs"], &teardown["left"]),
        (&json!(["eof"]), &json!([]))
    );
}
