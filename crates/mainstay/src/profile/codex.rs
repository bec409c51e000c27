//! Codex. SIGTERM to the group together with EOF, 2 s later SIGKILL to the group. Its terminal interface keeps servers in a
//! daemon (`codex app-server`), which is their client.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Codex",
    is: |sign| sign.is_called("codex"),
    farewell: Farewell::SignalsAndEof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: Some(1_000),
    connect_ms: 30_000,
    session_variables: &[],
};
