//! A keeper is killed. On the pidns tier the kernel ends its tree; on the others its guard does, which inherits all
//! orphans. The guard is this process.
//! guards: On every tier, the tree of a killed keeper ends.

use mainstay_os::tier::{Wish, choose};
use mainstay_os::tree::Tree;
use mainstay_protocol::ids::Tag;
use mainstay_protocol::tier::Tier;

use crate::common::{SHAPES, Server, alone, keeper, tag, tiers};

/// The name of the test that becomes the keeper says which tier to use.
fn on(tier: Tier) {
    let test = format!("{}::the_keeper_on_{tier}", module_path!());
    if !tiers().contains(&tier) {
        return;
    }
    let (keeper, told) = keeper::start(&["/bin/bash", "-c", &keeper::command(&test)]);
    let owner = keeper.spawned.who;
    keeper::kill(owner);
    keeper.wait();
    if tier == Tier::Pidns {
        for &who in &told.members {
            assert!(keeper::ends(who, 20), "{who} lives on");
        }
    } else {
        // The server dies with its keeper; the nine others have become our children.
        assert!(keeper::ends(told.root, 20));
    }
    let tag = Tag {
        owner,
        ..tag_of_the(&told)
    };
    let mut tree = Tree::inherited(&tag, 0);
    let found = tree.leaf().map(ToOwned::to_owned);
    assert_eq!(found.is_some(), tier == Tier::Cgroup);
    let ended = tree.kill(10_000, &mut |_, _, _| ());
    assert_eq!(ended.left.len(), 0);
    for who in told.members {
        assert!(!mainstay_os::identity::alive(who));
    }
    assert!(!found.is_some_and(|leaf| leaf.exists()));
}

/// The tag that the keeper gave its tree.
fn tag_of_the(told: &keeper::Told) -> Tag {
    let name = told.leaf.file_name().and_then(|name| name.to_str());
    name.and_then(Tag::from_leaf).unwrap_or_else(tag)
}

fn keep(tier: Tier) {
    let mut server = Server::python(SHAPES);
    server.argv.push(c"9".to_owned());
    keeper::keep(&server, choose(Wish::Exactly(tier), &tag()).unwrap());
}

#[test]
fn the_keeper_on_subreaper() {
    if keeper::started_as(keeper::NAME) {
        keep(Tier::Subreaper);
    }
    alone(this_test!("the_keeper_on_subreaper"), || {
        on(Tier::Subreaper);
    });
}

#[test]
fn the_keeper_on_cgroup() {
    if keeper::started_as(keeper::NAME) {
        keep(Tier::Cgroup);
    }
    alone(this_test!("the_keeper_on_cgroup"), || on(Tier::Cgroup));
}

#[test]
fn the_keeper_on_pidns() {
    if keeper::started_as(keeper::NAME) {
        keep(Tier::Pidns);
    }
    alone(this_test!("the_keeper_on_pidns"), || on(Tier::Pidns));
}
