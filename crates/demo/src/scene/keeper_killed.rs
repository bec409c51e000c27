//! The keeper is killed during a session: the client's pipes stay open, and the next generation of the server answers.

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::commands;
use crate::connection::text;
use crate::role::Role;
use crate::role::helpers::TREE_SIZE;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen, quote};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "keeper_killed",
    title: "mainstay itself is killed (SIGKILL of its keeper, a call in flight)",
    about: "",
    run,
};

const NAME: &str = "notes";

#[derive(Debug, Serialize)]
struct Facts {
    keeper: Identity,
    successor: Option<Identity>,
    /// The first server with its helpers.
    members: Vec<Identity>,
    old_tree_empty: bool,
    generation: u32,
    server_before: String,
    server_after: String,
    /// How many answers the call in flight got.
    answers_in_flight: usize,
    /// The text of that answer, as the model reads it.
    answer_in_flight: String,
    /// Time from the kill to the first answer of the next generation.
    ms: u64,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("opening a session");
    let words = commands::run_args(NAME, commands::role_args(Role::Server, NAME)?)?;
    let (child, mut connection) = sandbox.serve(&words)?;
    let limit = Sandbox::limit();
    connection.open(&sandbox.waiter, limit)?;
    let id = connection.call("whoami")?;
    let server_before = text(&connection.answer(&sandbox.waiter, id, limit)?).to_owned();
    let in_flight = connection.call("think")?;
    let tree = sandbox.thinking_server(limit)?;
    let keeper = keeper(sandbox)?;

    screen.progress("killing the keeper");
    let killed = clock::now();
    Handle::open(keeper)?.signal(Signal::KILL)?;
    let answer = connection.answer(&sandbox.waiter, in_flight, limit)?;
    let handles: Vec<&Handle> = tree.iter().map(|one| &one.handle).collect();
    let old_tree_empty = sandbox.ended(&handles, limit)?;
    let id = connection.call("whoami")?;
    let server_after = text(&connection.answer(&sandbox.waiter, id, limit)?).to_owned();
    let ms = clock::now().ms_since(killed);

    let card = sandbox.card(NAME)?;
    let facts = Facts {
        keeper,
        successor: card.keeper.map(|seen| seen.who),
        members: handles.iter().map(|handle| handle.who).collect(),
        old_tree_empty,
        generation: card.generation,
        server_before,
        server_after,
        answers_in_flight: connection.answers(in_flight),
        answer_in_flight: text(&answer).to_owned(),
        ms,
    };
    let is_error = answer.pointer("/result/isError") == Some(&Value::Bool(true));
    // Closing the pipes must end the link.
    drop(connection);
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    let closed = sandbox.ended(&[&shim], limit)?;
    Outcome::of(facts.held() && is_error && closed, &facts, facts.lines())
}

/// The keeper, as `mainstay ps` shows it.
fn keeper(sandbox: &Sandbox) -> Result<Identity, DemoError> {
    sandbox
        .card(NAME)?
        .keeper
        .map(|seen| seen.who)
        .ok_or_else(|| DemoError::Failed("the link has no keeper".into()))
}

impl Facts {
    fn held(&self) -> bool {
        self.old_tree_empty
            && self.members.len() == TREE_SIZE
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
