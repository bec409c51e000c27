//! The shim of a healthy server gets SIGTERM although its client has not closed the pipes. The server is kept, the client
//! reconnects to it, and `mainstay why` names the sender.

use mainstay_os::clock;
use mainstay_os::identity::{self, Handle};
use mainstay_protocol::event::{Detached, What};
use mainstay_protocol::ids::Identity;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::commands;
use crate::connection::text;
use crate::role::Role;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen, quote};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "unasked_signal",
    title: "A healthy server gets an unexpected SIGTERM",
    about: "",
    run,
};

const NAME: &str = "calendar";

#[derive(Debug, Serialize)]
struct Facts {
    /// The sender of the signal: this process, which is also the client.
    sender: Identity,
    server_before: String,
    server_after: String,
    /// How many servers were started.
    starts: u32,
    /// Time from the signal to the first answer on the new pipe.
    ms: u64,
    /// The text of `mainstay why`; none if servers cannot be kept here.
    why: Option<String>,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("opening a session");
    let words = commands::run_args(NAME, commands::role_args(Role::Server, NAME)?)?;
    let limit = Sandbox::limit();
    let whoami = |sandbox: &mut Sandbox| {
        let (child, mut connection) = sandbox.serve(&words)?;
        connection.open(&sandbox.waiter, limit)?;
        let id = connection.call("whoami")?;
        let server = text(&connection.answer(&sandbox.waiter, id, limit)?).to_owned();
        let shim = Handle::open(identity::of(child.id() as i32)?)?;
        Ok::<_, DemoError>((connection, shim, server))
    };
    let (first, shim, server_before) = whoami(sandbox)?;
    // If PID 1 does not reap orphans, the guard stays a child of the shim, and the server cannot be kept.
    let kept = sandbox.card(NAME)?.detached == Detached::Yes;

    screen.progress("sending SIGTERM to a healthy server");
    let signalled = clock::now();
    shim.signal(Signal::TERM)?;
    sandbox.ended(&[&shim], limit)?;
    drop(first);

    screen.progress("connecting again");
    let (second, shim, server_after) = whoami(sandbox)?;
    let ms = clock::now().ms_since(signalled);
    drop(second);
    let closed = sandbox.ended(&[&shim], limit)?;
    let why = kept.then(|| sandbox.story(NAME, |what| matches!(what, What::Lingering(_))));
    let facts = Facts {
        sender: identity::me()?,
        server_before,
        server_after,
        starts: sandbox.starts(NAME)?,
        ms,
        why: why.transpose()?,
    };
    Outcome::of(facts.held() && closed, &facts, facts.lines())
}

impl Facts {
    fn held(&self) -> bool {
        let sender = format!("(pid {}, SIGTERM, certain)", self.sender.pid);
        let Some(why) = &self.why else {
            return !self.server_after.is_empty();
        };
        self.server_before == self.server_after
            && !self.server_before.is_empty()
            && self.starts == 1
            && why.contains(&sender)
            && why.contains("went on with the same server")
    }

    fn lines(&self) -> Vec<Line> {
        let Some(why) = &self.why else {
            let words =
                "PID 1 does not reap orphans here, so the server was not kept; a new one answered.";
            return vec![Line::new(Tone::Plain, words)];
        };
        let kept = self.server_before == self.server_after;
        let (tone, text) = if kept {
            (
                Tone::Good,
                format!(
                    "the same process answered, {} after the signal",
                    fine(self.ms)
                ),
            )
        } else {
            (Tone::Bad, "another process answered".into())
        };
        let mut lines = vec![
            Line::new(Tone::Plain, "Connected again: ").and(tone, text),
            Line::new(Tone::Plain, "What `mainstay why` says:"),
        ];
        lines.extend(quote(why));
        lines
    }
}
