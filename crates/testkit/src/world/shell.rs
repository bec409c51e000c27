//! The keeper as the link sees it: it performs outputs and tells inputs in the order in which the real one does.
//!
//! It is the model of `keeper/{mod,data,perform,end}.rs` without descriptors. It may be killed between any two steps;
//! what survives is in the [`Memory`].

mod data;
mod end;

use std::collections::VecDeque;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, Lost};
use mainstay_core::limits::{Limits, WHOLE_LINE_BYTES};
use mainstay_core::link::{About, Input, Link, Output};
use mainstay_core::message::inflight::Slot;
use mainstay_core::message::remembered::Remembered;
use mainstay_core::policy::Policy;
use mainstay_core::record::keepsakes::Board;
use mainstay_core::record::{Head, Record};
use mainstay_core::server::stop::Step;

use super::LINK;
use super::outside::{Halt, Outside, broken, text};
use super::pump::Pump;

/// Lines of ours that may wait for a client that does not read, before it is not listened to any more.
const TO_CLIENT_BYTES: usize = 256 * 1024;
/// Turns of the loop after which it is called busy.
const TURNS: u32 = 20_000;
/// Ticks at one moment after which they are called busy.
const TICKS: u32 = 100;

/// What outlives a killed keeper.
#[derive(Debug)]
pub struct Memory {
    head: Head,
    opening: Vec<u8>,
    slots: Vec<Slot>,
    board: Board,
    keepsakes: Vec<u8>,
    inbox: Vec<u8>,
}

impl Memory {
    /// Fresh memory with room for so many requests in flight.
    pub fn new(slots: usize) -> Self {
        Self {
            head: Head::default(),
            opening: vec![0; WHOLE_LINE_BYTES],
            slots: vec![Slot::free(); slots],
            board: Board::new(),
            keepsakes: vec![0; 256 * 1024],
            inbox: Vec::new(),
        }
    }

    /// All of it but what was read.
    pub fn record(&mut self) -> Record<'_> {
        Record {
            head: &mut self.head,
            opening: &mut self.opening,
            slots: &mut self.slots,
            board: &self.board,
            keepsakes: &mut self.keepsakes,
        }
    }
}

/// What is known before the first fork.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Limits.
    pub limits: Limits,
    /// Choices.
    pub policy: Policy,
    /// What an earlier session saw.
    pub remembered: Remembered,
}

/// One keeper's life.
#[derive(Debug)]
pub struct Shell<'a> {
    /// The link.
    pub link: Link<'a>,
    limits: Limits,
    inbox: &'a mut Vec<u8>,
    up: Pump,
    down: Pump,
    to_client: VecDeque<u8>,
    /// The client has a part of the first line of these.
    ours_torn: bool,
    to_server: VecDeque<u8>,
    /// All that went into the server's stdin.
    sent: Vec<u8>,
    /// Lines that a server which reads no more has not read.
    unread: Vec<u8>,
    client_in: bool,
    client_out: bool,
    releasing: bool,
    server: Option<Running>,
    unread_until: Option<Moment>,
    patience: Option<Moment>,
    /// The exit code, once all is done.
    pub finished: Option<u8>,
    /// The state before the last input or line.
    before: &'static str,
    ticks: (Moment, u32),
}

#[derive(Debug, Default)]
struct Running {
    stdin: bool,
    stdin_closing: bool,
    stdout: bool,
    exit_told: bool,
}

