//! The connection of one client with one server: their pipes, the relay between them, and the events that tell of them.
//!
//! All inputs and outputs of the relay pass through here. Which processes guard the connection, and which may see it, is
//! the keeper's concern.

use std::os::unix::net::UnixStream;

use mainstay_core::link::{Exited, Holders, Input, Link};
use mainstay_core::relay::{Output, Relay};
use mainstay_core::server::stop::Step;
use mainstay_core::verdict;
use mainstay_os::tree::Tree;
use mainstay_os::{clock, memory};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{
    Cause, Gone, Lost, OutOfMemory, Part, Pipe, PipeEnd, Standing, Status, StderrDropped, Suspects,
    What,
};
use mainstay_protocol::ids::Identity;

use super::client::{Client, ClientPorts};
use super::events::Events;
use super::frames::Frames;
use super::pipes::Pipes;
use super::plan::Plan;
use super::server::{self, Command, Ended, Failure, Running};
use super::standing::standing;
use super::suspects;
use super::watched::{Death, Watched};
use crate::keeper::STEPS;

/// A client, a server, and the relay between them.
pub struct Connection<'p> {
    plan: &'p Plan,
    /// The time of this turn.
    now: Moment,
    relay: Relay<'static>,
    client: Client,
    server: Option<Running>,
    frames: Frames,
    events: Events<'p>,
    /// What earlier sessions saw was read: it may answer the client's lines, so it comes before them.
    recalled: bool,
}

impl<'p> Connection<'p> {
    pub fn new(plan: &'p Plan, relay: Relay<'static>, client: Client, frames: Frames) -> Self {
        Self {
            plan,
            now: clock::now(),
            relay,
            client,
            server: None,
            frames,
            events: Events::new(plan),
            recalled: true,
        }
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn read_clock(&mut self) {
        self.now = clock::now();
    }

    pub fn relay(&mut self) -> &mut Relay<'static> {
        &mut self.relay
    }

    pub fn link(&self) -> &Link<'static> {
        self.relay.link()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    pub fn server(&self) -> Option<&Running> {
        self.server.as_ref()
    }

    pub fn server_mut(&mut self) -> Option<&mut Running> {
        self.server.as_mut()
    }

    /// The server process, if it has not ended.
    pub fn live_server(&self) -> Option<i32> {
        let server = self.server.as_ref();
        let live = server.filter(|server| server.exit().is_none());
        live.map(|server| server.who().pid)
    }

    pub fn events(&mut self) -> &mut Events<'p> {
        &mut self.events
    }

    /// True if all is done and the client has what it should have.
    pub fn is_done(&self) -> bool {
        self.relay.is_done(self.now)
    }

    /// When there is something to do if nothing happens.
    pub fn due(&self) -> Option<Moment> {
        let due = [
            self.relay.wake_at(),
            self.server.as_ref().and_then(Running::due),
            self.frames.due(),
            self.client.log_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Empties what is not needed until the next message, and gives its memory back.
    pub fn give_back_memory(&mut self) {
        if let Some(server) = &self.server {
            server.narrow_pipes();
        }
        if let Some(stdout) = self.client.stdout() {
            stdout.narrow();
        }
        let (recorded, own) = self.relay.spare();
        if let Some(bytes) = recorded {
            memory::give_back_shared(bytes);
        }
        if let Some(bytes) = own {
            memory::give_back(bytes);
        }
        memory::trim();
        memory::unmap_code();
    }
}

/// The relay.
impl Connection<'_> {
    /// Goes on from the record, after a keeper was lost, or begins.
    pub fn begin(&mut self, lost: Option<Lost>) {
        self.with_relay(|relay, now, pipes| relay.begin(now, lost, pipes));
    }

    /// The next thing that the relay asks for.
    pub fn next_output(&mut self) -> Option<Output> {
        self.relay.next()
    }

    /// Tells the relay what has happened.
    pub fn handle(&mut self, input: Input) {
        self.with_relay(|relay, now, pipes| relay.handle(now, input, pipes));
    }

    /// Tells the relay that its time has come, if it has.
    pub fn tick(&mut self) -> bool {
        let due = self.relay.wake_at().is_some_and(|at| self.now >= at);
        if due {
            self.handle(Input::Tick);
        }
        due
    }

    /// Moves every byte that can move. Two facts: whether more may move at once, and whether the server has said something or
    /// the client has got something.
    pub fn move_bytes(&mut self) -> (bool, bool) {
        self.with_relay(|relay, now, pipes| {
            let again = relay.turn(now, pipes);
            (again, pipes.moved())
        })
    }

    /// What earlier sessions saw was read, if there was anything to read: the client's lines may pass.
    pub fn recalled(&mut self) {
        self.recalled = true;
    }

    /// The client has come back with these pipes; its first bytes were read already.
    pub fn reattach(&mut self, ports: ClientPorts, read: &[u8]) {
        self.client.attach(ports);
        self.with_relay(|relay, now, pipes| relay.reattach(now, read, pipes));
    }

    fn with_relay<T>(
        &mut self,
        call: impl FnOnce(&mut Relay<'static>, Moment, &mut Pipes<'_>) -> T,
    ) -> T {
        let mut pipes = Pipes::new(
            &self.client,
            self.server.as_mut(),
            &mut self.frames,
            self.recalled,
        );
        call(&mut self.relay, self.now, &mut pipes)
    }
}

