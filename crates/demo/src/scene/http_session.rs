//! Two sessions with an HTTP server: one ends normally; in the other one, all processes of mainstay are killed at once.

use std::cell::Cell;

use mainstay_os::identity::Handle;
use mainstay_os::{census, clock};
use mainstay_protocol::ids::Identity;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::commands;
use crate::role::Role;
use crate::role::http::{CLOSED, LISTENS, OPENED};
use crate::sandbox::{PATIENCE_MS, Sandbox};
use crate::screen::{Line, Screen};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "http_session",
    title: "HTTP sessions are closed, even if mainstay itself was killed",
    about: "A client uses a streamable-HTTP server through `mainstay run --url`, and never closes a session itself. The \
            second time, all mainstay processes are killed at once (SIGKILL). The next `mainstay run` closes the session.",
    run,
};

const NAME: &str = "web";

#[derive(Debug, Serialize)]
struct Facts {
    /// How many sessions were opened.
    opened: usize,
    /// How many sessions were closed by a DELETE.
    closed: usize,
    /// Whether the first session was closed when its client ended.
    closed_at_exit: bool,
    /// The processes that were killed at once.
    killed: Vec<Identity>,
    /// Whether the second session was still open after that.
    owed: bool,
    /// Time from the next start to the DELETE of that session.
    paid_after_ms: u64,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("starting an HTTP server");
    sandbox
        .command(&commands::role_args(Role::HttpServer, NAME)?)
        .spawn()?;
    let limit = Sandbox::limit();
    let listens = |what: &str| what.starts_with(LISTENS);
    sandbox
        .announcements
        .wait_until(&sandbox.waiter, "the HTTP server", limit, |announced| {
            announced.iter().any(|one| listens(&one.what))
        })?;
    let server = sandbox.announcements.take(|_| true);
    let port = server
        .iter()
        .find_map(|one| one.what.strip_prefix(LISTENS))
        .unwrap_or_default();
    let words = commands::run_url_args(NAME, &format!("http://127.0.0.1:{port}/mcp"))?;

    screen.progress("a session that ends normally");
    let (child, mut connection) = sandbox.serve(&words)?;
    connection.open(&sandbox.waiter, limit)?;
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    drop(connection);
    let left = sandbox.ended(&[&shim], limit)?;
    wait_for(sandbox, CLOSED, 1)?;

    screen.progress("a session whose mainstay processes are all killed");
    let (_child, mut connection) = sandbox.serve(&words)?;
    connection.open(&sandbox.waiter, limit)?;
    let killed = kill_all(sandbox)?;
    let owed = count(sandbox, CLOSED)? == 1;

    screen.progress("the next start");
    let began = clock::now();
    let (child, mut next) = sandbox.serve(&words)?;
    next.open(&sandbox.waiter, limit)?;
    wait_for(sandbox, CLOSED, 2)?;
    let paid_after_ms = clock::now().ms_since(began);
    let shim = Handle::open(mainstay_os::identity::of(child.id() as i32)?)?;
    drop((connection, next));
    sandbox.ended(&[&shim], limit)?;
    wait_for(sandbox, CLOSED, 3)?;

    let facts = Facts {
        opened: count(sandbox, OPENED)?,
        closed: count(sandbox, CLOSED)?,
        closed_at_exit: left,
        killed,
        owed,
        paid_after_ms,
    };
    for one in &server {
        one.handle.signal(Signal::KILL)?;
    }
    sandbox.announcements.take(|_| true);
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// Waits until the server has announced this so many times.
fn wait_for(sandbox: &mut Sandbox, what: &str, times: usize) -> Result<(), DemoError> {
    let limit = Sandbox::limit();
    sandbox
        .announcements
        .wait_until(&sandbox.waiter, "the DELETE", limit, |announced| {
            let said = announced.iter().filter(|one| one.what.starts_with(what));
            said.count() >= times
        })
}

/// How often the server has announced this by now.
fn count(sandbox: &mut Sandbox, what: &str) -> Result<usize, DemoError> {
    let number = Cell::new(0);
    sandbox.announcements.wait_until(
        &sandbox.waiter,
        "the announcements",
        Sandbox::limit(),
        |announced| {
            let said = announced.iter().filter(|one| one.what.starts_with(what));
            number.set(said.count());
            true
        },
    )?;
    Ok(number.get())
}

/// Kills shim, guard, keeper and bridge.
fn kill_all(sandbox: &Sandbox) -> Result<Vec<Identity>, DemoError> {
    let card = sandbox.card(NAME)?;
    let seen = [&card.shim, &card.guard, &card.keeper, &card.server];
    let all: Vec<Identity> = seen.into_iter().flatten().map(|seen| seen.who).collect();
    let handles: Vec<Handle> = all
        .iter()
        .filter_map(|who| Handle::open(*who).ok())
        .collect();
    // All are stopped first, because each of them would replace another one that it sees die.
    for handle in &handles {
        handle.signal(Signal::STOP)?;
    }
    // The clean-up process of this start may still run, and would close the session at once.
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
    sandbox.ended(&handles, Sandbox::limit())?;
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
            Line::new(Tone::Plain, "The client exits: ").and(
                mark(self.closed_at_exit),
                "its session was closed by a DELETE",
            ),
            Line::new(
                Tone::Plain,
                format!(
                    "All {} mainstay processes killed at once: ",
                    self.killed.len()
                ),
            )
            .and(mark(self.owed), "it stays open, noted on disk"),
            Line::new(Tone::Plain, "The next start: ").and(
                mark(self.closed == self.opened),
                format!("closes the session after {}", fine(self.paid_after_ms)),
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
