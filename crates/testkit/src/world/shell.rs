//! The keeper without descriptors: it drives the relay that ships, performs its outputs and answers them.
//!
//! It decides nothing about bytes. It may be killed at every kill point of the relay, before and after each read and write, and
//! before each output. What survives is in the [`Memory`].

use std::panic::{self, AssertUnwindSafe};

use mainstay_core::link::{About, Exited, Holders, Input, Link};
use mainstay_core::record::inbox::{self, Inbox};
use mainstay_core::record::{Attached, Head, Phase, Record, replay_log};
use mainstay_core::relay::{self, Output, Read, Relay, Sight, Wrote};
use mainstay_core::server::stop::Step;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Lost, Status, Usage};
use mainstay_protocol::frames::Side;
use mainstay_protocol::kill_point::{Killed, kill_point, set_fuse};
use mainstay_protocol::limits::{Limits, WHOLE_LINE_BYTES};
use mainstay_protocol::message::frame::Frame;
use mainstay_protocol::message::inflight::Slot;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::Policy;

use super::LINK;
use super::outside::{Halt, Outside, Process, broken, text};
use super::watch::Way;

/// Turns of the loop after which it counts as busy without end.
const TURNS: u32 = 20_000;
/// Ticks at one moment after which they count as busy without end.
const TICKS: u32 = 100;

/// The memory that outlives a killed keeper.
#[derive(Debug)]
pub struct Memory {
    head: Head,
    opening: Vec<u8>,
    slots: Vec<Slot>,
    board: replay_log::Board,
    replay_log: Vec<u8>,
    inbox_board: inbox::Board,
    inbox: Vec<u8>,
}

impl Memory {
    /// Fresh memory with room for this many requests in flight.
    pub fn new(slots: usize) -> Self {
        Self {
            head: Head::default(),
            opening: vec![0; WHOLE_LINE_BYTES],
            slots: vec![Slot::free(); slots],
            board: replay_log::Board::new(),
            replay_log: vec![0; 256 * 1024],
            inbox_board: inbox::Board::new(),
            inbox: vec![0; 2 * WHOLE_LINE_BYTES],
        }
    }

    /// True if all was done when the keeper was killed: its guard starts no successor.
    pub fn finished(&self) -> bool {
        self.head.phase() == Phase::Finished
    }

    /// True if the end had begun, as far as a successor knows.
    pub fn ending(&self) -> bool {
        self.head.phase() >= Phase::Stopping
    }

    /// True if the client's pipes had been closed.
    pub fn away(&self) -> bool {
        self.head.attached() == Attached::No
    }

    /// The record, without the inbox.
    pub fn record(&mut self) -> Record<'_> {
        self.parts().0
    }

    fn parts(&mut self) -> (Record<'_>, Inbox<'_>) {
        let record = Record {
            head: &mut self.head,
            opening: &mut self.opening,
            slots: &mut self.slots,
            board: &self.board,
            replay_log: &mut self.replay_log,
        };
        (record, Inbox::over(&self.inbox_board, &mut self.inbox))
    }
}

/// The memory that dies with a keeper: its buffer for the server's lines.
#[derive(Debug)]
pub struct OwnMemory(Vec<u8>);

impl Default for OwnMemory {
    fn default() -> Self {
        Self(vec![0; 2 * WHOLE_LINE_BYTES])
    }
}

/// The settings from before the first fork.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Limits.
    pub limits: Limits,
    /// Choices.
    pub policy: Policy,
    /// The record of an earlier session.
    pub remembered: Remembered,
}

/// One keeper's life.
#[derive(Debug)]
pub struct Shell<'a> {
    relay: Relay<'a>,
    /// The exit code, once all is done.
    pub finished: Option<u8>,
    /// The state before the last input or turn.
    before: &'static str,
    ticks: (Moment, u32),
}

