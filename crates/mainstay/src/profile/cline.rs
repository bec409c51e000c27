//! Cline CLI. EOF, 0.25 s later SIGTERM, about 2 s later SIGKILL. A hub daemon of its stays behind.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Cline CLI",
    is: |sign| sign.is_called("cline"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 60_000,
    session_variables: &[],
};
