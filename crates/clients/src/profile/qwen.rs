//! Qwen Code. As Gemini CLI, from which it descends; but it ends HTTP sessions. A project's servers must be approved again after each change.

use mainstay_protocol::limits;

use super::{
    Behaviour, COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Farewell, Opens, Passes,
    Place, Remote, Scope, file, managed,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Qwen Code",
    aliases: &["qwen"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".qwen/settings.json"),
                Format::JsonComments,
            ),
            file(
                Scope::Project,
                Place::Project(".qwen/settings.json"),
                Format::JsonComments,
            ),
            file(
                Scope::Project,
                Place::Project(".mcp.json"),
                Format::JsonComments,
            ),
            managed("/etc/qwen-code/settings.json", Format::JsonComments),
        ],
        entry: Entry {
            urls: &["httpUrl", "url"],
            remote: Remote::EndsSessions,
            expands: &[Expansion::Dollar, Expansion::Braces],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "it starts changed servers by itself; a project's servers must be approved again",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Qwen Code. EOF; 2 s later SIGTERM, or nothing at all. Launched twice like Gemini CLI, and as deaf to stderr.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Qwen Code",
    is: |sign| sign.scripts("qwen") || sign.runs_from("/qwen-code/"),
    farewell: Farewell::Eof,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 30_000,
    passes: Passes::All,
    opens: Opens {
        discovers: false,
        version: "2025-11-25",
        asks_for_all_lists: true,
    },
    session_variables: &["QWEN_CODE_LAUNCHER_PID", "QWEN_CODE_SESSION_ID"],
};
