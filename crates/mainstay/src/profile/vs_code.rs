//! VS Code. EOF, 10 s later SIGTERM, 10 s later SIGKILL of the tree. By its source; not watched.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "VS Code",
    is: |sign| sign.is_called("code") || sign.is_called("code-insiders"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 60_000,
    session_variables: &[],
};
