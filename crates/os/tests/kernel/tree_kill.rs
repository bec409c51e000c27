//! Trees of every shape are ended to the last process, on each tier that this machine has.
//! guards: On every tier, a tree of any shape is killed to the last process, or the processes that are left are named.

use mainstay_os::tree::{Ended, Tree};
use mainstay_os::{census, clock, identity, role};
use mainstay_protocol::event::{Seen, Status};
use mainstay_protocol::tier::Tier;

use crate::common::{Running, SHAPES, Server, alone, tiers};
use rustix::process::Signal;

const KILLED: Status = Status::Signal {
    number: libc::SIGKILL,
    core: false,
};

/// Chains of processes that fork and exit for 20 s, half of them in ever new sessions.
const COMETS: &str = "
import os, sys, time
w = int(sys.argv[1])
end = time.monotonic() + 20
for i in range(w):
    if os.fork() == 0:
        while time.monotonic() < end:
            if os.fork() != 0: os._exit(0)
            if i % 2: os.setsid()
        os._exit(0)
print('ready', flush=True)
while True: time.sleep(600)
";

fn tree_of(script: &str, n: usize, tier: Tier) -> Running {
    let mut server = Server::python(script);
    server
        .argv
        .push(std::ffi::CString::new(n.to_string()).unwrap());
    let mut running = server.on(tier).start().unwrap();
    assert_eq!(running.line(), "ready");
    running
}

fn kill(running: &mut Running) -> (Ended, Vec<(i32, Status)>) {
    let mut ends = Vec::new();
    let leaf = running.spawned.tree.leaf().map(ToOwned::to_owned);
    let ended = running
        .spawned
        .tree
        .kill(10_000, &mut |pid, status, _| ends.push((pid, status)));
    assert_eq!(ended.left, Vec::<Seen>::new());
    assert!(
        !leaf.is_some_and(|leaf| leaf.exists()),
        "the leaf is removed"
    );
    let me = std::process::id() as i32;
    assert_eq!(
        census::children(me).unwrap(),
        Vec::<i32>::new(),
        "no zombie either"
    );
    (ended, ends)
}

#[test]
fn three_hundred_with_sessions_and_daemons_are_ended() {
    alone(
        this_test!("three_hundred_with_sessions_and_daemons_are_ended"),
        || {
            for tier in tiers() {
                for n in [3, 30, 300] {
                    let mut running = tree_of(SHAPES, n, tier);
                    assert_eq!(running.spawned.tier, tier);
                    assert_eq!(running.spawned.tree.members().len(), n + 1);
                    // Every member ignores SIGTERM: the signal reaches all and ends none.
                    assert_eq!(running.spawned.tree.signal(Signal::TERM), n as u32 + 1);
                    assert_eq!(running.spawned.tree.members().len(), n + 1);
                    let (ended, ends) = kill(&mut running);
                    assert_eq!(ended.count, n as u32 + 1, "tier {tier}");
                    assert!(ends.contains(&(running.spawned.who.pid, KILLED)));
                }
            }
        },
    );
}

#[test]
fn chains_that_fork_and_exit_are_caught() {
    alone(this_test!("chains_that_fork_and_exit_are_caught"), || {
        for tier in tiers() {
            for w in [1, 4] {
                let mut running = tree_of(COMETS, w, tier);
                kill(&mut running);
            }
        }
    });
}

#[test]
fn stopped_member_gets_sigterm_and_is_killed() {
    alone(
        this_test!("stopped_member_gets_sigterm_and_is_killed"),
        || {
            for tier in tiers() {
                // One obeys SIGTERM once it runs again; the server itself does not.
                let mut running = Server::sh(
                "trap '' TERM; (trap 'echo obeyed; exit 3' TERM; echo $$; kill -STOP $(sh -c 'echo $PPID'); sleep 600 & wait) & wait; wait; read x",
            )
            .on(tier)
            .start()
            .unwrap();
                running.line();
                let tree = &running.spawned.tree;
                while !tree.members().iter().any(|stat| stat.state == b'T') {}
                tree.signal(Signal::TERM);
                assert_eq!(running.line(), "obeyed");

                let mut stopped = Server::sh("kill -STOP $$").on(tier).start().unwrap();
                while !stopped
                    .spawned
                    .tree
                    .members()
                    .iter()
                    .any(|stat| stat.state == b'T')
                {}
                kill(&mut stopped);
            }
        },
    );
}