impl<'a> Shell<'a> {
    /// Begins, or goes on where a killed keeper stopped.
    pub fn begin(
        plan: &Plan,
        memory: &'a mut Memory,
        lost: Option<Lost>,
        outside: &mut Outside,
    ) -> Self {
        let Memory {
            head,
            opening,
            slots,
            board,
            keepsakes,
            inbox,
        } = memory;
        let mid_line = head.client_mid_line != 0;
        let about = About {
            link: LINK,
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
            listed: true,
        };
        let record = Record {
            head,
            opening,
            slots,
            board,
            keepsakes,
        };
        let Plan {
            limits,
            policy,
            remembered,
        } = plan.clone();
        let mut shell = Self {
            link: Link::new(about, limits.clone(), policy, record, remembered),
            limits,
            up: Pump::over(inbox.clone(), mid_line),
            inbox,
            down: Pump::over(Vec::new(), false),
            to_client: VecDeque::new(),
            ours_torn: false,
            to_server: VecDeque::new(),
            sent: Vec::new(),
            unread: Vec::new(),
            client_in: true,
            client_out: true,
            releasing: false,
            server: None,
            unread_until: None,
            patience: None,
            finished: None,
            before: "",
            ticks: (outside.now, 0),
        };
        if shell.link.mid_line().to_client() {
            shell.to_client.push_back(b'\n');
            shell.ours_torn = true;
        }
        shell.link.begin(outside.now, lost);
        shell
    }

    /// Whether all that the client is to have has been written.
    pub fn flushed(&self) -> bool {
        self.down.flushed() && self.to_client.is_empty()
    }

    /// Whether the client is still written to.
    pub fn writes(&self) -> bool {
        self.client_out
    }

    /// What it holds, for people.
    pub fn told(&self) -> String {
        format!(
            "{}: {} in flight; {} bytes from the client, {} to the server and {} of ours; {} bytes from the server, {} to the client \
             and {} of ours",
            self.link.word(),
            self.link.in_flight(),
            self.up.rest.len(),
            self.up.out.len(),
            self.to_server.len(),
            self.down.rest.len(),
            self.down.out.len(),
            self.to_client.len(),
        ) + if self.down.mid_line() {
            " (mid-line)"
        } else {
            ""
        }
    }

    /// When the keeper wants to be woken if nothing happens.
    pub fn wake_at(&self, outside: &Outside) -> Option<Moment> {
        let exit_due = match (&self.server, &outside.process) {
            (Some(server), Some(process)) if !server.exit_told => process
                .ended
                .map(|(_, at)| at.after_ms(self.limits.grace_term_ms)),
            (Some(_) | None, Some(_) | None) => None,
        };
        let link = self.link.wake_at().map(|(at, _)| at);
        let all = [link, exit_due, self.patience, self.unread_until];
        all.into_iter().flatten().min()
    }

    /// One input from outside of the data.
    pub fn tell(&mut self, outside: &mut Outside, input: Input) -> Result<(), Halt> {
        outside.step()?;
        self.handle(outside, input)
    }

