//! In a container whose PID 1 never reaps a child, a hundred sessions leave no zombie, because the guard stays the shim's child
//! there.
//! guards: Sessions leave no zombie even if PID 1 never reaps.

use std::ffi::OsString;

use mainstay_os::census;
use mainstay_testkit::built::{under_test, unruly};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;

const ROUNDS: usize = 5;
const EACH: u32 = 20;

#[test]
fn a_hundred_sessions_leave_no_zombie_if_init_does_not_reap() {
    if !skip::root_or_skip("a PID namespace of its own needs root") {
        return;
    }
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(
        mainstay,
        // Twenty sessions that end at once are slow, and a signal would show in their status.
        &["--grace-eof", "60s"],
        stage.unruly(&["--setsid-child"]),
    );
    let mut behind: Vec<OsString> = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        .iter()
        .map(Into::into)
        .collect();
    behind.extend([
        unruly().into(),
        "--mark".into(),
        stage.census.mark().into(),
        "--start-and-idle".into(),
    ]);
    let plan = Plan {
        copies: Some(EACH),
        behind,
        ..Plan::default()
    };
    let mut puppet = Puppet::start(&stage, plan, &argv);
    // unshare's only child is PID 1 of the namespace. The client is a child of that.
    let init = census::children(puppet.who.pid).unwrap()[0];
    let client = until("the client is there", || {
        census::children(init).unwrap_or_default().first().copied()
    });
    for round in 1..=ROUNDS {
        puppet.close();
        assert_eq!(puppet.wait_shims(), [0; EACH as usize]);
        // Only init and the client are left in the namespace, and neither has a zombie.
        until("only init and the client are left", || {
            let below: Vec<_> = census::descendants(init)
                .into_iter()
                .filter(|stat| !stat.dead())
                .collect();
            (below.len() == 1).then_some(())
        });
        let dead: Vec<_> = census::all()
            .unwrap()
            .into_iter()
            .filter(|stat| stat.dead() && [init, client].contains(&stat.ppid))
            .collect();
        assert!(
            dead.is_empty(),
            "zombies after {} sessions: {dead:?}",
            round * EACH as usize
        );
        if round < ROUNDS {
            puppet.again();
        }
    }
    assert!(
        stage
            .events("start")
            .iter()
            .all(|event| event["detached"].get("no").is_some()),
        "told in the start event"
    );
    drop(puppet);
    stage.census.end_all();
}