impl<'a> Shell<'a> {
    /// A keeper over this memory.
    pub fn new(plan: &Plan, memory: &'a mut Memory, own: &'a mut OwnMemory) -> Self {
        let about = About {
            link: LINK,
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
            listed: true,
        };
        let (record, inbox) = memory.parts();
        let Plan {
            limits,
            policy,
            remembered,
        } = plan.clone();
        let mut relay = Relay::new(about, limits, policy, record, inbox, &mut own.0);
        relay.recall(remembered);
        Self {
            relay,
            finished: None,
            before: "",
            ticks: (Moment::default(), 0),
        }
    }

    /// Begins, or continues where a killed keeper stopped.
    pub fn begin(&mut self, lost: Option<Lost>, outside: &mut Outside) -> Result<(), Halt> {
        if lost.is_some() {
            let (lines, within_a_line) = self.relay.unrouted();
            outside.watch.unrouted(lines, within_a_line);
        }
        self.relay.begin(outside.now, lost, outside);
        outside.verdict()
    }

    /// The link.
    pub fn link(&self) -> &Link<'a> {
        self.relay.link()
    }

    /// The outputs that a killed keeper has not performed.
    pub fn undone(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.relay.next()).collect()
    }

    /// True if all that the client must get has been written.
    pub fn flushed(&self) -> bool {
        self.relay.flushed()
    }

    /// True if the client is still written to.
    pub fn writes(&self) -> bool {
        self.relay.writes()
    }

    /// The state as readable text.
    pub fn told(&self) -> String {
        self.relay.told()
    }

    /// When the keeper must be woken if nothing happens.
    pub fn wake_at(&self) -> Option<Moment> {
        self.relay.wake_at()
    }

    /// One input that is not data.
    pub fn tell(&mut self, outside: &mut Outside, input: Input) -> Result<(), Halt> {
        kill_point();
        self.handle(outside, input)
    }

    /// Handles everything that is ready. Returns true when all is done.
    pub fn turn(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        for _ in 0..TURNS {
            self.perform(outside)?;
            let generation = self.link().generation();
            self.before = self.link().word();
            let mut again = self.relay.turn(outside.now, outside);
            outside.verdict()?;
            again |= self.perform(outside)?;
            again |= generation != self.link().generation();
            self.look_at_process(outside);
            self.look_at_tree(outside)?;
            again |= self.perform(outside)?;
            if self.relay.is_done(outside.now) {
                return Ok(true);
            }
            again |= self.tick(outside)?;
            if !again {
                return Ok(false);
            }
        }
        broken("the keeper is busy without end")
    }

    fn tick(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let Some(at) = self.relay.wake_at() else {
            return Ok(false);
        };
        if outside.now < at {
            return Ok(false);
        }
        if self.ticks.0 != outside.now {
            self.ticks = (outside.now, 0);
        }
        self.ticks.1 += 1;
        if self.ticks.1 > TICKS {
            return broken(format!(
                "ticks without end: {:?}",
                self.relay.link().wake_at()
            ));
        }
        outside.note(|| "tick".into());
        self.handle(outside, Input::Tick)?;
        Ok(true)
    }

    fn handle(&mut self, outside: &mut Outside, input: Input) -> Result<(), Halt> {
        self.before = self.link().word();
        if !matches!(input, Input::Tick) {
            outside.note(|| format!("input: {input:?}"));
        }
        let doubted = self.link().doubted();
        outside.watch.told(outside.now, &input);
        let shim = matches!(
            input,
            Input::Stop(Cause::ShimSignal { .. } | Cause::ShimKilled)
        );
        self.relay.handle(outside.now, input, outside);
        outside.verdict()?;
        if self.link().away() {
            outside.watch.let_go();
        }
        if (shim || doubted) && !self.link().doubted() && !self.link().away() {
            outside.watch.ends(outside.now);
        }
        let (before, after) = (self.before, self.link().word());
        if before != after {
            outside.note(|| format!("{before} -> {after}"));
        }
        kill_point();
        Ok(())
    }

    fn perform(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut any = false;
        while let Some(output) = self.relay.next() {
            any = true;
            outside.watch.asked_for(outside.now, &output)?;
            kill_point();
            match output {
                Output::Spawn => self.spawn(outside)?,
                Output::Say(_) | Output::LingerOver => {}
                Output::Stop(step) => self.stop(outside, step)?,
                Output::Measure => {
                    let cpu_ms = outside.dice.below(3) * 1_000;
                    let traced = outside.dice.permille(20);
                    self.handle(outside, Input::Measured { cpu_ms, traced })?;
                }
                Output::DropClient => outside.let_go_of_client(),
                Output::Linger => {
                    outside.let_go_of_client();
                    outside.watch.client_leaves();
                }
                Output::Tell(what) => outside.note(|| format!("event: {}", what.name())),
                Output::ClientEnded => self.handle(outside, Input::ClientEof)?,
                Output::ClientDeaf => outside.watch.let_go(),
                Output::CloseServerStdin => {
                    if let Some(process) = &mut outside.process {
                        process.stdin.writer_gone = true;
                    }
                }
                Output::ServerDeaf => {
                    self.look_at_process(outside);
                    let ended = outside.process.as_ref().is_none_or(|p| p.ended.is_some());
                    if !ended || self.relay.exit_told() {
                        self.handle(outside, Input::Stop(Cause::ServerExit))?;
                    }
                }
                Output::ServerStdoutEnded => {
                    let tree_empty = outside.tree_empty();
                    self.handle(outside, Input::StdoutClosed { tree_empty })?;
                }
                Output::ExitDue => {
                    let holders = outside.holders();
                    let tree_empty = outside.tree_empty();
                    if let Some(status) = outside.ended() {
                        self.handle(outside, exited(status, holders, tree_empty))?;
                    }
                }
                Output::Finish(code) => {
                    outside.note(|| format!("finish {code}"));
                    self.finished = Some(code);
                }
            }
        }
        Ok(any)
    }

    /// The kernel reports the server's end.
    fn look_at_process(&mut self, outside: &Outside) {
        if outside.ended().is_some() && !self.relay.exit_told() {
            self.relay.server_ended(outside.now);
        }
    }

    fn look_at_tree(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        if self.link().descending() && self.relay.exit_told() && outside.tree_empty() {
            return self.end_tree(outside);
        }
        Ok(())
    }

    fn end_tree(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let now = outside.now;
        let Some(process) = &mut outside.process else {
            return Ok(());
        };
        let left = process.kill(now);
        if let (Some((status, _)), false) = (process.ended, self.relay.exit_told()) {
            self.handle(outside, exited(status, Holders::None, true))?;
        }
        self.handle(outside, Input::TreeEmpty { ended: 1, left })
    }

    fn spawn(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let next = self.link().generation() + 1;
        outside.watch.spawn(outside.now, next, self.before)?;
        if outside.start(next)? {
            outside.note(|| format!("generation {next} is started"));
            self.handle(outside, Input::Started)?;
            if self.link().generation() != next {
                return broken("a start is not counted");
            }
            return Ok(());
        }
        outside.note(|| "a start fails".into());
        let failed = Input::StartFailed {
            problem: "no such file".into(),
            hint: "install it".into(),
            code: 127,
        };
        self.handle(outside, failed)
    }

    fn stop(&mut self, outside: &mut Outside, step: Step) -> Result<(), Halt> {
        outside.note(|| format!("stop: {step:?}"));
        match step {
            Step::CloseStdin => Ok(()),
            Step::Terminate => {
                if let Some(process) = &mut outside.process {
                    process.terminate(outside.now);
                }
                Ok(())
            }
            Step::Kill => self.end_tree(outside),
        }
    }

    /// Another client is connected, on the pipes that are outside now.
    pub fn reattach(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        kill_point();
        self.before = self.link().word();
        outside.watch.told(outside.now, &Input::Reattached);
        self.relay.reattach(outside.now, &[], outside);
        outside.verdict()
    }

    /// True if a client that comes back is accepted.
    pub fn takes_in(&self) -> bool {
        self.link().away() && self.relay.server_has_all()
    }
}

