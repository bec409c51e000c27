//! What a tree uses is measured over all its members, on each tier that this machine has.
//! guards: Memory and processor time are measured over the whole tree, and shared memory counts once.

use mainstay_os::cap;
use mainstay_os::tier::Refusal;
use mainstay_os::tree::Ended;
use mainstay_protocol::tier::Tier;

use crate::common::{Running, Server, alone, tiers};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

/// Works for 0.2 s of processor time in a child that is waited for, as long in one that stays, and then sleeps.
const WORKERS: &str = "
import os, signal, time
def work():
    while time.process_time() < 0.2: pass
r, w = os.pipe()
if os.fork() == 0:
    work()
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.setsid()
    work()
    os.write(w, b'.')
    while True: signal.pause()
os.read(r, 1)
print('ready', flush=True)
while True: signal.pause()
";

/// Holds 48 MiB together with three children.
const SHARERS: &str = "
import os, signal
held = bytearray(b'x') * (48 << 20)
for i in range(3):
    if os.fork() == 0:
        while True: signal.pause()
print('ready', flush=True)
while True: signal.pause()
";

/// Has a child that it traces, like a debugger.
const TRACER: &str = "
import ctypes, os, signal
print('ready', flush=True)
os.read(0, 1)
r, w = os.pipe()
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, None, None)
    os.write(w, b'.')
    while True: signal.pause()
os.read(r, 1)
print('traced', flush=True)
while True: signal.pause()
";

/// Allocates 256 MiB when it gets a line.
const GLUTTON: &str = "
import os, signal
print('ready', flush=True)
os.read(0, 1)
held = bytearray(b'x') * (256 << 20)
print('fed', flush=True)
while True: signal.pause()
";

fn start(script: &str, tier: Tier) -> Running {
    let mut running = Server::python(script).on(tier).start().unwrap();
    assert_eq!(running.line(), "ready");
    running
}

fn end(mut running: Running) {
    let ended = running.spawned.tree.kill(10_000, &mut |_, _, _| ());
    assert!(ended.left.is_empty());
}

#[test]
fn processor_time_of_ended_members_counts() {
    alone(this_test!("processor_time_of_ended_members_counts"), || {
        for tier in tiers() {
            let running = start(WORKERS, tier);
            // Both figures are cut off to whole ticks; the interpreter's own start only adds to them.
            let ms = running.spawned.tree.cpu_ms();
            assert!((360..60_000).contains(&ms), "tier {tier}: {ms} ms");
            end(running);
        }
    });
}

#[test]
fn shared_memory_counts_once() {
    alone(this_test!("shared_memory_counts_once"), || {
        for tier in tiers() {
            let running = start(SHARERS, tier);
            let tree = &running.spawned.tree;
            assert_eq!(tree.members().len(), 4);
            let bytes = tree.memory_bytes();
            assert!(
                (48 * MIB..96 * MIB).contains(&bytes),
                "tier {tier}: {bytes} bytes"
            );
            assert!(tree.memory_above(48 * MIB).is_some());
            // The rough sum is above it, the true one below.
            assert_eq!(tree.memory_above(100 * MIB), None);
            assert_eq!(tree.memory_above(1_024 * MIB), None);
            end(running);
        }
    });
}

#[test]
fn a_debugger_is_seen() {
    alone(this_test!("a_debugger_is_seen"), || {
        for tier in tiers() {
            let mut running = start(TRACER, tier);
            assert!(!running.spawned.tree.traced(), "tier {tier}");
            rustix::io::write(&running.stdin, b".").unwrap();
            assert_eq!(running.line(), "traced");
            assert!(running.spawned.tree.traced(), "tier {tier}");
            end(running);
        }
    });
}

#[test]
fn memory_cap_holds_or_reports_why_not() {
    alone(this_test!("memory_cap_holds_or_reports_why_not"), || {
        for tier in tiers() {
            let mut running = start(GLUTTON, tier);
            let tree = &running.spawned.tree;
            let capped = cap::limit_memory(tree, 64 * MIB);
            assert_eq!(tree.oom_kills().is_some(), capped.is_ok(), "tier {tier}");
            if let Err(why) = capped {
                let leafless = Refusal::NoLeaf;
                if why != leafless {
                    crate::common::skip::skip(&format!("no memory limit by the kernel: {why}"));
                }
                assert_eq!(why == leafless, tree.leaf().is_none(), "{why}");
            } else {
                assert_eq!(tree.oom_kills(), Some(0));
                rustix::io::write(&running.stdin, b".").unwrap();
                running.wait();
                assert_eq!(running.output(), "", "it never was fed");
                assert!(running.spawned.tree.oom_kills() >= Some(1));
            }
            end(running);
        }
    });
}

#[test]
fn a_tree_that_is_gone_uses_nothing() {
    alone(this_test!("a_tree_that_is_gone_uses_nothing"), || {
        for tier in tiers() {
            let mut running = start(SHARERS, tier);
            running.spawned.tree.signal(Signal::KILL);
            let Ended { left, .. } = running.spawned.tree.kill(10_000, &mut |_, _, _| ());
            assert!(left.is_empty());
            let tree = &running.spawned.tree;
            assert_eq!((tree.cpu_ms(), tree.memory_bytes()), (0, 0), "tier {tier}");
            assert!(!tree.traced());
            assert_eq!(tree.oom_kills(), None);
        }
    });
}
