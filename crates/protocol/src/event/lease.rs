//! Leases, from their opening to their end.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::Seen;
use crate::lease::Over;

/// A lease was opened. The event bears the lease's own id, and its name in place of a server's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOpened {
    /// Its name.
    pub lease: String,
    /// The process whose end is its end (pid, start, comm).
    pub owner: Option<Seen>,
    /// How long it lasts without being renewed.
    pub ttl_ms: Option<u64>,
    /// The process that asked for it.
    pub by: Option<Seen>,
}

/// A lease is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEnded {
    /// Its name.
    pub lease: String,
    /// Why: `{"closed":{"by":…}}`, `{"expired":{"ttl_ms":n}}`, `{"owner_gone":{"owner":…}}`, `"rebooted"`, `"removed"`.
    pub over: Over,
}

impl fmt::Display for LeaseEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease `{}` {}", self.lease, self.over)
    }
}
