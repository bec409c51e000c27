//! Servers that cannot start: what the client reads, instead of a pipe that closes without a word.

use std::ffi::OsString;

use mainstay_os::identity::{self, Handle};
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::door;
use crate::demo::screen::{Line, Screen, quote};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "cannot_start",
    title: "A server cannot start: what the client reads",
    about: "",
    play,
};

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    servers: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// What is wrong with it.
    wrong: &'static str,
    /// What the answer must tell for a person to act on it.
    expected: &'static str,
    /// The whole answer to `initialize`.
    answer: Value,
    /// How `mainstay run` ended.
    exit_code: Option<i32>,
    expected_code: i32,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("starting what cannot be started");
    let missing: Vec<OsString> = vec!["weather-mcp".into(), "--stdio".into()];
    let broken = door::words(Act::BrokenServer, "weather")?;
    let facts = Facts {
        servers: vec![
            ask(stage, "no such command", missing, "command not found", 127)?,
            ask(stage, "it gives up", broken, "WEATHER_API_KEY", 1)?,
        ],
    };
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// Opens a session with something that cannot serve.
fn ask(
    stage: &Stage,
    wrong: &'static str,
    server: Vec<OsString>,
    expected: &'static str,
    expected_code: i32,
) -> Result<Row, Trouble> {
    let words = door::through_mainstay("weather", server)?;
    let (mut child, mut wire) = stage.serve(&words)?;
    let limit = Stage::limit();
    let answer = wire.open(&stage.watch, limit)?;
    drop(wire);
    let shim = Handle::open(identity::of(child.id() as i32)?)?;
    stage.ended(&[&shim], limit)?;
    Ok(Row {
        wrong,
        expected,
        answer,
        exit_code: child.try_wait()?.and_then(|status| status.code()),
        expected_code,
    })
}

impl Row {
    fn message(&self) -> &str {
        self.answer
            .pointer("/error/message")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn held(&self) -> bool {
        self.message().contains(self.expected) && self.exit_code == Some(self.expected_code)
    }
}

impl Facts {
    fn held(&self) -> bool {
        self.servers.iter().all(Row::held)
    }

    fn lines(&self) -> Vec<Line> {
        self.servers
            .iter()
            .flat_map(|row| {
                let code = row
                    .exit_code
                    .map_or("no exit code".into(), |code| format!("exit code {code}"));
                let mut lines =
                    vec![Line::new(Tone::Plain, row.wrong).and(Tone::Faint, format!(" ({code}):"))];
                lines.extend(quote(row.message()));
                lines
            })
            .collect()
    }
}
