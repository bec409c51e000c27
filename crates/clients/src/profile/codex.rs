//! Codex. TOML, which has no duplicate keys; its terminal interface appends tables to the file. An administrator's
//! `requirements.toml` may name the command of each server.

use mainstay_protocol::limits;

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Farewell, Key, Opens,
    Passes, Place, PolicyFile, PolicyRule, Remote, Scope, Servers, managed,
};
use crate::format::Format;

const TABLES: &[&[Key]] = &[&[Key::Named("mcp_servers")]];

const fn toml(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::Toml,
        tables: TABLES,
        servers: Servers::ByKey,
        never: None,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Codex",
    aliases: &["codexcli"],
    config: Config {
        files: &[
            toml(
                Scope::User,
                Place::Own {
                    variable: "CODEX_HOME",
                    home: ".codex",
                    file: "config.toml",
                },
            ),
            toml(Scope::Project, Place::Project(".codex/config.toml")),
            ConfigFile {
                tables: TABLES,
                ..managed("/etc/codex/config.toml", Format::Toml)
            },
            ConfigFile {
                tables: TABLES,
                ..managed("/etc/codex/managed_config.toml", Format::Toml)
            },
        ],
        entry: Entry {
            kept_by: &[
                ("environment_id", "it runs in another environment"),
                ("experimental_environment", "it runs in another environment"),
            ],
            oauth: &["oauth", "scopes"],
            remote: Remote::EndsSessions,
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Refused,
        policies: &[PolicyFile {
            place: Place::Machine("/etc/codex/requirements.toml"),
            format: Format::Toml,
            rule: PolicyRule::MatchesCommands("mcp_servers"),
        }],
        after_edit: "start a new session",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Codex. SIGTERM to the group together with EOF, 2 s later SIGKILL to the group. Its terminal interface keeps servers in a
/// daemon (`codex app-server`), which is their client.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Codex",
    is: |sign| sign.is_called("codex"),
    farewell: Farewell::SignalsAndEof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: Some(1_000),
    connect_ms: 30_000,
    passes: Passes::Only(&[
        "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    ]),
    opens: Opens {
        discovers: false,
        version: "2025-06-18",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
