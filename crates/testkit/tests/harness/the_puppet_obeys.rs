//! The puppet, the client process that a test controls, with bare servers.
//! guards: The client process of the tests ends its sessions as real clients do.

use std::os::unix::process::ExitStatusExt;

use mainstay_os::identity;
use mainstay_testkit::client::Carrier;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::terminal::Terminal;

const NONE: [&str; 0] = [];

#[test]
fn it_starts_calls_and_closes() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let plan = Plan {
            carrier,
            copies: Some(3),
            ..Plan::default()
        };
        let mut puppet = Puppet::start(&stage, plan, &stage.unruly(&NONE));
        let pids: Vec<Option<i32>> = puppet.shims.iter().map(|who| Some(who.pid)).collect();
        assert_eq!(puppet.call_pids(), pids);
        match carrier {
            Carrier::Pipes => puppet.close(),
            Carrier::Sockets => puppet.half_close(),
        }
        stage.census.assert_empty();
        assert_eq!(puppet.wait_shims(), [0, 0, 0]);
    }
}

#[test]
fn its_pipes_close_at_any_end() {
    let stage = Stage::new();
    let start = |plan| Puppet::start(&stage, plan, &stage.unruly(&NONE));
    assert_eq!(start(Plan::default()).exit().code(), Some(0));
    stage.census.assert_empty();
    assert_eq!(start(Plan::default()).kill().signal(), Some(9));
    stage.census.assert_empty();
    assert_eq!(start(Plan::default()).crash().signal(), Some(6));
    stage.census.assert_empty();
    let plan = Plan {
        terminal: Some(Terminal::open().unwrap()),
        ..Plan::default()
    };
    assert_eq!(start(plan).hang_up().signal(), Some(1));
    stage.census.assert_empty();
}

#[test]
fn a_leaked_end_keeps_a_bare_server_alive() {
    for leak in [Leak::Command, Leak::Sibling] {
        let stage = Stage::new();
        let plan = Plan {
            leak,
            ..Plan::default()
        };
        let puppet = Puppet::start(&stage, plan, &stage.unruly(&NONE));
        let (server, sibling) = (puppet.shims[0], puppet.sibling);
        assert_eq!(sibling.is_some(), leak == Leak::Sibling);
        // The sibling ends with the puppet, so the puppet is only killed, not dropped.
        killers::at_once(&[puppet.who]);
        assert_eq!(
            stage
                .census
                .wait_empty(std::time::Duration::from_millis(200))
                .len(),
            1
        );
        assert!(identity::alive(server));
        if leak == Leak::Command {
            stage.census.end_all();
        }
        drop(puppet);
        stage.census.assert_empty();
    }
}

#[test]
fn each_killer_kills_what_it_reaches() {
    let stage = Stage::new();
    let stubborn = stage.unruly(&[
        "--ignore-eof",
        "--ignore-term",
        "--grandchild",
        "--setsid-child",
    ]);
    // Claude reaches one process, Codex the group, Copilot the tree.
    let start = || {
        let plan = Plan {
            own_group: true,
            ..Plan::default()
        };
        Puppet::start(&stage, plan, &stubborn)
    };
    for (kill, left) in [
        (killers::claude as fn(_), 2),
        (killers::codex, 1),
        (killers::copilot, 0),
    ] {
        let mut puppet = start();
        kill(puppet.shims[0]);
        assert_eq!(puppet.wait_shims(), [137]);
        stage
            .census
            .wait_empty(std::time::Duration::from_millis(if left == 0 {
                30_000
            } else {
                100
            }));
        assert_eq!(stage.census.living().len(), left);
        stage.census.end_all();
    }
}
