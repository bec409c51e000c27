//! Cursor. It asks for approval again after a change.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Cursor",
    aliases: &[],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".cursor/mcp.json"),
                Format::JsonLenient,
            ),
            file(
                Scope::Project,
                Place::Project(".cursor/mcp.json"),
                Format::JsonLenient,
            ),
        ],
        entry: Entry {
            expands: &[Expansion::DollarEnv],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "approve the changed servers in Cursor's settings",
    },
    behaviour: None,
};
