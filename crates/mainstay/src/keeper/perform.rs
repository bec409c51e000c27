//! Doing what the link asks for: one exhaustive match.

use std::ffi::OsString;
use std::path::Path;

use mainstay_core::event::{Lost, Pipe, Seen, StderrDropped, What};
use mainstay_core::limits;
use mainstay_core::link::Input;
use mainstay_core::relay::Output;
use mainstay_core::server::stop::Step;
use mainstay_os::census;
use mainstay_os::channel::Word;
use rustix::process::Signal;

use super::control::{self, Outcome};
use super::watch::Watched;
use super::{Keeper, server, session};
use crate::container::Container;
use crate::container::held::Held;
use crate::container::note::{self, Note};
use crate::profile;
use crate::registry::card::{self, Card};
use crate::registry::control::Answer;
use crate::registry::entry::Entry;
use crate::sweeper;

impl Keeper<'_> {
    /// Does what the relay asks for; true if there was anything.
    pub(super) fn perform(&mut self) -> bool {
        let mut any = false;
        while let Some(output) = self.relay.next() {
            any = true;
            match output {
                Output::Spawn => self.spawn(),
                Output::Say(text) => self.stderr.say(&text),
                Output::Stop(step) => self.step(step),
                Output::Measure => self.measure(),
                Output::DropClient => self.drop_client(),
                Output::Linger => self.linger(),
                Output::LingerOver => self.linger_over(),
                Output::Tell(mut what) => {
                    if let What::Exit(exit) = &mut what {
                        exit.standing = self.frames.at_death.take().map(Box::new);
                    }
                    if let What::Teardown(teardown) = &what {
                        self.teardown = Some(teardown.clone());
                    }
                    self.tell(what);
                    self.write_card();
                }
                Output::ClientEnded => self.client_ended(),
                Output::ClientDeaf => {
                    self.client_out = None;
                    self.tell_pipe_end(Pipe::ClientStdout);
                }
                Output::CloseServerStdin => {
                    if let Some(server) = &mut self.server {
                        server.close_stdin();
                    }
                }
                Output::ServerDeaf => self.server_deaf(),
                Output::ServerStdoutEnded => {
                    if let Some(server) = &mut self.server {
                        server.stdout = None;
                    }
                    self.tell_pipe_end(Pipe::ServerStdout);
                    let tree_empty = self.tree_is_empty();
                    self.handle(Input::StdoutClosed { tree_empty });
                }
                Output::ExitDue => self.tell_exit(),
                Output::Finish(code) => self.finished = Some(code),
            }
        }
        self.let_the_shim_leave();
        any
    }

    /// A shim that was signalled stays until it is known what that was.
    fn let_the_shim_leave(&mut self) {
        let waits = self.watcher.shim_signalled && !self.watcher.leave_told;
        if waits && !self.relay.link().doubted() {
            self.watcher.leave_told = true;
            self.to_shim.get().say(Word::Leave);
        }
    }

    fn spawn(&mut self) {
        if self.lease_is_over() {
            return;
        }
        let (argv, mut container) = self.contain();
        // Its descriptors are free for the next one: where few are allowed, both do not fit.
        self.server = None;
        match server::start(self.plan, &argv, self.me) {
            Ok((mut running, stderr)) => {
                running.container = container;
                if let Some(beside) = &self.side_guard {
                    running.tree.exclude(beside.who);
                }
                self.stderr.attach(stderr);
                self.notes.witness = running.tree.witness_pid();
                self.server = Some(running);
                self.limit_memory();
                self.handle(Input::Started);
                self.note_at = Some(self.now.after_ms(limits::NOTE_FIRST_MS));
                self.begin_introduction();
            }
            Err(server::Failure {
                problem,
                hint,
                code,
            }) => {
                // Nobody is there but a note of what was to be.
                drop(container.as_mut().and_then(Held::left));
                self.handle(Input::StartFailed {
                    problem,
                    hint,
                    code: code.code(),
                });
                self.tell_guard();
            }
        }
    }

    /// What the tree has used of the processor.
    fn measure(&mut self) {
        let Some(server) = &self.server else { return };
        let (cpu_ms, traced) = (server.tree.cpu_ms(), server.tree.traced());
        self.handle(Input::Measured { cpu_ms, traced });
    }

    /// The command of the next generation; if it runs a container, with a place for its id and a note of that.
    fn contain(&mut self) -> (Vec<OsString>, Option<Held>) {
        let plan = self.plan;
        let next = self.relay.link().generation() + 1;
        if Container::of(&plan.argv, Path::new(""), next).is_none() {
            return (plan.argv.clone(), None);
        }
        // A container's id is written into the link's directory; nobody else needs that before the server runs.
        self.take_entry();
        let Some(entry) = self.entry.as_ref().map(Entry::path) else {
            return (plan.argv.clone(), None);
        };
        let Some((container, argv)) = Container::of(&plan.argv, &entry.path(), next) else {
            return (plan.argv.clone(), None);
        };
        let directory = plan.directory().into();
        let note = Note::write(entry, next, &container, self.me, directory, &plan.env);
        (argv, note.map(Held::new))
    }

    /// After a keeper was lost: its generation's container lives on, because the engine owns it.
    pub(super) fn kill_lost_container(&mut self) {
        let Some(entry) = self.entry.as_ref().map(Entry::path) else {
            return;
        };
        let within_ms = self.plan.limits.kill_confirm_ms;
        if let Some(swept) = sweeper::end_containers(entry, self.plan.id, within_ms) {
            self.tell(What::Sweep(swept));
        }
    }

    fn step(&mut self, step: Step) {
        if let Some(server) = &mut self.server {
            server.look();
        }
        self.write_card();
        match step {
            Step::CloseStdin => {}
            Step::Terminate => {
                if let Some(server) = &self.server {
                    server.tree.signal(Signal::TERM);
                }
                let limits = &self.plan.limits;
                let seconds = limits.grace_term_ms.div_ceil(1_000);
                let within_ms = seconds * 1_000 + limits.kill_confirm_ms;
                let container = self.server.as_mut().and_then(|it| it.container.as_mut());
                if let Some(container) = container {
                    container.stop(seconds, within_ms);
                }
            }
            Step::Kill => self.kill(),
        }
    }

    /// Lets go of the client's pipes, here and in the guard.
    pub(super) fn drop_client(&mut self) {
        self.client_in = None;
        self.client_out = None;
        self.stderr.release();
        mainstay_os::role::release_stdio();
        self.to_guard.get().say(Word::Release);
    }

    /// The guard (or the side guard) is gone: a new one stands beside us.
    pub(super) fn guard_lost(&mut self) {
        let lost = self.guard().pid;
        self.side_guard = None;
        // Whoever cannot stand (no memory, no descriptors) must not be set up for ever.
        self.side_guards += 1;
        let may = self.side_guards <= limits::SIDE_GUARDS;
        let successor = may
            .then(|| {
                session::stand_beside(
                    self.plan,
                    self.entry.as_ref(),
                    self.region,
                    self.to_shim.get(),
                    self.me,
                )
            })
            .flatten()
            .and_then(|(beside, to_guard)| {
                let watched = Watched::new(to_guard).ok();
                if watched.is_none() {
                    mainstay_os::role::dismiss(&beside);
                }
                Some((beside, watched?))
            });
        if may && successor.is_none() {
            self.guard_at = Some(self.now.after_ms(limits::KEEPER_RETRY_MS.into()));
        }
        if let Some((beside, to_guard)) = successor {
            self.to_guard = to_guard;
            if self.client_out.is_none() {
                self.to_guard.get().say(Word::Release);
            }
            self.name_client();
            if let Some(server) = &mut self.server {
                server.tree.exclude(beside.who);
            }
            self.side_guard = Some(beside);
        }
        // A side guard does not inherit the tree, so what it would have to end is written down now.
        self.note_members();
        let successor = self.side_guard.as_ref().map(|beside| beside.who.pid);
        self.tell(What::GuardLost(Lost {
            pid: lost,
            status: None,
            ended: 0,
            settled: 0,
            successor,
        }));
        self.write_card();
    }

    /// The longest time that the stop ladder may take.
    pub(super) fn ladder_ms(&self) -> u64 {
        let limits = &self.plan.limits;
        let server = self.server.as_ref();
        let contained = server.is_some_and(|server| server.container.is_some());
        let kills = if contained { 2 } else { 1 };
        2 * limits.grace_eof_ms + limits.grace_term_ms + kills * limits.kill_confirm_ms
    }

    /// The card as it is now.
    pub(super) fn card(&self) -> Card {
        let server = self.server.as_ref();
        let seen = |pid: i32| {
            census::stat(pid).ok().map(|stat| Seen {
                who: stat.who(),
                comm: stat.comm,
            })
        };
        let limits = &self.plan.limits;
        let ladder_ms = self.ladder_ms();
        Card {
            v: card::VERSION,
            id: self.plan.id,
            name: self.plan.name.clone(),
            argv: self.plan.words(),
            cwd: self.plan.directory(),
            state: self.relay.link().word().into(),
            generation: self.relay.link().generation(),
            started_at: self.plan.started_at.clone(),
            realm: self.plan.realm.clone(),
            shim: (!self.relay.link().away())
                .then(|| seen(self.shim.pid))
                .flatten(),
            guard: seen(self.guard().pid),
            keeper: seen(self.me.pid),
            // Whoever has the number of a launcher that has left is not the server.
            server: server
                .and_then(|server| seen(server.who.pid).filter(|seen| seen.who == server.who)),
            client: self
                .client
                .and_then(|client| seen(client.pid))
                .map(profile::called),
            tier: server.map(|server| server.tier),
            why_not: server.map_or_else(Vec::new, |server| server.why_not.clone()),
            leaf: server
                .and_then(|server| server.tree.leaf())
                .map(|path| path.to_string_lossy().into_owned()),
            detached: self.plan.detached.clone(),
            ladder_ms,
            restart_ms: limits.drain_ms + ladder_ms + limits.opening_ms,
            lease: self.plan.lease.clone(),
            members: Vec::new(),
        }
    }

    pub(super) fn write_card(&mut self) {
        self.shown = self.relay.link().word();
        self.frames
            .state(self.now, self.shown, self.relay.link().generation());
        // A link that is just beginning is listed by the last step of its introduction.
        if let (Some(entry), None) = (&self.entry, &self.introduction) {
            // Best effort: `ps` shows an older state.
            drop(entry.write(&self.card()));
        }
    }

    pub(super) fn poll_control(&mut self) -> bool {
        match self.control.poll(self.now) {
            Outcome::Nothing => false,
            Outcome::Busy => true,
            Outcome::Status(who) => {
                let answer = Answer::Status(Box::new(self.card()));
                self.control.answer(who, &answer);
                true
            }
            Outcome::Stop => {
                self.handle(Input::Stop(mainstay_core::event::Cause::Asked));
                true
            }
            Outcome::Restart => {
                self.restart();
                true
            }
            Outcome::Tap { who, body_bytes } => {
                if let Some(stream) = self.control.release(who)
                    && let Err(stream) =
                        self.frames
                            .attach(stream, body_bytes, self.relay.link(), self.now)
                {
                    let error = format!("{} taps are open already", limits::TAPS);
                    control::send(stream.get(), &Answer::Refused { error });
                }
                true
            }
        }
    }

    /// The last acts: answer whoever asked for the end, tell the shim, take the directory away.
    pub(super) fn leave(&mut self) {
        if let Some(bytes) = self.stderr.dropped_in_all() {
            self.tell(What::StderrDropped(StderrDropped { bytes }));
        }
        self.drop_client();
        self.tell_client_gone();
        self.close_recording();
        self.remember();
        self.leave_lease();
        let (ended, left) = match self.teardown.take() {
            Some(teardown) => (teardown.ended, teardown.left),
            None => (0, Vec::new()),
        };
        self.control.answer_stops(&Answer::Stopped { ended, left });
        if let Some(beside) = self.side_guard.take() {
            mainstay_os::role::dismiss(&beside);
        }
        if let Some(entry) = &self.entry
            && note::all(entry.path()).is_empty()
        {
            drop(entry.clear());
        }
        self.to_shim.get().say(Word::Finished {
            code: self.finished.unwrap_or_default(),
        });
    }
}
