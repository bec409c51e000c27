//! A server is killed in the middle of a call: bare, that is the end of its session; through mainstay the call is
//! answered, and the next generation goes on where the last one stopped.

use mainstay_core::ids::Identity;
use mainstay_os::clock;
use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::act::family::SIZE;
use crate::demo::act::server::{Memory, THINKING};
use crate::demo::door;
use crate::demo::roll::Present;
use crate::demo::screen::{Line, Screen, quote};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::demo::wire::{Wire, text};
use crate::view::measure::fine;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "server_killed",
    title: "The server is killed (SIGKILL, a call in flight)",
    about: "Its client had set a log level and subscribed to 2 resources: a server holds that in memory only.",
    play,
};

const NAME: &str = "notes";
const LEVEL: &str = "warning";
const URIS: [&str; 2] = ["note://today", "note://tomorrow"];

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    bare: Bare,
    kept: Kept,
}

/// Started bare.
#[derive(Debug, Serialize)]
struct Bare {
    members: Vec<Identity>,
    pipe_closed: bool,
    answers_in_flight: usize,
    /// Of its tree; the demo ended them afterwards.
    left: usize,
}

/// Started through mainstay.
#[derive(Debug, Serialize)]
struct Kept {
    /// The old server with its helpers.
    members: Vec<Identity>,
    left: usize,
    generation: u32,
    before: Memory,
    after: Memory,
    /// Answers that the call in flight got.
    answers_in_flight: usize,
    /// What the model reads of it.
    answer_in_flight: String,
    is_error: bool,
    /// From the kill to that answer.
    answered_ms: u64,
    /// From the kill to the answer of the next generation.
    next_ms: u64,
    /// The pipes and the link ended when the client did.
    closed: bool,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("killing a server that was started bare");
    let bare = bare(stage)?;
    screen.progress("killing a server that was started through mainstay");
    let kept = kept(stage)?;
    let facts = Facts { bare, kept };
    Outcome::of(facts.held(), &facts, facts.lines())
}

fn bare(stage: &mut Stage) -> Result<Bare, Trouble> {
    let (mut child, mut wire) = stage.serve(&door::words(Act::Server, NAME)?)?;
    let (call, tree) = busy(stage, &mut wire)?;
    let limit = Stage::limit();
    child.kill()?;
    let pipe_closed = wire.closed(&stage.watch, limit)?;
    child.wait()?;
    let left: Vec<&Present> = tree.iter().filter(|one| !one.handle.ended()).collect();
    for one in &left {
        // One that has ended meanwhile is what we want.
        one.handle.signal(Signal::KILL).ok();
    }
    Ok(Bare {
        members: identities(&tree),
        pipe_closed,
        answers_in_flight: wire.answers(call),
        left: left.len(),
    })
}

fn kept(stage: &mut Stage) -> Result<Kept, Trouble> {
    let words = door::through_mainstay(NAME, door::words(Act::Server, NAME)?)?;
    let (child, mut wire) = stage.serve(&words)?;
    let (call, tree) = busy(stage, &mut wire)?;
    let limit = Stage::limit();
    let before = wire.recall(&stage.watch, limit)?;
    let server = tree.iter().find(|one| one.part == Act::Server.word());
    let server = server.ok_or_else(|| Trouble::Failed("no server is on the roll".into()))?;

    let killed = clock::now();
    server.handle.signal(Signal::KILL)?;
    let answer = wire.answer(&stage.watch, call, limit)?;
    let answered_ms = clock::now().ms_since(killed);
    let after = wire.recall(&stage.watch, limit)?;
    let next_ms = clock::now().ms_since(killed);

    let generation = stage.card(NAME)?.generation;
    let answers_in_flight = wire.answers(call);
    let left = tree.iter().filter(|one| !one.handle.ended()).count();
    // The client is done: the pipes close, and the link ends as it should.
    drop(wire);
    let shim = Handle::open(identity::of(child.id() as i32)?)?;
    Ok(Kept {
        members: identities(&tree),
        left,
        generation,
        before,
        after,
        answers_in_flight,
        answer_in_flight: text(&answer).to_owned(),
        is_error: answer.pointer("/result/isError") == Some(&Value::Bool(true)),
        answered_ms,
        next_ms,
        closed: stage.ended(&[&shim], limit)?,
    })
}

