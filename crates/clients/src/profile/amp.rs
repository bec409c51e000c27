//! Amp. Its servers are under one key with a dot in it. `amp.mcpPermissions` matches servers by command.

use super::{
    COMMON_ENTRY, Client, Config, ConfigFile, Duplicates, Key, Place, PolicyFile, PolicyRule,
    Scope, Servers, managed,
};
use crate::format::Format;

const TABLES: &[&[Key]] = &[&[Key::Named("amp.mcpServers")]];

const fn settings(scope: Scope, place: Place) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format: Format::JsonLenient,
        tables: TABLES,
        servers: Servers::ByKey,
        never: None,
    }
}

const fn permissions(place: Place) -> PolicyFile {
    PolicyFile {
        place,
        format: Format::JsonLenient,
        rule: PolicyRule::MatchesCommands("amp.mcpPermissions"),
    }
}

pub(super) static CLIENT: Client = Client {
    name: "Amp",
    aliases: &["ampcode"],
    config: Config {
        files: &[
            settings(Scope::User, Place::Config("amp/settings.json")),
            settings(Scope::User, Place::Config("amp/settings.jsonc")),
            settings(Scope::Project, Place::ProjectUpward(".amp/settings.json")),
            settings(Scope::Project, Place::ProjectUpward(".amp/settings.jsonc")),
            ConfigFile {
                tables: TABLES,
                ..managed("/etc/ampcode/managed-settings.json", Format::JsonLenient)
            },
        ],
        entry: COMMON_ENTRY,
        duplicates: Duplicates::Unknown,
        policies: &[
            permissions(Place::Machine("/etc/ampcode/managed-settings.json")),
            permissions(Place::Config("amp/settings.json")),
            permissions(Place::Config("amp/settings.jsonc")),
        ],
        after_edit: "start a new session; a project's servers must be approved again",
    },
    behaviour: None,
};
