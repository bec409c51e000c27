//! The keeper: the process that holds one link between a client and its server.
//!
//! One thread, one loop: see which descriptors are ready, hand that to the parts, tell the relay what has happened, do what it
//! asks for. Each part owns its descriptors and its facts; what they mean together is decided by the relay.
//!
//! | part | what it holds |
//! |---|---|
//! | `Connection` | the client and our ends of its pipes, the relay, the server with its tree and pipes, frames, events |
//! | `Shim`, `Guard` | the two other processes of ours: channel, end, replacement |
//! | `SignalInbox` | signals, and what is known about their senders |
//! | `Listing` | directory, control socket and card of the link in the registry |
//! | `Newcomers` | shims that ask for a server that is kept |
//! | `Maintenance` | work that recurs |
//! | `Lease` | the lease that the server is in |
//!
//! Invariants: no process of the tree waits to be reaped by the keeper; the keeper never blocks, except while it kills a tree
//! and while it waits for a witness, which is bounded; it ends with code 0 only after the record says that all is done.

mod inputs;

use std::io;

use mainstay_core::link::Input;
use mainstay_core::relay::{Output, Relay};
use mainstay_core::server::stop::Step;
use mainstay_os::guard::Keeping;
use mainstay_os::memory;
use mainstay_os::role::standard;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Lost, Part, RestartReason, What};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::WHOLE_LINE_BYTES;
use mainstay_store::registry::card::Card;
use mainstay_store::registry::control::Answer;
use mainstay_store::registry::entry::Entry;

use crate::client::{Client, ClientPorts};
use crate::connection::Connection;
use crate::frames::Frames;
use crate::guard::Guard;
use crate::leftovers;
use crate::listing::{Listing, StartupStep};
use crate::log::Log;
use crate::maintenance::Maintenance;
use crate::newcomers::Newcomers;
use crate::own_lease::Lease;
use crate::plan::{Plan, Refused};
use crate::recording::Recording;
use crate::server::{Command, Failure};
use crate::shim::Shim;
use crate::signals::SignalInbox;

/// Turns of one kind of work before the others have theirs.
pub(crate) const STEPS: u32 = 32;

/// Runs a keeper's life; returns the exit code of its process.
pub fn keep(plan: &Plan, entry: Option<&Entry>, keeping: Keeping<'_>) -> u8 {
    mainstay_os::signals::ignore_pipe();
    let region = keeping.region;
    let mut keeper = match begin(plan, entry, keeping) {
        Ok(keeper) => keeper,
        Err(error) => {
            // The notes are gone with the keeper that could not begin.
            mainstay_os::guard::note_unable(region, &error);
            return mainstay_os::guard::LOST;
        }
    };
    keeper.guard.note_begun();
    // Not earlier, because a takeover asks container engines, and their answers are those of children.
    mainstay_os::orphans::leave_to_the_kernel();
    // The server is started first: a process that waits for its turn gives the processor away at once.
    keeper.connection.read_clock();
    keeper.perform();
    mainstay_os::turn::wait_for_it();
    loop {
        match keeper.turn() {
            Turn::Done => break,
            Turn::GuardLost => keeper.replace_guard(),
            Turn::Wait(until) => {
                if crate::ready::wait(keeper.connection.now(), until).is_err() {
                    return mainstay_os::guard::LOST;
                }
            }
        }
    }
    keeper.leave();
    0
}

/// A keeper that is ready for its first turn. Never inlined, and on the heap, so that what it takes to make a keeper is not on
/// the stack for the keeper's whole life.
#[inline(never)]
fn begin<'p>(
    plan: &'p Plan,
    entry: Option<&Entry>,
    keeping: Keeping<'p>,
) -> io::Result<Box<Keeper<'p>>> {
    crate::ready::begin()?;
    Keeper::new(plan, entry, keeping).map(Box::new)
}

/// What follows a turn.
enum Turn {
    /// Nothing is ready: wait for a descriptor, or until then.
    Wait(Option<Moment>),
    /// A side guard must be started.
    GuardLost,
    /// All is done.
    Done,
}

/// One link's keeper.
struct Keeper<'p> {
    plan: &'p Plan,
    me: Identity,
    connection: Connection<'p>,
    shim: Shim,
    guard: Guard<'p>,
    signals: SignalInbox,
    listing: Listing,
    newcomers: Newcomers,
    maintenance: Maintenance,
    lease: Lease,
}