impl relay::Shell for Outside {
    fn read_client(&mut self, into: &mut [u8]) -> Read {
        kill_point();
        let read = self.from_client.give(into);
        kill_point();
        read
    }

    fn read_server(&mut self, into: &mut [u8]) -> Read {
        kill_point();
        let Some(process) = &mut self.process else {
            return Read::End;
        };
        process.stdout.give(into)
    }

    fn write_client(&mut self, bytes: &[u8]) -> Wrote {
        kill_point();
        let wrote = self.to_client.put(bytes);
        if let Wrote::Took(len) = wrote {
            self.to_client_tap(&bytes[..len]);
        }
        kill_point();
        wrote
    }

    fn write_server(&mut self, bytes: &[u8]) -> Wrote {
        kill_point();
        let Some(process) = &mut self.process else {
            return Wrote::Broken;
        };
        let wrote = process.stdin.put(bytes);
        if let Wrote::Took(len) = wrote {
            self.to_server_tap(&bytes[..len]);
        }
        kill_point();
        wrote
    }

    fn client_may_speak(&self) -> bool {
        true
    }

    fn client_hung_up(&self) -> bool {
        self.from_client.writer_gone
    }

    fn server_left_unread(&self) -> bool {
        let left = |process: &Process| process.stdin.reader_gone && !process.stdin.is_empty();
        self.process.as_ref().is_some_and(left)
    }

