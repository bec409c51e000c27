//! Crush. SIGKILL to the group: that is how it ends a session, so nothing is kept. By its source; not watched.

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Crush",
    is: |sign| sign.is_called("crush"),
    farewell: Farewell::Kills,
    linger_ms: 0,
    first_turn_ms: None,
    connect_ms: 10_000,
    session_variables: &[],
};
