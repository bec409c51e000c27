//! Shared by the tests of `adopt`, `release` and `learn`: a HOME with a config file of every client.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_clients::place::Surroundings;
use mainstay_clients::profile;

/// A client, and the config file that it wrote.
pub const FIXTURES: [(&str, &str); 22] = [
    ("Amp", "amp.json"),
    ("Claude Code", "claude_code.json"),
    ("Claude Desktop", "claude_desktop.json"),
    ("Cline", "cline.json"),
    ("Codex", "codex.toml"),
    ("Continue", "continue.yaml"),
    ("Copilot CLI", "copilot.json"),
    ("Crush", "crush.json"),
    ("Cursor", "cursor.json"),
    ("Gemini CLI", "gemini.json"),
    ("Goose", "goose.yaml"),
    ("Hermes", "hermes.yaml"),
    ("Junie", "junie.json"),
    ("Kiro", "kiro.json"),
    ("LM Studio", "lm_studio.json"),
    ("opencode", "opencode.json"),
    ("Qwen Code", "qwen.json"),
    ("Roo Code", "roo.json"),
    ("VS Code", "vs_code.json"),
    ("Warp", "warp.json"),
    ("Windsurf", "windsurf.json"),
    ("Zed", "zed.json"),
];

/// The bytes of a fixture.
pub fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/tests/fixtures");
    fs::read(folder.join(name)).unwrap()
}

/// Where a client has its own config file in this HOME.
pub fn place(home: &Path, client: &str) -> PathBuf {
    let around = Surroundings::new(home, BTreeMap::new());
    let mut files = profile::named(client).unwrap().config.files.iter();
    let file = files.find(|file| file.never.is_none()).unwrap();
    around.places(file.place).remove(0)
}

/// Writes a client's config file.
pub fn put(home: &Path, client: &str, bytes: &[u8]) -> PathBuf {
    let path = place(home, client);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}
