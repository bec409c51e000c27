//! Continue CLI. Nothing but the EOF of its own death.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Continue CLI",
    is: |sign| sign.scripts("cn"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 20_000,
    session_variables: &[],
};
