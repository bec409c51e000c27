//! Gemini CLI. SIGTERM, and EOF when it ends; no SIGKILL. A launcher starts it once more with more memory: servers hang on the
//! second process. It never reads stderr.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Gemini CLI",
    is: |sign| sign.scripts("gemini") || sign.runs_from("/gemini-cli/"),
    farewell: Farewell::Signals,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 600_000,
    session_variables: &[],
};
