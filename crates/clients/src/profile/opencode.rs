//! opencode. The table is `mcp`; `command` is one list with the arguments. It never ends HTTP sessions.

use mainstay_protocol::limits;

use super::{
    Behaviour, Bridge, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Expansion,
    Farewell, Key, Opens, Passes, Place, Remote, Scope, Servers, Words, managed,
};
use crate::format::Format;

const TABLES: &[&[Key]] = &[&[Key::Named("mcp")]];

const fn mcp(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::JsonLenient,
        tables: TABLES,
        servers: Servers::ByKey,
        never: None,
    }
}

const fn own(file: &'static str) -> Place {
    Place::Own {
        variable: "OPENCODE_CONFIG_DIR",
        home: ".opencode",
        file,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "opencode",
    aliases: &[],
    config: Config {
        files: &[
            mcp(Scope::User, Place::Config("opencode/opencode.json")),
            mcp(Scope::User, Place::Config("opencode/opencode.jsonc")),
            mcp(Scope::User, Place::Variable("OPENCODE_CONFIG")),
            mcp(Scope::User, own("opencode.json")),
            mcp(Scope::User, own("opencode.jsonc")),
            mcp(Scope::Project, Place::Project("opencode.json")),
            mcp(Scope::Project, Place::Project("opencode.jsonc")),
            mcp(Scope::Project, Place::Project(".opencode/opencode.json")),
            mcp(Scope::Project, Place::Project(".opencode/opencode.jsonc")),
            ConfigFile {
                tables: TABLES,
                ..managed("/etc/opencode/opencode.json", Format::JsonLenient)
            },
        ],
        entry: Entry {
            words: &[Words::Joined { command: "command" }],
            process_types: &["local"],
            type_needed: true,
            remote: Remote::LeavesSessionsOpen(Bridge {
                url: "url",
                types: Some(("remote", "local")),
                headers: Some(("headers", "environment")),
                blockers: &[],
            }),
            expands: &[Expansion::CurlyEnv],
            environment: "environment",
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "start a new session",
    },
    behaviour: Some(BEHAVIOUR),
};

/// opencode. SIGTERM to all descendants, EOF, 2 s later SIGTERM, 2 s later SIGKILL.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "opencode",
    is: |sign| sign.is_called("opencode") || sign.runs_from("/opencode-ai/"),
    farewell: Farewell::SignalsAndEof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 30_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &["OPENCODE_PID"],
};
