//! The library, in its own host process with several threads: a dropped lease ends its servers, a stale lease touches no other
//! server, and mistakes are reported.
//! guards: Dropping a lease or a server in the library ends its processes and no others.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use crate::support::leased::{mainstay, until_nothing_on_disk};
use crate::support::test_name;
use mainstay::{Lease, LeaseOptions, Server, ServerCommand, Was};
use mainstay_testkit::stage::Stage;

/// In a host process, this variable holds the server command.
const HOST: &str = "MAINSTAY_TEST_HOST";
const THREADS: usize = 4;

#[test]
fn dropping_a_lease_ends_its_servers() {
    let stage = Stage::new();
    let words: Vec<OsString> = stage.unruly(&["--daemon"]);
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let host = stage
        .command(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &test_name(module_path!(), "host_process_that_drops_its_leases"),
            "--nocapture",
        ])
        .env(HOST, words.join("\n"))
        .env("MAINSTAY_BIN", mainstay())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&host.stderr);
    assert!(host.status.success(), "{said}");
    stage.census.assert_empty();
    until_nothing_on_disk(&stage);
}

/// Not a test by itself: it is the host process of the test above.
#[test]
fn host_process_that_drops_its_leases() {
    let Ok(words) = std::env::var(HOST) else {
        return;
    };
    let mut words = words.split('\n');
    let command = ServerCommand::new(words.next().unwrap())
        .args(words)
        .name("worker")
        .option("--grace-eof", "5s");
    mistakes_are_reported(&command);
    what_is_dropped_ends(&command);
    a_stale_lease_touches_no_other_server(&command);
    threads_do_not_disturb_each_other(&command);
}

fn options() -> LeaseOptions {
    LeaseOptions::new()
}

/// Opens the session, so the server runs afterwards.
fn greet(server: &mut Server) {
    let opening = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    writeln!(server.stdin.as_mut().unwrap(), "{opening}").unwrap();
    let mut line = String::new();
    let stdout = server.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.contains("\"result\""), "{line}");
    assert!(server.pid().is_some());
}

fn mistakes_are_reported(command: &ServerCommand) {
    let error = Lease::open("no/name", &options()).unwrap_err();
    assert!(error.to_string().contains("letters, digits"), "{error}");
    let nowhere = options().mainstay("/no/such/mainstay");
    let lease = Lease::open("job", &nowhere).unwrap();
    let error = lease.start(command).unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
    assert!(error.hint().unwrap().contains("MAINSTAY_BIN"));
    let closed = lease.close().unwrap();
    assert_eq!((closed.was.clone(), closed.left()), (Was::Open, 0));
    // Its own name is free, and another owner's name is not.
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

fn a_stale_lease_touches_no_other_server(command: &ServerCommand) {
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
