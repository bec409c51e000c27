//! Claude Desktop. It reads its file at start only.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Claude Desktop",
    aliases: &["desktop"],
    config: Config {
        files: &[file(
            Scope::User,
            Place::Application("Claude/claude_desktop_config.json"),
            Format::Json,
        )],
        entry: COMMON_ENTRY,
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "quit Claude Desktop and start it again",
    },
    behaviour: None,
};
