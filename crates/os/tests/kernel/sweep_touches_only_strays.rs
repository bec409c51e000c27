//! The sweep ends what a dead owner left behind, and no other process, whatever its tag looks like.
//! guards: The sweep ends every process that a dead owner left, and no other process.

use std::ffi::CString;

use mainstay_os::identity::{self, Handle};
use mainstay_os::sweep::{self, Found, Stray};
use mainstay_os::tier::Leaf;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};

use crate::common::{Running, SHAPES, Server, few_descriptors, secluded, tag};
use rustix::process::Signal;

/// A process that has ended and whose pid is free. To be called first, because it ends all processes below us.
fn dead() -> Identity {
    let mut running = Server::new(&["/bin/true"]).start().unwrap();
    running.wait();
    running.spawned.tree.kill(5_000, &mut |_, _, _| ());
    running.spawned.who
}

/// A tag of ours whose owner has ended.
fn orphaned() -> Tag {
    Tag {
        owner: dead(),
        ..tag()
    }
}

/// A started process with that text as its tag (or without a tag, if there is no text).
fn marked(text: Option<&str>, script: &str) -> Running {
    let mut server = Server::sh(script);
    server
        .env
        .retain(|entry| !entry.to_bytes().starts_with(TAG_VARIABLE.as_bytes()));
    if let Some(text) = text {
        server
            .env
            .push(CString::new(format!("{TAG_VARIABLE}={text}")).unwrap());
    }
    let mut running = server.start().unwrap();
    assert_eq!(running.line(), "up");
    running
}

/// It executes nothing: a process that executes has no environment for a moment, and is spared.
const SLEEP: &str = "echo up; read nothing";

fn look(recorded: &[(Tag, Vec<Identity>)]) -> Found {
    sweep::find(&identity::realm().unwrap(), recorded, &|_| false)
}

/// What the sweep finds of our own link; strays of other links do not matter here.
fn find(recorded: &[(Tag, Vec<Identity>)]) -> Vec<Stray> {
    let mut strays = look(recorded).strays;
    strays.retain(|stray| stray.tag.link == tag().link);
    strays
}

fn pids(seen: &[Seen]) -> Vec<i32> {
    let mut pids: Vec<i32> = seen.iter().map(|seen| seen.who.pid).collect();
    pids.sort_unstable();
    pids
}

fn bury(mut running: Running) {
    assert!(
        running
            .spawned
            .tree
            .kill(5_000, &mut |_, _, _| ())
            .left
            .is_empty()
    );
}

#[test]
fn a_tagged_process_whose_owner_is_dead_is_ended() {
    secluded(
        this_test!("a_tagged_process_whose_owner_is_dead_is_ended"),
        || {
            let tag = orphaned();
            // A process that has lost the tag is still below one that has not.
            let stray = marked(
                Some(&tag.to_string()),
                "env -i /bin/sh -c 'sleep 600 & echo up; wait' & wait",
            );
            let members = pids(
                &stray
                    .spawned
                    .tree
                    .members()
                    .iter()
                    .map(|stat| Seen {
                        who: stat.who(),
                        comm: String::new(),
                    })
                    .collect::<Vec<_>>(),
            );
            assert_eq!(members.len(), 3);
            let found = find(&[]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&found[0].tag, &found[0].by[..]), (&tag, &["tag"][..]));
            assert_eq!(pids(&found[0].members), members);
            let outcome = sweep::end(&found[0], 5_000);
            assert_eq!((pids(&outcome.ended), outcome.left.len()), (members, 0));
            assert!(find(&[]).is_empty());
            bury(stray);
        },
    );
}

/// Orphaned, and with an empty environment: only the inherited limit shows its owner.
#[test]
fn a_daemon_that_has_lost_its_environment_is_known_by_its_mark() {
    secluded(
        this_test!("a_daemon_that_has_lost_its_environment_is_known_by_its_mark"),
        || {
            let tag = orphaned();
            let script = "(env -i setsid /bin/sh -c 'echo up; exec sleep 600' &); read nothing";
            let stray = marked(Some(&tag.to_string()), script);
            let root = stray.spawned.who;
            let is_root = |stat: &mainstay_os::census::Stat| stat.who() == root;
            let handle = Handle::open(root).unwrap();
            handle.signal(Signal::KILL).unwrap();
            assert!(handle.wait_ended(5_000));
            let daemons = stray.spawned.tree.members();
            assert!(!daemons.is_empty() && !daemons.iter().any(is_root));
            // The mark of a tag that is not known to be dead says nothing.
            assert!(find(&[]).is_empty());
            let other = Tag {
                link: LinkId(7),
                ..tag.clone()
            };
            assert!(look(&[(other, Vec::new())]).strays.is_empty());
            let found = find(&[(tag.clone(), Vec::new())]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].members.len(), daemons.len());
            let outcome = sweep::end(&found[0], 5_000);
            assert_eq!(
                (outcome.ended.len(), outcome.left.len()),
                (daemons.len(), 0)
            );
            bury(stray);
        },
    );
}

