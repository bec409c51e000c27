//! A launcher has exited, and we may not see the descriptors of the client behind it: it is still taken for the
//! client.
//! guards: A client whose descriptors we may not read still counts as the client after its launcher has exited.

use std::os::fd::AsRawFd;

use mainstay_os::{holder, identity, role};
use mainstay_protocol::ids::Identity;

use crate::common::alone;
use rustix::pipe::pipe;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// A process that was started after all others and is gone.
const LAUNCHER: Identity = Identity {
    pid: i32::MAX,
    start: u64::MAX,
};

#[test]
fn hidden_client_is_found_after_its_launcher_exits() {
    alone(
        this_test!("hidden_client_is_found_after_its_launcher_exits"),
        || {
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
                    let next = holder::next_holder(&reader, LAUNCHER, &[LAUNCHER, me]);
                    u8::from(next.map(|seen| seen.who) != Some(me))
                })
                .unwrap();
                assert_eq!(role::wait(keeper).unwrap(), Some(0), "hidden: {hidden}");
            }
            // A process that is seen to hold nothing, or that starts sessions, is no client.
            set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
            drop(writer);
            let init = Identity {
                pid: 1,
                start: identity::of(1).unwrap().start,
            };
            for above in [vec![me, init], vec![init], vec![]] {
                assert_eq!(holder::next_holder(&reader, LAUNCHER, &above), None);
            }
        },
    );
}
