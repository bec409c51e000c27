//! Which conversation started a server, as far as its client tells. Only a label: these variables are inherited by everything that a client starts.

use std::fs;
use std::path::PathBuf;

use mainstay_os::census;
use mainstay_protocol::ids::Identity;
use serde_json::Value;

/// Variables that hold the id of a conversation.
const VARIABLES: [&str; 5] = [
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "COPILOT_AGENT_SESSION_ID",
    "QWEN_CODE_SESSION_ID",
    "OPENCODE_SESSION_ID",
];
/// Digits of an id that tell it from others.
const ID_CHARS: usize = 8;
/// A larger file is not one of Claude's.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The conversation of a server with this client.
pub fn of(client: Option<Identity>, server: i32) -> Option<String> {
    let told = client.and_then(|client| claude(client.pid));
    told.or_else(|| {
        VARIABLES
            .iter()
            .find_map(|name| Some(short(&census::variable(server, name)?)))
    })
}

/// Claude Code keeps a file for each of its processes.
fn claude(pid: i32) -> Option<String> {
    let variable = |name| census::variable(pid, name).map(PathBuf::from);
    let home = variable("CLAUDE_CONFIG_DIR").or_else(|| Some(variable("HOME")?.join(".claude")))?;
    let path = home.join("sessions").join(format!("{pid}.json"));
    let is_small =
        fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_BYTES_MAX);
    label(&fs::read(path).ok().filter(|_| is_small)?)
}

/// The id, with the title or else the directory.
fn label(file: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(file).ok()?;
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let id = short(text("sessionId")?);
    let about = text("name")
        .or_else(|| text("title"))
        .or_else(|| text("cwd"));
    Some(about.map_or(id.clone(), |about| format!("{id} {about}")))
}

/// The digits that differ. An id that carries its time (UUID version 7) begins with the time, so its last digits are taken.
fn short(id: &str) -> String {
    let version = id.split('-').nth(2).and_then(|part| part.chars().next());
    let count = id.chars().count();
    if version == Some('7') && count > ID_CHARS {
        return id.chars().skip(count - ID_CHARS).collect();
    }
    id.chars().take(ID_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_where_they_differ() {
        for (id, cut) in [
            ("1a2b3c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d", "1a2b3c4d"),
            ("0199a213-81c0-7800-8aa1-bbab2a035a53", "2a035a53"),
            ("x", "x"),
            ("", ""),
        ] {
            assert_eq!(short(id), cut, "{id}");
        }
    }

    #[test]
    fn a_session_file_tells_id_and_title_or_directory() {
        let id = "1a2b3c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d";
        for (file, told) in [
            (
                format!(r#"{{"sessionId": "{id}", "cwd": "/p", "name": "tests"}}"#),
                Some("1a2b3c4d tests"),
            ),
            (
                format!(r#"{{"sessionId": "{id}", "cwd": "/p"}}"#),
                Some("1a2b3c4d /p"),
            ),
            (format!(r#"{{"sessionId": "{id}"}}"#), Some("1a2b3c4d")),
            ("{}".into(), None),
            ("no json".into(), None),
        ] {
            assert_eq!(label(file.as_bytes()).as_deref(), told, "{file}");
        }
    }
}
