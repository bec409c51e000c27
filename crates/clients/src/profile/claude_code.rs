//! Claude Code. Its own file is strict JSON, holds user and local scope, and is rewritten in every session with keys in
//! another order. An allow-list with `serverCommand` matches command lines exactly, so a wrapped one falls off it. It never ends HTTP sessions.

use super::{
    Behaviour, Bridge, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Expansion,
    Farewell, Key, MCP_SERVERS, Opens, Passes, Place, PolicyFile, PolicyRule, Remote, Scope,
    Servers, file, managed,
};
use crate::format::Format;

const OWN_FILE: Place = Place::Own {
    variable: "CLAUDE_CONFIG_DIR",
    home: "",
    file: ".claude.json",
};

const fn settings(place: Place) -> PolicyFile {
    PolicyFile {
        place,
        format: Format::JsonLenient,
        rule: PolicyRule::ServerCommands,
    }
}

const fn settings_of_user(file: &'static str) -> PolicyFile {
    settings(Place::Own {
        variable: "CLAUDE_CONFIG_DIR",
        home: ".claude",
        file,
    })
}

pub(super) static CLIENT: Client = Client {
    name: "Claude Code",
    aliases: &["claude"],
    config: Config {
        files: &[
            // The user's servers, and those of each project that only this user has.
            ConfigFile {
                scope: Scope::User,
                place: OWN_FILE,
                format: Format::Json,
                tables: &[
                    &[Key::Named("mcpServers")],
                    &[
                        Key::Named("projects"),
                        Key::ProjectDirectory,
                        Key::Named("mcpServers"),
                    ],
                ],
                servers: Servers::ByKey,
                never: None,
            },
            file(Scope::Project, Place::Project(".mcp.json"), Format::Json),
            ConfigFile {
                tables: MCP_SERVERS,
                ..managed("/etc/claude-code/managed-mcp.json", Format::Json)
            },
        ],
        entry: Entry {
            remote: Remote::LeavesSessionsOpen(Bridge {
                url: "url",
                types: Some(("http", "stdio")),
                headers: Some(("headers", "env")),
                blockers: &["headersHelper"],
            }),
            expands: &[Expansion::Braces, Expansion::Default],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[
            PolicyFile {
                place: Place::Machine("/etc/claude-code/managed-mcp.json"),
                format: Format::JsonLenient,
                rule: PolicyRule::Exclusive,
            },
            settings(Place::Machine("/etc/claude-code/managed-settings.json")),
            settings_of_user("settings.json"),
            settings(Place::Project(".claude/settings.json")),
            settings(Place::Project(".claude/settings.local.json")),
        ],
        after_edit: "start a new session, or use /mcp and Reconnect",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Claude Code. It signals the process that it started and closes nothing: SIGINT, 0.1 s later SIGTERM, 0.4 s later
/// SIGKILL. It does the same to servers that are well, and starts them again on request; at its own end its pidfd tells.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Claude Code",
    is: |sign| sign.is_called("claude") || sign.runs_from("/claude-code/"),
    farewell: Farewell::Signals,
    linger_ms: 60_000,
    first_turn_ms: Some(2_000),
    connect_ms: 30_000,
    passes: Passes::All,
    opens: Opens {
        discovers: true,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
    ],
};
