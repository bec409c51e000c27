//! Zed. SIGKILL to the group at once: that is how it ends a session, so nothing is kept. By its source; not watched.

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Zed",
    is: |sign| sign.is_called("zed") || sign.is_called("zed-editor"),
    farewell: Farewell::Kills,
    linger_ms: 0,
    first_turn_ms: None,
    connect_ms: 60_000,
    session_variables: &[],
};
