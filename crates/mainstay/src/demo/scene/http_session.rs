//! Two sessions with an HTTP server: one ends as it should, and of the other everybody of ours is killed at once.

use std::cell::Cell;

use mainstay_core::ids::Identity;
use mainstay_os::identity::Handle;
use mainstay_os::{census, clock};
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::act::http::{CLOSED, LISTENS, OPENED};
use crate::demo::door;
use crate::demo::screen::{Line, Screen};
use crate::demo::stage::{PATIENCE_MS, Stage};
use crate::demo::watch::Trouble;
use crate::view::measure::fine;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "http_session",
    title: "HTTP sessions are closed, also after our own death",
    about: "A client speaks to a streamable-HTTP server through `mainstay run --url`, and never closes a session itself. The \
            second time, shim, guard, keeper and bridge are killed at once (SIGKILL); then anybody starts mainstay again.",
    play,
};

const NAME: &str = "web";

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    /// Sessions that the server was asked to open.
    opened: usize,
    /// Sessions that were closed by a DELETE.
    closed: usize,
    /// The first was closed when its client left.
    closed_at_exit: bool,
    /// Who was killed at once.
    killed: Vec<Identity>,
    /// The second was still open then.
    owed: bool,
    /// From the next start to the DELETE for it.
    paid_after_ms: u64,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("starting an HTTP server");
    stage
        .command(&door::words(Act::HttpServer, NAME)?)
        .spawn()?;
    let limit = Stage::limit();
    let listens = |part: &str| part.starts_with(LISTENS);
    stage
        .roll
        .until(&stage.watch, "the HTTP server", limit, |present| {
            present.iter().any(|one| listens(&one.part))
        })?;
    let server = stage.roll.take(|_| true);
    let port = server
        .iter()
        .find_map(|one| one.part.strip_prefix(LISTENS))
        .unwrap_or_default();
    let words = door::to_url(NAME, &format!("http://127.0.0.1:{port}/mcp"))?;

    screen.progress("a session that ends as it should");
    let (child, mut wire) = stage.serve(&words)?;
    wire.open(&stage.watch, limit)?;
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    drop(wire);
    let left = stage.ended(&[&shim], limit)?;
    said(stage, CLOSED, 1)?;

    screen.progress("a session of which everybody is killed");
    let (_child, mut wire) = stage.serve(&words)?;
    wire.open(&stage.watch, limit)?;
    let killed = kill_everybody(stage)?;
    let owed = count(stage, CLOSED)? == 1;

    screen.progress("the next start");
    let began = clock::now();
    let (child, mut next) = stage.serve(&words)?;
    next.open(&stage.watch, limit)?;
    said(stage, CLOSED, 2)?;
    let paid_after_ms = clock::now().ms_since(began);
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    drop((wire, next));
    stage.ended(&[&shim], limit)?;
    said(stage, CLOSED, 3)?;

    let facts = Facts {
        opened: count(stage, OPENED)?,
        closed: count(stage, CLOSED)?,
        closed_at_exit: left,
        killed,
        owed,
        paid_after_ms,
    };
    for one in &server {
        one.handle.signal(Signal::KILL)?;
    }
    stage.roll.take(|_| true);
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// Waits until the server has said so often that this happened.
fn said(stage: &mut Stage, what: &str, times: usize) -> Result<(), Trouble> {
    let limit = Stage::limit();
    stage
        .roll
        .until(&stage.watch, "the DELETE", limit, |present| {
            let said = present.iter().filter(|one| one.part.starts_with(what));
            said.count() >= times
        })
}

/// How often the server has said so by now.
fn count(stage: &mut Stage, what: &str) -> Result<usize, Trouble> {
    let number = Cell::new(0);
    stage
        .roll
        .until(&stage.watch, "the roll", Stage::limit(), |present| {
            let said = present.iter().filter(|one| one.part.starts_with(what));
            number.set(said.count());
            true
        })?;
    Ok(number.get())
}

/// Kills shim, guard, keeper and bridge.
fn kill_everybody(stage: &Stage) -> Result<Vec<Identity>, Trouble> {
    let card = stage.card(NAME)?;
    let seen = [&card.shim, &card.guard, &card.keeper, &card.server];
    let all: Vec<Identity> = seen.into_iter().flatten().map(|seen| seen.who).collect();
    let handles: Vec<Handle> = all
        .iter()
        .filter_map(|who| Handle::open(*who).ok())
        .collect();
    // Held first: whoever saw another one die would put a successor in its place.
    for handle in &handles {
        handle.signal(Signal::STOP)?;
    }
    // The guard's sweep of this start may still be at it, and would pay at once.
    let guard = card.guard.as_ref().map_or(0, |seen| seen.who.pid);
    for pid in census::children(guard).unwrap_or_default() {
        if !all.iter().any(|who| who.pid == pid)
            && let Ok(sweep) = mainstay_os::identity::of(pid).and_then(Handle::open)
        {
            sweep.wait_ended(PATIENCE_MS);
        }
    }
    for handle in &handles {
        handle.signal(Signal::KILL)?;
    }
    let handles: Vec<&Handle> = handles.iter().collect();
    stage.ended(&handles, Stage::limit())?;
    Ok(all)
}

impl Facts {
    fn held(&self) -> bool {
        self.closed_at_exit
            && self.owed
            && self.killed.len() == 4
            && self.opened == self.closed
            && self.opened >= 3
    }

    fn lines(&self) -> Vec<Line> {
        let mark = |good| if good { Tone::Good } else { Tone::Bad };
        vec![
            Line::new(Tone::Plain, "The client left: ").and(
                mark(self.closed_at_exit),
                "its session was closed by a DELETE",
            ),
            Line::new(
                Tone::Plain,
                format!("All {} of ours were killed at once: ", self.killed.len()),
            )
            .and(mark(self.owed), "the session stayed open, written down"),
            Line::new(Tone::Plain, "The next start: ").and(
                mark(self.closed == self.opened),
                format!("it was closed {} later", fine(self.paid_after_ms)),
            ),
            Line::new(
                Tone::Faint,
                format!(
                    "The server has opened {} sessions and closed {}.",
                    self.opened, self.closed
                ),
            ),
        ]
    }
}
