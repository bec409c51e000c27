//! Kiro, editor and command line.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Kiro",
    aliases: &["kirocli"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".kiro/settings/mcp.json"),
                Format::JsonLenient,
            ),
            file(
                Scope::Project,
                Place::Project(".kiro/settings/mcp.json"),
                Format::JsonLenient,
            ),
        ],
        entry: Entry {
            expands: &[Expansion::Braces],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "Kiro reconnects changed servers when the file is saved; start the command line anew",
    },
    behaviour: None,
};
