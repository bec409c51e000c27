//! Hermes. EOF, 2 s later SIGTERM to the group, by a watchdog of its own (`mcp_stdio_watchdog.py`), which stands between it and
//! each server.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Hermes",
    is: |sign| sign.is_called("hermes") || sign.scripts("hermes"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 60_000,
    session_variables: &[],
};
