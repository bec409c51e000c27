//! Whatever ends a session with an HTTP server, the server gets a DELETE with the same headers.
//! guards: However a session ends, its HTTP server gets a DELETE.

use crate::support::bridged::{Bridged, mainstay, unclosed};
use mainstay_os::identity::Handle;
use mainstay_testkit::httpd::Httpd;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::Signal;

fn assert_last_delete_has_the_same_headers(http: &Httpd) {
    let sent = http.sent();
    let delete = sent.iter().rfind(|one| one.verb == "DELETE").unwrap();
    assert_eq!(delete.headers["x-key"], "hunter2");
    assert_eq!(delete.headers["mcp-protocol-version"], "2025-11-25");
    assert!(delete.headers["mcp-session-id"].starts_with("session-"));
    assert!(!delete.headers.contains_key("content-type"));
}

#[test]
fn a_signal_to_the_bridge_closes_the_http_session() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut play = Bridged::open(&["--header", "X-Key: hunter2"]);
        let card = play
            .stage
            .card_that("has a server", |card| card.server.is_some());
        Handle::open(card.server.unwrap())
            .unwrap()
            .signal(signal)
            .unwrap();
        until("it has closed its session itself", || {
            (play.http.deleted() == ["session-1"]).then_some(())
        });
        assert_last_delete_has_the_same_headers(&play.http);
        // The link goes on with the next bridge.
        assert_eq!(
            play.call("echo")["result"]["structuredContent"]["said"],
            "hello"
        );
        let (_, http) = play.finish();
        assert_eq!((http.opened(), http.open()), (2, 0), "{signal:?}");
    }
}

#[test]
fn a_signal_to_the_shim_closes_the_http_session() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut play = Bridged::open(&["--linger", "0", "--header", "X-Key: hunter2"]);
        let shim = play.stage.card().shim.unwrap();
        Handle::open(shim).unwrap().signal(signal).unwrap();
        play.client.wait();
        play.http.empty();
        assert_last_delete_has_the_same_headers(&play.http);
        play.stage.census.assert_empty();
        assert!(unclosed(&play.stage).is_empty(), "{signal:?}");
    }
}

#[test]
fn the_end_of_its_lease_closes_the_http_session() {
    let stage = Stage::new();
    let opened = mainstay(&stage, &["lease", "open", "job", "--ttl", "1h"]);
    assert!(opened.status.success(), "{opened:?}");
    let options = ["--lease", "job", "--header", "X-Key: hunter2"];
    let mut play = Bridged::on(stage, Httpd::start(), &options);
    play.client.wire.initialize().unwrap();
    let closed = play.mainstay(&["lease", "close", "job"]);
    assert!(closed.status.success(), "{closed:?}");
    assert_eq!(play.http.open(), 0, "before `close` has returned");
    assert_last_delete_has_the_same_headers(&play.http);
    assert!(unclosed(&play.stage).is_empty());
}

#[test]
fn hibernation_closes_the_http_session_and_the_next_request_opens_another() {
    let mut play = Bridged::open(&["--hibernate", "100ms", "--header", "X-Key: hunter2"]);
    until("it has closed its session", || {
        (play.http.deleted() == ["session-1"]).then_some(())
    });
    assert_last_delete_has_the_same_headers(&play.http);
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello"
    );
    assert!(play.http.opened() >= 2);
    let (stage, http) = play.finish();
    http.empty();
    assert!(unclosed(&stage).is_empty());
}
