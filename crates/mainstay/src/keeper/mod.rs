//! The keeper: the only place that waits for a link.
//!
//! One thread, one loop: see what is ready, tell the link, do what it asks. Everything that waits is a
//! descriptor or a deadline; nothing here decides what depends on order or time.
//!
//! Invariants: nobody of the tree waits to be reaped by the keeper; it never blocks but in the kill rung
//! and for a witness's word, which is bounded; it ends with code 0 only after the record says that all is done.

mod attribute;
mod code;
pub mod control;
mod data;
mod end;
mod hear;
mod introduce;
mod lease;
mod linger;
mod perform;
pub mod plan;
mod port;
mod ready;
pub mod recording;
mod server;
pub mod session;
mod standing;
mod stderr;
mod tap;
mod upkeep;
pub(crate) mod watch;

use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Lost, Part, StderrDropped, Teardown, What};
use mainstay_core::ids::Identity;
use mainstay_core::limits::WHOLE_LINE_BYTES;
use mainstay_core::link::Input;
use mainstay_core::relay::Relay;
use mainstay_core::senders::Senders;
use mainstay_os::channel::Channel;
use mainstay_os::guard::Keeping;
use mainstay_os::identity::Handle;
use mainstay_os::measure::oom_kills_of_the_machine;
use mainstay_os::record::{Notes, Region};
use mainstay_os::signals::{ENDING, Signals};
use mainstay_os::{clock, notice};

use crate::ledger::append::Ledger;
use crate::registry::entry::Entry;
use control::Control;
use introduce::Introduction;
use lease::Tenancy;
use linger::Host;
use plan::{Plan, Refused};
use port::{Port, Way};
use recording::Recording;
use server::Running;
use stderr::Stderr;
use tap::Frames;
use upkeep::Upkeep;
use watch::{Watched, Watcher};

/// Turns of one matter before the others have theirs.
const STEPS: u32 = 32;

/// Runs a keeper's life; the exit code of its process.
pub fn keep(plan: &Plan, entry: Option<&Entry>, keeping: Keeping<'_>) -> u8 {
    mainstay_os::signals::ignore_pipe();
    let region = keeping.region;
    let mut keeper = match begin(plan, entry, keeping) {
        Ok(keeper) => keeper,
        Err(error) => {
            // The parts are gone with the keeper that could not begin.
            mainstay_os::guard::note_unable(region, &error);
            return mainstay_os::guard::LOST;
        }
    };
    keeper.notes.begin();
    // Not earlier: what a takeover asks a container engine is a child's answer.
    mainstay_os::orphans::leave_to_the_kernel();
    // The server comes first: whoever waits for its turn gives it away at once.
    keeper.now = clock::now();
    keeper.perform();
    mainstay_os::turn::wait_for_it();
    loop {
        match keeper.poll() {
            Poll::Ready(Turn::Done) => break,
            Poll::Ready(Turn::GuardLost) => keeper.guard_lost(),
            Poll::Pending => {
                if ready::wait(keeper.now, keeper.due).is_err() {
                    return mainstay_os::guard::LOST;
                }
            }
        }
    }
    keeper.leave();
    0
}

/// A keeper that is ready for its first turn. Never inlined, and on the heap: what it takes to make one is not on the
/// stack for the keeper's whole life.
#[inline(never)]
fn begin<'p>(
    plan: &'p Plan,
    entry: Option<&Entry>,
    keeping: Keeping<'p>,
) -> io::Result<Box<Keeper<'p>>> {
    ready::begin()?;
    Keeper::new(plan, entry, keeping).map(Box::new)
}

/// Why the loop was left.
enum Turn {
    /// A side guard must be set.
    GuardLost,
    /// All is done.
    Done,
}

