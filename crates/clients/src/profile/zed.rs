//! Zed. The table is `context_servers` of its settings. An entry with `settings` belongs to an extension and has no command. In older
//! files `command` is a table with `path` and `args`.

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Farewell, Key, Opens,
    Passes, Place, Scope, Servers, Words,
};
use crate::format::Format;

const fn settings(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::JsonLenient,
        tables: &[&[Key::Named("context_servers")]],
        servers: Servers::ByKey,
        never: None,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Zed",
    aliases: &[],
    config: Config {
        files: &[
            settings(Scope::User, Place::Config("zed/settings.json")),
            settings(Scope::Project, Place::Project(".zed/settings.json")),
        ],
        entry: Entry {
            words: &[
                Words::Split {
                    within: None,
                    command: "command",
                    args: "args",
                },
                Words::Split {
                    within: Some("command"),
                    command: "path",
                    args: "args",
                },
            ],
            process_types: &["stdio", "custom"],
            kept_by: &[("remote", "it runs on the machine of a remote project")],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "Zed restarts changed servers by itself",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Zed. SIGKILL to the group at once: that is how it ends a session, so nothing is kept. By its source; not watched.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Zed",
    is: |sign| sign.is_called("zed") || sign.is_called("zed-editor"),
    farewell: Farewell::Kills,
    linger_ms: 0,
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
