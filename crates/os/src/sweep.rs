//! Finding and ending what wholly killed pairs left behind.
use mainstay_core::event::Seen;
use mainstay_core::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};

use crate::{census, identity};

/// What one dead owner left.
#[derive(Debug)]
pub struct Stray {
    /// Whose it was.
    pub tag: Tag,
    members: Vec<Seen>,
}
impl Stray {
    /// How it was found.
    pub fn by(&self) -> Vec<String> {
        vec!["tag".into()]
    }
}
/// Finds strays.
pub fn find(
    realm: &Realm,
    skip: &dyn Fn(LinkId) -> bool,
    _recorded: &[(Tag, Vec<Identity>)],
) -> Vec<Stray> {
    let mut out: Vec<Stray> = Vec::new();
    for pid in census::pids().unwrap_or_default() {
        let Some(tag) = census::variable(pid, TAG_VARIABLE).and_then(|t| t.parse::<Tag>().ok())
        else {
            continue;
        };
        if tag.realm != *realm || skip(tag.link) || identity::alive(tag.owner) {
            continue;
        }
        let Ok(stat) = census::stat(pid) else {
            continue;
        };
        let seen = Seen {
            who: stat.who(),
            comm: stat.comm,
        };
        match out.iter_mut().find(|s| s.tag == tag) {
            Some(s) => s.members.push(seen),
            None => out.push(Stray {
                tag,
                members: vec![seen],
            }),
        }
    }
    out
}
/// Ends them.
pub fn end(stray: Stray) -> (Vec<Seen>, Vec<Seen>) {
    for m in &stray.members {
        if let Ok(h) = identity::Handle::open(m.who) {
            h.signal(rustix::process::Signal::KILL).ok();
        }
    }
    (stray.members, Vec::new())
}