    fn take_unread(&mut self) -> Option<Vec<u8>> {
        let process = self.process.as_mut()?;
        let unreadable = if process.stdin.writer_gone {
            process.tree_empty()
        } else {
            !process.serves()
        };
        unreadable.then(|| process.stdin.take())
    }

    fn watched(&self) -> bool {
        self.watched
    }

    fn passed(&mut self, _: Moment, from: Side, frame: &Frame<'_>) {
        self.note(|| format!("{from:?}: fast {frame:?}"));
        if from == Side::Client {
            self.watch.routed_frame(frame);
        }
    }

    fn saw(&mut self, _: Moment, _: u32, sight: Sight<'_>) {
        match sight {
            Sight::Line {
                from, bytes, route, ..
            } => {
                self.note(|| format!("{from:?}: {route:?} {}", text(bytes)));
                if from == Side::Client {
                    self.watch.routed(bytes, route);
                }
            }
            Sight::LongBegins {
                from, frame, route, ..
            } => self.note(|| format!("{from:?}: {route:?} long {frame:?}")),
            Sight::LongEnds {
                from,
                frame,
                passed,
            } => {
                self.note(|| format!("{from:?}: long ends, passed {passed} {frame:?}"));
                if from == Side::Client {
                    self.watch.routed_frame(frame);
                }
            }
            Sight::Ours { to, line } => {
                self.note(|| format!("ours to {to:?}: {}", text(line)));
                if to == Side::Client {
                    self.watch.ours_queued(line);
                }
            }
            Sight::Settled => {}
            Sight::Unread(lines) => {
                if !lines.is_empty() {
                    self.note(|| format!("never read: {}", text(lines)));
                }
                self.watch.unread(lines);
            }
            Sight::Releasing => self.watch.release(),
            Sight::TornAtServer => self.watch.server_is_left_with_half_a_line(),
            Sight::Delivered | Sight::OursDelivered => {
                self.watch.delivered(Way::Passed);
                self.watch.delivered(Way::Ours);
            }
        }
    }
}

/// Runs a keeper until it ends or is killed.
pub fn until_killed(life: impl FnOnce() -> Result<(), Halt>) -> Result<(), Halt> {
    let ended = panic::catch_unwind(AssertUnwindSafe(life));
    set_fuse(None);
    match ended {
        Ok(ended) => ended,
        Err(payload) if payload.is::<Killed>() => Err(Halt::Killed),
        Err(payload) => panic::resume_unwind(payload),
    }
}

fn exited(status: Status, holders: Holders, tree_empty: bool) -> Input {
    Input::Exited(Exited {
        pid: 7,
        status,
        usage: Usage::default(),
        stderr_tail: vec!["last words".into()],
        out_of_memory: None,
        holders,
        tree_empty,
    })
}
