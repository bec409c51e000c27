//! Events of one link on their way into the ledger, and facts that wait for the event they belong to.

use mainstay_os::clock;
use mainstay_protocol::event::{Part, Standing, Start, Teardown, What};
use mainstay_store::ledger::append::Ledger;

use super::notify::{self, Notice};
use super::plan::Plan;
use super::server::Running;

/// The events of one link.
pub struct Events<'p> {
    plan: &'p Plan,
    ledger: Ledger,
    /// The start that is not written yet: its generation, and its time by the wall clock.
    untold_start: Option<(u32, u64)>,
    /// The state of the link when the server ended, until the exit is reported.
    at_death: Option<Standing>,
    /// A process that ended without a known sender; the suspects are still to be told.
    unexplained: Option<(Part, i32)>,
    /// What the last teardown ended and left.
    teardown: Option<Teardown>,
}

impl<'p> Events<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            ledger: Ledger::later(&plan.paths),
            untold_start: None,
            at_death: None,
            unexplained: None,
            teardown: None,
        }
    }

    /// Writes an event. The start of the server that runs comes before any other event.
    pub fn tell(&mut self, mut what: What, server: Option<&Running>) {
        self.tell_start(server);
        if let What::Exit(exit) = &mut what {
            exit.standing = self.at_death.take().map(Box::new);
        }
        if let What::Teardown(teardown) = &what {
            self.teardown = Some(teardown.clone());
        }
        if let What::Abandoned(abandoned) = &what {
            let notice = Notice::given_up(&self.plan.name, abandoned);
            notify::start(&self.plan.notify, &self.plan.paths, &notice);
        }
        self.ledger.record(self.plan.id, &self.plan.name, what);
    }

    /// A server was started just now; the event is written later, with this time.
    pub fn note_start(&mut self, generation: u32) {
        self.untold_start = Some((generation, clock::wall_ms()));
    }

    /// Writes that the server was started, unless it is written.
    pub fn tell_start(&mut self, server: Option<&Running>) {
        let (Some((generation, started_ms)), Some(server)) = (self.untold_start.take(), server)
        else {
            return;
        };
        let plan = self.plan;
        let recording = plan.recording.as_ref();
        let start = What::Start(Start {
            generation,
            argv: plan.words(),
            cwd: plan.directory(),
            pid: server.who().pid,
            tier: server.tier(),
            why_not: server.why_not().to_vec(),
            client: plan.origin.client.clone(),
            detached: plan.origin.detached.clone(),
            recording: recording.map(|file| file.path.to_string_lossy().into_owned()),
        });
        self.ledger
            .record_at(started_ms, plan.id, &plan.name, start);
    }

    /// The server has ended with the link in this state.
    pub fn note_death(&mut self, standing: Standing) {
        self.at_death = Some(standing);
    }

    /// This process was ended and the sender is not known: the suspects are looked for once what is urgent is done.
    pub fn note_unexplained(&mut self, part: Part, pid: i32) {
        self.unexplained = Some((part, pid));
    }

    pub fn take_unexplained(&mut self) -> Option<(Part, i32)> {
        self.unexplained.take()
    }

    /// The last teardown that was told.
    pub fn teardown(&self) -> Option<&Teardown> {
        self.teardown.as_ref()
    }
}
