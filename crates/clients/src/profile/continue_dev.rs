//! Continue. Servers are a list whose items have a `name`; files in `mcpServers` are read too, also in Claude's form. Its reader refuses duplicate
//! keys. It never ends HTTP sessions. Headers are nested in `requestOptions`, so an entry that has them is left alone.

use mainstay_protocol::limits;

use super::{
    Behaviour, Bridge, COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Farewell,
    MCP_SERVERS, Opens, Passes, Place, Remote, Scope, Servers, file,
};
use crate::format::Format;

const fn listed(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::Yaml,
        tables: MCP_SERVERS,
        servers: Servers::Listed("name"),
        never: None,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Continue",
    aliases: &["cn", "continuecli", "continuedev"],
    config: Config {
        files: &[
            listed(Scope::User, Place::Home(".continue/config.yaml")),
            listed(
                Scope::User,
                Place::HomeFolder(".continue/mcpServers", &["yaml", "yml"]),
            ),
            file(
                Scope::User,
                Place::HomeFolder(".continue/mcpServers", &["json"]),
                Format::JsonComments,
            ),
            listed(
                Scope::Project,
                Place::ProjectFolder(".continue/mcpServers", &["yaml", "yml"]),
            ),
            file(
                Scope::Project,
                Place::ProjectFolder(".continue/mcpServers", &["json"]),
                Format::JsonComments,
            ),
        ],
        entry: Entry {
            remote: Remote::LeavesSessionsOpen(Bridge {
                url: "url",
                types: Some(("streamable-http", "stdio")),
                headers: None,
                blockers: &["requestOptions", "apiKey", "headers"],
            }),
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Refused,
        policies: &[],
        after_edit: "start a new session, or reload the config in the editor",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Continue CLI. Nothing but the EOF of its own death.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Continue CLI",
    is: |sign| sign.scripts("cn"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 20_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
