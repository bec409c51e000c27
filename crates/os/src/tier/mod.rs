//! Tiers: how a tree is held, one file each.
//!
//! [`choose`] probes what is there, strongest first, and says of each stronger tier why it is not in force. A probe
//! does the real thing as far as it can be done without the server; what can only be seen at the spawn itself may
//! still weaken the choice there (see [`crate::spawn`]).

use mainstay_core::ids::Tag;
use mainstay_core::tier::{Tier, WhyNot};

pub mod cgroup;

pub use cgroup::Leaf;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The strongest that is there, but never `pidns`, which changes what a server sees and must be asked for.
    Strongest,
    /// This one and no other.
    Exactly(Tier),
    /// This one or a stronger one (`pidns` again only if it is named).
    AtLeast(Tier),
}

impl Wish {
    /// The tiers that would do, strongest first.
    fn candidates(self) -> Vec<Tier> {
        let mut tiers: Vec<Tier> = Tier::ALL
            .into_iter()
            .filter(|&tier| match self {
                Self::Strongest => tier != Tier::Pidns,
                Self::Exactly(wanted) => tier == wanted,
                Self::AtLeast(Tier::Pidns) => tier == Tier::Pidns,
                Self::AtLeast(floor) => tier >= floor && tier != Tier::Pidns,
            })
            .collect();
        tiers.reverse();
        tiers
    }

    /// Whether a tier would do.
    pub fn allows(self, tier: Tier) -> bool {
        self.candidates().contains(&tier)
    }
}

/// The tier that was chosen, and what the spawn needs to put a server into it.
#[derive(Debug)]
pub struct Choice {
    /// The tier.
    pub tier: Tier,
    /// Why no stronger one.
    pub why_not: Vec<WhyNot>,
    /// Where the server goes.
    pub place: Place,
    /// What was wished: the spawn may weaken the choice only as far as this allows.
    pub wish: Wish,
    /// The tag that names the tree.
    pub tag: Tag,
}

/// Where a server goes.
#[derive(Debug)]
pub enum Place {
    /// Below us, and that is all.
    Subreaper,
    /// Into this leaf.
    Cgroup(Leaf),
}

/// Probes and chooses. Fails only if the wish cannot be met, with the reason for each tier that would have done.
pub fn choose(wish: Wish, tag: &Tag) -> Result<Choice, Vec<WhyNot>> {
    let mut why_not = Vec::new();
    for tier in wish.candidates() {
        match place(tier, tag) {
            Ok(place) => {
                return Ok(Choice {
                    tier,
                    why_not,
                    place,
                    wish,
                    tag: tag.clone(),
                });
            }
            Err(reason) => why_not.push(WhyNot { tier, reason }),
        }
    }
    Err(why_not)
}

fn place(tier: Tier, tag: &Tag) -> Result<Place, String> {
    match tier {
        Tier::Subreaper => Ok(Place::Subreaper),
        Tier::Cgroup => Leaf::create(tag).map(Place::Cgroup),
        Tier::Scope | Tier::Pidns => Err("not built in yet".into()),
    }
}