    /// Everything that is ready is handled; true when all is done.
    pub fn turn(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        for _ in 0..TURNS {
            self.perform(outside)?;
            let mut again = self.pump_down(outside)?;
            again |= self.perform(outside)?;
            let generation = self.link.generation();
            again |= self.pump_up(outside)?;
            again |= generation != self.link.generation();
            again |= !self.to_client.is_empty() && self.write_client(outside)?;
            self.tell_exit(outside)?;
            again |= self.perform(outside)?;
            again |= !self.to_client.is_empty() && self.write_client(outside)?;
            if self.done(outside) {
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
        let Some((at, reason)) = self.link.wake_at() else {
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
            return broken(format!("ticks without end: {reason:?}"));
        }
        outside.note(|| format!("tick: {reason:?}"));
        self.handle(outside, Input::Tick)?;
        Ok(true)
    }

    fn handle(&mut self, outside: &mut Outside, input: Input) -> Result<(), Halt> {
        self.before = self.link.word();
        if !matches!(input, Input::Tick) {
            outside.note(|| format!("input: {input:?}"));
        }
        let doubted = self.link.doubted();
        outside.watch.told(outside.now, &input);
        let shim = matches!(
            input,
            Input::Stop(Cause::ShimSignal { .. } | Cause::ShimKilled)
        );
        self.link.handle(outside.now, input);
        if self.link.away() {
            outside.watch.let_go();
        }
        if (shim || doubted) && !self.link.doubted() && !self.link.away() {
            outside.watch.ends(outside.now);
        }
        let (before, after) = (self.before, self.link.word());
        if before != after {
            outside.note(|| format!("{before} -> {after}"));
        }
        outside.step()
    }

    fn done(&mut self, outside: &Outside) -> bool {
        if self.finished.is_none() {
            return false;
        }
        let patience = outside.now.after_ms(self.limits.grace_term_ms);
        let until = *self.patience.get_or_insert(patience);
        !self.client_out || self.flushed() || outside.now >= until
    }

    fn perform(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut any = false;
        while let Some(output) = self.link.next() {
            any = true;
            if let Err(halt) = outside.step() {
                outside.watch.undone(&output);
                return Err(halt);
            }
            outside.watch.asked_for(outside.now, &output)?;
            match output {
                Output::Spawn => self.spawn(outside)?,
                Output::ToClient(line) => {
                    outside.note(|| format!("ours to client: {}", text(&line)));
                    self.to_client.extend(line);
                }
                Output::ToServer(line) => {
                    outside.note(|| format!("ours to server: {}", text(&line)));
                    self.to_server.extend(line);
                }
                Output::Say(_) | Output::LingerOver => {}
                Output::Stop(step) => self.stop(outside, step)?,
                Output::Measure => {
                    let cpu_ms = outside.dice.below(3) * 1_000;
                    let traced = outside.dice.permille(20);
                    self.handle(outside, Input::Measured { cpu_ms, traced })?;
                }
                Output::ReleaseClient => self.releasing = true,
                Output::DropClient => self.drop_client(outside),
                Output::Linger => self.linger(outside),
                Output::Tell(what) => outside.note(|| format!("event: {}", what.word())),
                Output::Finish(code) => {
                    outside.note(|| format!("finish {code}"));
                    self.finished = Some(code);
                }
            }
        }
        if self.releasing && self.flushed() {
            self.drop_client(outside);
        }
        Ok(any)
    }

    fn spawn(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        self.up.sink_lost();
        self.to_server.clear();
        self.sent.clear();
        self.unread.clear();
        self.down.source_lost();
        let next = self.link.generation() + 1;
        outside.watch.spawn(outside.now, next, self.before)?;
        if outside.start(next)? {
            outside.note(|| format!("generation {next} is started"));
            self.server = Some(Running {
                stdin: true,
                stdout: true,
                ..Running::default()
            });
            self.handle(outside, Input::Started)?;
            if self.link.generation() != next {
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
        if let Some(server) = &mut self.server {
            server.stdin_closing = true;
        }
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

    fn linger(&mut self, outside: &mut Outside) {
        if self.up.mid_line() {
            self.to_server.push_front(b'\n');
            outside.watch.server_is_left_with_half_a_line();
        }
        self.up.forget_partial();
        self.keep(outside);
        self.down.sink_lost();
        self.ours_torn = false;
        self.drop_client(outside);
        outside.watch.client_leaves();
    }

    /// Another client is there, on the pipes that are outside now.
    pub fn reattach(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        self.client_in = true;
        self.client_out = true;
        self.to_client.clear();
        self.unread_until = None;
        self.sent.clear();
        self.up.source_lost();
        self.keep(outside);
        self.handle(outside, Input::Reattached)
    }

    /// Whether a client that comes back is taken in.
    pub fn takes_in(&self) -> bool {
        self.link.away() && self.up.flushed() && self.to_server.is_empty()
    }

    fn drop_client(&mut self, outside: &mut Outside) {
        if self.client_out {
            outside.note(|| "the client's pipes are let go".into());
        }
        self.releasing = false;
        self.client_in = false;
        self.unread_until = None;
        self.client_out = false;
        self.to_client.clear();
        self.down.discard_routed();
        outside.to_client.writer_gone = true;
        outside.from_client.reader_gone = true;
    }
}
