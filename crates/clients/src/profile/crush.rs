//! Crush. `type` is required. `crushrc` is a Bash script that Crush runs: it is never edited.

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Expansion, Farewell,
    Key, Opens, Passes, Place, Scope, Servers,
};
use crate::format::Format;

const TABLES: &[&[Key]] = &[&[Key::Named("mcp")]];
const SCRIPT: &str = "it is a Bash script that Crush runs";

const fn mcp(scope: Scope, place: Place, never: Option<&'static str>) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::Json,
        tables: TABLES,
        servers: Servers::ByKey,
        never,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Crush",
    aliases: &[],
    config: Config {
        files: &[
            mcp(Scope::User, Place::Config("crush/crush.json"), None),
            mcp(Scope::User, Place::Variable("CRUSH_GLOBAL_CONFIG"), None),
            mcp(Scope::User, Place::Data("crush/crush.json"), None),
            mcp(Scope::Project, Place::ProjectUpward(".crush.json"), None),
            mcp(Scope::Project, Place::ProjectUpward("crush.json"), None),
            mcp(
                Scope::Project,
                Place::ProjectUpward(".crushrc"),
                Some(SCRIPT),
            ),
            mcp(
                Scope::Project,
                Place::ProjectUpward("crushrc"),
                Some(SCRIPT),
            ),
            mcp(Scope::User, Place::Config("crush/crushrc"), Some(SCRIPT)),
        ],
        entry: Entry {
            type_needed: true,
            expands: &[Expansion::Dollar],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "start a new session",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Crush. SIGKILL to the group: that is how it ends a session, so nothing is kept. By its source; not watched.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Crush",
    is: |sign| sign.is_called("crush"),
    farewell: Farewell::Kills,
    linger_ms: 0,
    first_turn_ms: None,
    connect_ms: 10_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
