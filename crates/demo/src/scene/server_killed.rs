//! A server is killed during a call. Without mainstay, its session is lost. With mainstay, the call gets an answer, and the next
//! generation of the server continues with the same log level and subscriptions.

use mainstay_os::clock;
use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use super::{Outcome, Scene};
use crate::announcements::Announcement;
use crate::commands;
use crate::connection::{Connection, text};
use crate::role::Role;
use crate::role::helpers::TREE_SIZE;
use crate::role::server::Memory;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen, quote};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "server_killed",
    title: "The server is killed (SIGKILL, a call in flight)",
    about: "Its client had set a log level and subscribed to 2 resources, which the server keeps only in memory.",
    run,
};

const NAME: &str = "notes";
const LEVEL: &str = "warning";
const URIS: [&str; 2] = ["note://today", "note://tomorrow"];

#[derive(Debug, Serialize)]
struct Facts {
    bare: WithoutMainstay,
    kept: WithMainstay,
}

/// The result without mainstay.
#[derive(Debug, Serialize)]
struct WithoutMainstay {
    members: Vec<Identity>,
    pipe_closed: bool,
    answers_in_flight: usize,
    /// Processes of the server that were left; the demo has ended them.
    left: usize,
}

/// The result with mainstay.
#[derive(Debug, Serialize)]
struct WithMainstay {
    /// The killed server with its helpers.
    members: Vec<Identity>,
    left: usize,
    generation: u32,
    before: Memory,
    after: Memory,
    /// How many answers the call in flight got.
    answers_in_flight: usize,
    /// The text of that answer, as the model reads it.
    answer_in_flight: String,
    is_error: bool,
    /// Time from the kill to that answer.
    answered_ms: u64,
    /// Time from the kill to the first answer of the next generation.
    next_ms: u64,
    /// Whether the link ended when the client closed its pipes.
    closed: bool,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("killing a server without mainstay");
    let bare = bare(sandbox)?;
    screen.progress("killing a server under mainstay");
    let kept = kept(sandbox)?;
    let facts = Facts { bare, kept };
    Outcome::of(facts.held(), &facts, facts.lines())
}

fn bare(sandbox: &mut Sandbox) -> Result<WithoutMainstay, DemoError> {
    let (mut child, mut connection) = sandbox.serve(&commands::role_args(Role::Server, NAME)?)?;
    let (call, tree) = busy(sandbox, &mut connection)?;
    let limit = Sandbox::limit();
    child.kill()?;
    let pipe_closed = connection.closed(&sandbox.waiter, limit)?;
    child.wait()?;
    let left: Vec<&Announcement> = tree.iter().filter(|one| !one.handle.ended()).collect();
    for one in &left {
        // An error means that the process has ended already.
        one.handle.signal(Signal::KILL).ok();
    }
    Ok(WithoutMainstay {
        members: identities(&tree),
        pipe_closed,
        answers_in_flight: connection.answers(call),
        left: left.len(),
    })
}

fn kept(sandbox: &mut Sandbox) -> Result<WithMainstay, DemoError> {
    let words = commands::run_args(NAME, commands::role_args(Role::Server, NAME)?)?;
    let (child, mut connection) = sandbox.serve(&words)?;
    let (call, tree) = busy(sandbox, &mut connection)?;
    let limit = Sandbox::limit();
    let before = connection.recall(&sandbox.waiter, limit)?;
    let server = tree.iter().find(|one| one.what == Role::Server.word());
    let server =
        server.ok_or_else(|| DemoError::Failed("the server has not announced itself".into()))?;

    let killed = clock::now();
    server.handle.signal(Signal::KILL)?;
    let answer = connection.answer(&sandbox.waiter, call, limit)?;
    let answered_ms = clock::now().ms_since(killed);
    let after = connection.recall(&sandbox.waiter, limit)?;
    let next_ms = clock::now().ms_since(killed);

    let generation = sandbox.card(NAME)?.generation;
    let answers_in_flight = connection.answers(call);
    let left = tree.iter().filter(|one| !one.handle.ended()).count();
    // Closing the pipes must end the link.
    drop(connection);
    let shim = Handle::open(identity::of(child.id() as i32)?)?;
    Ok(WithMainstay {
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
        closed: sandbox.ended(&[&shim], limit)?,
    })
}

/// Opens a session with log level, subscriptions and a call in flight. Returns the id of the call and the processes.
fn busy(
    sandbox: &mut Sandbox,
    connection: &mut Connection,
) -> Result<(u64, Vec<Announcement>), DemoError> {
    let limit = Sandbox::limit();
    connection.open(&sandbox.waiter, limit)?;
    connection.set_up(&sandbox.waiter, LEVEL, &URIS, limit)?;
    let call = connection.call("think")?;
    let tree = sandbox.thinking_server(limit)?;
    Ok((call, tree))
}

fn identities(tree: &[Announcement]) -> Vec<Identity> {
    tree.iter().map(|one| one.handle.who).collect()
}

impl WithoutMainstay {
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

impl WithMainstay {
    fn held(&self) -> bool {
        self.is_error
            && self.closed
            && self.left == 0
            && self.members.len() == TREE_SIZE
            && self.generation == 2
            && self.answers_in_flight == 1
            && self.after.pid != self.before.pid
            && self.after.level.as_deref() == Some(LEVEL)
            && self.subscriptions() == URIS.len()
    }

    /// The number of subscriptions that the next generation has.
    fn subscriptions(&self) -> usize {
        let after = &self.after.subscriptions;
        URIS.iter().filter(|uri| after.contains(**uri)).count()
    }
}

impl Facts {
    fn held(&self) -> bool {
        self.kept.held() && self.bare.members.len() == TREE_SIZE && self.bare.pipe_closed
    }

    fn lines(&self) -> Vec<Line> {
        let Self { bare, kept } = self;
        let wanted = URIS.len();
        let head = format!(
            "{:<22}{:<24}{}",
            "", "without mainstay", "with `mainstay run`"
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