/// Events.
impl Connection<'_> {
    pub fn tell(&mut self, what: What) {
        self.events.tell(what, self.server.as_ref());
    }

    /// Writes the start of the server, unless it is written.
    pub fn tell_start(&mut self) {
        self.events.tell_start(self.server.as_ref());
    }

    /// The state of the link now.
    pub fn standing(&self) -> Standing {
        standing(&self.relay, &self.frames, &self.client)
    }

    pub fn tell_gone(&mut self, part: Part, who: Identity, death: Death) {
        let status = death.status;
        let standing = (part == Part::Shim).then(|| self.standing().into());
        self.tell(What::Gone(Gone {
            part,
            who,
            status,
            standing,
        }));
    }

    pub fn tell_pipe_end(&mut self, pipe: Pipe) {
        let generation = self.link().generation();
        self.tell(What::PipeEnd(PipeEnd { pipe, generation }));
    }

    /// Tells how much of the server's stderr the client did not take, if there is news; at the end, all that was not told.
    pub fn tell_dropped_stderr(&mut self, at_the_end: bool) {
        let stderr = self.client.stderr();
        let dropped = if at_the_end {
            stderr.dropped_in_all()
        } else {
            stderr.dropped()
        };
        if let Some(bytes) = dropped {
            self.tell(What::StderrDropped(StderrDropped { bytes }));
        }
    }

    /// Tells of suspects and of trouble with the recording, and serves the taps; true if bytes moved.
    pub fn poll_frames(&mut self) -> bool {
        if let Some((part, pid)) = self.events.take_unexplained() {
            let spared = self.server.as_ref().map(Running::members);
            let search = suspects::search(self.client.who(), &spared.unwrap_or_default());
            self.tell(What::Suspects(Suspects {
                part,
                pid,
                who: search.found,
                looked_at: search.looked_at,
                all: search.all,
            }));
        }
        self.tell_recording_hurt();
        self.poll_log();
        self.frames.poll(self.now)
    }

    /// Hands the lines that were no messages to the log, and writes it if it is time.
    fn poll_log(&mut self) {
        let log = self.client.stderr().log();
        if let Some(lines) = self.frames.take_junk() {
            log.stdout(&lines);
        }
        log.poll(self.now);
    }

    /// A peer wants to see frames; its connection comes back if there are too many.
    pub fn attach_tap(
        &mut self,
        stream: Watched<UnixStream>,
        body_bytes: u64,
    ) -> Result<(), Watched<UnixStream>> {
        let link = self.relay.link();
        self.frames.attach(stream, body_bytes, link, self.now)
    }

    /// Notes the state of the link for the taps.
    pub fn note_state(&mut self) {
        let link = self.relay.link();
        self.frames.state(self.now, link.word(), link.generation());
    }

    /// Writes the last line of the recording.
    pub fn close_recording(&mut self) {
        self.frames.close_recording();
        self.tell_recording_hurt();
    }

    fn tell_recording_hurt(&mut self) {
        if let Some(hurt) = self.frames.recording_hurt() {
            self.tell(What::RecordingIncomplete(hurt));
        }
    }
}

