//! A link's card: what others may know about it.

use mainstay_protocol::event::{Detached, Seen};
use mainstay_protocol::ids::{Identity, LinkId, Realm, Tag};
use mainstay_protocol::tier::{Tier, WhyNot};
use mainstay_protocol::traffic::Traffic;
use serde::{Deserialize, Serialize};

/// The version written into each card.
pub const VERSION: u32 = 1;

/// What is known about one link. Fields are only ever added; a reader ignores what it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Format version.
    pub v: u32,
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub name: String,
    /// The server command.
    pub argv: Vec<String>,
    /// The directory it runs in.
    pub cwd: String,
    /// The state in one word: `starting`, `ready`, `stopping`, …
    pub state: String,
    /// Counts from 1.
    pub generation: u32,
    /// When the link began, as in events.
    pub started_at: String,
    /// Where the pids below have their meaning.
    pub realm: Realm,
    /// The process that the client started.
    pub shim: Option<Seen>,
    /// The process that guards the keeper.
    pub guard: Option<Seen>,
    /// The process that owns pipes, policy and tree.
    pub keeper: Option<Seen>,
    /// The server process of this generation.
    pub server: Option<Seen>,
    /// The process that started us, or that holds the end of the client now.
    pub client: Option<Seen>,
    /// The tier in force; none before the first start of a lazy server.
    pub tier: Option<Tier>,
    /// Why no stronger one is.
    pub why_not: Vec<WhyNot>,
    /// The tree's cgroup, if it has one.
    pub leaf: Option<String>,
    /// Whether the guard left the client's process tree.
    pub detached: Detached,
    /// The longest time that the stop ladder may take, so that `stop` knows how long to wait.
    #[serde(default)]
    pub ladder_ms: u64,
    /// The longest time that a restart may take until the next generation is ready, so that `restart` knows it too.
    #[serde(default)]
    pub restart_ms: u64,
    /// The lease that it was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The tree as last recorded. It has a file of its own; reading a card fills it in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Identity>,
    /// What was answered since the keeper began. Only in the keeper's own answer, never in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl Card {
    /// The tag of the tree, if there ever was a keeper.
    pub fn tag(&self) -> Option<Tag> {
        Some(Tag {
            realm: self.realm.clone(),
            owner: self.keeper.as_ref()?.who,
            link: self.id,
        })
    }
}

#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub mod samples {
    use super::{Card, Detached, LinkId, Seen, Tier, VERSION};

    /// A card of a process that we are.
    pub fn card(id: u32, name: &str) -> Card {
        let me = mainstay_os::identity::me().unwrap();
        let seen = || {
            Some(Seen {
                who: me,
                comm: "test".into(),
            })
        };
        Card {
            v: VERSION,
            id: LinkId(id),
            name: name.into(),
            argv: vec!["server".into()],
            cwd: "/".into(),
            state: "ready".into(),
            generation: 1,
            started_at: "2026-11-15T22:31:07.123Z".into(),
            realm: mainstay_os::identity::realm().unwrap(),
            shim: None,
            guard: None,
            keeper: seen(),
            server: None,
            client: None,
            tier: Some(Tier::Subreaper),
            why_not: Vec::new(),
            leaf: None,
            detached: Detached::Yes,
            ladder_ms: 9_000,
            restart_ms: 60_000,
            lease: None,
            members: Vec::new(),
            traffic: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_a_newer_version_is_read_for_what_we_know() {
        let card = samples::card(7, "demo");
        let mut value = serde_json::to_value(&card).unwrap();
        value["mood"] = "sunny".into();
        value.as_object_mut().unwrap().remove("ladder_ms");
        value.as_object_mut().unwrap().remove("restart_ms");
        let read: Card = serde_json::from_value(value).unwrap();
        assert_eq!(
            read,
            Card {
                ladder_ms: 0,
                restart_ms: 0,
                ..card
            }
        );
    }
}
