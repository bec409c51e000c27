//! A launcher has left, and the client behind it does not let itself be looked at: it is still taken for the client.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::fd::AsRawFd;

use common::alone;
use mainstay_core::ids::Identity;
use mainstay_os::{holder, identity, role};
use rustix::pipe::pipe;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Somebody who was started after everybody else, and is gone.
const LAUNCHER: Identity = Identity {
    pid: i32::MAX,
    start: u64::MAX,
};

#[test]
fn is_the_heir_of_its_launcher() {
    alone("is_the_heir_of_its_launcher", || {
        let me = identity::me().unwrap();
        let (reader, writer) = pipe().unwrap();
        for hidden in [false, true] {
            let behavior = if hidden {
                DumpableBehavior::NotDumpable
            } else {
                DumpableBehavior::Dumpable
            };
            set_dumpable_behavior(behavior).unwrap();
            let keeper = role::start(|| {
                role::close_all_but(&mut [reader.as_raw_fd()]);
                let heir = holder::heir(&reader, LAUNCHER, &[LAUNCHER, me]);
                u8::from(heir.map(|seen| seen.who) != Some(me))
            })
            .unwrap();
            assert_eq!(role::wait(keeper).unwrap(), Some(0), "hidden: {hidden}");
        }
        // Whoever can be seen to hold nothing, and whoever starts sessions, is no client.
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
        drop(writer);
        let init = Identity {
            pid: 1,
            start: identity::of(1).unwrap().start,
        };
        for above in [vec![me, init], vec![init], vec![]] {
            assert_eq!(holder::heir(&reader, LAUNCHER, &above), None);
        }
    });
}
