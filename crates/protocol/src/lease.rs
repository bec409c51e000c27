//! A lease: a named scope that owns servers, and the question when it is over.
//!
//! This module is pure: the caller passes the owner, the time and the realm. A lease is bound by a time, an owner
//! process, or both, never by neither. Its time is the keeper's clock, which stands still while the machine sleeps.
//! That clock and the owner's pid have their meaning in one realm only, so the realm is part of the lease.

use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::event::Seen;
use crate::ids::{LinkId, Realm};
use crate::limits::{LEASE_NAME_CHARS, LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS};

/// The version written into each lease.
pub const VERSION: u32 = 1;
/// The environment variable that names the lease of a `run` without `--lease`.
pub const LEASE_VARIABLE: &str = "MAINSTAY_LEASE";

/// The terms of a lease. Fields are only ever added; a reader ignores what it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Format version.
    pub v: u32,
    /// Of two leases with the same name, one after the other, which.
    pub id: LinkId,
    /// Its name.
    pub name: String,
    /// When it was opened, as in events.
    pub opened_at: String,
    /// Where the owner's pid and the clock have their meaning.
    pub realm: Realm,
    /// The process whose end is the lease's end.
    pub owner: Option<Seen>,
    /// How long it lasts without being renewed.
    pub ttl_ms: Option<u64>,
    /// When that is over, on the keeper's clock.
    pub expires_ms: Option<u64>,
}

/// What is known at the time of the question.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Where we are.
    pub here: &'a Realm,
    /// The keeper's clock.
    pub now: Moment,
    /// Whether the owner lives; it does not matter if there is none.
    pub owner_lives: bool,
}

impl Term {
    /// Why the lease is over, unless it was closed; `None` if it continues.
    pub fn over(&self, around: &Around<'_>) -> Option<Over> {
        if self.realm.boot != around.here.boot {
            return Some(Over::Rebooted);
        }
        // A pid of another namespace says nothing here, neither life nor death.
        if let Some(owner) = &self.owner
            && self.realm == *around.here
            && !around.owner_lives
        {
            return Some(Over::OwnerGone {
                owner: owner.clone(),
            });
        }
        // Another time namespace has another clock.
        let expired =
            self.realm.timens == around.here.timens && self.left_ms(around.now) == Some(0);
        expired.then(|| Over::Expired {
            ttl_ms: self.ttl_ms.unwrap_or_default(),
        })
    }

    /// How long it continues without being renewed; none if it has no such time.
    pub fn left_ms(&self, now: Moment) -> Option<u64> {
        let expires = Moment(0).after_ms(self.expires_ms?);
        // A rest of less than a millisecond is not over yet.
        Some(expires.0.saturating_sub(now.0).div_ceil(1_000_000))
    }

    /// The same lease, for this long from now; for as long as before if no time is given.
    #[must_use]
    pub fn renewed(mut self, now: Moment, ttl_ms: Option<u64>) -> Self {
        self.ttl_ms = ttl_ms.or(self.ttl_ms);
        self.expires_ms = self.ttl_ms.map(|ttl| now.after_ms(ttl).0 / 1_000_000);
        self
    }
}

/// Why a lease is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// A process closed it.
    Closed {
        /// The process that asked for it, if it could be seen.
        by: Option<Seen>,
    },
    /// It was not renewed in time.
    Expired {
        /// How long it lasted without that.
        ttl_ms: u64,
    },
    /// Its owner has ended.
    OwnerGone {
        /// The owner.
        owner: Seen,
    },
    /// The machine was started again.
    Rebooted,
    /// Its directory was removed, or what is in it cannot be read.
    Removed,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { by: None } => f.write_str("was closed"),
            Self::Closed {
                by: Some(Seen { who, comm }),
            } => write!(f, "was closed by {comm} (pid {who})"),
            Self::Expired {
                ttl_ms: ms @ ..1_000,
            } => write!(f, "expired: it was not renewed for {ms} ms"),
            Self::Expired { ttl_ms } => {
                write!(f, "expired: it was not renewed for {} s", ttl_ms / 1_000)
            }
            Self::OwnerGone {
                owner: Seen { who, comm },
            } => write!(f, "is over: its owner {comm} (pid {who}) has ended"),
            Self::Rebooted => f.write_str("is over: the machine was started again"),
            Self::Removed => f.write_str("is over: its directory was removed or is damaged"),
        }
    }
}

/// What is wrong with a lease's name, if anything. A name is a file name, a word on a command line and part of a table.
pub fn name_trouble(name: &str) -> Option<NameTrouble> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        Some(NameTrouble::Empty)
    } else if name.len() > LEASE_NAME_CHARS {
        Some(NameTrouble::Long)
    } else if !name.chars().all(fits) {
        Some(NameTrouble::Character)
    } else if name.starts_with(['.', '-']) {
        Some(NameTrouble::Beginning)
    } else {
        None
    }
}

/// Why a text cannot be the name of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameTrouble {
    /// There is no text.
    Empty,
    /// It has too many characters.
    Long,
    /// It has a character that no name has.
    Character,
    /// It begins with a character that no name begins with.
    Beginning,
}