/// One link's keeper.
struct Keeper<'p> {
    plan: &'p Plan,
    /// The link's directory: an earlier keeper's, or taken once the server runs.
    entry: Option<Entry>,
    region: &'p Region,
    me: Identity,
    /// Carries the bytes, and decides.
    relay: Relay<'static>,
    ledger: Ledger,
    client_in: Option<Port>,
    client_out: Option<Port>,
    stderr: Stderr,
    server: Option<Running>,
    /// What is still to be done for a server that was started.
    introduction: Option<Introduction>,
    /// The state that the card shows.
    shown: &'static str,
    signals: Watched<Signals>,
    to_shim: Watched<Channel>,
    to_guard: Watched<Channel>,
    watcher: Watcher,
    /// Strangers that have signalled the shim, and the keeper.
    senders: (Senders, Senders),
    /// Held, because its number may be another's once it is reaped.
    side_guard: Option<Handle>,
    /// Side guards that were set so far.
    side_guards: u32,
    /// The guard, or the side guard, is gone.
    unguarded: bool,
    /// When the next side guard is set, if the last one could not be.
    guard_at: Option<Moment>,
    /// The process that the client started; another one after the client came back.
    shim: Identity,
    client: Option<Identity>,
    /// Who stood above the client when it started us.
    ancestors: Vec<Identity>,
    notes: &'static mut Notes,
    /// The door for a client that comes back, while there is one.
    host: Option<Host>,
    control: Control,
    /// What passes, and who watches it.
    frames: Frames,
    /// Who was ended, nobody saw by whom; who is there is still to be told.
    suspects_of: Option<(Part, i32)>,
    upkeep: Upkeep,
    /// The lease that the server is in, and its watch.
    tenancy: Option<Tenancy>,
    /// When there is something to do if nothing happens.
    due: Option<Moment>,
    /// When the members are to be noted.
    note_at: Option<Moment>,
    noted_at: Moment,
    teardown: Option<Teardown>,
    finished: Option<u8>,
    now: Moment,
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
        let signals = [&ENDING[..], &[libc::SIGCHLD, notice::SIGNAL]].concat();
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
            (shim, client, linger::above(client))
        } else {
            let client = plan.client.as_ref().map(|seen| seen.who);
            (plan.shim, client, plan.ancestors.clone())
        };
        let limits = plan.limits.clone();
        let client_err = Port::of_client(standard(2), Way::Out).ok();
        let recording = plan
            .frames
            .as_ref()
            .map(|path| Recording::new(plan.id, path, limits.record_bytes, plan.secrets));
        let mut keeper = Self {
            plan,
            entry: entry.and_then(|entry| entry.try_clone().ok()),
            region,
            me,
            relay: Relay::new(
                plan.about(),
                limits.clone(),
                plan.policy,
                parts.record,
                parts.inbox,
                mainstay_os::memory::buffer(2 * WHOLE_LINE_BYTES)?,
            ),
            ledger: Ledger::later(&plan.paths),
            client_in: Some(Port::of_client(standard(0), Way::In)?),
            client_out: Some(Port::of_client(standard(1), Way::Out)?),
            stderr: Stderr::new(
                client_err,
                limits.stderr_tail_lines,
                limits.stderr_tail_bytes,
            ),
            server: None,
            introduction: None,
            shown: "",
            signals: Watched::new(Signals::open(&signals)?)?,
            to_shim: Watched::new(to_shim)?,
            to_guard: Watched::new(to_guard)?,
            watcher: Watcher::new(shim, guard, client),
            senders: Default::default(),
            side_guard: None,
            side_guards: 0,
            unguarded: false,
            guard_at: None,
            shim,
            client,
            ancestors,
            notes: parts.notes,
            host: None,
            control: Control::default(),
            frames: Frames::new(plan.id, &plan.name, me.pid, recording),
            suspects_of: None,
            upkeep: Upkeep::new(plan),
            tenancy: None,
            due: None,
            note_at: None,
            noted_at: Moment(0),
            teardown: None,
            finished: None,
            now: clock::now(),
        };
        if lost.is_some() {
            keeper.kill_lost_container();
        }
        if plan.policy.lazy {
            keeper.recall();
        }
        keeper.with_relay(|relay, now, pipes| relay.begin(now, lost, pipes));
        if let Some(Refused {
            problem,
            hint,
            code,
        }) = plan.refused.clone()
        {
            keeper.handle(Input::StartFailed {
                problem,
                hint,
                code,
            });
        }
        keeper.enter_lease();
        if plan.policy.lazy {
            keeper.show_resting();
        }
        Ok(keeper)
    }

    /// One turn: everything that is ready is handled.
    fn poll(&mut self) -> Poll<Turn> {
        loop {
            self.now = clock::now();
            self.perform();
            self.introduce();
            let generation = self.relay.link().generation();
            let mut again = self.move_bytes();
            again |= self.perform();
            // A generation that was started meanwhile has not been looked at yet.
            again |= generation != self.relay.link().generation();
            again |= self.stderr.poll();
            again |= self.poll_signals();
            again |= self.poll_server();
            again |= self.poll_shim();
            self.poll_guard();
            again |= self.poll_watcher();
            again |= self.poll_control();
            again |= self.poll_door();
            again |= self.poll_upkeep();
            again |= self.poll_lease();
            self.look_at_tree();
            again |= self.perform();
            again |= self.poll_frames();
            if self.shown != self.relay.link().word() {
                self.write_card();
                if self.shown == "resting" {
                    // What was needed for the server is not needed now.
                    self.note_members();
                }
            }
            if self.done() {
                // A short session is told whole, too.
                self.introduce_now();
                return Poll::Ready(Turn::Done);
            }
            // Whoever stands beside us holds the link's lock, too: it must have been taken.
            if self.introduction.is_none() && std::mem::take(&mut self.unguarded) {
                return Poll::Ready(Turn::GuardLost);
            }
            again |= self.look_at_clock();
            if !again {
                return Poll::Pending;
            }
        }
    }

    /// Does what is due, and notes what is due next; whether there was anything.
    fn look_at_clock(&mut self) -> bool {
        let mut any = false;
        let mut relay_due = self.relay.wake_at();
        if relay_due.is_some_and(|at| self.now >= at) {
            self.handle(Input::Tick);
            relay_due = self.relay.wake_at();
            any = true;
        }
        if self.note_at.is_some_and(|at| self.now >= at) {
            self.note_members();
        }
        if self.guard_at.take_if(|at| self.now >= *at).is_some() {
            self.unguarded = true;
            any = true;
        }
        if let Some(bytes) = self.stderr.dropped() {
            self.tell(What::StderrDropped(StderrDropped { bytes }));
        }
        let due = [
            relay_due,
            self.note_at,
            self.guard_at,
            self.upkeep.due(),
            self.lease_due(),
            self.kill_due(),
            self.frames.due(),
            self.introduction.as_ref().map(Introduction::due),
        ];
        self.due = due.into_iter().flatten().min();
        any
    }

    pub(super) fn note_members(&mut self) {
        self.note_at = None;
        self.noted_at = self.now;
        self.show_late();
        if let (Some(server), Some(entry)) = (&self.server, &self.entry) {
            let members: Vec<Identity> = server
                .tree
                .members()
                .iter()
                .map(mainstay_os::census::Stat::who)
                .collect();
            // Best effort: without it only the sweep after a double kill sees less.
            drop(entry.members(&members));
        }
        if let Some(server) = &mut self.server {
            // Whoever the machine has killed before now is not ours.
            server.oom_kills.1 = oom_kills_of_the_machine();
        }
        let server = self.server.iter();
        let pipes = server.flat_map(|server| server.stdin.iter().chain(&server.stdout));
        for port in pipes.chain(&self.client_out) {
            port.narrow();
        }
        self.remember();
        let (recorded, own) = self.relay.spare();
        if let Some(bytes) = recorded {
            mainstay_os::memory::give_back_shared(bytes);
        }
        if let Some(bytes) = own {
            mainstay_os::memory::give_back(bytes);
        }
        mainstay_os::memory::trim();
        mainstay_os::memory::unmap_code();
    }

    /// What waits for those who watch, and what could not wait for suspects.
    fn poll_frames(&mut self) -> bool {
        self.tell_suspects();
        let recording = self.frames.recording.as_mut();
        if let Some(hurt) = recording.and_then(Recording::hurt) {
            self.tell(What::RecordingHurt(hurt));
        }
        self.frames.poll(self.now)
    }

    /// The last line of the recording.
    fn close_recording(&mut self) {
        if let Some(recording) = &mut self.frames.recording {
            recording.close();
            if let Some(hurt) = recording.hurt() {
                self.tell(What::RecordingHurt(hurt));
            }
        }
    }

    fn tell(&mut self, what: What) {
        self.introduce_before_telling();
        self.ledger.record(self.plan.id, &self.plan.name, what);
    }

    /// Whether all is done and the client has what it should have.
    fn done(&self) -> bool {
        self.relay.is_done(self.now)
    }
}

/// One of the three descriptors that every process has.
fn standard(fd: i32) -> BorrowedFd<'static> {
    mainstay_os::role::standard(fd)
}
