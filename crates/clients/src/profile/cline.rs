//! Cline, command line and VS Code extension. An entry is flat, or has everything in `transport`. A URL without a type means SSE. It never ends
//! HTTP sessions.

use mainstay_protocol::limits;

use super::{
    Behaviour, Bridge, COMMON_ENTRY, Client, Config, Duplicates, Entry, Farewell, Opens, Passes,
    Place, Remote, Scope, Words, file,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Cline",
    aliases: &["clinecli"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Own {
                    variable: "CLINE_DATA_DIR",
                    home: ".cline/data",
                    file: "settings/cline_mcp_settings.json",
                },
                Format::Json,
            ),
            file(
                Scope::User,
                Place::Variable("CLINE_MCP_SETTINGS_PATH"),
                Format::Json,
            ),
            file(
                Scope::User,
                Place::Application(
                    "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ),
                Format::Json,
            ),
        ],
        entry: Entry {
            words: &[
                Words::Split {
                    within: None,
                    command: "command",
                    args: "args",
                },
                Words::Split {
                    within: Some("transport"),
                    command: "command",
                    args: "args",
                },
            ],
            remote: Remote::LeavesSessionsOpen(Bridge {
                url: "url",
                types: Some(("streamableHttp", "stdio")),
                headers: Some(("headers", "env")),
                blockers: &["transportType"],
            }),
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "the extension restarts changed servers by itself; start the command line anew",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Cline CLI. EOF, 0.25 s later SIGTERM, about 2 s later SIGKILL. A hub daemon of its stays behind: the first session
/// starts servers itself, those after it let the hub start them, which has a few variables more. A server that has not
/// opened after 3 s (its entry may say otherwise) is started again and asked in frames with a length, 3 s more, and then
/// given up.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Cline CLI",
    is: |sign| sign.is_called("cline"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 3_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2024-11-05",
        asks_for_all_lists: false,
    },
    session_variables: &[
        "CLINE_BUILD_ENV",
        "CLINE_CONNECTOR_CLI_LAUNCH",
        "CLINE_NO_INTERACTIVE",
    ],
};