impl fmt::Display for NameTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a lease's name cannot be empty"),
            Self::Long => write!(
                f,
                "a lease's name has {LEASE_NAME_CHARS} characters at most"
            ),
            Self::Character => {
                f.write_str("a lease's name has letters, digits, `.`, `_` and `-` only")
            }
            Self::Beginning => f.write_str("a lease's name begins with a letter, a digit or `_`"),
        }
    }
}

impl core::error::Error for NameTrouble {}

/// What is wrong with a lease's time, if anything.
pub fn ttl_trouble(ttl_ms: u64) -> Option<String> {
    (!(LEASE_TTL_MIN_MS..=LEASE_TTL_MAX_MS).contains(&ttl_ms)).then(|| {
        format!(
            "a lease lasts from {LEASE_TTL_MIN_MS}ms to {}h",
            LEASE_TTL_MAX_MS / 3_600_000
        )
    })
}

#[cfg(test)]
mod tests {
    //! guards: A lease is over when its time is up, its owner has exited or the machine has rebooted.

    use super::*;
    use crate::ids::Identity;

    fn realm(boot: &str, pidns: u64) -> Realm {
        Realm {
            boot: boot.into(),
            pidns,
            timens: None,
        }
    }

    fn owner() -> Seen {
        Seen {
            who: Identity { pid: 9, start: 1 },
            comm: "node".into(),
        }
    }

    fn term(owner: Option<Seen>, expires_ms: Option<u64>) -> Term {
        Term {
            v: VERSION,
            id: LinkId(1),
            name: "night".into(),
            opened_at: String::new(),
            realm: realm("0a1b2c3d", 1),
            owner,
            ttl_ms: expires_ms.map(|_| 500),
            expires_ms,
        }
    }

    fn over(term: &Term, here: &Realm, now_ms: u64, owner_lives: bool) -> Option<Over> {
        term.over(&Around {
            here,
            now: Moment(0).after_ms(now_ms),
            owner_lives,
        })
    }

    #[test]
    fn a_lease_is_over_by_time_by_its_owner_and_by_a_new_boot() {
        let here = realm("0a1b2c3d", 1);
        let timed = term(None, Some(1_000));
        assert_eq!(over(&timed, &here, 999, false), None);
        assert_eq!(
            over(&timed, &here, 1_000, true),
            Some(Over::Expired { ttl_ms: 500 })
        );
        let owned = term(Some(owner()), None);
        assert_eq!(over(&owned, &here, u64::MAX / 2_000_000, true), None);
        let gone = Over::OwnerGone { owner: owner() };
        assert_eq!(over(&owned, &here, 0, false), Some(gone.clone()));
        let both = term(Some(owner()), Some(1_000));
        assert_eq!(over(&both, &here, 2_000, false), Some(gone));
        for term in [timed, owned] {
            let later = realm("ffffffff", 1);
            assert_eq!(over(&term, &later, 0, true), Some(Over::Rebooted));
        }
    }

    #[test]
    fn a_pid_of_another_namespace_says_nothing() {
        let owned = term(Some(owner()), None);
        assert_eq!(over(&owned, &realm("0a1b2c3d", 2), 0, false), None);
        // Nor does another clock.
        let shifted = Realm {
            timens: Some(1),
            ..realm("0a1b2c3d", 1)
        };
        assert_eq!(over(&owned, &shifted, 0, false), None);
        assert_eq!(over(&term(None, Some(1)), &shifted, 1_000, true), None);
    }

    #[test]
    fn renewing_counts_from_now() {
        let now = Moment(0).after_ms(900);
        let same = term(None, Some(1_000)).renewed(now, None);
        assert_eq!(same.left_ms(now), Some(500));
        let other = term(None, Some(1_000)).renewed(now, Some(7));
        assert_eq!((other.ttl_ms, other.left_ms(now)), (Some(7), Some(7)));
        let unbound = term(Some(owner()), None).renewed(now, None);
        assert_eq!(unbound.left_ms(now), None);
        assert_eq!(term(None, Some(0)).left_ms(now), Some(0));
    }

    #[test]
    fn names_are_names_of_files() {
        for name in ["a", "job-17", "A.b_c", "0", &"x".repeat(LEASE_NAME_CHARS)] {
            assert_eq!(name_trouble(name), None, "{name}");
        }
        let long = "x".repeat(LEASE_NAME_CHARS + 1);
        for name in [
            "", ".", "..", ".x", "-x", "a/b", "a b", "ä", "a\0", "a\n", &long,
        ] {
            assert!(name_trouble(name).is_some(), "{name:?}");
        }
        assert!(ttl_trouble(0).is_some() && ttl_trouble(u64::MAX).is_some());
        assert_eq!(ttl_trouble(600_000), None);
    }

    #[test]
    fn every_end_has_its_words() {
        let words = |over: Over| format!("the lease `x` {over}");
        assert_eq!(
            words(Over::Closed { by: Some(owner()) }),
            "the lease `x` was closed by node (pid 9)"
        );
        assert_eq!(
            words(Over::Expired { ttl_ms: 600_000 }),
            "the lease `x` expired: it was not renewed for 600 s"
        );
        assert_eq!(
            words(Over::OwnerGone { owner: owner() }),
            "the lease `x` is over: its owner node (pid 9) has ended"
        );
    }
}
