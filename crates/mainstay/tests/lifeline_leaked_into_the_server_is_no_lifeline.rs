//! A client's write end of our stdin that leaked to somebody who is not the client keeps nobody alive: EOF never comes,
//! but the client is dead.

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};

fn start(stage: &Stage, leak: Leak) -> Puppet {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--grace-eof", "300ms", "--grace-term", "300ms"];
    let argv = run(
        mainstay,
        &options,
        stage.unruly(&["--grandchild", "--daemon"]),
    );
    Puppet::start(
        stage,
        Plan {
            leak,
            ..Plan::default()
        },
        &argv,
    )
}

#[test]
fn leaked_to_ourselves_and_the_server() {
    let stage = Stage::new();
    start(&stage, Leak::Command).kill();
    stage.census.assert_empty();
}

#[test]
fn leaked_to_a_younger_sibling_that_lives_on() {
    let stage = Stage::new();
    let puppet = start(&stage, Leak::Sibling);
    let sibling = puppet.sibling.expect("a sibling was asked for");
    killers::at_once(&[puppet.who]);
    stage.census.assert_empty();
    assert!(identity::alive(sibling), "the sibling is not ours to end");
}

#[test]
fn a_leak_changes_nothing_while_the_client_lives() {
    for leak in [Leak::Command, Leak::Sibling] {
        let stage = Stage::new();
        let mut puppet = start(&stage, leak);
        assert!(puppet.call_pids()[0].is_some());
        assert!(puppet.call_pids()[0].is_some());
        puppet.exit();
        stage.census.assert_empty();
    }
}