/// A session with all that a death could lose, and a call that is being worked on; the call, and the server's tree.
fn busy(stage: &mut Stage, wire: &mut Wire) -> Result<(u64, Vec<Present>), Trouble> {
    let limit = Stage::limit();
    wire.open(&stage.watch, limit)?;
    wire.teach(&stage.watch, LEVEL, &URIS, limit)?;
    let call = wire.call("think")?;
    stage
        .roll
        .until(&stage.watch, "the server", limit, |present| {
            present.len() > SIZE && present.iter().any(|one| one.part == THINKING)
        })?;
    let mut tree = stage.roll.take(|_| true);
    tree.retain(|one| one.part != THINKING);
    Ok((call, tree))
}

fn identities(tree: &[Present]) -> Vec<Identity> {
    tree.iter().map(|one| one.handle.who).collect()
}

impl Bare {
    fn call(&self) -> &'static str {
        match self.answers_in_flight {
            0 => "never answered",
            _ => "answered",
        }
    }

    fn next(&self) -> &'static str {
        if self.pipe_closed {
            "no server, no pipe"
        } else {
            "no server"
        }
    }
}

impl Kept {
    fn held(&self) -> bool {
        self.is_error
            && self.closed
            && self.left == 0
            && self.members.len() == SIZE
            && self.generation == 2
            && self.answers_in_flight == 1
            && self.after.pid != self.before.pid
            && self.after.level.as_deref() == Some(LEVEL)
            && self.subscriptions() == URIS.len()
    }

    /// How many of the subscriptions the next generation has.
    fn subscriptions(&self) -> usize {
        let after = &self.after.subscriptions;
        URIS.iter().filter(|uri| after.contains(**uri)).count()
    }
}

impl Facts {
    fn held(&self) -> bool {
        self.kept.held() && self.bare.members.len() == SIZE && self.bare.pipe_closed
    }

    fn lines(&self) -> Vec<Line> {
        let Self { bare, kept } = self;
        let wanted = URIS.len();
        let head = format!(
            "{:<22}{:<24}{}",
            "", "started bare", "through `mainstay run`"
        );
        let answered = match kept.answers_in_flight {
            1 => format!("answered after {}", fine(kept.answered_ms)),
            n => format!("answered {n} times"),
        };
        let next = format!(
            "by generation {} after {}",
            kept.generation,
            fine(kept.next_ms)
        );
        let level = match &kept.after.level {
            Some(level) => format!("back: {level}"),
            None => "lost".into(),
        };
        let subscriptions = format!("back: {} of {wanted}", kept.subscriptions());
        let old = |left: usize, members: usize| match left {
            0 => "0 left".to_owned(),
            left => format!("{left} of {members} left alive"),
        };
        let mut lines = vec![Line::default(), Line::new(Tone::Strong, head)];
        for (name, was, is) in [
            ("call in flight", bare.call().to_owned(), answered),
            ("next call", bare.next().to_owned(), next),
            ("log level", "lost".to_owned(), level),
            ("subscriptions", "lost".to_owned(), subscriptions),
            (
                "the old tree",
                old(bare.left, bare.members.len()),
                old(kept.left, kept.members.len()),
            ),
        ] {
            lines.push(
                Line::new(Tone::Plain, format!("{name:<22}"))
                    .and(Tone::Bad, format!("{was:<24}"))
                    .and(if kept.held() { Tone::Good } else { Tone::Bad }, is),
            );
        }
        lines.push(Line::default());
        lines.push(Line::new(
            Tone::Plain,
            "What the model reads as the answer to the call in flight:",
        ));
        lines.extend(quote(&kept.answer_in_flight));
        lines
    }
}
