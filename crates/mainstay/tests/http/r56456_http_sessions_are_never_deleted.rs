//! claude-code #56456: streamable-HTTP sessions are never closed by DELETE on shutdown, and the session maps of servers grow
//! without bound.
//!
//! The client of the report opens a session, lists tools and resources, and exits. On exit it opens a second one.
//! guards: With `run --url`, every session of a client that never sends DELETE is closed.

use crate::support::bridged::{Bridged, unclosed};
use serde_json::json;

#[test]
fn each_invocation_leaves_no_session() {
    let mut play = Bridged::open(&[]);
    assert!(play.ask("tools/list", &json!({}))["result"]["tools"].is_array());
    play.ask("resources/list", &json!({}));
    assert_eq!(play.http.open(), 1);
    assert_eq!(
        unclosed(&play.stage).len(),
        1,
        "it is written down while it is open"
    );
    let (stage, http) = play.finish();
    assert_eq!((http.open(), http.deleted().len()), (0, 1));
    // The second connection, at exit.
    let mut second = Bridged::on(stage, http, &[]);
    second.client.wire.initialize().unwrap();
    let (stage, http) = second.finish();
    assert_eq!(
        (http.open(), http.opened(), http.deleted().len()),
        (0, 2, 2)
    );
    assert!(unclosed(&stage).is_empty());
    assert_eq!(stage.events("session_opened").len(), 2);
    assert_eq!(stage.events("session_closed").len(), 2);
}

#[test]
fn a_killed_client_leaves_no_session() {
    let mut play = Bridged::open(&[]);
    play.client.finish_without_waiting_for_stdout();
    play.http.empty();
    play.stage.census.assert_empty();
}

#[test]
fn a_server_that_is_stopped_by_hand_closes_its_session() {
    let play = Bridged::open(&[]);
    let stopped = play.mainstay(&["stop", "web"]);
    assert!(stopped.status.success(), "{stopped:?}");
    play.http.empty();
    assert_eq!(play.http.deleted(), ["session-1"]);
    assert!(unclosed(&play.stage).is_empty());
}

/// Twenty clients open fifty sessions each and close none of them.
#[test]
fn a_thousand_forgotten_sessions_leave_none_open() {
    let mut stage = mainstay_testkit::stage::Stage::new();
    let mut http = mainstay_testkit::httpd::Httpd::start();
    for _ in 0..20 {
        let mut play = Bridged::on(stage, http, &["--no-cache"]);
        for _ in 0..50 {
            play.client.wire.initialize().unwrap();
        }
        (stage, http) = play.finish();
    }
    assert_eq!(http.opened(), 1_000);
    http.empty();
    assert!(unclosed(&stage).is_empty());
}
