//! If we lack the resources or the right to look at a process, that says nothing about its life. Only the kernel's
//! "no such process" or another start time does.
//! guards: A process that we cannot look at counts as alive.

use std::io;
use std::path::PathBuf;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;

use crate::common::{Copied, Server, alone, copy, few_descriptors, inner, isolated, passed};

#[test]
fn process_is_alive_if_no_descriptor_is_left() {
    alone(
        this_test!("process_is_alive_if_no_descriptor_is_left"),
        || {
            let mut running = Server::sh("read nothing").start().unwrap();
            let who = running.spawned.who;
            few_descriptors(0, || {
                assert!(identity::alive(who));
                let refused = Handle::open(who).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
            });
            let ended = running.spawned.tree.kill(5_000, &mut |_, _, _| ());
            assert!(ended.left.is_empty());
            few_descriptors(0, || assert!(!identity::alive(who)));
            let gone = Handle::open(who).unwrap_err();
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        },
    );
}

/// Mounts a /proc in which a user sees only its own processes, and becomes another user.
const HIDING: &str = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 41007 --regid 41007 --clear-groups \"$@\"";

#[test]
#[expect(clippy::disallowed_methods, reason = "no server")]
fn process_is_alive_if_proc_hides_it() {
    const NAME: &str = this_test!("process_is_alive_if_proc_hides_it");
    if inner(NAME) {
        isolated(|| {
            // A process that lives as long as the machine runs, and that we may not see.
            let init = Identity { pid: 1, start: 0 };
            assert!(identity::of(1).is_err());
            assert!(identity::alive(init));
            let unseen = Handle::open(init).unwrap_err();
            assert_eq!(unseen.kind(), io::ErrorKind::PermissionDenied);
            let missing = Identity {
                pid: i32::MAX,
                start: 0,
            };
            assert!(!identity::alive(missing));
            let gone = Handle::open(missing).unwrap_err();
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        });
        return;
    }
    let words = ["unshare", "--mount", "sh", "-c", HIDING, "sh"].map(PathBuf::from);
    let able = std::process::Command::new(&words[0])
        .args(&words[1..])
        .arg("true")
        .output();
    if !able.is_ok_and(|out| out.status.success()) {
        crate::common::skip::skip("this user may not mount a /proc");
        return;
    }
    let copied = Copied::new(NAME);
    passed(&copy(
        &[&words[..], std::slice::from_ref(&copied.exe)].concat(),
        NAME,
    ));
}
