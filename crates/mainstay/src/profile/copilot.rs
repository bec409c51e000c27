//! Copilot CLI. It walks the tree and kills every process of it, leaves first: SIGTERM, 2 ms later SIGKILL. That is how it ends a
//! session, so nothing is kept. Its short name says nothing.

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Copilot CLI",
    is: |sign| {
        sign.is_called("copilot") || sign.is_called("copilot-runtime") || sign.scripts("copilot")
    },
    farewell: Farewell::Kills,
    linger_ms: 0,
    first_turn_ms: None,
    connect_ms: 45_000,
    session_variables: &["COPILOT_AGENT_SESSION_ID"],
};
