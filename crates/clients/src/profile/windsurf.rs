//! Windsurf. Remote servers are under `serverUrl`. Which of two equal keys it takes is not known.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Windsurf",
    aliases: &["codeium"],
    config: Config {
        files: &[file(
            Scope::User,
            Place::Home(".codeium/windsurf/mcp_config.json"),
            Format::JsonLenient,
        )],
        entry: Entry {
            urls: &["serverUrl", "url"],
            expands: &[Expansion::DollarEnv],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "refresh the servers in Windsurf's settings",
    },
    behaviour: None,
};
