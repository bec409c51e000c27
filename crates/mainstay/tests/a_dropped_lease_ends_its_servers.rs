//! The library, in a host process of its own with several threads: what is dropped ends, what is stale touches nobody else, and
//! mistakes are told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod leased;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use leased::{mainstay, until_nothing_on_disk};
use mainstay::{Lease, LeaseOptions, Server, ServerCommand, Was};
use mainstay_testkit::stage::Stage;

/// Says in a host process which server command is to be used.
const HOST: &str = "MAINSTAY_TEST_HOST";
const THREADS: usize = 4;

#[test]
fn in_a_host_process() {
    let stage = Stage::new();
    let words: Vec<OsString> = stage.unruly(&["--daemon"]);
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let host = stage
        .command(std::env::current_exe().unwrap())
        .args(["--exact", "as_the_host", "--nocapture"])
        .env(HOST, words.join("\n"))
        .env("MAINSTAY_BIN", mainstay())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&host.stderr);
    assert!(host.status.success(), "{said}");
    stage.census.assert_empty();
    until_nothing_on_disk(&stage);
}

/// Not a test of its own: the host process of the one above.
#[test]
fn as_the_host() {
    let Ok(words) = std::env::var(HOST) else {
        return;
    };
    let mut words = words.split('\n');
    let command = ServerCommand::new(words.next().unwrap())
        .args(words)
        .name("worker")
        .option("--grace-eof", "5s");
    mistakes_are_told(&command);
    what_is_dropped_ends(&command);
    a_stale_lease_touches_nobody_else(&command);
    threads_do_not_disturb_each_other(&command);
}

fn options() -> LeaseOptions {
    LeaseOptions::new()
}

/// Opens the session; the server is up then.
fn greet(server: &mut Server) {
    let opening = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    writeln!(server.stdin.as_mut().unwrap(), "{opening}").unwrap();
    let mut line = String::new();
    let stdout = server.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.contains("\"result\""), "{line}");
    assert!(server.pid().is_some());
}

fn mistakes_are_told(command: &ServerCommand) {
    let error = Lease::open("no/name", &options()).unwrap_err();
    assert!(error.to_string().contains("letters, digits"), "{error}");
    let nowhere = options().mainstay("/no/such/mainstay");
    let lease = Lease::open("job", &nowhere).unwrap();
    let error = lease.start(command).unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
    assert!(error.hint().unwrap().contains("MAINSTAY_BIN"));
    let closed = lease.close().unwrap();
    assert_eq!((closed.was.clone(), closed.left()), (Was::Open, 0));
    // Its own name is free, and another owner's is not.
    let lease = Lease::open("job", &options().ttl(Duration::from_mins(1))).unwrap();
    lease.renew(Some(Duration::from_secs(90))).unwrap();
    let error = lease.renew(Some(Duration::ZERO)).unwrap_err();
    assert!(error.to_string().contains("a lease lasts from"), "{error}");
}

fn what_is_dropped_ends(command: &ServerCommand) {
    // The lease before its server, …
    let lease = Lease::open("job", &options()).unwrap();
    let mut server = lease.start(command).unwrap();
    greet(&mut server);
    drop(lease);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    // … and the server before its lease, which goes on.
    let lease = Lease::open("job", &options()).unwrap();
    let mut server = lease.start(command).unwrap();
    greet(&mut server);
    drop(server);
    lease.renew(None).unwrap();
    assert!(lease.close().unwrap().confirmed());
}

fn a_stale_lease_touches_nobody_else(command: &ServerCommand) {
    let first = Lease::open("job", &options()).unwrap();
    let same = Lease::open("job", &options()).unwrap();
    assert_eq!(same.close().unwrap().was, Was::Open);
    let later = Lease::open("job", &options()).unwrap();
    let mut server = later.start(command).unwrap();
    greet(&mut server);
    assert_eq!(first.close().unwrap().was, Was::Unknown);
    later.renew(None).unwrap();
    assert!(server.try_wait().unwrap().is_none());
    let closed = later.close().unwrap();
    assert_eq!(closed.servers.len(), 1);
    assert_eq!(closed.servers[0].server, "worker");
    server.wait().unwrap();
}

fn threads_do_not_disturb_each_other(command: &ServerCommand) {
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                for _ in 0..3 {
                    let lease = Lease::open(format!("job-{number}"), &options()).unwrap();
                    let mut server = lease.start(command).unwrap();
                    greet(&mut server);
                    let closed = lease.close().unwrap();
                    assert!(
                        closed.confirmed() && closed.servers.len() == 1,
                        "{closed:?}"
                    );
                    server.wait().unwrap();
                }
            });
        }
    });
}
