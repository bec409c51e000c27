//! A server that was started without mainstay loses its client: `mainstay reap` spares it before, and ends it afterwards.

use mainstay_core::reap::Verdict;
use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_report::paint::Tone;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::commands;
use crate::role::Role;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen};
use crate::waiter::DemoError;
use mainstay_observe::reap::end::{self, Done, Victim};
use mainstay_observe::reap::{self, Server, Wanted};

/// The scene.
pub const SCENE: Scene = Scene {
    name: "orphan_reaped",
    title: "A server that was started without mainstay has lost its client",
    about: "It ignores the end of its input. `mainstay reap` proves by its pipes that no client is left.",
    run,
};

const NAME: &str = "calendar";

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    server: Identity,
    /// The verdict while its client lived.
    before: Option<Verdict>,
    /// The verdict afterwards.
    after: Option<Verdict>,
    evidence: Vec<String>,
    done: Option<Done>,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("opening a session");
    let (mut child, mut connection) =
        sandbox.serve(&commands::role_args(Role::LoneServer, NAME)?)?;
    let limit = Sandbox::limit();
    connection.open(&sandbox.waiter, limit)?;
    let server = identity::of(child.id() as i32)?;
    let before = judged(server)?.map(|found| found.verdict);

    screen.progress("closing the client's ends");
    drop(connection);
    let found = judged(server)?;
    let orphan = found.filter(|found| found.verdict == Verdict::Orphan);
    let done = orphan.as_ref().map(|orphan| {
        let processes = end::processes_of_orphans(std::slice::from_ref(orphan));
        end::end(&Victim::Orphan(orphan), &processes)
    });
    if done.is_some() {
        let handle = Handle::open(server);
        if let Ok(handle) = &handle {
            sandbox.ended(&[handle], limit)?;
        }
        child.wait()?;
    }
    let facts = Facts {
        server,
        before,
        after: orphan.as_ref().map(|orphan| orphan.verdict),
        evidence: orphan.map(|orphan| orphan.evidence).unwrap_or_default(),
        done,
    };
    Outcome::of(facts.held(), &facts, facts.lines())
}

/// The server as `mainstay reap PID` shows it.
fn judged(server: Identity) -> Result<Option<Server>, DemoError> {
    let wanted = Wanted {
        pids: vec![server.pid],
        ..Wanted::default()
    };
    let found = reap::survey(&wanted).map_err(|report| DemoError::Failed(report.problem()))?;
    Ok(found.into_iter().next())
}

impl Facts {
    fn held(&self) -> bool {
        let ended = self
            .done
            .as_ref()
            .is_some_and(|done| done.left.is_empty() && done.ended == 1);
        self.before == Some(Verdict::InUse) && ended
    }

    fn lines(&self) -> Vec<Line> {
        let word = |verdict: Option<Verdict>| verdict.map_or("not found", Verdict::word);
        let left = self.done.as_ref().map_or(1, |done| done.left.len());
        vec![
            Line::new(
                Tone::Plain,
                format!("while its client lives: {}, spared", word(self.before)),
            ),
            Line::new(
                Tone::Plain,
                format!("afterwards: {}, ended, {left} left", word(self.after)),
            ),
        ]
    }
}
