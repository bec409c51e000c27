//! `serve` behind a balancer: after SIGTERM it says that it is not ready, and goes on answering until the balancer has heard it.
//! guards: While a host drains, no request that reaches it fails: only new sessions are sent elsewhere, with a time to retry.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::front::{Front, call, request};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::json;

fn not_ready(front: &Front) {
    until("it is not ready any more", || {
        (front.page("/readyz").status == 503).then_some(())
    });
}

#[test]
fn a_draining_host_serves_its_sessions_and_opens_none() {
    let front = Front::start(&["--drain-delay", "10m"], &[]);
    let ready = front.page("/readyz");
    assert_eq!(
        (ready.status, ready.last()["status"].clone()),
        (200, json!("ready"))
    );
    let session = front.session();
    front.signal(Signal::TERM);
    not_ready(&front);
    assert_eq!(front.page("/readyz").last()["status"], "draining");
    assert_eq!(front.page("/healthz").status, 200, "it lives");
    let answer = session.post(&call(7, "pid", &json!({})));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("connection"),
        Some("close"),
        "a connection that is kept would bring more requests"
    );
    let mut opening = front.connect();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    opening.post(&[], &request(0, "initialize", &params));
    let refused = opening.answer();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    // A second signal cuts it short.
    front.signal(Signal::TERM);
    let mut front = front;
    front.wait();
    front.stage.census.assert_empty();
}

#[test]
fn ctrl_c_does_not_wait_for_balancers() {
    let front = Front::start(&["--drain-delay", "10m"], &[]);
    front.session().server();
    front.signal(Signal::INT);
    front.finish_stopped();
}

#[test]
fn a_rolling_restart_fails_no_request() {
    const CLIENTS: usize = 4;
    const EACH: usize = 20;
    let host = || Front::start(&["--drain-delay", "3s"], &["--modern"]);
    let mut hosts = vec![host(), host()];
    let balanced = Mutex::new(
        hosts
            .iter()
            .map(|host| (host.address, host.paths[0].clone()))
            .collect::<Vec<_>>(),
    );
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let replacements: Vec<Front> = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (balanced, over, answered) = (&balanced, &over, &answered);
            scope.spawn(move || {
                let mut turn = client;
                while !over.load(Ordering::SeqCst) {
                    turn += 1;
                    let (address, path) = {
                        let balanced = balanced.lock().unwrap();
                        balanced[turn % balanced.len()].clone()
                    };
                    let mut connection = Front::connection_to(address, &path);
                    let params = json!({"name": "pid", "arguments": {}});
                    connection.modern(&json!(turn), "tools/call", params);
                    let answer = connection.answer();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert_eq!(answer.last()["id"], turn, "{}", answer.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more = |what: &str| {
            let target = answered.load(Ordering::SeqCst) + EACH;
            until(what, || {
                (answered.load(Ordering::SeqCst) >= target).then_some(())
            });
        };
        more("requests are answered before the restart");
        let mut replacements = Vec::new();
        for mut old in hosts.drain(..) {
            let next = host();
            balanced
                .lock()
                .unwrap()
                .push((next.address, next.paths[0].clone()));
            replacements.push(next);
            old.signal(Signal::TERM);
            more("requests are answered while a host drains");
            // What a balancer does.
            not_ready(&old);
            let mut balanced = balanced.lock().unwrap();
            balanced.retain(|(address, _)| *address != old.address);
            drop(balanced);
            assert!(old.wait().success());
            old.stage.census.assert_empty();
            more("requests are answered after it has ended");
        }
        over.store(true, Ordering::SeqCst);
        replacements
    });
    assert!(answered.load(Ordering::SeqCst) >= 5 * EACH);
    for host in replacements {
        host.finish();
    }
}
