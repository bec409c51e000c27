//! Names that must outlive our processes: link ids, process identities, and the tag that marks a tree.
//!
//! A pid alone is no name, because it is reused. An [`Identity`] is pid *and* start time; together with the boot id and
//! the namespaces of pids and of times it is unique, and that is what a [`Tag`] carries.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A process: its pid and its start time in clock ticks since boot (`/proc/PID/stat`, field 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The process id in our pid namespace.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// One link's id: eight hexadecimal digits, random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl LinkId {
    /// The first digits, for people: `3f2a`. Every command takes them in place of the whole id.
    pub fn short(self) -> String {
        format!("{:04x}", self.0 >> 16)
    }

    /// The id token of a link's own n-th request at its server: a string that is no number. It names the link, because a
    /// client may be a mainstay too, whose requests have such ids.
    pub fn own_request(self, n: u64) -> Vec<u8> {
        format!("{OWN_PREFIX}{self}:{n}\"").into_bytes()
    }

    /// Which of its own requests this id token names, if one.
    pub fn own_number(self, token: &[u8]) -> Option<u64> {
        let rest = token.strip_prefix(OWN_PREFIX.as_bytes())?;
        let rest = core::str::from_utf8(rest.strip_suffix(b"\"")?).ok()?;
        let (link, n) = rest.split_once(':')?;
        if link.parse() != Ok(self) {
            return None;
        }
        n.parse().ok()
    }
}

const OWN_PREFIX: &str = "\"ms:own:";

/// A text that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl FromStr for LinkId {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text.len() != 8 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Malformed);
        }
        u32::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| Malformed)
    }
}

impl Serialize for LinkId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|Malformed| serde::de::Error::custom("not a link id"))
    }
}

/// The environment variable that marks every process of a tree.
pub const TAG_VARIABLE: &str = "MAINSTAY_TAG";

/// Where an identity has its meaning: one boot of one machine, one pid namespace, one time namespace (the kernel shifts
/// start times by the offset of the reader's namespace).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Realm {
    /// First eight digits of the boot id.
    pub boot: String,
    /// Inode of the pid namespace.
    pub pidns: u64,
    /// Inode of the time namespace; none in the first one, where nothing is shifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timens: Option<u64>,
}

/// The owner of a tree, as written into the environment of its processes and into the names of cgroup leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Where the owner's pid has its meaning.
    pub realm: Realm,
    /// The keeper that started the tree.
    pub owner: Identity,
    /// The link it belongs to.
    pub link: LinkId,
}

impl Tag {
    /// The name of the tree's cgroup leaf; the same facts as the tag, in a form that a unit name allows.
    pub fn leaf(&self) -> String {
        format!("mainstay-{}", self.to_string().replace(':', "-"))
    }

    /// The tag as one number, from which it cannot be read back: for a place that holds no text.
    pub fn mark(&self) -> u64 {
        // FNV-1a.
        let hash = self
            .to_string()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        MARK | (hash & (MARK - 1))
    }

    /// Reads a leaf's name, with or without a `.scope` ending.
    pub fn from_leaf(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        name.strip_prefix("mainstay-")?
            .replace('-', ":")
            .parse()
            .ok()
    }
}

const MARK: u64 = 1 << 62;

/// Whether a number may be the mark of a tag.
pub fn is_mark(number: u64) -> bool {
    number >> 62 == 1
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { realm, owner, link } = self;
        write!(f, "{}:{}", realm.boot, realm.pidns)?;
        if let Some(timens) = realm.timens {
            write!(f, "_{timens}")?;
        }
        write!(f, ":{}:{}:{link}", owner.pid, owner.start)
    }
}

impl FromStr for Tag {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(Malformed);
        let boot = next()?;
        if boot.len() != 8 || !boot.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Malformed);
        }
        let spaces = next()?;
        let (pidns, timens) = match spaces.split_once('_') {
            Some((pidns, timens)) => (pidns, Some(timens)),
            None => (spaces, None),
        };
        let pidns = pidns.parse().map_err(|_| Malformed)?;
        let timens = timens.map(str::parse).transpose().map_err(|_| Malformed)?;
        let pid = next()?.parse().map_err(|_| Malformed)?;
        let start = next()?.parse().map_err(|_| Malformed)?;
        let link = next()?.parse()?;
        if parts.next().is_some() || pid <= 0 {
            return Err(Malformed);
        }
        Ok(Self {
            realm: Realm {
                boot: boot.into(),
                pidns,
                timens,
            },
            owner: Identity { pid, start },
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag() -> Tag {
        Tag {
            realm: Realm {
                boot: "0a1b2c3d".into(),
                pidns: 4_026_531_836,
                timens: None,
            },
            owner: Identity {
                pid: 42,
                start: 9_001,
            },
            link: LinkId(0xbeef),
        }
    }

    #[test]
    fn a_tag_survives_its_text_and_its_leaf() {
        assert_eq!(tag().to_string(), "0a1b2c3d:4026531836:42:9001:0000beef");
        assert_eq!(tag().to_string().parse(), Ok(tag()));
        assert_eq!(Tag::from_leaf(&tag().leaf()), Some(tag()));
        assert_eq!(
            Tag::from_leaf(&format!("{}.scope", tag().leaf())),
            Some(tag())
        );
    }

    #[test]
    fn a_time_namespace_is_part_of_the_name() {
        let mut shifted = tag();
        shifted.realm.timens = Some(4_026_532_231);
        assert_eq!(
            shifted.to_string(),
            "0a1b2c3d:4026531836_4026532231:42:9001:0000beef"
        );
        assert_eq!(shifted.to_string().parse(), Ok(shifted.clone()));
        assert_eq!(Tag::from_leaf(&shifted.leaf()), Some(shifted.clone()));
        assert_ne!(shifted.realm, tag().realm);
        let text = serde_json::to_string(&shifted.realm).unwrap();
        assert_eq!(serde_json::from_str::<Realm>(&text).unwrap(), shifted.realm);
        // As it was before there was a place for it, and as it still is in the first one.
        let first = r#"{"boot":"0a1b2c3d","pidns":4026531836}"#;
        assert_eq!(serde_json::from_str::<Realm>(first).unwrap(), tag().realm);
        assert_eq!(serde_json::to_string(&tag().realm).unwrap(), first);
    }

    #[test]
    fn anything_else_is_not_a_tag() {
        for text in [
            "",
            ":",
            "0a1b2c3d:1:42:9001",
            "0a1b2c3d:1:42:9001:0000beef:x",
            "0a1b2c3d:1:-42:9001:0000beef",
            "0a1b2c3d:1:0:9001:0000beef",
            "zzzzzzzz:1:42:9001:0000beef",
            "0a1b2c3d:1:42:9001:BEEF0000",
            "0a1b2c3d:1_:42:9001:0000beef",
            "0a1b2c3d:_1:42:9001:0000beef",
            "0a1b2c3d:1_2_3:42:9001:0000beef",
        ] {
            assert_eq!(text.parse::<Tag>(), Err(Malformed), "{text}");
        }
        assert_eq!(Tag::from_leaf("mainstay-guardian.service"), None);
        assert_eq!(Tag::from_leaf("user.slice"), None);
    }
}