impl<'p> Keeper<'p> {
    fn new(plan: &'p Plan, entry: Option<&Entry>, keeping: Keeping<'p>) -> io::Result<Self> {
        let Keeping {
            me,
            region,
            parts,
            to_shim,
            to_guard,
            guard,
            takeover,
        } = keeping;
        let lost = takeover.then(|| {
            let (pid, status) = parts.notes.lost().unwrap_or_default();
            Lost {
                pid,
                status,
                ended: parts.notes.lost_ended,
                settled: 0,
                successor: Some(me.pid),
            }
        });
        parts.notes.set_lost_pid(me.pid);
        let (shim, client, ancestors) = if let Some((shim, client)) = parts.notes.reattached() {
            (shim, client, crate::client::processes_above(client))
        } else {
            let client = plan.origin.client.as_ref().map(|seen| seen.who);
            (plan.origin.shim, client, plan.origin.ancestors.clone())
        };
        let limits = &plan.limits;
        let ports = ClientPorts::open([standard(0), standard(1), standard(2)])?;
        let tail = (limits.stderr_tail_lines, limits.stderr_tail_bytes);
        let recording = plan
            .recording
            .as_ref()
            .map(|file| Recording::new(plan.id, &file.path, limits.record_bytes, file.secrets));
        let relay = Relay::new(
            plan.about(),
            limits.clone(),
            plan.policy,
            parts.record,
            parts.inbox,
            memory::buffer(2 * WHOLE_LINE_BYTES)?,
        );
        let client = Client::new(client, ancestors, ports, tail, Log::new(plan));
        let frames = Frames::new(plan.id, &plan.name, me.pid, recording);
        let mut keeper = Self {
            plan,
            me,
            connection: Connection::new(plan, relay, client, frames),
            shim: Shim::new(shim, to_shim)?,
            guard: Guard::new(guard, to_guard, region, parts.notes)?,
            signals: SignalInbox::open()?,
            listing: Listing::new(entry.and_then(|entry| entry.try_clone().ok())),
            newcomers: Newcomers::default(),
            maintenance: Maintenance::new(plan),
            lease: Lease::default(),
        };
        if lost.is_some() {
            keeper.kill_lost_container();
        }
        if plan.policy.lazy {
            keeper.recall();
        }
        keeper.connection.begin(lost);
        if let Some(Refused {
            problem,
            hint,
            code,
        }) = plan.refused.clone()
        {
            keeper.connection.handle(Input::StartFailed {
                problem,
                hint,
                code,
            });
        }
        keeper.enter_lease();
        if plan.policy.lazy {
            keeper.list_resting();
        }
        Ok(keeper)
    }

    /// Handles everything that is ready.
    fn turn(&mut self) -> Turn {
        loop {
            self.connection.read_clock();
            self.perform();
            self.introduce();
            let generation = self.connection.link().generation();
            let mut again = self.move_bytes();
            again |= self.perform();
            // A server that was started in the meantime has not been polled yet.
            again |= generation != self.connection.link().generation();
            again |= self.connection.client_mut().stderr().poll();
            again |= self.poll_signals();
            again |= self.poll_server();
            again |= self.poll_shim();
            self.guard.poll();
            again |= self.poll_deaths();
            again |= self.poll_control();
            again |= self.poll_newcomers();
            again |= self.poll_maintenance();
            again |= self.poll_lease();
            if self.connection.look_at_tree() {
                self.guard.look_at_side_guard();
            }
            again |= self.perform();
            again |= self.connection.poll_frames();
            if self.listing.shown() != self.connection.link().word() {
                self.write_card();
                if self.listing.shown() == "resting" {
                    // Memory that was needed for the server is not needed now.
                    self.note_members();
                }
            }
            if self.connection.is_done() {
                // The events of a short session are complete too.
                self.introduce_now();
                return Turn::Done;
            }
            // A side guard holds the link's lock too, so the lock must have been taken.
            if self.listing.is_complete() && self.guard.take_lost() {
                return Turn::GuardLost;
            }
            again |= self.look_at_clock();
            if !again {
                return Turn::Wait(self.due());
            }
        }
    }

    /// Does what is due by time alone; true if there was anything.
    fn look_at_clock(&mut self) -> bool {
        let mut any = self.connection.tick();
        let now = self.connection.now();
        if self.maintenance.members_are_due(now) {
            self.note_members();
        }
        any |= self.guard.poll_retry(now);
        self.connection.tell_dropped_stderr(false);
        any
    }

