//! Claude Code. It signals the process that it started and closes nothing: SIGINT, 0.1 s later SIGTERM, 0.4 s later SIGKILL. It does the
//! same to servers that are well, and starts them again on request; at its own end its pidfd tells.

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "Claude Code",
    is: |sign| sign.is_called("claude") || sign.runs_from("/claude-code/"),
    farewell: Farewell::Signals,
    linger_ms: 60_000,
    first_turn_ms: Some(2_000),
    connect_ms: 30_000,
    session_variables: &[
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
    ],
};
