//! The scenes, one file each, in the order in which they are played.

mod cannot_start;
mod client_killed;
mod http_session;
mod keeper_killed;
mod lease_closed;
mod server_killed;
mod unasked_signal;

use serde::Serialize;
use serde_json::Value;

use super::screen::{Line, Screen};
use super::stage::Stage;
use super::watch::Trouble;

/// All of them.
pub static SCENES: [Scene; 7] = [
    client_killed::SCENE,
    server_killed::SCENE,
    keeper_killed::SCENE,
    lease_closed::SCENE,
    cannot_start::SCENE,
    unasked_signal::SCENE,
    http_session::SCENE,
];

/// One scene.
#[derive(Debug)]
pub struct Scene {
    /// Its name in JSON.
    pub name: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// What is seen, in a sentence or two.
    pub about: &'static str,
    /// Plays it.
    pub play: fn(&mut Stage, &mut Screen) -> Result<Outcome, Trouble>,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// Whether mainstay kept its promise.
    pub held: bool,
    /// For programs.
    pub facts: Value,
    /// For people, from the same facts.
    pub lines: Vec<Line>,
}

impl Outcome {
    /// From facts.
    fn of<T: Serialize>(held: bool, facts: &T, lines: Vec<Line>) -> Result<Self, Trouble> {
        let facts =
            serde_json::to_value(facts).map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(Self { held, facts, lines })
    }

    /// Of a scene that could not be played.
    pub fn unknown() -> Self {
        Self {
            held: false,
            facts: Value::Null,
            lines: Vec::new(),
        }
    }
}
