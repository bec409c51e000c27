//! Servers that cannot start: what the client reads, instead of a pipe that closes without a word. A command that is not
//! there is not tried again; a server that dies of its opening is, and the client waits for the verdict.

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

const NAME: &str = "weather";

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
    /// How often the server was started before the client was told.
    starts: u32,
    expected_starts: u32,
}

/// What is asked for, and what must come of it.
struct Case {
    wrong: &'static str,
    server: Vec<OsString>,
    expected: &'static str,
    expected_code: i32,
    expected_starts: u32,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("starting what cannot be started");
    let missing: Vec<OsString> = vec!["weather-mcp".into(), "--stdio".into()];
    let broken = door::words(Act::BrokenServer, NAME)?;
    let facts = Facts {
        servers: vec![
            ask(
                stage,
                Case {
                    wrong: "no such command",
                    server: missing,
                    expected: "command not found",
                    expected_code: 127,
                    expected_starts: 0,
                },
            )?,
            ask(
                stage,
                Case {
                    wrong: "it gives up",
                    server: broken,
                    expected: "WEATHER_API_KEY",
                    expected_code: 1,
                    expected_starts: 3,
                },
            )?,
        ],
    };
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// Opens a session with something that cannot serve.
fn ask(stage: &Stage, case: Case) -> Result<Row, Trouble> {
    let before = stage.starts(NAME)?;
    let words = door::through_mainstay(NAME, case.server)?;
    let (mut child, mut wire) = stage.serve(&words)?;
    let limit = Stage::limit();
    let answer = wire.open(&stage.watch, limit)?;
    drop(wire);
    let shim = Handle::open(identity::of(child.id() as i32)?)?;
    stage.ended(&[&shim], limit)?;
    Ok(Row {
        wrong: case.wrong,
        expected: case.expected,
        answer,
        exit_code: child.try_wait()?.and_then(|status| status.code()),
        expected_code: case.expected_code,
        starts: stage.starts(NAME)? - before,
        expected_starts: case.expected_starts,
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
        self.message().contains(self.expected)
            && self.exit_code == Some(self.expected_code)
            && self.starts == self.expected_starts
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
                let starts = match row.starts {
                    0 => "never started".into(),
                    1 => "started once".into(),
                    n => format!("started {n} times"),
                };
                let facts = format!(" ({starts}, {code}):");
                let mut lines = vec![Line::new(Tone::Plain, row.wrong).and(Tone::Faint, facts)];
                lines.extend(quote(row.message()));
                lines
            })
            .collect()
    }
}
