//! LM Studio. One macOS version kept the file in a cache directory; both places are looked at.

use super::{COMMON_ENTRY, Client, Config, Duplicates, Place, Scope, file};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "LM Studio",
    aliases: &["lmstudio", "lms"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".lmstudio/mcp.json"),
                Format::JsonLenient,
            ),
            file(
                Scope::User,
                Place::Home(".cache/lm-studio/mcp.json"),
                Format::JsonLenient,
            ),
        ],
        entry: COMMON_ENTRY,
        duplicates: Duplicates::Unknown,
        policies: &[],
        after_edit: "LM Studio restarts changed servers when the file is saved",
    },
    behaviour: None,
};