    /// When there is something to do if nothing happens.
    fn due(&self) -> Option<Moment> {
        let due = [
            self.connection.due(),
            self.guard.due(),
            self.maintenance.due(),
            self.lease.due(),
            self.listing.due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Moves every byte that can move; true if more may move at once.
    fn move_bytes(&mut self) -> bool {
        let (again, passed) = self.connection.move_bytes();
        if passed {
            self.maintenance.messages_passed();
        }
        again
    }
}

/// The steps after a start, and recurring work.
impl Keeper<'_> {
    /// A server was started. A link that is listed already shows the new server at once.
    fn begin_introduction(&mut self) {
        self.listing.begin(self.connection.now());
        if self.listing.entry().is_some() {
            self.introduce_now();
        }
        // The first line of the client usually waits already, so it is passed on before the keeper asks the kernel what is ready.
        self.connection.client().look_again();
    }

    /// Takes the next step if it is due; all of them if a side guard must be started, which needs them.
    fn introduce(&mut self) {
        if self.guard.is_lost() {
            self.introduce_now();
        } else if let Some(step) = self.listing.step_due(self.connection.now()) {
            self.take_step(step);
        }
    }

    fn introduce_now(&mut self) {
        while let Some(step) = self.listing.next_step() {
            self.take_step(step);
        }
    }

    fn take_step(&mut self, step: StartupStep) {
        match step {
            StartupStep::Recall => self.recall(),
            StartupStep::TellStart => self.connection.tell_start(),
            StartupStep::MakeEntry => self.listing.make_entry(self.plan),
            StartupStep::Listen => self.listing.listen(),
            StartupStep::TellGuard => self.tell_guard_of_server(),
            StartupStep::WriteCard => self.write_card(),
        }
    }

    /// A lazy link is listed before its server is started.
    fn list_resting(&mut self) {
        self.listing.make_entry(self.plan);
        self.listing.listen();
        self.tell_guard_of_server();
        self.write_card();
    }

    fn tell_guard_of_server(&mut self) {
        let client = self.connection.client().who();
        self.guard.tell_of_server(self.listing.entry(), client);
    }

    /// Reads what earlier sessions of this configuration saw.
    fn recall(&mut self) {
        if let Some(remembered) = self.maintenance.recall(self.plan, self.me) {
            self.connection.relay().recall(remembered);
        }
        self.connection.recalled();
    }

    /// Writes down what this session has learned, if it is new.
    fn remember(&mut self) {
        let learned = self.connection.link().remembered();
        if self.maintenance.remember(self.plan, self.me, learned) {
            self.connection.relay().remembered_written();
        }
    }

    /// Writes down what must survive a kill of guard and keeper, and gives back memory.
    fn note_members(&mut self) {
        self.maintenance.members_written(self.connection.now());
        let running = self.connection.server().is_some();
        if running && self.listing.make_entry_late(self.plan) {
            self.write_card();
        }
        if let Some(server) = self.connection.server_mut() {
            if self.listing.entry().is_some() {
                self.listing.write_members(&server.members());
            }
            server.forget_oom_kills_of_the_machine();
        }
        self.remember();
        self.connection.give_back_memory();
    }

    /// Changed files, the server's memory, and restarts that were asked for; true if there was anything.
    fn poll_maintenance(&mut self) -> bool {
        let (now, limits) = (self.connection.now(), &self.plan.limits);
        let mut any = self.maintenance.poll_files(now, limits.watch_quiet_ms);
        if let Some(path) = self.maintenance.take_changed(now) {
            self.connection
                .handle(Input::Renew(RestartReason::Changed { path }));
            any = true;
        }
        if self.maintenance.memory_is_due(now) {
            // The server is replaced before the kernel has to kill it.
            let most = limits.memory_max_bytes - limits.memory_max_bytes / 10;
            let server = self.connection.server();
            if let Some(bytes) = server.and_then(|server| server.memory_above(most)) {
                self.connection
                    .handle(Input::Renew(RestartReason::Memory { bytes }));
            }
        }
        let server = self.connection.server().map(|server| server.who().pid);
        let (name, link) = (&self.plan.name, self.connection.link());
        self.listing.control().poll_restarts(name, link, server);
        any
    }
}

/// What the relay asks for.
impl Keeper<'_> {
    /// Does what the relay asks for; true if there was anything.
    fn perform(&mut self) -> bool {
        let mut any = false;
        while let Some(output) = self.connection.next_output() {
            any = true;
            match output {
                Output::Spawn => self.spawn(),
                Output::Say(text) => self.connection.client_mut().stderr().say(&text),
                Output::Stop(step) => self.stop(step),
                Output::Measure => self.connection.measure(),
                Output::DropClient => self.drop_client(),
                Output::Linger => self.linger(),
                Output::LingerOver => self.newcomers.close(self.plan),
                Output::Tell(what) => {
                    self.connection.tell(what);
                    self.write_card();
                }
                Output::ClientEnded => self.connection.client_ended(),
                Output::ClientDeaf => self.connection.client_deaf(),
                Output::CloseServerStdin => {
                    if let Some(server) = self.connection.server_mut() {
                        server.close_stdin();
                    }
                }
                Output::ServerDeaf => {
                    self.guard.look_at_side_guard();
                    self.connection.server_deaf();
                }
                Output::ServerStdoutEnded => self.connection.server_stdout_ended(),
                Output::ExitDue => self.connection.tell_exit(),
                Output::Finish(code) => self.shim.set_code(code),
            }
        }
        // A shim that was signalled stays until the link knows what the signal means.
        if self.shim.waits_to_leave() && !self.connection.link().doubted() {
            self.shim.let_leave();
        }
        any
    }

