//! `mainstay demo`: shows on real processes what mainstay does, with a small server and a scripted client in this program.
//!
//! A scene is a file in `scene`. It runs and returns facts, from which both the text and the JSON are made. All scenes run in
//! one `sandbox`: a private HOME in which the scene's `mainstay run` keeps its state. What the processes of a scene do is in
//! [`role`].
//!
//! Invariants: nothing below the user's own HOME is read or written. Every process of a scene has the sandbox as its working
//! directory, is ended before the scene is over, and ends by itself after a minute at the latest. A scene that could not run
//! has not held.
//!
//! The demo does not use the testkit, because the testkit must not be part of the shipped binary; and its errors must be
//! reports with hints, where the testkit panics.
#![forbid(unsafe_code)]

mod announcements;
mod commands;
mod connection;
pub mod role;
mod sandbox;
mod scene;
mod screen;
mod waiter;

use mainstay_os::{clock, signals};
use mainstay_protocol::event::{Seen, Status};
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use mainstay_report::{Exit, Report, talk};
use serde::Serialize;
use serde_json::Value;

use sandbox::Sandbox;
use scene::{Outcome, SCENES, Scene};
use screen::{Line, Screen};
use waiter::DemoError;

/// The result of a scene; `--json` prints it as it is.
#[derive(Debug, Serialize)]
struct SceneResult {
    /// The name of the scene.
    scene: &'static str,
    /// Whether mainstay did what it promises.
    held: bool,
    /// How long the scene took.
    ms: u64,
    /// Why the scene could not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Processes that were left after the scene; the demo has ended them.
    left: Vec<Seen>,
    /// What was measured.
    facts: Value,
}

/// Runs all scenes.
pub fn run(json: bool) -> Result<Exit, Report> {
    let began = clock::now();
    let mut screen = Screen::new(json);
    let mut sandbox = Sandbox::open()?;
    screen.opening();
    let mut held = 0;
    for (number, scene) in (1..).zip(&SCENES) {
        screen.title(number, scene);
        match run_scene(scene, &mut sandbox, &mut screen) {
            Ok(true) => held += 1,
            Ok(false) => {}
            Err(signal) => return Ok(interrupted(sandbox, &mut screen, signal)),
        }
    }
    let ended = close(sandbox);
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

/// Runs one scene. Returns whether it held, or the signal that interrupted it.
fn run_scene(scene: &Scene, sandbox: &mut Sandbox, screen: &mut Screen) -> Result<bool, i32> {
    let began = clock::now();
    let outcome = (scene.run)(sandbox, screen);
    screen.progress("");
    // A scene that has finished must leave no process. After one that failed, all processes are ended without a check.
    let finished = outcome.and_then(|outcome| Ok((outcome, sandbox.wait_until_empty()?)));
    let (outcome, left, problem) = match finished {
        Ok((outcome, left)) => (outcome, left, None),
        Err(DemoError::Interrupted(signal)) => return Err(signal),
        Err(DemoError::Failed(problem)) => {
            let cleared = sandbox.end_all();
            let more = cleared.map_or_else(|error| format!("; {error}"), |()| String::new());
            (Outcome::unknown(), Vec::new(), Some(problem + &more))
        }
    };
    let result = SceneResult {
        scene: scene.name,
        held: outcome.held && problem.is_none() && left.is_empty(),
        ms: clock::now().ms_since(began),
        problem,
        left,
        facts: outcome.facts,
    };
    screen.lines(&outcome.lines);
    if let Some(problem) = &result.problem {
        screen.lines(&[Line::new(Tone::Bad, format!("could not run: {problem}"))]);
    }
    if !result.left.is_empty() {
        let text = format!(
            "left behind, and ended by the demo: {}",
            names(&result.left)
        );
        screen.lines(&[Line::new(Tone::Bad, text)]);
    }
    screen.verdict(result.held);
    screen.json(&result);
    Ok(result.held)
}

/// Removes the sandbox. The result names what was left in it.
fn close(sandbox: Sandbox) -> SceneResult {
    let began = clock::now();
    let (left, problem) = match sandbox.close() {
        Ok(left) if left.is_empty() => (left, None),
        Ok(left) => (left.clone(), Some(names(&left))),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    SceneResult {
        scene: "nothing_left",
        held: problem.is_none(),
        ms: clock::now().ms_since(began),
        problem,
        left,
        facts: Value::Null,
    }
}

/// The user has interrupted the demo: ends all its processes, then ends by the same signal.
fn interrupted(mut sandbox: Sandbox, screen: &mut Screen, number: i32) -> Exit {
    screen.progress("");
    let problem = match sandbox.end_all() {
        Ok(()) => close(sandbox).problem,
        Err(error) => Some(error.to_string()),
    };
    talk(&match problem {
        Some(problem) => format!("left behind: {problem}\n"),
        None => "interrupted: no process and no file is left behind\n".into(),
    });
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
