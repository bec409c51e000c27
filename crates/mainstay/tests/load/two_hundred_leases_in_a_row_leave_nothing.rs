//! A host opens, uses and closes 200 leases one after the other. Afterwards it has no process, descriptor or directory more than
//! after the first. The host is the library's example.
//! guards: Leases leave no process, descriptor or directory.

use std::ffi::OsString;
use std::fs;

use crate::support::leased::{left_on_disk, mainstay, until_nothing_on_disk};
use mainstay_os::census;
use mainstay_testkit::built;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::Value;

const LEASES: usize = 200;

/// A host whose jobs use an unruly server with these options.
fn host(stage: &Stage, habits: &[&str]) -> Client {
    let mut argv: Vec<OsString> = vec![built::host().into()];
    argv.extend(stage.unruly(habits));
    let host = Launch::new(stage, &argv)
        .with(|command| command.env("MAINSTAY_BIN", mainstay()))
        .start();
    stage.census.spare(host.who);
    host
}

/// Runs one job and returns the host's report of it.
fn job(host: &mut Client, name: &str) -> Value {
    host.wire
        .send_bytes(format!("{name}\n").as_bytes())
        .unwrap();
    let line = host.wire.line().unwrap();
    serde_json::from_slice(&line.expect("the host lives")).unwrap()
}

fn descriptors(host: &Client) -> usize {
    let path = format!("/proc/{}/fd", host.who.pid);
    fs::read_dir(path).unwrap().count()
}

/// Descriptors and children, zombies included.
fn has(host: &Client) -> (usize, Vec<i32>) {
    (descriptors(host), census::children(host.who.pid).unwrap())
}

#[test]
fn two_hundred_leases_leave_no_process_descriptor_or_directory() {
    let _turn = crate::turn();
    let stage = Stage::new();
    let mut host = host(&stage, &[]);
    let mut first = None;
    for number in 0..LEASES {
        let told = job(&mut host, &format!("session-{number}"));
        assert_eq!(told["left"], 0, "{told}");
        assert_eq!(
            (&told["servers"], &told["answered"]),
            (&1.into(), &true.into())
        );
        let now = has(&host);
        assert_eq!(first.get_or_insert(now.clone()), &now);
        assert_eq!(now.1, [0; 0]);
        if number % 20 == 0 {
            assert_eq!(left_on_disk(&stage), [""; 0]);
        }
    }
    until("only the host is left", || {
        let others = stage.census.living();
        others.is_empty().then_some(())
    });
    assert_eq!(left_on_disk(&stage), [""; 0]);
    host.finish();
}

#[test]
fn a_killed_host_leaves_nothing() {
    let _turn = crate::turn();
    let stage = Stage::new();
    // The server answers nothing, so the host is in the middle of its job.
    let mut host = host(&stage, &["--silent", "--ignore-eof", "--daemon"]);
    host.wire.send_bytes(b"job\n").unwrap();
    let card = stage.card();
    assert_eq!(card.json["lease"], "job");
    mainstay_testkit::killers::at_once(&[host.who]);
    host.wait();
    stage.census.assert_empty();
    until_nothing_on_disk(&stage);
}
