//! Junie, the agent in the IDEs of `JetBrains`. Processes only.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Junie",
    aliases: &["jetbrains"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".junie/mcp/mcp.json"),
                Format::JsonLenient,
            ),
            file(
                Scope::Project,
                Place::Project(".junie/mcp/mcp.json"),
                Format::JsonLenient,
            ),
        ],
        entry: COMMON_ENTRY,
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "restart the servers in the IDE's settings",
    },
    behaviour: None,
};
