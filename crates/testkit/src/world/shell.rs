//! The keeper as the link sees it: it performs outputs and tells inputs in the order in which the real one does.
//!
//! It is the model of `keeper/{mod,data,perform,end}.rs` without descriptors. It may be killed between any two steps;
//! what survives is in the [`Memory`].

use std::collections::VecDeque;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, Lost, Status, Usage};
use mainstay_core::limits::{Limits, WHOLE_LINE_BYTES};
use mainstay_core::link::{About, Exited, Input, Link, Output, Route};
use mainstay_core::message::inflight::Slot;
use mainstay_core::message::remembered::Remembered;
use mainstay_core::policy::Policy;
use mainstay_core::record::keepsakes::Board;
use mainstay_core::record::{Head, Record};
use mainstay_core::server::stop::Step;

use super::outside::{Halt, Outside, broken, text};
use super::pump::{Pump, Show};
use super::watch::Way;

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
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
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
        outside.watch.told(outside.now, &input);
        self.link.handle(outside.now, input);
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
            outside.step()?;
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
                Output::Say(_) => {}
                Output::Stop(step) => self.stop(outside, step)?,
                Output::Measure => {
                    let cpu_ms = outside.dice.below(3) * 1_000;
                    let traced = outside.dice.permille(20);
                    self.handle(outside, Input::Measured { cpu_ms, traced })?;
                }
                Output::ReleaseClient => self.releasing = true,
                Output::DropClient => self.drop_client(outside),
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

    fn pump_down(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut step = true;
        let mut steps = 0;
        while step && steps < 32 {
            step = false;
            steps += 1;
            outside.step()?;
            if let (Some(Running { stdout: true, .. }), Some(process)) =
                (&self.server, &mut outside.process)
            {
                if self.down.fill(&mut process.stdout) {
                    self.link.server_wrote(outside.now);
                    step = true;
                }
            }
            if self.to_client.is_empty() || self.down.mid_line() {
                self.before = self.link.word();
                let Self { down, link, .. } = self;
                step |= down.route(&mut |show| route_down(link, outside, show))?;
            }
            if self.link.has_output() {
                step |= self.perform(outside)?;
            }
            step |= self.write_client(outside)?;
        }
        if self.down.ended()
            && (self.to_client.is_empty() || !self.client_out)
            && let Some(server) = &mut self.server
            && std::mem::take(&mut server.stdout)
        {
            let Self { down, link, .. } = self;
            down.finish(&mut |show| route_down(link, outside, show))?;
            self.write_client(outside)?;
            self.unread = self.unread_lines(outside);
            let tree_empty = self.tree_is_empty(outside);
            self.handle(outside, Input::StdoutClosed { tree_empty })?;
            return Ok(true);
        }
        Ok(step)
    }

    fn write_client(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        if !self.client_out {
            self.down.discard_routed();
            self.to_client.clear();
            self.link.delivered();
            return Ok(false);
        }
        let mut moved = false;
        let mut deaf = false;
        if !self.flushed() {
            // Noted before it is so: a needless newline harms nobody, a missing one loses an answer.
            self.link.mid_line().set_to_client(true);
        }
        while !self.down.flushed() && !deaf {
            match outside.to_client.write(self.down.out.make_contiguous()) {
                Ok(0) => break,
                Ok(len) => {
                    let written: Vec<u8> = self.down.out.iter().take(len).copied().collect();
                    self.down.written(len);
                    moved = true;
                    outside.to_client_tap(&written, Way::Passed)?;
                }
                Err(_) => {
                    self.down.discard_routed();
                    deaf = true;
                }
            }
        }
        if moved && self.down.flushed() {
            outside.step()?;
            self.link.delivered();
            outside.watch.delivered();
        }
        while !deaf && self.down.flushed() && !self.down.mid_line() && !self.to_client.is_empty() {
            match outside.to_client.write(self.to_client.make_contiguous()) {
                Ok(0) => break,
                Ok(len) => {
                    let written: Vec<u8> = self.to_client.drain(..len).collect();
                    self.ours_torn = written.last() != Some(&b'\n');
                    moved = true;
                    outside.to_client_tap(&written, Way::Ours)?;
                    outside.step()?;
                    if self.to_client.is_empty() {
                        self.link.written();
                        outside.watch.written();
                    }
                }
                Err(_) => deaf = true,
            }
        }
        let mid_line = self.down.mid_line() || self.down.torn() || self.ours_torn;
        self.link.mid_line().set_to_client(mid_line);
        if deaf {
            self.client_out = false;
            self.handle(outside, Input::Stop(Cause::ClientDeaf))?;
            return Ok(true);
        }
        Ok(moved)
    }

    fn pump_up(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut moved = false;
        let mut step = true;
        let mut steps = 0;
        while step && steps < 32 {
            step = false;
            steps += 1;
            outside.step()?;
            if self.client_in {
                step |= self.up.fill(&mut outside.from_client);
                self.keep(outside);
            }
            let turn = self.to_server.is_empty() || self.up.mid_line();
            if turn && self.to_client.len() < TO_CLIENT_BYTES {
                self.before = self.link.word();
                let Self { up, link, .. } = self;
                step |= up.route(&mut |show| route_up(link, outside, show))?;
                self.keep(outside);
            }
            if self.up.ended() && self.client_in {
                let Self { up, link, .. } = self;
                up.finish(&mut |show| route_up(link, outside, show))?;
                self.keep(outside);
            }
            if self.link.has_output() {
                step |= self.perform(outside)?;
            }
            step |= self.write_server(outside)?;
            let mid_line = self.up.mid_line();
            self.link.mid_line().set_from_client(mid_line);
            moved |= step;
        }
        if self.client_in
            && (self.up.ended() && !self.up.holds() || self.left_unread(moved, outside))
        {
            self.client_in = false;
            self.unread_until = None;
            self.handle(outside, Input::ClientEof)?;
            return Ok(true);
        }
        Ok(step || moved && (self.up.full() || self.up.ended() && self.up.holds()))
    }

    /// What was read and not routed is in memory that outlives us.
    fn keep(&mut self, outside: &mut Outside) {
        self.inbox.clone_from(&self.up.rest);
        outside.watch.marked();
    }

    fn left_unread(&mut self, moved: bool, outside: &Outside) -> bool {
        let left = (self.up.ended() && self.up.holds())
            || (self.up.full() && outside.from_client.writer_gone);
        if moved || !left {
            self.unread_until = None;
            return false;
        }
        let grace = outside.now.after_ms(self.limits.grace_eof_ms);
        outside.now >= *self.unread_until.get_or_insert(grace)
    }

    fn write_server(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let Some(server) = &mut self.server else {
            return Ok(false);
        };
        if !server.stdin {
            self.up.discard_routed();
            self.to_server.clear();
            return Ok(false);
        }
        let mut moved = false;
        let mut gone = false;
        while !self.up.flushed() && !gone {
            match outside.to_server(self.up.out.make_contiguous())? {
                Some(0) => break,
                Some(len) => {
                    self.sent.extend(self.up.out.range(..len));
                    self.up.written(len);
                    moved = true;
                    outside.step()?;
                }
                None => gone = true,
            }
        }
        while !gone && self.up.flushed() && !self.up.mid_line() && !self.to_server.is_empty() {
            match outside.to_server(self.to_server.make_contiguous())? {
                Some(0) => return Ok(moved),
                Some(len) => {
                    self.sent.extend(self.to_server.drain(..len));
                    moved = true;
                    outside.step()?;
                }
                None => gone = true,
            }
        }
        if gone && !server.stdin_closing {
            self.unread = self.unread_lines(outside);
        }
        let Some(server) = &mut self.server else {
            return Ok(moved);
        };
        if gone || (server.stdin_closing && self.up.flushed() && self.to_server.is_empty()) {
            server.stdin = false;
            if let Some(process) = &mut outside.process {
                process.stdin.writer_gone = true;
            }
        }
        if gone {
            let ended = outside.process.as_ref().is_some_and(|p| p.ended.is_some());
            if !server.stdin_closing && (!ended || server.exit_told) {
                self.handle(outside, Input::Stop(Cause::ServerExit))?;
            }
            return Ok(true);
        }
        Ok(moved)
    }

    fn tree_is_empty(&self, outside: &Outside) -> bool {
        let process = outside.process.as_ref();
        self.server.is_none() || process.is_none_or(super::outside::Process::tree_empty)
    }

    fn tell_exit(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let dry = self.server.as_ref().is_some_and(|server| !server.stdout)
            || (self.down.dry() && self.to_client.is_empty())
            || !self.client_out;
        let (Some(server), Some(process)) = (&mut self.server, &outside.process) else {
            return Ok(());
        };
        if let Some((status, at)) = process.ended
            && !server.exit_told
            && (dry || outside.now >= at.after_ms(self.limits.grace_term_ms))
        {
            server.exit_told = true;
            let served_on = server.stdout && server.stdin && process.serves();
            let tree_empty = process.tree_empty();
            if !served_on {
                self.end_torn_line();
                self.give_unread(outside);
            }
            self.handle(outside, exited(status, served_on, tree_empty))?;
        }
        self.tell_empty(outside)
    }

    fn tell_empty(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let told = self.server.as_ref().is_some_and(|server| server.exit_told);
        if self.link.descending() && told && self.tree_is_empty(outside) {
            return self.end_tree(outside);
        }
        Ok(())
    }

    fn end_tree(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let (Some(server), Some(process)) = (&mut self.server, &mut outside.process) else {
            return Ok(());
        };
        let left = process.kill(outside.now);
        if let Some((status, _)) = process.ended
            && !std::mem::replace(&mut server.exit_told, true)
        {
            self.end_torn_line();
            self.give_unread(outside);
            self.handle(outside, exited(status, false, true))?;
        }
        self.end_torn_line();
        self.handle(outside, Input::TreeEmpty { ended: 1, left })
    }

    /// The lines that the server has not read, and that nobody else can read any more.
    fn unread_lines(&self, outside: &Outside) -> Vec<u8> {
        let (Some(server), Some(process)) = (&self.server, &outside.process) else {
            return Vec::new();
        };
        let unreadable = if server.stdin {
            !process.serves()
        } else {
            process.tree_empty()
        };
        if !unreadable {
            return Vec::new();
        }
        let mut lines = Vec::new();
        let unread = process.stdin.len().min(self.sent.len());
        if unread > 0 {
            // A line that was read in part was not understood either.
            let read = self.sent.len() - unread;
            let begins = |at: usize| at == 0 || self.sent[at - 1] == b'\n';
            let from = (0..=read).rev().find(|&at| begins(at)).unwrap_or(read);
            lines.extend_from_slice(&self.sent[from..]);
        }
        lines.extend(&self.up.out);
        lines
    }

    /// What the dead server has not read is the link's again, before it hears of the death.
    fn give_unread(&mut self, outside: &mut Outside) {
        let lines = if self.unread.is_empty() {
            self.unread_lines(outside)
        } else {
            std::mem::take(&mut self.unread)
        };
        if !lines.is_empty() {
            outside.note(|| format!("never read: {}", text(&lines)));
        }
        outside.watch.unread(&lines);
        self.link.unread(&lines);
    }

    fn end_torn_line(&mut self) {
        let torn = self.down.mid_line();
        self.down.forget_partial();
        if torn {
            self.to_client.push_front(b'\n');
            self.ours_torn = true;
        }
    }
}

