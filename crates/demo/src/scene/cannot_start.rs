//! Servers that cannot start: the client reads the reason, instead of a pipe that just closes. A missing command is not tried
//! again. A server that dies during the handshake is started again, and the client waits for the result.

use std::ffi::OsString;

use mainstay_os::identity::{self, Handle};
use mainstay_report::paint::Tone;
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::commands;
use crate::role::Role;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen, quote};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "cannot_start",
    title: "A server cannot start: what the client reads",
    about: "",
    run,
};

const NAME: &str = "weather";

#[derive(Debug, Serialize)]
struct Facts {
    servers: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// What is wrong with the server.
    wrong: &'static str,
    /// The text that the answer must contain.
    expected: &'static str,
    /// The answer to `initialize`.
    answer: Value,
    /// The exit code of `mainstay run`.
    exit_code: Option<i32>,
    expected_code: i32,
    /// How often the server was started before the client got the answer.
    starts: u32,
    expected_starts: u32,
}

/// A server command and the expected result.
struct Case {
    wrong: &'static str,
    server: Vec<OsString>,
    expected: &'static str,
    expected_code: i32,
    expected_starts: u32,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("starting servers that cannot start");
    let missing: Vec<OsString> = vec!["weather-mcp".into(), "--stdio".into()];
    let broken = commands::role_args(Role::BrokenServer, NAME)?;
    let facts = Facts {
        servers: vec![
            ask(
                sandbox,
                Case {
                    wrong: "no such command",
                    server: missing,
                    expected: "command not found",
                    expected_code: 127,
                    expected_starts: 0,
                },
            )?,
            ask(
                sandbox,
                Case {
                    wrong: "the server exits",
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

/// Opens a session with a server that cannot start.
fn ask(sandbox: &Sandbox, case: Case) -> Result<Row, DemoError> {
    let before = sandbox.starts(NAME)?;
    let words = commands::run_args(NAME, case.server)?;
    let (mut child, mut connection) = sandbox.serve(&words)?;
    let limit = Sandbox::limit();
    let answer = connection.open(&sandbox.waiter, limit)?;
    drop(connection);
    let shim = Handle::open(identity::of(child.id() as i32)?)?;
    sandbox.ended(&[&shim], limit)?;
    Ok(Row {
        wrong: case.wrong,
        expected: case.expected,
        answer,
        exit_code: child.try_wait()?.and_then(|status| status.code()),
        expected_code: case.expected_code,
        starts: sandbox.starts(NAME)? - before,
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