/// The server's life.
impl Connection<'_> {
    /// Starts the next server. `side_guard`: a child of the keeper that is no member of its tree.
    pub fn start(
        &mut self,
        command: Command,
        keeper: Identity,
        side_guard: Option<Identity>,
    ) -> Result<(), Failure> {
        // The descriptors of the last server are closed first: where few are allowed, those of both do not fit.
        self.server = None;
        let (mut running, stderr) = server::start(self.plan, command, keeper)?;
        if let Some(side_guard) = side_guard {
            running.exclude(side_guard);
        }
        self.client.stderr().attach(stderr);
        self.server = Some(running);
        Ok(())
    }

    /// Tells the relay that the server runs. The client's lines wait until [`Self::recalled`].
    pub fn started(&mut self) {
        self.handle(Input::Started);
        let generation = self.link().generation();
        self.events.note_start(generation);
        if let Some(pid) = self.live_server() {
            self.client.stderr().log().started(generation, pid);
        }
        self.recalled = false;
    }

    /// Tells the relay what the tree has used of the processor.
    pub fn measure(&mut self) {
        let Some(server) = &self.server else { return };
        let (cpu_ms, traced) = (server.tree().cpu_ms(), server.tree().traced());
        self.handle(Input::Measured { cpu_ms, traced });
    }

    /// The client's lines have ended: it has closed its pipe, or it is gone.
    pub fn client_ended(&mut self) {
        self.client.close_stdin();
        self.tell_pipe_end(Pipe::ClientStdin);
        self.handle(if self.client.is_dead() {
            Input::Stop(Cause::ClientGone)
        } else {
            Input::ClientEof
        });
    }

    /// The client has closed its end for reading.
    pub fn client_deaf(&mut self) {
        self.client.close_stdout();
        self.tell_pipe_end(Pipe::ClientStdout);
    }

    /// The server's stdin has no reader: the server has ended, or it is stopped.
    pub fn server_deaf(&mut self) {
        self.tell_pipe_end(Pipe::ServerStdin);
        self.reap();
        if self.exit().is_none() || self.relay.exit_told() {
            self.handle(Input::Stop(Cause::ServerExit));
        }
    }

    pub fn server_stdout_ended(&mut self) {
        if let Some(server) = &mut self.server {
            server.close_stdout();
        }
        self.tell_pipe_end(Pipe::ServerStdout);
        let tree_empty = self.tree_is_empty();
        self.handle(Input::StdoutClosed { tree_empty });
    }

    /// Takes one step of the stop ladder.
    pub fn stop(&mut self, step: Step) {
        let limits = &self.plan.limits;
        let confirm_ms = limits.kill_confirm_ms;
        if let Some(server) = &mut self.server {
            server.count_members();
        }
        match step {
            Step::CloseStdin => {}
            Step::Terminate => {
                let seconds = limits.grace_term_ms.div_ceil(1_000);
                if let Some(server) = &mut self.server {
                    server.terminate(seconds, seconds * 1_000 + confirm_ms);
                }
            }
            Step::Kill => {
                // The container first, by its engine: the process that talks to the engine is in the tree.
                let (now, server) = (self.now, self.server.as_mut());
                if !server.is_some_and(|server| server.kill_container(now, confirm_ms)) {
                    self.end_tree();
                }
            }
        }
    }

    /// While the tree is being stopped: kills it once the container is killed, and tells when no process is left. True if it
    /// was killed.
    pub fn look_at_tree(&mut self) -> bool {
        let now = self.now;
        let server = self.server.as_mut();
        let killed = server.is_some_and(|server| server.container_is_killed(now));
        if killed {
            self.end_tree();
        }
        let stopping = self.link().descending();
        let emptied = stopping && self.relay.exit_told() && self.tree_is_empty();
        if emptied {
            self.end_tree();
        }
        killed || emptied
    }

    fn tree_is_empty(&self) -> bool {
        self.server.as_ref().is_none_or(Running::tree_is_empty)
    }

    /// Kills all that is left of the tree, waits until it is gone, and tells the relay.
    fn end_tree(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        let killed = server.kill_tree(self.plan.limits.kill_confirm_ms);
        self.read_clock();
        self.drain_stderr();
        if let Some(ended) = self.exit().filter(|_| !self.relay.exit_told()) {
            self.tell_exit_with(ended, Holders::None, true);
        }
        self.handle(Input::TreeEmpty {
            ended: killed.count,
            left: killed.left,
        });
    }

    /// A child of the keeper has ended: perhaps the server.
    pub fn reap(&mut self) {
        let Some(server) = &mut self.server else {
            Tree::below_us().reap(&mut |_, _, _| {});
            return;
        };
        if server.reap() && !self.relay.exit_told() {
            // What it wrote last is in its pipes, whether an event has told of it yet or not.
            server.look_again();
            self.client.stderr().look_again();
            self.relay.server_ended(self.now);
        }
    }

    fn exit(&self) -> Option<Ended> {
        self.server.as_ref().and_then(Running::exit)
    }

    /// All output of the dead server has been passed on: the relay gets the exit.
    pub fn tell_exit(&mut self) {
        let Some(ended) = self.exit() else { return };
        let server = self.server.as_ref();
        let holders = server.map_or(Holders::None, Running::holders);
        let tree_empty = self.tree_is_empty();
        self.tell_exit_with(ended, holders, tree_empty);
    }

    fn tell_exit_with(&mut self, ended: Ended, holders: Holders, tree_empty: bool) {
        let Ended { pid, status, usage } = ended;
        // It may have written more since stderr was last read.
        self.drain_stderr();
        let junk = self.frames.take_junk();
        let log = self.client.stderr().log();
        if let Some(lines) = junk {
            log.stdout(&lines);
        }
        log.ended(status);
        let stderr_tail = self.client.stderr().tail();
        let ours = self.link().sent(status);
        let server = self.server.as_ref();
        let out_of_memory = server.and_then(|it| it.out_of_memory(status, ours));
        self.note_death(pid, status, out_of_memory);
        self.handle(Input::Exited(Exited {
            pid,
            status,
            usage,
            stderr_tail,
            out_of_memory,
            holders,
            tree_empty,
        }));
    }

    /// Notes the state of the link when the server ended, and whether suspects are to be looked for.
    fn note_death(&mut self, pid: i32, status: Status, out_of_memory: Option<OutOfMemory>) {
        let standing = self.standing();
        self.events.note_death(standing);
        let unasked = !self.link().sent(status) && out_of_memory.is_none();
        if unasked && verdict::sent_by_another_process(status) {
            self.events.note_unexplained(Part::Server, pid);
        }
    }

    /// Reads what a dead server still had in its stderr. Bounded, because a process that survived the kill may go on writing.
    fn drain_stderr(&mut self) {
        for _ in 0..STEPS {
            if !self.client.stderr().poll() {
                break;
            }
        }
    }
}
