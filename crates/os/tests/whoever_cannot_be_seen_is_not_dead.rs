//! To have no means to look at a process, or no right to, says nothing about its life: only the kernel's "no such
//! process" or another start time does.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io;
use std::path::PathBuf;

use common::{Copied, Server, alone, copy, few_descriptors, inner, isolated, passed};
use mainstay_core::ids::Identity;
use mainstay_os::identity::{self, Handle};

#[test]
fn without_a_descriptor_left() {
    alone("without_a_descriptor_left", || {
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
    });
}

/// Makes a /proc in which one sees only oneself, and becomes somebody else.
const HIDING: &str = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 41007 --regid 41007 --clear-groups \"$@\"";

#[test]
#[expect(clippy::disallowed_methods, reason = "no server")]
fn behind_a_proc_that_hides_others() {
    const NAME: &str = "behind_a_proc_that_hides_others";
    if inner(NAME) {
        isolated(|| {
            // Whoever is there for as long as the machine runs, and whom we may not see.
            let init = Identity { pid: 1, start: 0 };
            assert!(identity::of(1).is_err());
            assert!(identity::alive(init));
            let unseen = Handle::open(init).unwrap_err();
            assert_eq!(unseen.kind(), io::ErrorKind::PermissionDenied);
            let nobody = Identity {
                pid: i32::MAX,
                start: 0,
            };
            assert!(!identity::alive(nobody));
            let gone = Handle::open(nobody).unwrap_err();
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
        common::skip::skip("this user may not mount a /proc");
        return;
    }
    let copied = Copied::new(NAME);
    passed(&copy(
        &[&words[..], std::slice::from_ref(&copied.exe)].concat(),
        NAME,
    ));
}
