//! Hermes. It takes the last of duplicate keys, reloads a changed file by itself, and ends HTTP sessions.

use mainstay_protocol::limits;

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Expansion, Farewell,
    Key, Opens, Passes, Place, Remote, Scope, Servers,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Hermes",
    aliases: &["hermesagent"],
    config: Config {
        files: &[ConfigFile {
            scope: Scope::User,
            place: Place::Own {
                variable: "HERMES_HOME",
                home: ".hermes",
                file: "config.yaml",
            },
            format: Format::Yaml,
            tables: &[&[Key::Named("mcp_servers")]],
            servers: Servers::ByKey,
            never: None,
        }],
        entry: Entry {
            remote: Remote::EndsSessions,
            expands: &[Expansion::Braces, Expansion::DollarEnv],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "Hermes reloads a changed file by itself",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Hermes. EOF, 2 s later SIGTERM to the group, by a watchdog of its own (`mcp_stdio_watchdog.py`), which stands between it
/// and each server.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Hermes",
    is: |sign| {
        sign.is_called("hermes") || sign.scripts("hermes") || sign.scripts("mcp_stdio_watchdog.py")
    },
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 60_000,
    passes: Passes::Only(&[
        "HOME", "LANG", "LC_ALL", "PATH", "SHELL", "TERM", "TMPDIR", "USER",
    ]),
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
