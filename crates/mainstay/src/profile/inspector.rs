//! MCP Inspector. As the TypeScript SDK does it: EOF, 2 s later SIGTERM, 2 s later SIGKILL.

use mainstay_core::limits;

use super::{Farewell, Profile};

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "MCP Inspector",
    is: |sign| sign.scripts("mcp-inspector") || sign.runs_from("/@modelcontextprotocol/inspector/"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 15_000,
    session_variables: &[],
};
