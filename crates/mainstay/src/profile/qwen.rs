//! Qwen Code. EOF; 2 s later SIGTERM, or nothing at all. Launched twice like Gemini CLI, and as deaf to stderr.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Qwen Code",
    is: |sign| sign.scripts("qwen") || sign.runs_from("/qwen-code/"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 30_000,
    session_variables: &["QWEN_CODE_LAUNCHER_PID", "QWEN_CODE_SESSION_ID"],
};
