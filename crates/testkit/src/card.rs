//! The files that mainstay writes in a HOME: cards, recorded members, events. They are read as any other program would read them.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_protocol::ids::Identity;
use serde_json::Value;

/// One entry of the registry.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its directory.
    pub dir: PathBuf,
    /// The link's id, which is also the directory's name.
    pub id: String,
    /// The process that the client started.
    pub shim: Option<Identity>,
    /// Its guard.
    pub guard: Option<Identity>,
    /// Its keeper.
    pub keeper: Option<Identity>,
    /// The server process of the present generation.
    pub server: Option<Identity>,
    /// The whole JSON.
    pub json: Value,
}

/// Where mainstay keeps its state in this HOME.
pub fn state_dir(home: &Path) -> PathBuf {
    home.join(".local/state/mainstay")
}

/// Every card that can be read now.
pub fn cards(home: &Path) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(state_dir(home).join("run")) else {
        return Vec::new();
    };
    let mut cards: Vec<Card> = entries
        .flatten()
        .filter_map(|entry| read(&entry.path()))
        .collect();
    cards.sort_by(|one, other| one.id.cmp(&other.id));
    cards
}

/// The recorded tree members of a link.
pub fn members(dir: &Path) -> Vec<Identity> {
    let json = fs::read(dir.join("members.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        .unwrap_or_default();
    let list = json.get("members").unwrap_or(&json);
    list.as_array()
        .map(|list| list.iter().filter_map(identity).collect())
        .unwrap_or_default()
}

/// All events of this HOME, in the order of the files, without torn lines.
pub fn events(home: &Path) -> Vec<Value> {
    let Ok(entries) = fs::read_dir(state_dir(home).join("events")) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            fs::read(file)
                .unwrap_or_default()
                .split(|&b| b == b'\n')
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        })
        .filter_map(|line| serde_json::from_slice(&line).ok())
        .collect()
}

/// The events of this kind.
pub fn events_called(home: &Path, word: &str) -> Vec<Value> {
    events(home)
        .into_iter()
        .filter(|event| event.get("event").and_then(Value::as_str) == Some(word))
        .collect()
}

fn read(dir: &Path) -> Option<Card> {
    let json: Value = serde_json::from_slice(&fs::read(dir.join("card.json")).ok()?).ok()?;
    let of = |role: &str| json.get(role).and_then(identity);
    Some(Card {
        dir: dir.to_path_buf(),
        id: dir.file_name()?.to_str()?.to_owned(),
        shim: of("shim"),
        guard: of("guard"),
        keeper: of("keeper"),
        server: of("server"),
        json: json.clone(),
    })
}

fn identity(value: &Value) -> Option<Identity> {
    let value = value.get("who").unwrap_or(value);
    Some(Identity {
        pid: value.get("pid")?.as_i64()? as i32,
        start: value.get("start")?.as_u64()?,
    })
}
