//! How strongly a tree is contained, from the floor upwards.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A way to hold a tree. The order is the order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Two nested subreapers: the floor on Linux, needs nothing.
    Subreaper,
    /// A cgroup2 leaf of our own, ended by `cgroup.kill`.
    Cgroup,
    /// A leaf made by the systemd user manager, with a guardian unit that outlives all of us.
    Scope,
    /// A PID namespace: the kernel ends every member with its init. Opt-in.
    Pidns,
}

impl Tier {
    /// All tiers, weakest first.
    pub const ALL: [Self; 4] = [Self::Subreaper, Self::Cgroup, Self::Scope, Self::Pidns];

    /// The word used in options, events and views.
    pub fn word(self) -> &'static str {
        match self {
            Self::Subreaper => "subreaper",
            Self::Cgroup => "cgroup",
            Self::Scope => "scope",
            Self::Pidns => "pidns",
        }
    }

    /// What the tier promises, as users read it.
    pub fn promise(self) -> &'static str {
        match self {
            Self::Subreaper | Self::Cgroup => {
                "the whole process tree is killed with the server. If all mainstay processes die at once, the next `mainstay run` cleans up"
            }
            Self::Scope => {
                "the whole process tree is killed with the server, even if all mainstay processes die at once"
            }
            Self::Pidns => {
                "the kernel kills the whole process tree with the server, even if all mainstay processes die at once. sudo and other setuid programs do not work inside"
            }
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that is no tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTier(pub String);

impl fmt::Display for UnknownTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown tier `{}` (one of subreaper, cgroup, scope, pidns)",
            self.0
        )
    }
}

impl core::error::Error for UnknownTier {}

impl FromStr for Tier {
    type Err = UnknownTier;
    fn from_str(word: &str) -> Result<Self, UnknownTier> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.word() == word)
            .ok_or_else(|| UnknownTier(word.into()))
    }
}

/// Why a stronger tier is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNot {
    /// The tier that is missing.
    pub tier: Tier,
    /// The reason, as a fragment: `no systemd user manager (…)`.
    pub reason: String,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.tier, self.reason)
    }
}