    /// Starts the next server, unless the lease is over, which the link knows by then.
    fn spawn(&mut self) {
        self.look_at_lease();
        if self.lease.is_over() {
            return;
        }
        let generation = self.connection.link().generation() + 1;
        let entry = if Command::starts_container(self.plan, generation) {
            self.listing.make_entry(self.plan);
            self.listing.entry()
        } else {
            None
        };
        let command = Command::new(self.plan, generation, entry, self.me);
        let side_guard = self.guard.side_guard();
        match self.connection.start(command, self.me, side_guard) {
            Ok(()) => self.started(),
            Err(Failure {
                problem,
                hint,
                code,
            }) => {
                self.connection.handle(Input::StartFailed {
                    problem,
                    hint,
                    code: code.code(),
                });
                self.tell_guard_of_server();
            }
        }
    }

    fn started(&mut self) {
        let now = self.connection.now();
        if let Some(server) = self.connection.server() {
            self.guard.note_witness(server.tree().witness_pid());
            let limit = self.plan.limits.memory_max_bytes;
            if limit > 0 {
                server.limit_memory(limit);
                self.maintenance.measure_memory(now);
            }
        }
        self.connection.started();
        self.maintenance.server_started(now);
        self.begin_introduction();
    }

    /// Takes one step of the stop ladder.
    fn stop(&mut self, step: Step) {
        self.write_card();
        self.connection.stop(step);
        // The kill of a tree reaps every child.
        self.guard.look_at_side_guard();
    }

    /// Lets go of the client's pipes, here and in the guard.
    fn drop_client(&mut self) {
        self.connection.client_mut().release();
        self.guard.release_client();
    }

    /// Lets go of the client, and waits for it to come back.
    fn linger(&mut self) {
        self.drop_client();
        self.shim.close();
        if let Some(client) = self.connection.client().who() {
            self.guard.name_client(Some(client));
            self.newcomers.open(self.plan, client);
        }
    }

    fn card(&self) -> Card {
        crate::card::card(
            self.plan,
            self.me,
            &self.shim,
            &self.guard,
            &self.connection,
        )
    }

    /// Shows the state of the link. A link that is just beginning is listed by the last of its startup steps.
    fn write_card(&mut self) {
        self.connection.note_state();
        if self.listing.show(self.connection.link().word()) {
            self.listing.write_card(&self.card());
        }
    }

    /// The container of a lost keeper's server lives on, because the engine owns it.
    fn kill_lost_container(&mut self) {
        let Some(entry) = self.listing.entry().map(Entry::path) else {
            return;
        };
        let within_ms = self.plan.limits.kill_confirm_ms;
        if let Some(swept) = leftovers::end_containers(entry, self.plan.id, within_ms) {
            self.connection.tell(What::LeftoversEnded(swept));
        }
    }

    /// The last acts: answer the peers that asked for the end, remove the directory, tell the shim.
    fn leave(&mut self) {
        self.connection.tell_dropped_stderr(true);
        self.connection.client_mut().stderr().log().flush();
        self.drop_client();
        // A client whose EOF came first may have ended since, and then it did not just close its pipe.
        if let Some((who, death)) = self.connection.client_mut().last_look() {
            self.connection.tell_gone(Part::Client, who, death);
        }
        self.connection.close_recording();
        self.remember();
        let teardown = self.connection.events().teardown();
        self.lease.leave(teardown);
        let (ended, left) = match teardown {
            Some(teardown) => (teardown.ended, teardown.left.clone()),
            None => (0, Vec::new()),
        };
        let answer = Answer::Stopped { ended, left };
        self.listing.control().answer_stops(&answer);
        self.guard.dismiss();
        self.listing.remove();
        self.shim.finish();
    }
}
