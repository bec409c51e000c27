//! Goose. The table is `extensions`, the command is `cmd`, and only `type: stdio` is a process of its own. Its reader refuses duplicate keys.

use super::{
    COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Entry, Key, Place, Scope, Servers, Words,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Goose",
    aliases: &[],
    config: Config {
        files: &[ConfigFile {
            scope: Scope::User,
            place: Place::Config("goose/config.yaml"),
            format: Format::Yaml,
            tables: &[&[Key::Named("extensions")]],
            servers: Servers::ByKey,
            never: None,
        }],
        entry: Entry {
            words: &[Words::Split {
                within: None,
                command: "cmd",
                args: "args",
            }],
            type_needed: true,
            urls: &["uri", "url"],
            environment: "envs",
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Refused,
        policies: &[],
        after_edit: "start a new session",
    },
    behaviour: None,
};
