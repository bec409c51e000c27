//! Copilot CLI. An enterprise's list of servers may match command lines exactly, as Claude Code's does. It ends HTTP sessions.

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Farewell, Opens, Passes,
    Place, PolicyFile, PolicyRule, Remote, Scope, file,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Copilot CLI",
    aliases: &["copilot", "githubcopilot"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Own {
                    variable: "COPILOT_HOME",
                    home: ".copilot",
                    file: "mcp-config.json",
                },
                Format::JsonLenient,
            ),
            file(
                Scope::Project,
                Place::Project(".mcp.json"),
                Format::JsonLenient,
            ),
            file(
                Scope::Project,
                Place::Project(".github/mcp.json"),
                Format::JsonLenient,
            ),
        ],
        entry: Entry {
            process_types: &["local", "stdio"],
            remote: Remote::EndsSessions,
            expands: &[Expansion::Dollar, Expansion::Braces, Expansion::Default],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[PolicyFile {
            place: Place::Machine("/etc/github-copilot/managed-settings.json"),
            format: Format::JsonLenient,
            rule: PolicyRule::ServerCommands,
        }],
        after_edit: "start a new session",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Copilot CLI. It walks the tree and kills every process of it, leaves first: SIGTERM, 2 ms later SIGKILL. That is how it
/// ends a session, so nothing is kept. Its short name says nothing.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Copilot CLI",
    is: |sign| {
        sign.is_called("copilot") || sign.is_called("copilot-runtime") || sign.scripts("copilot")
    },
    farewell: Farewell::Kills,
    linger_ms: 0,
    first_turn_ms: None,
    connect_ms: 45_000,
    passes: Passes::AllBut(&[
        "COPILOT_OFFLINE",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BASE_URL",
        "COPILOT_PROVIDER_TYPE",
    ]),
    opens: Opens {
        discovers: true,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &["COPILOT_AGENT_SESSION_ID", "GIT_CONFIG_KEY_0"],
};