#[test]
fn descendants_of_a_stray_with_a_living_owner_are_spared() {
    secluded(
        this_test!("descendants_of_a_stray_with_a_living_owner_are_spared"),
        || {
            let orphaned = orphaned();
            // A client that was left behind, and the server that it has started through another keeper, which lives. The
            // shell sets no mark as a keeper does, so the server must not execute a program after its first line: while
            // it did, it would have no environment, but the mark of the stray.
            let script = format!(
                "exec 3<&0; {TAG_VARIABLE}={} /bin/sh -c 'echo up; read nothing' <&3 & wait",
                tag()
            );
            let stray = marked(Some(&orphaned.to_string()), &script);
            let members = stray.spawned.tree.members();
            let root = stray.spawned.who;
            let claimed: Vec<Identity> =
                members.iter().map(mainstay_os::census::Stat::who).collect();
            let claimed: Vec<Identity> = claimed.into_iter().filter(|who| *who != root).collect();
            assert!(!claimed.is_empty());
            let found = find(&[]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(pids(&found[0].members), [root.pid]);
            let outcome = sweep::end(&found[0], 5_000);
            assert_eq!(
                (pids(&outcome.ended), outcome.left.len()),
                (vec![root.pid], 0)
            );
            assert!(claimed.iter().all(|who| identity::alive(*who)));
            bury(stray);
        },
    );
}

#[test]
fn more_strays_than_descriptors_are_ended_to_the_last() {
    secluded(
        this_test!("more_strays_than_descriptors_are_ended_to_the_last"),
        || {
            let tag = orphaned();
            let mut server = Server::python(SHAPES);
            server.argv.push(c"60".to_owned());
            server.env[1] = CString::new(format!("{TAG_VARIABLE}={tag}")).unwrap();
            for known in [true, false] {
                let mut stray = server.start().unwrap();
                assert_eq!(stray.line(), "ready");
                let members = stray.spawned.tree.members();
                let outcome = few_descriptors(20, || {
                    if !known {
                        return sweep::end_by_tag(&tag, &[], 10_000);
                    }
                    let found = find(&[]);
                    assert_eq!(found.len(), 1, "{found:?}");
                    assert_eq!(found[0].members.len(), 61);
                    sweep::end(&found[0], 10_000)
                });
                assert_eq!((outcome.ended.len(), outcome.left.len()), (61, 0));
                assert!(!members.iter().any(|stat| identity::alive(stat.who())));
                bury(stray);
            }
        },
    );
}

#[test]
fn without_any_descriptor_no_process_is_called_ended() {
    secluded(
        this_test!("without_any_descriptor_no_process_is_called_ended"),
        || {
            let stray = marked(Some(&orphaned().to_string()), SLEEP);
            let found = find(&[]);
            assert_eq!(found.len(), 1);
            let outcome = few_descriptors(0, || sweep::end(&found[0], 50));
            assert!(outcome.ended.is_empty());
            assert_eq!(pids(&outcome.left), [stray.spawned.who.pid]);
            assert!(identity::alive(stray.spawned.who));
            bury(stray);
        },
    );
}

#[test]
fn a_process_not_proven_to_be_a_stray_is_not_touched() {
    secluded(
        this_test!("a_process_not_proven_to_be_a_stray_is_not_touched"),
        || {
            let gone = orphaned();
            let with = |change: &dyn Fn(&mut Tag)| {
                let mut tag = gone.clone();
                change(&mut tag);
                tag.to_string()
            };
            let other_boot = with(&|tag| {
                tag.realm = Realm {
                    boot: "0badb007".into(),
                    ..tag.realm.clone()
                };
            });
            let other_pids = with(&|tag| tag.realm.pidns += 1);
            let other_times = with(&|tag| tag.realm.timens = Some(1));
            let living = with(&|tag| tag.owner = identity::me().unwrap());
            let malformed = with(&|_| ()) + ":more";
            let spared: Vec<Running> = [
                Some(other_boot.as_str()),
                Some(&other_pids),
                Some(&living),
                Some(&malformed),
                Some(""),
                None,
                Some(&other_times),
            ]
            .into_iter()
            .map(|text| marked(text, SLEEP))
            .collect();
            let found = find(&[]);
            assert!(found.is_empty(), "{found:?}");

            // The same by a card: a pid that another process has by now, a foreign boot, a living owner.
            let who = spared[5].spawned.who;
            let reused = Identity {
                start: who.start + 1,
                ..who
            };
            let cards = [
                (gone.clone(), vec![reused]),
                (other_boot.parse().unwrap(), vec![who]),
                (other_pids.parse().unwrap(), vec![who]),
                (living.parse().unwrap(), vec![who]),
            ];
            assert!(find(&cards).is_empty());
            // And by ending a tag that names no process.
            assert_eq!(
                sweep::end_by_tag(&gone, &[reused], 100),
                sweep::Outcome::default()
            );
            assert_eq!(
                sweep::end_by_tag(&other_boot.parse().unwrap(), &[who], 100),
                sweep::Outcome::default()
            );
            for running in &spared {
                assert!(identity::alive(running.spawned.who));
            }
            spared.into_iter().for_each(bury);
        },
    );
}

#[test]
fn an_owner_whose_pid_was_reused_is_dead() {
    secluded(this_test!("an_owner_whose_pid_was_reused_is_dead"), || {
        let me = identity::me().unwrap();
        let tag = Tag {
            owner: Identity {
                start: me.start - 1,
                ..me
            },
            ..tag()
        };
        let stray = marked(Some(&tag.to_string()), SLEEP);
        let mut found = find(&[]);
        assert_eq!(found.len(), 1);
        // If the owner lives after all, the end spares it.
        found[0].tag.owner = me;
        let outcome = sweep::end(&found[0], 1_000);
        assert_eq!((outcome.ended.len(), outcome.left.len()), (0, 1));
        assert!(identity::alive(stray.spawned.who));
        bury(stray);
    });
}

#[test]
fn a_link_that_is_to_be_skipped_is_skipped() {
    secluded(
        this_test!("a_link_that_is_to_be_skipped_is_skipped"),
        || {
            let stray = marked(Some(&orphaned().to_string()), SLEEP);
            let skip = |link: LinkId| link == tag().link;
            let found = sweep::find(&identity::realm().unwrap(), &[], &skip);
            assert!(
                !found
                    .strays
                    .iter()
                    .any(|stray| stray.tag.link == tag().link)
            );
            let found = find(&[]);
            assert_eq!(found.len(), 1, "{found:?}");
            bury(stray);
        },
    );
}

#[test]
fn a_recorded_process_without_a_tag_is_found_by_its_card() {
    secluded(
        this_test!("a_recorded_process_without_a_tag_is_found_by_its_card"),
        || {
            let tag = orphaned();
            let stray = marked(None, SLEEP);
            let found = find(&[(tag.clone(), vec![stray.spawned.who])]);
            assert_eq!(found.len(), 1);
            assert_eq!((&found[0].tag, &found[0].by[..]), (&tag, &["card"][..]));
            let outcome = sweep::end(&found[0], 5_000);
            assert_eq!(pids(&outcome.ended), [stray.spawned.who.pid]);
            bury(stray);
        },
    );
}

#[test]
fn processes_without_tag_and_mark_are_found_by_their_leaf() {
    secluded(
        this_test!("processes_without_tag_and_mark_are_found_by_their_leaf"),
        || {
            // The owner lives until all is set up, because every sweep on this machine removes empty leaves of dead
            // owners.
            let owner = marked(None, SLEEP);
            let tag = Tag {
                owner: owner.spawned.who,
                ..tag()
            };
            let other = Tag {
                link: LinkId(!tag.link.0),
                ..tag.clone()
            };
            let leaf = match Leaf::create(&tag) {
                Ok(leaf) => leaf,
                Err(why) => {
                    assert!(why.to_string().starts_with("no "), "{why}");
                    return bury(owner);
                }
            };
            let path = leaf.path().to_owned();
            let stray = marked(None, SLEEP);
            leaf.add(stray.spawned.who.pid).unwrap();
            // Forgotten, not dropped, as by an owner that is killed.
            std::mem::forget(leaf);
            let empty = Leaf::create(&other).unwrap();
            let empty_leaf = empty.path().to_owned();
            std::mem::forget(empty);
            assert!(find(&[]).is_empty());
            let handle = identity::Handle::open(tag.owner).unwrap();
            handle.signal(rustix::process::Signal::KILL).unwrap();
            owner.wait();

            let found = find(&[]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&found[0].tag, &found[0].by[..]), (&tag, &["leaf"][..]));
            assert!(empty_leaf.exists(), "finding changes nothing");
            look(&[]).remove_hollow();
            assert!(!empty_leaf.exists() && path.exists());
            let outcome = sweep::end(&found[0], 5_000);
            assert_eq!(pids(&outcome.ended), [stray.spawned.who.pid]);
            assert!(!path.exists());
            bury(stray);
        },
    );
}

#[test]
fn a_side_guard_ends_the_tree_of_a_tag_without_being_its_parent() {
    secluded(
        this_test!("a_side_guard_ends_the_tree_of_a_tag_without_being_its_parent"),
        || {
            for tier in crate::common::tiers() {
                let mut server = Server::python(SHAPES);
                server.argv.push(c"30".to_owned());
                let mut running = server.on(tier).start().unwrap();
                assert_eq!(running.line(), "ready");
                let bystander = marked(None, SLEEP);
                let outcome = sweep::end_by_tag(&tag(), &[], 10_000);
                assert_eq!((outcome.ended.len(), outcome.left.len()), (31, 0));
                assert!(identity::alive(bystander.spawned.who));
                bury(bystander);
                bury(running);
            }
        },
    );
}