#[test]
fn an_excluded_child_is_spared_and_still_reaped() {
    alone(
        this_test!("an_excluded_child_is_spared_and_still_reaped"),
        || {
            for tier in tiers() {
                // Like a side guard: a role of ours, with a child of its own.
                let side = role::start_held(|| {
                    role::start(wait_for_ever).unwrap();
                    wait_for_ever()
                });
                let side = side.unwrap();
                let spared = side.who;
                while census::children(spared.pid).unwrap().is_empty() {}
                let mut running = tree_of(SHAPES, 9, tier);
                let tree = &mut running.spawned.tree;
                tree.exclude(spared);
                assert_eq!(tree.members().len(), 10);
                tree.signal(Signal::HUP);
                let mut ends = Vec::new();
                let ended = tree.kill(10_000, &mut |pid, _, _| ends.push(pid));
                assert_eq!((ended.count, ended.left.len()), (10, 0));
                assert!(identity::alive(spared) && !ends.contains(&spared.pid));
                // It dies later, by itself.
                side.signal(Signal::KILL).unwrap();
                assert!(side.wait_ended(10_000));
                assert_eq!(
                    tree.reap(&mut |pid, status, _| ends.push(if status == KILLED {
                        pid
                    } else {
                        0
                    })),
                    1
                );
                assert_eq!(ends.last(), Some(&spared.pid));
                let ended = Tree::below_us().kill(10_000, &mut |_, _, _| {});
                assert_eq!((ended.count, ended.left.len()), (1, 0), "its child");
            }
        },
    );
}

fn wait_for_ever() -> u8 {
    loop {
        std::thread::park();
    }
}

#[test]
fn empty_tree_is_confirmed_and_its_status_reported() {
    alone(
        this_test!("empty_tree_is_confirmed_and_its_status_reported"),
        || {
            for tier in tiers() {
                let mut running = Server::sh("exit 7").on(tier).start().unwrap();
                running.wait();
                let who = running.spawned.who;
                let mut told = Vec::new();
                let tree = &mut running.spawned.tree;
                assert_eq!(
                    tree.reap(&mut |pid, status, usage| told.push((
                        pid,
                        status,
                        usage.max_rss_kib > 0
                    ))),
                    1
                );
                assert_eq!(told, [(who.pid, Status::Code(7), true)]);
                assert!(tree.members().is_empty());
                let (ended, ends) = kill(&mut running);
                assert_eq!((ended, ends), (Ended::default(), vec![]));
            }
        },
    );
}

#[test]
fn members_left_at_the_deadline_are_named() {
    alone(this_test!("members_left_at_the_deadline_are_named"), || {
        let mut running = tree_of(SHAPES, 300, Tier::Subreaper);
        let ended = running.spawned.tree.kill(0, &mut |_, _, _| ());
        // No time at all: some may be gone, and the others are named with their start times.
        for Seen { who, comm } in &ended.left {
            assert!(who.start > 0 && comm.starts_with("python"));
        }
        assert!(ended.count as usize + ended.left.len() >= 301);
        kill(&mut running);
    });
}

#[test]
fn a_dead_member_that_is_traced_is_named_and_waited_for() {
    alone(
        this_test!("a_dead_member_that_is_traced_is_named_and_waited_for"),
        || {
            let (told, tell) = rustix::pipe::pipe().unwrap();
            let (seized, seize) = rustix::pipe::pipe().unwrap();
            // The tree is in a process of its own, so that its tracer is outside of it: us.
            let killer = role::start(|| {
                role::become_subreaper().unwrap();
                let mut running = Server::sh("read nothing").start().unwrap();
                let pid = running.spawned.who.pid;
                rustix::io::write(&tell, &pid.to_ne_bytes()).unwrap();
                rustix::io::read(&seized, &mut [0u8]).unwrap();
                let before = clock::used_us();
                let ended = running.spawned.tree.kill(2_000, &mut |_, _, _| ());
                let used = clock::used_us() - before;
                let named = matches!(&ended.left[..], [seen] if seen.who.pid == pid);
                // It may wait for two seconds; looking without a pause would use most of them.
                u8::from(!named) + 2 * u8::from(used > 200_000)
            })
            .unwrap();
            let mut pid = [0u8; size_of::<i32>()];
            assert_eq!(rustix::io::read(&told, &mut pid), Ok(pid.len()));
            let pid = i32::from_ne_bytes(pid);
            // SAFETY: it reads and writes no memory of ours.
            let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
            let allowed = traced == 0;
            rustix::io::write(&seize, &[1]).unwrap();
            let code = role::wait(killer).unwrap();
            if allowed {
                assert_eq!(code, Some(0), "1: not named, 2: too busy");
            } else {
                crate::common::skip::skip("this user may not trace");
            }
            Tree::below_us().kill(5_000, &mut |_, _, _| ());
        },
    );
}
