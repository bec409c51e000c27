//! Cline CLI. EOF, 0.25 s later SIGTERM, about 2 s later SIGKILL. A hub daemon of its stays behind: the first session starts servers
//! itself, those after it let the hub start them, which has a few variables more. A server that has not opened after 3 s (its entry may
//! say otherwise) is started again and asked in frames with a length, 3 s more, and then given up.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Cline CLI",
    is: |sign| sign.is_called("cline"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 3_000,
    session_variables: &[
        "CLINE_BUILD_ENV",
        "CLINE_CONNECTOR_CLI_LAUNCH",
        "CLINE_NO_INTERACTIVE",
    ],
};
