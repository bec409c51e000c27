//! What mainstay does, shown on real processes: a small server and a scripted client, both inside this program.
//!
//! A scene is a file of `scene`: it says what it is about, plays, and tells what came out as facts; the text and
//! the JSON are made from the same facts. The `stage` is where a scene plays: a HOME of its own, in which the
//! scene's `mainstay run` keeps its state. What the processes of a scene do is in [`act`].
//!
//! Invariants: nothing below the user's own HOME is read or written; every process of a scene has the stage as its
//! directory, is ended before the scene is over, and ends by itself after a minute if all else fails; a scene that
//! could not be played has not held.

pub mod act;
mod door;
mod roll;
mod scene;
mod screen;
mod stage;
mod watch;
mod wire;

use mainstay_core::event::{Seen, Status};
use mainstay_os::{clock, signals};
use serde::Serialize;
use serde_json::Value;

use crate::exit::Exit;
use crate::report::{Report, talk};
use crate::view::measure::fine;
use crate::view::paint::Tone;
use scene::{Outcome, SCENES, Scene};
use screen::{Line, Screen};
use stage::Stage;
use watch::Trouble;

/// What is told of a scene; `--json` prints it as it is.
#[derive(Debug, Serialize)]
struct Told {
    /// Its name.
    scene: &'static str,
    /// Whether everything was as it should be.
    held: bool,
    /// How long it took.
    ms: u64,
    /// What was not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Who was still there when the scene was over, and was then ended.
    left: Vec<Seen>,
    /// What was measured and seen.
    facts: Value,
}

/// Plays all scenes.
pub fn play(json: bool) -> Result<Exit, Report> {
    let began = clock::now();
    let mut screen = Screen::new(json);
    let mut stage = Stage::open()?;
    screen.opening();
    let mut held = 0;
    for (number, scene) in (1..).zip(&SCENES) {
        screen.title(number, scene);
        match play_one(scene, &mut stage, &mut screen) {
            Ok(true) => held += 1,
            Ok(false) => {}
            Err(signal) => return Ok(interrupted(stage, &mut screen, signal)),
        }
    }
    let ended = close(stage);
    let all = held == SCENES.len() && ended.held;
    screen.json(&ended);
    let ms = fine(clock::now().ms_since(began));
    screen.closing(&match (&ended.problem, held) {
        (Some(problem), _) => Line::new(Tone::Bad, format!("left behind: {problem}")),
        (None, held) if all => Line::new(
            Tone::Good,
            format!("all {held} held in {ms}; no process and no file is left behind"),
        ),
        (None, held) => Line::new(
            Tone::Bad,
            format!("{held} of {} held, in {ms}", SCENES.len()),
        ),
    });
    Ok(if all { Exit::Ok } else { Exit::Unhealthy })
}

/// Plays one scene; whether it held, or the signal that interrupted it.
fn play_one(scene: &Scene, stage: &mut Stage, screen: &mut Screen) -> Result<bool, i32> {
    let began = clock::now();
    let played = (scene.play)(stage, screen);
    screen.progress("");
    // A scene that came to its end must also have left an empty stage; one that did not is simply cleared.
    let settled = played.and_then(|outcome| Ok((outcome, stage.settle()?)));
    let (outcome, left, problem) = match settled {
        Ok((outcome, left)) => (outcome, left, None),
        Err(Trouble::Interrupted(signal)) => return Err(signal),
        Err(Trouble::Failed(problem)) => {
            let cleared = stage.clear();
            let more = cleared.map_or_else(|error| format!("; {error}"), |()| String::new());
            (Outcome::unknown(), Vec::new(), Some(problem + &more))
        }
    };
    let told = Told {
        scene: scene.name,
        held: outcome.held && problem.is_none() && left.is_empty(),
        ms: clock::now().ms_since(began),
        problem,
        left,
        facts: outcome.facts,
    };
    screen.lines(&outcome.lines);
    if let Some(problem) = &told.problem {
        screen.lines(&[Line::new(
            Tone::Bad,
            format!("could not be played: {problem}"),
        )]);
    }
    if !told.left.is_empty() {
        let text = format!("left behind, and ended by the demo: {}", names(&told.left));
        screen.lines(&[Line::new(Tone::Bad, text)]);
    }
    screen.verdict(told.held);
    screen.json(&told);
    Ok(told.held)
}

/// Takes the stage down; what is left of it.
fn close(stage: Stage) -> Told {
    let began = clock::now();
    let (left, problem) = match stage.close() {
        Ok(left) if left.is_empty() => (left, None),
        Ok(left) => (left.clone(), Some(names(&left))),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Told {
        scene: "nothing_left",
        held: problem.is_none(),
        ms: clock::now().ms_since(began),
        problem,
        left,
        facts: Value::Null,
    }
}

/// The user has had enough: everything is ended all the same, then we end as the signal wants it.
fn interrupted(mut stage: Stage, screen: &mut Screen, number: i32) -> Exit {
    screen.progress("");
    let problem = match stage.clear() {
        Ok(()) => close(stage).problem,
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        talk(&format!("left behind: {problem}\n"));
    }
    signals::die_by(number);
    Exit::Server(Status::Signal {
        number,
        core: false,
    })
}

fn names(left: &[Seen]) -> String {
    let names: Vec<String> = left
        .iter()
        .map(|seen| format!("{} ({})", seen.who, seen.comm))
        .collect();
    names.join(", ")
}
