//! A host deletes two sessions and lives on, with the pipes of both servers still open: one was started bare, one in a lease.

use mainstay_core::ids::Identity;
use mainstay_core::lease::LEASE_VARIABLE;
use mainstay_os::clock;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::demo::act::Act;
use crate::demo::act::family::SIZE;
use crate::demo::door;
use crate::demo::roll::Present;
use crate::demo::screen::{Line, Screen};
use crate::demo::stage::Stage;
use crate::demo::watch::Trouble;
use crate::lease::{self, Closed, Wish};
use crate::report::Report;
use crate::view::measure::fine;
use crate::view::paint::Tone;

/// The scene.
pub const SCENE: Scene = Scene {
    name: "lease_closed",
    title: "A session ends, its host lives on (mainstay lease close)",
    about: "The host goes on to its next job and closes no pipe: nothing tells the session's server that it is not needed.",
    play,
};

const BARE: &str = "bare-session";
const KEPT: &str = "kept-session";
const LEASE: &str = "job-17";

/// What came out.
#[derive(Debug, Serialize)]
struct Facts {
    bare: Session,
    kept: Session,
    /// What `lease close` says.
    closed: Closed,
    /// How long it took.
    ms: u64,
}

/// One session's server with its helpers.
#[derive(Debug, Serialize)]
struct Session {
    members: Vec<Identity>,
    /// After the session was deleted.
    left: usize,
}

fn play(stage: &mut Stage, screen: &mut Screen) -> Result<Outcome, Trouble> {
    screen.progress("opening two sessions");
    let limit = Stage::limit();
    let wish = Wish {
        owner: lease::process(std::process::id() as i32),
        ..Wish::default()
    };
    lease::open(stage.paths(), LEASE, &wish).map_err(|report| failed(&report))?;
    let words = door::words(Act::Server, BARE)?;
    let (mut bare_child, mut bare_wire) = stage.serve(&words)?;
    let words = door::through_mainstay(KEPT, door::words(Act::Server, KEPT)?)?;
    let mut command = stage.command(&words);
    let (mut child, mut wire) = Stage::serve_as(command.env(LEASE_VARIABLE, LEASE))?;
    bare_wire.open(&stage.watch, limit)?;
    wire.open(&stage.watch, limit)?;
    stage
        .roll
        .until(&stage.watch, "the servers", limit, |present| {
            present.len() >= 2 * SIZE
        })?;
    let bare = stage.roll.take(|party| party == BARE);
    let kept = stage.roll.take(|party| party == KEPT);

    screen.progress("deleting both sessions");
    let began = clock::now();
    let by = wish.owner.clone();
    let closed = lease::close(stage.paths(), LEASE, by, None).map_err(|report| failed(&report))?;
    let ms = clock::now().ms_since(began);
    let facts = Facts {
        bare: Session::of(&bare),
        kept: Session::of(&kept),
        closed,
        ms,
    };
    // The host still has all pipes; only now it ends, too.
    drop((bare_wire, wire));
    for one in &bare {
        // One that has ended meanwhile is what we want.
        one.handle.signal(Signal::KILL).ok();
    }
    bare_child.wait()?;
    child.wait()?;
    Outcome::of(facts.held(), &facts, facts.lines())
}

fn failed(report: &Report) -> Trouble {
    Trouble::Failed(report.problem())
}

impl Session {
    fn of(tree: &[Present]) -> Self {
        Self {
            members: tree.iter().map(|one| one.handle.who).collect(),
            left: tree.iter().filter(|one| !one.handle.ended()).count(),
        }
    }

    fn words(&self) -> String {
        match self.left {
            0 => "0 left".into(),
            left => format!("{left} of {} left alive", self.members.len()),
        }
    }
}

impl Facts {
    fn held(&self) -> bool {
        let complete = [&self.bare, &self.kept]
            .iter()
            .all(|session| session.members.len() == SIZE);
        complete && self.kept.left == 0 && self.closed.confirmed() && self.bare.left == SIZE
    }

    fn lines(&self) -> Vec<Line> {
        let head = format!("{:<22}{:<24}{}", "", "started bare", "in a lease");
        let good = if self.held() { Tone::Good } else { Tone::Bad };
        vec![
            Line::default(),
            Line::new(Tone::Strong, head),
            Line::new(Tone::Plain, format!("{:<22}", "after the session"))
                .and(Tone::Bad, format!("{:<24}", self.bare.words()))
                .and(good, self.kept.words()),
            Line::default(),
            Line::new(
                Tone::Faint,
                format!(
                    "`mainstay lease close {LEASE}` returned after {}.",
                    fine(self.ms)
                ),
            ),
        ]
    }
}
