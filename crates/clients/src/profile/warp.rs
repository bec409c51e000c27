//! Warp. The file has `mcpServers`, or is the table of servers itself. Servers of its user interface are in a cloud store.

use super::{
    COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Key, Place, Scope, Servers,
};
use crate::format::Format;

const fn servers(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::JsonLenient,
        tables: &[&[Key::Named("mcpServers")], &[]],
        servers: Servers::ByKey,
        never: None,
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Warp",
    aliases: &[],
    config: Config {
        files: &[
            servers(Scope::User, Place::Home(".warp/.mcp.json")),
            servers(Scope::Project, Place::Project(".warp/.mcp.json")),
        ],
        entry: Entry {
            directory: "working_directory",
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "start the changed servers again in Warp's settings",
    },
    behaviour: None,
};
