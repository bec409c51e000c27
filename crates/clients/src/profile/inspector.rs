//! MCP Inspector. Its servers are not in a config file that mainstay edits.

use mainstay_protocol::limits;

use super::{Behaviour, Client, Farewell, NO_CONFIG, Opens, Passes};

pub(super) static CLIENT: Client = Client {
    name: "MCP Inspector",
    aliases: &["inspector"],
    config: NO_CONFIG,
    behaviour: Some(BEHAVIOUR),
};

/// MCP Inspector. As the TypeScript SDK does it: EOF, 2 s later SIGTERM, 2 s later SIGKILL.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "MCP Inspector",
    is: |sign| sign.scripts("mcp-inspector") || sign.runs_from("/@modelcontextprotocol/inspector/"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 15_000,
    passes: Passes::Only(&["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]),
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
