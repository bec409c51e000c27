//! The keeper is killed in the middle of a session: the client's pipes stay open, and the next generation answers.

use mainstay_core::ids::Identity;
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::act::family::SIZE;
use crate::demo::act::server::THINKING;
use crate::demo::door;
use crate::demo::screen::{Line, Screen, quote};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::demo::wire::text;
use crate::view::measure::fine;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "keeper_killed",
    title: "mainstay itself is killed (SIGKILL of its keeper, a call in flight)",
    about: "",
    play,
};

const NAME: &str = "notes";

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    keeper: Identity,
    successor: Option<Identity>,
    /// The old server with its helpers.
    members: Vec<Identity>,
    old_tree_empty: bool,
    generation: u32,
    server_before: String,
    server_after: String,
    /// Answers that the call in flight got.
    answers_in_flight: usize,
    /// What the model reads of it.
    answer_in_flight: String,
    /// From the kill to the answer of the next generation.
    ms: u64,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("opening a session");
    let words = door::through_mainstay(NAME, door::words(Act::Server, NAME)?)?;
    let (child, mut wire) = stage.serve(&words)?;
    let limit = Stage::limit();
    wire.open(&stage.watch, limit)?;
    let id = wire.call("whoami")?;
    let server_before = text(&wire.answer(&stage.watch, id, limit)?).to_owned();
    let in_flight = wire.call("think")?;
    stage
        .roll
        .until(&stage.watch, "the server", limit, |present| {
            present.len() > SIZE && present.iter().any(|one| one.part == THINKING)
        })?;
    let mut tree = stage.roll.take(|_| true);
    tree.retain(|one| one.part != THINKING);
    let keeper = keeper(stage)?;

    screen.progress("killing the keeper");
    let killed = clock::now();
    Handle::open(keeper)?.signal(Signal::KILL)?;
    let answer = wire.answer(&stage.watch, in_flight, limit)?;
    let handles: Vec<&Handle> = tree.iter().map(|one| &one.handle).collect();
    let old_tree_empty = stage.ended(&handles, limit)?;
    let id = wire.call("whoami")?;
    let server_after = text(&wire.answer(&stage.watch, id, limit)?).to_owned();
    let ms = clock::now().ms_since(killed);

    let card = stage.card(NAME)?;
    let facts = Facts {
        keeper,
        successor: card.keeper.map(|seen| seen.who),
        members: handles.iter().map(|handle| handle.who).collect(),
        old_tree_empty,
        generation: card.generation,
        server_before,
        server_after,
        answers_in_flight: wire.answers(in_flight),
        answer_in_flight: text(&answer).to_owned(),
        ms,
    };
    let is_error = answer.pointer("/result/isError") == Some(&Value::Bool(true));
    // The client is done: the pipes close, and the link ends as it should.
    drop(wire);
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    let closed = stage.ended(&[&shim], limit)?;
    Outcome::of(facts.held() && is_error && closed, &facts, facts.lines())
}

/// The keeper as `mainstay ps` would tell it.
fn keeper(stage: &Stage) -> Result<Identity, Trouble> {
    stage
        .card(NAME)?
        .keeper
        .map(|seen| seen.who)
        .ok_or_else(|| Trouble::Failed("the card names no keeper".into()))
}

impl Facts {
    fn held(&self) -> bool {
        self.old_tree_empty
            && self.members.len() == SIZE
            && self.generation == 2
            && self.answers_in_flight == 1
            && self.successor != Some(self.keeper)
            && !self.server_after.is_empty()
            && self.server_after != self.server_before
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new(
            Tone::Plain,
            "The call in flight was answered once. What the model reads:",
        )];
        lines.extend(quote(&self.answer_in_flight));
        let old = if self.old_tree_empty {
            format!("0 of its {} processes left", self.members.len())
        } else {
            "the old tree is still there".into()
        };
        lines.push(
            Line::new(Tone::Plain, "The next call, on the same pipe: ").and(
                Tone::Good,
                format!(
                    "generation {} answered, {} after the kill",
                    self.generation,
                    fine(self.ms)
                ),
            ),
        );
        lines.push(Line::new(
            Tone::Faint,
            format!(
                "Server pid {} became {}; of generation 1: {old}.",
                self.server_before, self.server_after
            ),
        ));
        lines
    }
}
