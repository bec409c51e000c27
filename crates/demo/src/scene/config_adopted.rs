//! A client's config is adopted and released: the client's server goes through mainstay without a word typed by hand, and the file is
//! as it was to the byte afterwards.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use mainstay_report::paint::Tone;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Outcome, Scene};
use crate::commands;
use crate::role::Role;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen};
use crate::waiter::DemoError;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "config_adopted",
    title: "A client's config is adopted, and released",
    about: "One command puts mainstay before every server of a client, one takes it back.",
    run,
};

const NAME: &str = "notes";
/// The file of Claude Code; the demo's own HOME has it.
const FILE: &str = ".claude.json";
/// The server's program in that HOME. Not `env` with its words, because a container may have no other program than this one.
const SERVER: &str = "notes-server";

/// What came out.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Serialize)]
struct Facts {
    /// The file as the client wrote it.
    before: String,
    /// Whether `mainstay adopt --yes` succeeded.
    adopted: bool,
    /// Whether the server that the adopted config names answered its client.
    answered: bool,
    /// The name under which `mainstay ps` lists it.
    listed_as: String,
    /// Whether `mainstay release --all --yes` succeeded.
    released: bool,
    /// Whether the file has its old bytes.
    same_bytes: bool,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    let home = sandbox.paths().home().map(Path::to_owned);
    let home = home.ok_or_else(|| DemoError::Failed("the demo has no HOME".into()))?;
    let file = home.join(FILE);
    let words = commands::role_args(Role::Server, NAME)?;
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // The demo's server is this program. By its own name, adopt would leave it alone as an entry that a person wrote.
    let server = home.join(SERVER);
    symlink(&words[0], &server)?;
    let entry = json!({ "command": server, "args": words[1..] });
    let before =
        format!("{{\n  \"numStartups\": 7,\n  \"mcpServers\": {{ \"{NAME}\": {entry} }}\n}}\n");
    fs::write(&file, &before)?;
    screen.progress("adopting the config of a client");
    let program = std::env::current_exe()?;
    let mut adopt = own(&["adopt", "claude", "--yes", "--program"])?;
    adopt.push(program.into());
    let adopted = sandbox.command(&adopt).status()?.success();

    screen.progress("starting the server as its config says now");
    let (mut child, mut connection) = sandbox.serve(&command(&fs::read_to_string(&file)?)?)?;
    let answer = connection.open(&sandbox.waiter, Sandbox::limit())?;
    let answered = answer.get("result").is_some();
    let listed_as = sandbox.card(NAME)?.name;
    drop(connection);
    child.wait()?;

    screen.progress("releasing it");
    let release = own(&["release", "--all", "--yes"])?;
    let released = sandbox.command(&release).status()?.success();
    let same_bytes = fs::read_to_string(&file)? == before;
    fs::remove_file(&file)?;
    fs::remove_file(&server)?;
    let facts = Facts {
        before,
        adopted,
        answered,
        listed_as,
        released,
        same_bytes,
    };
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// This program with these words.
fn own(words: &[&str]) -> Result<Vec<OsString>, DemoError> {
    let program = std::env::current_exe()?.into_os_string();
    let words = words.iter().map(OsString::from);
    Ok(std::iter::once(program).chain(words).collect())
}

/// The words with which a client starts the server of its config.
fn command(config: &str) -> Result<Vec<OsString>, DemoError> {
    let config: Value =
        serde_json::from_str(config).map_err(|error| DemoError::Failed(error.to_string()))?;
    let entry = &config["mcpServers"][NAME];
    let args = entry["args"].as_array().into_iter().flatten();
    let words = std::iter::once(&entry["command"]).chain(args);
    Ok(words.filter_map(Value::as_str).map(Into::into).collect())
}

impl Facts {
    fn held(&self) -> bool {
        self.adopted && self.answered && self.listed_as == NAME && self.released && self.same_bytes
    }

    fn lines(&self) -> Vec<Line> {
        let row = |command: &str, holds: bool, what: &str| {
            let tone = if holds { Tone::Good } else { Tone::Bad };
            let text = if holds {
                what.to_owned()
            } else {
                format!("not so: {what}")
            };
            Line::new(Tone::Plain, format!("{command:<22}")).and(tone, text)
        };
        let listed = format!(
            "the server answered, `mainstay ps` calls it {}",
            self.listed_as
        );
        vec![
            Line::default(),
            row("mainstay adopt", self.adopted && self.answered, &listed),
            row(
                "mainstay release",
                self.released && self.same_bytes,
                "the file has its old bytes",
            ),
        ]
    }
}
