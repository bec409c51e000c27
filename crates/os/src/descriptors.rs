//! The limit of open descriptors. From its start this process uses as many as the hard limit allows. A process that
//! it starts gets the limit that the user gave, because some servers still use `select`, which fails for high
//! descriptor numbers.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that the user gave; set once it has been raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard limit, for this process and its forks.
pub fn raise() {
    let given = *GIVEN.get_or_init(|| getrlimit(Resource::Nofile));
    let most = Rlimit {
        current: given.maximum,
        maximum: given.maximum,
    };
    // If this is refused, we have fewer descriptors, and the operation that needs one more reports it.
    setrlimit(Resource::Nofile, most).ok();
}

/// Restores the user's limit between fork and exec; it only makes a system call.
pub(crate) fn restore_limit() {
    if let Some(&given) = GIVEN.get() {
        // Never refused, because it lowers the limit.
        setrlimit(Resource::Nofile, given).ok();
    }
}