fn exited(status: Status, served_on: bool, tree_empty: bool) -> Input {
    Input::Exited(Exited {
        pid: 7,
        status,
        usage: Usage::default(),
        stderr_tail: vec!["last words".into()],
        out_of_memory: None,
        served_on,
        tree_empty,
    })
}

fn route_down(link: &mut Link<'_>, outside: &mut Outside, show: Show<'_>) -> Result<Route, Halt> {
    outside.step()?;
    let now = outside.now;
    let route = match show {
        Show::Line(frame, bytes) => link.server_line(now, frame, bytes),
        Show::Cut(frame) => link.server_known(frame),
        Show::Known(_) => Route::Forward,
        Show::CutEnd(frame) => link.server_line(now, frame, b""),
        Show::Piece(piece) => {
            link.gathered_piece(piece);
            Route::Gather
        }
        Show::GatherEnd(frame) => {
            link.gathered_from_server(now, frame);
            Route::Instead
        }
        Show::DropEnd(frame) => link.server_line(now, frame, b"(a long line)"),
    };
    outside.note(|| format!("server: {route:?} {}", told(show)));
    Ok(route)
}

fn route_up(link: &mut Link<'_>, outside: &mut Outside, show: Show<'_>) -> Result<Route, Halt> {
    outside.step()?;
    let now = outside.now;
    let route = match show {
        Show::Line(frame, bytes) => link.client_line(now, frame, bytes),
        Show::Cut(frame) => link.client_cut(frame),
        Show::Known(frame) => {
            link.client_known(now, frame);
            Route::Forward
        }
        Show::CutEnd(_) => Route::Forward,
        Show::DropEnd(frame) => {
            link.client_lost(now, frame);
            Route::Instead
        }
        Show::Piece(piece) => {
            link.gathered_piece(piece);
            Route::Gather
        }
        Show::GatherEnd(frame) => {
            link.gathered_from_client(now, frame);
            Route::Instead
        }
    };
    if route != Route::Hold {
        outside.note(|| format!("client: {route:?} {}", told(show)));
    }
    outside.watch.routed(show, route);
    Ok(route)
}

fn told(show: Show<'_>) -> String {
    match show {
        Show::Line(_, bytes) => text(bytes).to_string(),
        Show::Cut(frame) => format!("cut {frame:?}"),
        Show::Known(frame) => format!("known {frame:?}"),
        Show::CutEnd(frame) => format!("cut end {frame:?}"),
        Show::DropEnd(frame) => format!("drop end {frame:?}"),
        Show::Piece(piece) => format!("piece of {} bytes", piece.len()),
        Show::GatherEnd(frame) => format!("gather end {frame:?}"),
    }
}
