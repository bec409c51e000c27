//! The scenes of the demo, one file each.

mod cannot_start;
mod client_killed;
mod config_adopted;
mod http_session;
mod keeper_killed;
mod lease_closed;
mod orphan_reaped;
mod server_killed;
mod unasked_signal;

use serde::Serialize;
use serde_json::Value;

use super::sandbox::Sandbox;
use super::screen::{Line, Screen};
use super::waiter::DemoError;

/// All scenes, in the order in which they run.
pub static SCENES: [Scene; 9] = [
    client_killed::SCENE,
    server_killed::SCENE,
    keeper_killed::SCENE,
    lease_closed::SCENE,
    cannot_start::SCENE,
    unasked_signal::SCENE,
    http_session::SCENE,
    config_adopted::SCENE,
    orphan_reaped::SCENE,
];

/// One scene.
#[derive(Debug)]
pub struct Scene {
    /// The name in JSON.
    pub name: &'static str,
    /// The headline.
    pub title: &'static str,
    /// An explanation in a sentence or two; may be empty.
    pub about: &'static str,
    /// Runs the scene.
    pub run: fn(&mut Sandbox, &mut Screen) -> Result<Outcome, DemoError>,
}

/// The result of a scene.
#[derive(Debug)]
pub struct Outcome {
    /// Whether mainstay did what it promises.
    pub held: bool,
    /// What `--json` prints.
    pub facts: Value,
    /// The text, made from the same facts.
    pub lines: Vec<Line>,
}

impl Outcome {
    fn of<T: Serialize>(held: bool, facts: &T, lines: Vec<Line>) -> Result<Self, DemoError> {
        let facts =
            serde_json::to_value(facts).map_err(|error| DemoError::Failed(error.to_string()))?;
        Ok(Self { held, facts, lines })
    }

    /// The result of a scene that could not run.
    pub fn unknown() -> Self {
        Self {
            held: false,
            facts: Value::Null,
            lines: Vec::new(),
        }
    }
}
