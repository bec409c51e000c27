//! A guardian with fewer descriptors than owners ends the leaves of dead owners, and of no others.
//! guards: The guardian ends only trees of dead owners, also when it has too few descriptors to watch all owners.

use std::fs;
use std::path::PathBuf;

use mainstay_os::identity::{self, Handle};
use mainstay_os::tier::guardian;
use mainstay_os::{clock, role};
use mainstay_protocol::ids::{LinkId, Tag};

use crate::common::{Running, Server, alone, tag};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

const OWNERS: u32 = 12;

/// Its own descriptors, and enough for four owners.
const DESCRIPTORS: Rlimit = Rlimit {
    current: Some(24),
    maximum: Some(24),
};

/// A directory that looks like a leaf: the test can read afterwards what would have ended it.
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
fn leaves_of_living_owners_are_spared_without_descriptors() {
    alone(
        this_test!("leaves_of_living_owners_are_spared_without_descriptors"),
        || {
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
            // One owner that is watched, and one that is not, whichever they are.
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
        },
    );
}
