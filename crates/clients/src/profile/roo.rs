//! Roo Code, a VS Code extension. It watches its files and restarts changed servers.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Roo Code",
    aliases: &["roo"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Application(
                    "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ),
                Format::Json,
            ),
            file(
                Scope::Project,
                Place::Project(".roo/mcp.json"),
                Format::Json,
            ),
        ],
        entry: Entry {
            expands: &[Expansion::DollarEnv],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "Roo Code restarts changed servers by itself",
    },
    behaviour: None,
};
