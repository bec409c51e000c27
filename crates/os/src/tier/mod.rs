//! Tiers: how a tree is held, one file each.
//!
//! [`choose`] probes the tiers, strongest first, and returns for each stronger tier why it is not in force. A probe
//! does the real thing as far as that is possible without the server. A refusal that only shows at the spawn may
//! still weaken the choice there (see [`crate::spawn`]).

use mainstay_protocol::ids::Tag;
use mainstay_protocol::tier::{Tier, WhyNot};

pub mod cgroup;
pub mod guardian;
pub mod pidns;
pub mod refusal;
pub mod scope;

pub use cgroup::Leaf;
pub use refusal::Refusal;
use scope::Program;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The strongest available tier, but never `pidns`, which changes what a server sees and must be asked for.
    Strongest,
    /// This one and no other.
    Exactly(Tier),
    /// This one or a stronger one (`pidns` again only if it is named).
    AtLeast(Tier),
}

impl Wish {
    /// The tiers that satisfy the wish, strongest first.
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

    /// Whether a tier satisfies the wish.
    pub fn allows(self, tier: Tier) -> bool {
        self.candidates().contains(&tier)
    }
}

/// The tier that was chosen, and what the spawn needs to put a server into it.
#[derive(Debug)]
pub struct Choice {
    /// The tier.
    pub tier: Tier,
    /// Why no stronger tier.
    pub why_not: Vec<WhyNot>,
    /// Where the server goes.
    pub place: Place,
    /// What was wished: the spawn may weaken the choice only as far as this allows.
    pub wish: Wish,
    /// The tag that names the tree.
    pub tag: Tag,
}

impl Choice {
    /// The next weaker tier that the wish allows, after the place refused the server; otherwise why there is none.
    pub(crate) fn weaker(self, reason: String) -> Result<Self, Vec<WhyNot>> {
        let Self {
            tier,
            mut why_not,
            place,
            wish,
            tag,
        } = self;
        drop(place);
        why_not.push(WhyNot { tier, reason });
        let below = wish.candidates().into_iter().filter(|&next| next < tier);
        first(below, wish, &tag, why_not, &Program::ours())
    }
}

/// Where a server goes.
#[derive(Debug)]
pub enum Place {
    /// Below us, and nothing more.
    Subreaper,
    /// Into this leaf.
    Cgroup(Leaf),
    /// Into a scope that this manager will make.
    Scope(scope::Pending),
    /// Into a PID namespace that is made with the server; whether that is possible shows only then.
    Pidns,
}

/// Probes and chooses. Fails only if the wish cannot be met, with the reason for each tier that would satisfy it.
pub fn choose(wish: Wish, tag: &Tag) -> Result<Choice, Vec<WhyNot>> {
    choose_with(wish, tag, &Program::ours())
}

/// The same, with another program as the guardian.
pub fn choose_with(
    wish: Wish,
    tag: &Tag,
    guardian: &Result<Program, Refusal>,
) -> Result<Choice, Vec<WhyNot>> {
    first(
        wish.candidates().into_iter(),
        wish,
        tag,
        Vec::new(),
        guardian,
    )
}

fn first(
    candidates: impl Iterator<Item = Tier>,
    wish: Wish,
    tag: &Tag,
    mut why_not: Vec<WhyNot>,
    guardian: &Result<Program, Refusal>,
) -> Result<Choice, Vec<WhyNot>> {
    for tier in candidates {
        match place(tier, tag, guardian) {
            Ok(place) => {
                return Ok(Choice {
                    tier,
                    why_not,
                    place,
                    wish,
                    tag: tag.clone(),
                });
            }
            Err(refusal) => why_not.push(WhyNot {
                tier,
                reason: refusal.to_string(),
            }),
        }
    }
    Err(why_not)
}

fn place(tier: Tier, tag: &Tag, guardian: &Result<Program, Refusal>) -> Result<Place, Refusal> {
    match tier {
        Tier::Subreaper => Ok(Place::Subreaper),
        Tier::Cgroup => Leaf::create(tag).map(Place::Cgroup),
        Tier::Scope => scope::Pending::open(tag, guardian.clone()?).map(Place::Scope),
        Tier::Pidns => Ok(Place::Pidns),
    }
}
