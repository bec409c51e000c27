//! A healthy server's process gets SIGTERM while the client has closed nothing: the server is kept, the client comes back to
//! it, and `mainstay why` names the sender.

use mainstay_core::event::{Detached, What};
use mainstay_core::ids::Identity;
use mainstay_os::clock;
use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::door;
use crate::demo::screen::{Line, Screen, quote};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::demo::wire::text;
use crate::view::measure::fine;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "unasked_signal",
    title: "A healthy server gets a SIGTERM that nobody asked for",
    about: "",
    play,
};

const NAME: &str = "calendar";

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    /// Who sent the signal: this process, the client.
    sender: Identity,
    server_before: String,
    server_after: String,
    /// Servers that were started in all.
    starts: u32,
    /// From the signal to the answer on the new pipe.
    ms: u64,
    /// What `mainstay why` says; nothing where a server cannot be kept.
    why: Option<String>,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("opening a session");
    let words = door::through_mainstay(NAME, door::words(Act::Server, NAME)?)?;
    let limit = Stage::limit();
    let whoami = |stage: &mut Stage| {
        let (child, mut wire) = stage.serve(&words)?;
        wire.open(&stage.watch, limit)?;
        let id = wire.call("whoami")?;
        let server = text(&wire.answer(&stage.watch, id, limit)?).to_owned();
        let shim = Handle::open(identity::of(child.id() as i32)?)?;
        Ok::<_, Trouble>((wire, shim, server))
    };
    let (first, shim, server_before) = whoami(stage)?;
    // Where nobody reaps orphans, nothing of ours outlives the process that the client started.
    let kept = stage.card(NAME)?.detached == Detached::Yes;

    screen.progress("sending SIGTERM to a server that is well");
    let struck = clock::now();
    shim.signal(Signal::TERM)?;
    stage.ended(&[&shim], limit)?;
    drop(first);

    screen.progress("connecting again");
    let (second, shim, server_after) = whoami(stage)?;
    let ms = clock::now().ms_since(struck);
    drop(second);
    let closed = stage.ended(&[&shim], limit)?;
    let why = kept.then(|| stage.story(NAME, |what| matches!(what, What::Lingering(_))));
    let facts = Facts {
        sender: identity::me()?,
        server_before,
        server_after,
        starts: stage.starts(NAME)?,
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
