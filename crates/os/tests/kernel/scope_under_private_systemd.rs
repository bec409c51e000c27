//! The scope tier next to a real systemd user manager, as an unprivileged user, with all processes killed at once.
//!
//! Each test runs in `private-systemd` (see `crates/testkit/scripts`), which needs root, systemd and a cgroup2. If
//! they are missing, the tests say so and assert only what can be seen without a manager.
//! guards: On the scope tier, a tree ends even if all mainstay processes are killed at once.

use std::path::{Path, PathBuf};

use mainstay_os::identity;
use mainstay_os::tier::scope::{GUARDIAN, Program};
use mainstay_os::tier::{Choice, Leaf, Wish, cgroup, choose, choose_with, guardian};
use mainstay_protocol::event::Seen;
use mainstay_protocol::tier::Tier;

use crate::common::skip::skip;
use crate::common::{Copied, SHAPES, Server, copy, exact, inner, isolated, keeper, passed, tag};
use keeper::{ends, kill};

const GUARDIAN_NAME: &str = "guardian-under-test";
const KEEPER: &str = this_test!("keeper_process_prints_its_tree");
const UID: &str = "41007";

/// Runs a test body next to a private manager. `outside`: from a login session that the manager does not own.
fn lab(name: &str, outside: bool, body: impl FnOnce()) {
    if inner(name) {
        isolated(body);
        return;
    }
    let able = rustix::process::geteuid().is_root()
        && Path::new("/lib/systemd/systemd").exists()
        && cgroup::own().is_ok();
    if !able {
        skip("a private systemd user manager needs root, systemd and a cgroup2");
        without_manager();
        return;
    }
    let copied = Copied::new(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/scripts/private-systemd");
    let mut words = vec![script, "--uid".into(), UID.into()];
    if outside {
        words.push("--outside".into());
    }
    words.push(copied.exe.clone());
    passed(&copy(&words, name));
}

/// All that can be seen without a manager: the reason.
fn without_manager() {
    if let Err(why) = choose(Wish::Exactly(Tier::Scope), &tag()) {
        assert!(
            why[0].reason.starts_with("no systemd user manager"),
            "{why:?}"
        );
    }
}

/// This test program as the guardian.
fn program() -> Program {
    let exe = std::env::current_exe().unwrap();
    Program {
        exe,
        argv: [
            GUARDIAN_NAME,
            "--exact",
            exact(this_test!("the_guardian_runs_only_as_a_service")),
            "--nocapture",
            "--test-threads=1",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

fn scope(wish: Wish) -> Choice {
    choose_with(wish, &tag(), &Ok(program())).unwrap()
}

/// The guardian's pid, found in the slice of this leaf.
fn guardian_pid(leaf: &Path) -> Option<i32> {
    cgroup::procs(&leaf.parent().unwrap().join(GUARDIAN))
        .first()
        .copied()
}

#[test]
fn the_guardian_runs_only_as_a_service() {
    if keeper::started_as(GUARDIAN_NAME) {
        guardian::run_for(300).unwrap();
    } else {
        assert!(
            guardian::run()
                .unwrap_err()
                .to_string()
                .contains("systemd user manager")
        );
    }
}

#[test]
fn a_server_is_in_its_scope_before_it_runs_and_generations_follow_each_other() {
    lab(
        this_test!("a_server_is_in_its_scope_before_it_runs_and_generations_follow_each_other"),
        false,
        || {
            for generation in 0..5 {
                let choice = scope(Wish::Strongest);
                assert_eq!(choice.tier, Tier::Scope, "{:?}", choice.why_not);
                let mut running = Server::sh("while read l; do case $l in 0::*) echo $l;; esac; done < /proc/self/cgroup; sleep 600 & setsid sleep 600 & wait")
                .start_in(choice)
                .unwrap();
                let within = running.line();
                let spawned = &mut running.spawned;
                assert_eq!(
                    (spawned.tier, spawned.why_not.len()),
                    (Tier::Scope, 0),
                    "{:?}",
                    spawned.why_not
                );
                let leaf = spawned.tree.leaf().unwrap().to_owned();
                let (slice, name) = within.rsplit_once('/').unwrap();
                assert!(slice.ends_with("/app.slice/app-mainstay.slice"), "{within}");
                assert_eq!(cgroup::tag_of(name), Some(tag()), "{within}");
                // A successor finds it by its name.
                assert_eq!(Leaf::of(&tag()).unwrap().path(), leaf);
                assert_eq!(cgroup::of_process(spawned.who.pid).as_ref(), Some(&leaf));
                // We are not in it ourselves, and the guardian is next to it.
                assert_ne!(cgroup::own().unwrap(), leaf);
                assert!(guardian_pid(&leaf).is_some());
                let ended = spawned.tree.kill(5_000, &mut |_, _, _| ());
                assert_eq!(ended.left, Vec::<Seen>::new(), "generation {generation}");
                assert!(ended.count >= 1);
            }
        },
    );
}

#[test]
fn scope_is_made_over_the_session_bus() {
    lab(
        this_test!("scope_is_made_over_the_session_bus"),
        false,
        || {
            // Without the manager's own socket there is still the bus.
            let dir = PathBuf::from(format!("/run/user/{UID}"));
            let private = dir.join("systemd/private");
            std::fs::rename(&private, dir.join("systemd/elsewhere")).unwrap();
            // The first call starts the bus, which takes time; a real session has a running one.
            let choice = (0..200)
                .find_map(|_| choose_with(Wish::Exactly(Tier::Scope), &tag(), &Ok(program())).ok())
                .unwrap();
            drop(choice);
            let mut running = Server::sh("exec sleep 600")
                .start_in(scope(Wish::Strongest))
                .unwrap();
            assert_eq!(
                running.spawned.tier,
                Tier::Scope,
                "{:?}",
                running.spawned.why_not
            );
            let ended = running.spawned.tree.kill(5_000, &mut |_, _, _| ());
            assert_eq!((ended.count, ended.left.len()), (1, 0));
            std::fs::rename(dir.join("systemd/elsewhere"), &private).unwrap();
        },
    );
}

/// A keeper in a process of its own: starts a tree of daemons in a scope, prints its members, and waits to be killed.
#[test]
fn keeper_process_prints_its_tree() {
    let mut server = Server::python(SHAPES);
    server.argv.push(c"9".to_owned());
    if !keeper::started_as(keeper::NAME) {
        crate::common::alone(KEEPER, || {
            let mut running = server.start().unwrap();
            assert_eq!(running.line(), "ready");
            assert_eq!(running.spawned.tree.members().len(), 10);
            running.spawned.tree.kill(5_000, &mut |_, _, _| ());
        });
        return;
    }
    keeper::keep(&server, scope(Wish::AtLeast(Tier::Scope)));
}

#[test]
fn keeper_and_guard_killed_at_once_leave_no_process() {
    lab(
        this_test!("keeper_and_guard_killed_at_once_leave_no_process"),
        false,
        || {
            all_killed_at_once(false);
        },
    );
}

#[test]
fn the_guardian_itself_killed_too_leaves_no_process() {
    lab(
        this_test!("the_guardian_itself_killed_too_leaves_no_process"),
        false,
        || {
            all_killed_at_once(true);
        },
    );
}

fn all_killed_at_once(guardian_too: bool) {
    // A shell in the guard's place, a keeper below it.
    let script = format!("({}) & wait", keeper::command(KEEPER));
    let (mut guard, told) = keeper::start(&["/bin/bash", "-c", &script]);
    let members = guard.spawned.tree.members();
    let keeper = members
        .iter()
        .find(|stat| stat.ppid == guard.spawned.who.pid)
        .unwrap()
        .who();
    if guardian_too {
        kill(identity::of(guardian_pid(&told.leaf).unwrap()).unwrap());
    }
    kill(guard.spawned.who);
    kill(keeper);
    for &who in &told.members {
        assert!(ends(who, 20), "{who} lives on");
    }
    guard.spawned.tree.kill(5_000, &mut |_, _, _| ());
}

#[test]
fn a_guard_that_lives_but_does_nothing_does_not_save_the_tree() {
    lab(
        this_test!("a_guard_that_lives_but_does_nothing_does_not_save_the_tree"),
        false,
        || {
            // This process is the keeper's parent, and does nothing.
            let (mut keeper, told) = keeper::start(&["/bin/bash", "-c", &keeper::command(KEEPER)]);
            kill(keeper.spawned.who);
            // The server dies with its keeper; its daemons have become our children.
            assert!(ends(told.root, 20));
            let others = told.members.iter().filter(|&&who| who != told.root);
            for &who in others {
                assert!(ends(who, 20), "{who} lives on");
            }
            keeper.spawned.tree.kill(5_000, &mut |_, _, _| ());
        },
    );
}

#[test]
fn guardian_exits_without_leaves_and_comes_back() {
    lab(
        this_test!("guardian_exits_without_leaves_and_comes_back"),
        false,
        || {
            for _ in 0..3 {
                let mut running = Server::sh("exec sleep 600")
                    .start_in(scope(Wish::Strongest))
                    .unwrap();
                assert_eq!(
                    running.spawned.tier,
                    Tier::Scope,
                    "{:?}",
                    running.spawned.why_not
                );
                let leaf = running.spawned.tree.leaf().unwrap().to_owned();
                let guardian = identity::of(guardian_pid(&leaf).unwrap()).unwrap();
                running.spawned.tree.kill(5_000, &mut |_, _, _| ());
                assert!(ends(guardian, 20), "it stays for ever");
            }
        },
    );
}

#[test]
fn a_manager_that_cannot_move_the_server_is_no_error() {
    lab(
        this_test!("a_manager_that_cannot_move_the_server_is_no_error"),
        true,
        || {
            // We are in a session that is not below the manager, and there is no system manager to help.
            let mut running = Server::sh("exec sleep 600")
                .start_in(scope(Wish::Strongest))
                .unwrap();
            let why = &running.spawned.why_not;
            assert_eq!(running.spawned.tier, Tier::Subreaper, "{why:?}");
            assert_eq!(
                why.iter().map(|why| why.tier).collect::<Vec<_>>(),
                [Tier::Scope, Tier::Cgroup]
            );
            println!("{why:?}");
            let ended = running.spawned.tree.kill(5_000, &mut |_, _, _| ());
            assert_eq!((ended.count, ended.left.len()), (1, 0));
            let error = Server::sh("exec sleep 600").start_in(scope(Wish::AtLeast(Tier::Scope)));
            let Err(error) = error else { panic!("started") };
            assert_eq!(error.stage, mainstay_os::spawn::Stage::Place);
        },
    );
}
