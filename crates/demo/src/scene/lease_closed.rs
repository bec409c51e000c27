//! A host deletes two sessions but keeps running, with the pipes of both servers still open. One server was started in a lease,
//! the other without mainstay.

use mainstay_keeper::lease::{self, Closed, Wish};
use mainstay_os::clock;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::lease::LEASE_VARIABLE;
use mainstay_report::Report;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use rustix::process::Signal;
use serde::Serialize;

use super::{Outcome, Scene};
use crate::announcements::Announcement;
use crate::commands;
use crate::role::Role;
use crate::role::helpers::TREE_SIZE;
use crate::sandbox::Sandbox;
use crate::screen::{Line, Screen};
use crate::waiter::DemoError;

pub const SCENE: Scene = Scene {
    name: "lease_closed",
    title: "A session ends, its host keeps running (mainstay lease close)",
    about: "The host goes on to its next job and closes no pipe, so the server of the session does not learn that it should end.",
    run,
};

const BARE: &str = "bare-session";
const KEPT: &str = "kept-session";
const LEASE: &str = "job-17";

#[derive(Debug, Serialize)]
struct Facts {
    bare: Session,
    kept: Session,
    /// The result of `lease close`.
    closed: Closed,
    /// How long `lease close` took.
    ms: u64,
}

/// The server of one session, with its helpers.
#[derive(Debug, Serialize)]
struct Session {
    members: Vec<Identity>,
    /// Processes left after the session was deleted.
    left: usize,
}

fn run(sandbox: &mut Sandbox, screen: &mut Screen) -> Result<Outcome, DemoError> {
    screen.progress("opening two sessions");
    let limit = Sandbox::limit();
    let wish = Wish {
        owner: lease::process(std::process::id() as i32),
        ..Wish::default()
    };
    lease::open(sandbox.paths(), LEASE, &wish).map_err(|report| failed(&report))?;
    let words = commands::role_args(Role::Server, BARE)?;
    let (mut bare_child, mut bare_connection) = sandbox.serve(&words)?;
    let words = commands::run_args(KEPT, commands::role_args(Role::Server, KEPT)?)?;
    let mut command = sandbox.command(&words);
    let (mut child, mut connection) = Sandbox::serve_as(command.env(LEASE_VARIABLE, LEASE))?;
    bare_connection.open(&sandbox.waiter, limit)?;
    connection.open(&sandbox.waiter, limit)?;
    sandbox
        .announcements
        .wait_until(&sandbox.waiter, "the servers", limit, |announced| {
            announced.len() >= 2 * TREE_SIZE
        })?;
    let bare = sandbox.announcements.take(|group| group == BARE);
    let kept = sandbox.announcements.take(|group| group == KEPT);

    screen.progress("deleting both sessions");
    let began = clock::now();
    let by = wish.owner.clone();
    let closed =
        lease::close(sandbox.paths(), LEASE, by, None).map_err(|report| failed(&report))?;
    let ms = clock::now().ms_since(began);
    let facts = Facts {
        bare: Session::of(&bare),
        kept: Session::of(&kept),
        closed,
        ms,
    };
    // Only now the host closes its pipes.
    drop((bare_connection, connection));
    for one in &bare {
        // An error means that the process has ended already.
        one.handle.signal(Signal::KILL).ok();
    }
    bare_child.wait()?;
    child.wait()?;
    Outcome::of(facts.held(), &facts, facts.lines())
}

fn failed(report: &Report) -> DemoError {
    DemoError::Failed(report.problem())
}

impl Session {
    fn of(tree: &[Announcement]) -> Self {
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
            .all(|session| session.members.len() == TREE_SIZE);
        complete && self.kept.left == 0 && self.closed.confirmed() && self.bare.left == TREE_SIZE
    }

    fn lines(&self) -> Vec<Line> {
        let head = format!("{:<22}{:<24}{}", "", "without mainstay", "in a lease");
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
