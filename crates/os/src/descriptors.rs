//! How many descriptors this process may have: from its start on as many as the hard limit allows. What it starts gets the limit
//! that the user gave, because some servers still count descriptors with `select`.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the user gave, once it has been raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// As many as the hard limit allows, from now on, also for forks.
pub fn raise() {
    let given = *GIVEN.get_or_init(|| getrlimit(Resource::Nofile));
    let most = Rlimit {
        current: given.maximum,
        maximum: given.maximum,
    };
    // Where it is refused there are fewer, and whatever needs one more is told so.
    setrlimit(Resource::Nofile, most).ok();
}

/// As many as the user gave: between fork and exec, for it only makes a system call.
pub(crate) fn as_given() {
    if let Some(&given) = GIVEN.get() {
        // Less than there is, so it is refused nowhere.
        setrlimit(Resource::Nofile, given).ok();
    }
}
