//! A guardian that may have fewer descriptors than there are owners ends the leaves of dead ones, and of no other.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Running, Server, alone, tag};
use mainstay_core::ids::{LinkId, Tag};
use mainstay_os::identity::{self, Handle};
use mainstay_os::tier::guardian;
use mainstay_os::{clock, role};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

const OWNERS: u32 = 12;

/// Its own descriptors, and room for four owners.
const DESCRIPTORS: Rlimit = Rlimit {
    current: Some(24),
    maximum: Some(24),
};

/// A directory that looks like a leaf: what would end it can be read afterwards.
fn leaf(slice: &std::path::Path, tag: &Tag) -> PathBuf {
    let leaf = slice.join(tag.leaf());
    fs::create_dir(&leaf).unwrap();
    fs::write(leaf.join("cgroup.kill"), "").unwrap();
    leaf
}

fn ended(leaf: &std::path::Path) -> bool {
    !fs::read(leaf.join("cgroup.kill")).unwrap().is_empty()
}

#[test]
fn however_many_there_are() {
    alone("however_many_there_are", || {
        let slice = std::env::temp_dir().join(format!("mainstay-slice-{}", std::process::id()));
        fs::create_dir(&slice).unwrap();
        let owners: Vec<(Running, PathBuf)> = (0..OWNERS)
            .map(|link| {
                let owner = Server::sh("read nothing").start().unwrap();
                let tag = Tag {
                    owner: owner.spawned.who,
                    link: LinkId(link),
                    ..tag()
                };
                let leaf = leaf(&slice, &tag);
                (owner, leaf)
            })
            .collect();
        let under_watch = slice.clone();
        let guardian = role::start_held(move || {
            role::close_all_but(&mut []);
            setrlimit(Resource::Nofile, DESCRIPTORS).unwrap();
            drop(guardian::watch(&under_watch, 60_000));
            0
        })
        .unwrap();
        // One that has a place among those who are waited for, and one that has none, whichever it is.
        let dead = [0, OWNERS as usize - 1];
        for one in dead {
            let owner = Handle::open(owners[one].0.spawned.who).unwrap();
            owner.signal(Signal::KILL).unwrap();
        }
        while !dead.iter().all(|&one| ended(&owners[one].1)) {
            assert!(!guardian.ended());
            clock::nap(10);
        }
        for (place, (owner, leaf)) in owners.iter().enumerate() {
            assert_eq!(ended(leaf), dead.contains(&place), "owner {place}");
            assert_eq!(identity::alive(owner.spawned.who), !dead.contains(&place));
        }
        role::dismiss(&guardian);
        fs::remove_dir_all(&slice).unwrap();
        for (mut owner, _) in owners {
            owner.spawned.tree.kill(5_000, &mut |_, _, _| ());
        }
    });
}
