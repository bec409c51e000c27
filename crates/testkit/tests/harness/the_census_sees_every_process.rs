//! The harness itself, tried on a bare server: the census sees every process that is left, however it hides, and ends it.
//! guards: A test fails if a process that it started is left, however that process hides.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;

/// Ends the bare server by EOF and returns how many processes are left.
fn left_by(habits: &[&str]) -> usize {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stage.unruly(habits));
    client.finish_without_waiting_for_stdout();
    let left = stage.census.living().len();
    stage.census.end_all();
    assert_eq!(stage.census.living(), []);
    left
}

#[test]
fn a_well_behaved_server_leaves_no_process() {
    assert_eq!(left_by(&[]), 0);
    assert_eq!(left_by(&["--launcher", "3"]), 0);
    // Orphans end by themselves, but not at once.
    let stage = Stage::new();
    Client::open(&stage, &stage.unruly(&["--orphans", "5"])).finish();
    stage.census.assert_empty();
}

#[test]
fn each_kind_of_escape_is_seen() {
    for habit in [
        "--grandchild",
        "--setsid-child",
        "--daemon",
        "--daemon-clean-env",
        "--stopped-child",
    ] {
        assert_eq!(left_by(&[habit]), 1, "{habit}");
    }
    assert_eq!(
        left_by(&["--grandchild", "--daemon-clean-env", "--launcher", "2"]),
        2
    );
}

#[test]
fn a_tree_is_seen_in_full() {
    assert_eq!(left_by(&["--tree", "60"]), 60);
}

#[test]
fn a_fork_and_exit_chain_never_hides_from_a_census() {
    let stage = Stage::new();
    let mut client = Client::open(
        &stage,
        &stage.unruly(&["--comets", "1", "--comet-life", "1s"]),
    );
    client.finish_without_waiting_for_stdout();
    // Every process of the chain holds the server's stdout, which so ends only when the last one is gone.
    assert!(!client.wire.readable());
    stage.census.assert_empty();
    assert!(client.wire.readable());
    assert_eq!(client.wire.rest().unwrap(), b"");
}

#[test]
fn a_census_that_is_not_empty_fails_the_test_and_ends_the_leftovers() {
    let stage = Stage::new();
    let mark = stage.census.mark().to_owned();
    let mut client = Client::open(
        &stage,
        &stage.unruly(&["--ignore-eof", "--ignore-term", "--setsid-child"]),
    );
    let pid = client.who.pid;
    client.wire.close_write();
    let told = catch_unwind(AssertUnwindSafe(|| {
        stage
            .census
            .assert_empty_within(std::time::Duration::from_millis(50));
    }))
    .unwrap_err();
    let told = told.downcast::<String>().unwrap();
    assert!(
        told.starts_with(&format!("2 still alive with mark {mark}:")),
        "{told}"
    );
    assert!(
        told.contains(&format!("pid {pid} ppid {}", std::process::id())),
        "{told}"
    );
    assert!(told.contains("--setsid-child"), "{told}");
    stage.census.end_all();
    until("the server is gone", || (!client.runs()).then_some(()));
}

#[test]
fn zombies_are_counted_separately() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stage.unruly(&[] as &[&str]));
    client.wire.close_write();
    stage.census.assert_empty();
    // Its parent has not reaped it yet, so it is still in the table, but it is not alive.
    assert_eq!(stage.census.zombies().len(), 1);
    assert!(client.wait().success());
    assert_eq!(stage.census.zombies().len(), 0);
}
