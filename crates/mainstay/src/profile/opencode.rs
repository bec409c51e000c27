//! opencode. SIGTERM to all descendants, EOF, 2 s later SIGTERM, 2 s later SIGKILL.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "opencode",
    is: |sign| sign.is_called("opencode") || sign.runs_from("/opencode-ai/"),
    farewell: Farewell::SignalsAndEof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 30_000,
    session_variables: &["OPENCODE_PID"],
};
