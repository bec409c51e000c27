//! Gemini CLI. Comments are allowed, trailing commas are not. `httpUrl` is streamable HTTP, `url` is the older SSE. It never ends HTTP sessions.

use mainstay_protocol::limits;

use super::{
    Behaviour, Bridge, COMMON_ENTRY, Client, Config, Duplicates, Entry, Expansion, Farewell, Opens,
    Passes, Place, Remote, Scope, file, managed,
};
use crate::format::Format;

pub(super) static CLIENT: Client = Client {
    name: "Gemini CLI",
    aliases: &["gemini"],
    config: Config {
        files: &[
            file(
                Scope::User,
                Place::Home(".gemini/settings.json"),
                Format::JsonComments,
            ),
            file(
                Scope::Project,
                Place::Project(".gemini/settings.json"),
                Format::JsonComments,
            ),
            managed("/etc/gemini-cli/settings.json", Format::JsonComments),
            managed("/etc/gemini-cli/system-defaults.json", Format::JsonComments),
        ],
        entry: Entry {
            urls: &["httpUrl", "url"],
            oauth: &["oauth", "authProviderType"],
            remote: Remote::LeavesSessionsOpen(Bridge {
                url: "httpUrl",
                types: None,
                headers: Some(("headers", "env")),
                blockers: &["url", "type", "targetAudience", "targetServiceAccount"],
            }),
            expands: &[Expansion::Dollar, Expansion::Braces, Expansion::Default],
            ..COMMON_ENTRY
        },
        duplicates: Duplicates::Last,
        policies: &[],
        after_edit: "start a new session",
    },
    behaviour: Some(BEHAVIOUR),
};

/// Gemini CLI. SIGTERM, and EOF when it ends; no SIGKILL. A launcher starts it once more with more memory: servers hang on
/// the second process. It never reads stderr.
const BEHAVIOUR: Behaviour = Behaviour {
    name: "Gemini CLI",
    is: |sign| sign.scripts("gemini") || sign.runs_from("/gemini-cli/"),
    farewell: Farewell::Signals,
    linger_ms: limits::LINGER_MS,
    first_turn_ms: None,
    connect_ms: 600_000,
    passes: Passes::NoCredentials,
    opens: Opens {
        discovers: false,
        version: "2025-06-18",
        asks_for_all_lists: false,
    },
    session_variables: &[],
};
