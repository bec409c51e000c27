//! VS Code. The table is `servers`; each of its profiles has a file. It asks for trust again after each change.

use mainstay_protocol::limits;

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Expansion, Farewell,
    Key, Opens, Passes, Place, PolicyFile, PolicyRule, Scope, Servers,
};
use crate::format::Format;

const fn servers(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::JsonLenient,
        tables: &[&[Key::Named("servers")]],
        servers: Servers::ByKey,
        never: None,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "VS Code",
    aliases: &["code", "visualstudiocode"],
    config: Config {
        files: &[
            servers(Scope::User, Place::Application("Code/User/mcp.json")),
            servers(
                Scope::User,
                Place::ApplicationEach("Code/User/profiles", "mcp.json"),
            ),
            servers(
                Scope::User,
                Place::Application("Code - Insiders/User/mcp.json"),
            ),
            servers(Scope::User, Place::Application("VSCodium/User/mcp.json")),
            servers(Scope::Project, Place::Project(".vscode/mcp.json")),
        ],
        entry: Entry {
            kept_by: &[("sandboxEnabled", "VS Code runs it in a sandbox")],
            expands: &[Expansion::DollarEnv],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[PolicyFile {
            place: Place::Machine("/etc/github-copilot/managed-settings.json"),
            format: Format::JsonLenient,
            rule: PolicyRule::ServerCommands,
        }],
        after_edit: "trust the changed servers when VS Code asks, and restart them",
    },
    behaviour: Some(BEHAVIOUR),
};

/// VS Code. EOF, 10 s later SIGTERM, 10 s later SIGKILL of the tree. By its source; not watched.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "VS Code",
    is: |sign| sign.is_called("code") || sign.is_called("code-insiders"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 60_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
