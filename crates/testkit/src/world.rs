//! A simulated world around the link: one seed is one story.
//!
//! A scripted [`client`] and a scripted [`server`] talk through a [`shell`] that does what the keeper does, by a clock
//! that only the story moves. Chance lets servers die at any byte, starts fail, the machine sleep, the client leave, and
//! the keeper be killed between any two of its steps. The [`watch`] checks every promise on the way.
//!
//! Invariants: the same seed tells the same story, byte for byte; nothing here waits, and nothing knows how the link
//! comes to its decisions.

pub mod chance;
pub mod client;
pub mod dice;
pub mod matrix;
pub mod outside;
pub mod pipe;
pub mod pump;
pub mod raw;
pub mod said;
pub mod server;
pub mod shell;
pub mod sweep;
pub mod watch;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, LeaseEnded, Lost, Renewing, Status};
use mainstay_core::lease::Over;
use mainstay_core::link::Input;
use mainstay_core::message::remembered::Remembered;
use mainstay_core::policy::{Policy, Retry};

use chance::Faults;
use client::Client;
use dice::Dice;
use outside::{Halt, Outside};
use pipe::Pipe;
use server::{Server, Temper};
use shell::{Memory, Plan, Shell};
use watch::Watch;

/// Steps after which a story has gone astray.
const STEPS: u32 = 100_000;
/// How long all is calm before the end.
const CALM_MS: u64 = 300_000;
/// How long the end may take in all.
const END_MS: u64 = 600_000;

/// What a story was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Generations that were started.
    pub generations: u32,
    /// Keepers that were killed.
    pub killed: u32,
    /// Clients that came back.
    pub reattached: u32,
    /// Steps that it took.
    pub steps: u32,
}

/// A promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which one.
    pub what: String,
    /// The story up to there, if it was to be told.
    pub trace: Vec<String>,
}

/// Tells the story of this seed.
pub fn run(seed: u64, trace: bool) -> Result<Told, Failure> {
    let mut story = Story::new(seed, trace);
    story.tell().map_err(|halt| Failure {
        what: match halt {
            Halt::Killed => "killed at an unlikely place".into(),
            Halt::Broken(what) => what,
        },
        trace: story.outside.trace.take().unwrap_or_default(),
    })
}

/// The story that is being told, for whoever hears a panic.
static TELLING: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes which story is being told, and says so if it panics.
fn now_telling(seed: u64) {
    if TELLING.swap(seed, Ordering::Relaxed) == u64::MAX {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let seed = TELLING.load(Ordering::Relaxed);
            drop(writeln!(std::io::stderr(), "seed {seed} panics"));
            usual(panic);
        }));
    }
}

#[derive(Debug)]
struct Story {
    outside: Outside,
    plan: Plan,
    client: Client,
    server: Option<Server>,
    temper: Temper,
    faults: Faults,
    agenda: BTreeMap<(Moment, u64), Happening>,
    count: u64,
    reading: bool,
    server_reading: bool,
    phase: Phase,
    slots: usize,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Busy,
    /// Nothing goes wrong any more.
    Calm,
    Ending,
}

#[derive(Debug)]
enum Happening {
    ClientActs,
    ClientReads,
    ClientSays(u32, Vec<u8>),
    ClientReturns,
    ServerReads(u32),
    ServerWrites(u32, String),
    ServerAnswers(u32, String, String),
    ServerDies(u32, Option<String>),
    ServerObeys(u32),
    Next,
}

impl Story {
    fn new(seed: u64, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let limits = chance::limits(&mut dice);
        let policy = Policy {
            retry: dice.pick(&[Retry::Never, Retry::Safe, Retry::Safe, Retry::Annotated]),
            lazy: dice.permille(100),
            advertise: dice.permille(200),
        };
        let remembered = if dice.permille(400) {
            chance::remembered()
        } else {
            Remembered::default()
        };
        let temper = chance::temper(&mut dice);
        let faults = chance::faults(&mut dice);
        let manners = chance::manners(&mut dice);
        let slots = dice.pick(&[8, 64, 256]) as usize;
        let client_room = dice.pick(&[32, 1_024, 65_536]) as usize;
        let start_fails = dice.pick(&[0, 0, 50, 400]);
        let mut watch = Watch::new(&limits, policy);
        watch.crowded = slots < 64;
        let mut outside = Outside {
            now: Moment(1_000_000),
            from_client: Pipe::new(65_536),
            to_client: Pipe::new(client_room),
            attachment: 1,
            process: None,
            manners,
            start_fails,
            fuse: None,
            watch,
            trace: trace.then(Vec::new),
            dice,
        };
        let client = Client::new(&mut outside);
        outside.note(|| {
            format!("seed {seed}: {limits:?} {policy:?} {temper:?} {manners:?} {faults:?}")
        });
        Self {
            outside,
            plan: Plan {
                limits,
                policy,
                remembered,
            },
            client,
            server: None,
            temper,
            faults,
            agenda: BTreeMap::new(),
            count: 0,
            reading: false,
            server_reading: false,
            phase: Phase::Busy,
            slots,
            told: Told::default(),
        }
    }

    fn tell(&mut self) -> Result<Told, Halt> {
        let mut memory = Memory::new(self.slots);
        self.later(1, Happening::ClientActs);
        let busy = self.outside.dice.between(1_000, 40_000);
        self.later(busy, Happening::Next);
        let mut lost = None;
        loop {
            let plan = self.plan.clone();
            let mut shell = Shell::begin(&plan, &mut memory, lost.take(), &mut self.outside);
            match self.keep(&mut shell) {
                Ok(()) => {
                    let flushed = shell.flushed();
                    self.told.generations = shell.link.generation();
                    self.outside.watch.end(flushed)?;
                    return Ok(self.told);
                }
                Err(Halt::Killed) => {
                    let finished = shell.finished.is_some();
                    self.told.killed += 1;
                    self.outside.note(|| "the keeper is killed".into());
                    self.outside.fuse = None;
                    self.outside.end_tree_of_killed_keeper();
                    self.outside.watch.keeper_killed(shell.link.word());
                    self.server = None;
                    if finished {
                        return Ok(self.told);
                    }
                    lost = Some(Lost {
                        pid: 1,
                        status: None,
                        ended: 1,
                        settled: 0,
                        successor: Some(2),
                    });
                }
                Err(halt) => return Err(halt),
            }
        }
    }

    /// One keeper's life, until all is done.
    fn keep(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        loop {
            self.told.steps += 1;
            if self.told.steps > STEPS {
                return outside::broken("the story has no end");
            }
            self.light_a_fuse();
            if shell.turn(&mut self.outside)? {
                return Ok(());
            }
            let mut moved = self.client.flush(&mut self.outside);
            if let Some(server) = &mut self.server {
                moved |= server.flush(&mut self.outside);
            }
            if moved {
                continue;
            }
            self.look(shell);
            let agenda = self.agenda.keys().next().map(|(at, _)| *at);
            let wake = shell.wake_at(&self.outside);
            let Some(next) = [agenda, wake].into_iter().flatten().min() else {
                return outside::broken("nothing will ever happen");
            };
            self.pass_until(next);
            if agenda.is_some_and(|at| at <= self.outside.now)
                && let Some((_, happening)) = self.agenda.pop_first()
            {
                self.happen(shell, happening)?;
            }
        }
    }

    fn light_a_fuse(&mut self) {
        let Faults {
            kill_keeper,
            keepers_left,
            ..
        } = self.faults;
        let dice = &mut self.outside.dice;
        if self.phase == Phase::Busy && keepers_left > 0 && dice.permille(kill_keeper) {
            self.outside.fuse = Some(dice.below(60) as u32);
            self.faults.keepers_left -= 1;
        }
    }

    fn pass_until(&mut self, next: Moment) {
        if next > self.outside.now {
            self.outside.now = next;
        }
        if self.outside.dice.permille(self.faults.stall) && self.phase == Phase::Busy {
            let ms = self.outside.dice.between(1, 100_000);
            self.outside.now = self.outside.now.after_ms(ms);
            self.outside.watch.late(ms);
            self.outside.note(|| format!("all is late by {ms} ms"));
        }
    }

    fn later(&mut self, ms: u64, happening: Happening) {
        self.count += 1;
        let at = self.outside.now.after_ms(ms);
        self.agenda.insert((at, self.count), happening);
    }

    /// The peers see what has come for them.
    fn look(&mut self, shell: &Shell<'_>) {
        let up = self
            .outside
            .process
            .as_ref()
            .map(|process| process.generation);
        let known = self.server.as_ref().map(|server| server.generation);
        if up != known {
            let temper = self.temper.clone();
            self.server = up.map(|generation| Server::new(generation, &temper, &mut self.outside));
            // Nobody dawdles any more once all is calm, also who comes then.
            if let (Some(server), false) = (&mut self.server, self.phase == Phase::Busy) {
                server.read_most = 65_536;
            }
            self.outside.manners = chance::manners(&mut self.outside.dice);
            if let Some(generation) = up {
                let ms = self.outside.dice.delay_ms(1_500);
                self.server_reading = true;
                self.later(ms, Happening::ServerReads(generation));
            }
        }
        if let Some(process) = &self.outside.process
            && !self.server_reading
            && (!process.stdin.is_empty() || process.stdin.writer_gone)
        {
            let generation = process.generation;
            let ms = self.outside.dice.between(1, 20);
            self.server_reading = true;
            self.later(ms, Happening::ServerReads(generation));
        }
        if let Some(process) = &self.outside.process
            && process.ended.is_none()
            && let Some(at) = process.terminated
            && at == self.outside.now
            && let Some(ms) = process.manners.term_ms
        {
            let generation = process.generation;
            self.later(ms, Happening::ServerObeys(generation));
        }
        if !self.reading && !self.outside.to_client.is_empty() {
            self.reading = true;
            let ms = self.outside.dice.delay_ms(40);
            self.later(ms, Happening::ClientReads);
        }
        let word = shell.link.word();
        let busy = self.phase == Phase::Busy;
        if busy && self.outside.dice.permille(self.faults.kill_server) {
            if let Some(process) = &mut self.outside.process
                && word != "starting"
            {
                let killed = Status::Signal {
                    number: 9,
                    core: false,
                };
                process.end(killed, self.outside.now);
                self.outside.note(|| "the server is killed".into());
            }
        }
    }

    fn happen(&mut self, shell: &mut Shell<'_>, happening: Happening) -> Result<(), Halt> {
        let up = |server: &Option<Server>, outside: &Outside, generation: u32| {
            let serves = outside
                .process
                .as_ref()
                .is_some_and(outside::Process::serves);
            serves
                && server
                    .as_ref()
                    .is_some_and(|server| server.generation == generation)
        };
        match happening {
            Happening::ClientActs => {
                if self.phase == Phase::Busy {
                    if !shell.link.away() {
                        self.client.act(&mut self.outside);
                        self.strike(shell)?;
                    }
                    let ms = self.outside.dice.delay_ms(1_000);
                    self.later(ms, Happening::ClientActs);
                    self.renew(shell)?;
                }
            }
            Happening::ClientReads => {
                self.reading = false;
                for client::Later::Say(line) in self.client.read(&mut self.outside) {
                    let ms = self.outside.dice.delay_ms(3_000);
                    let who = self.outside.attachment;
                    self.later(ms, Happening::ClientSays(who, line));
                }
            }
            Happening::ClientReturns => self.client_returns(shell)?,
            Happening::ClientSays(who, line) => {
                if !self.outside.from_client.writer_gone
                    && who == self.outside.attachment
                    && !shell.link.away()
                {
                    self.client.say(&mut self.outside, &line);
                }
            }
            Happening::ServerReads(generation) if up(&self.server, &self.outside, generation) => {
                self.server_reads(generation);
            }
            Happening::ServerWrites(generation, line)
                if up(&self.server, &self.outside, generation) =>
            {
                if let Some(server) = &mut self.server {
                    server.write(&mut self.outside, line.as_bytes());
                }
            }
            Happening::ServerAnswers(generation, token, line)
                if up(&self.server, &self.outside, generation) =>
            {
                if let Some(server) = &mut self.server {
                    server.answer(&mut self.outside, &token, &line);
                }
            }
            Happening::ServerDies(generation, torn)
                if up(&self.server, &self.outside, generation) =>
            {
                self.server_dies(torn);
            }
            Happening::ServerObeys(generation) if up(&self.server, &self.outside, generation) => {
                if let Some(process) = &mut self.outside.process {
                    process.end(Status::Code(0), self.outside.now);
                }
            }
            Happening::ServerReads(_)
            | Happening::ServerWrites(..)
            | Happening::ServerAnswers(..)
            | Happening::ServerDies(..)
            | Happening::ServerObeys(_) => {}
            Happening::Next => self.next_phase(shell)?,
        }
        Ok(())
    }

    fn server_reads(&mut self, generation: u32) {
        let Some(server) = &mut self.server else {
            return;
        };
        let mut later = Vec::new();
        let ended = server.read(&mut self.outside, &mut later);
        let most = server.temper.answer_ms;
        let mut ms = 0;
        for wish in later {
            ms += self.outside.dice.delay_ms(most);
            let happening = match wish {
                server::Later::Write(line) => Happening::ServerWrites(generation, line),
                server::Later::Answer(token, line) => {
                    Happening::ServerAnswers(generation, token, line)
                }
                server::Later::Die(torn) => Happening::ServerDies(generation, torn),
            };
            self.later(ms, happening);
        }
        if ended {
            let manners = self.outside.process.as_ref().map(|process| process.manners);
            if let Some(ms) = manners.and_then(|manners| manners.eof_ms) {
                self.later(ms, Happening::ServerObeys(generation));
            }
            // There is nothing more to read.
            return;
        }
        self.server_reading = false;
    }

    fn server_dies(&mut self, torn: Option<String>) {
        // Whoever serves on writes whole lines.
        let alone = self
            .outside
            .process
            .as_ref()
            .is_some_and(|p| !p.manners.serve_on);
        if let (true, Some(torn), Some(server)) = (alone, torn, &mut self.server) {
            let len = self.outside.dice.below(torn.len() as u64) as usize;
            server.write(&mut self.outside, &torn.as_bytes()[..len]);
        }
        let status = match self.outside.dice.below(3) {
            0 => Status::Code(0),
            1 => Status::Code(1),
            _ => Status::Signal {
                number: 11,
                core: true,
            },
        };
        self.outside.note(|| format!("the server dies: {status}"));
        if let Some(process) = &mut self.outside.process {
            process.end(status, self.outside.now);
        }
    }

    fn renew(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if !self.outside.dice.permille(self.faults.renew) {
            return Ok(());
        }
        let why = match self.outside.dice.below(3) {
            0 => Renewing::Asked,
            1 => Renewing::Changed { path: "/x".into() },
            _ => Renewing::Memory { bytes: 1 << 30 },
        };
        shell.tell(&mut self.outside, Input::Renew(why))
    }

    /// Somebody signals or kills the shim; the client may mean it, or come back.
    fn strike(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if self.plan.limits.linger_ms == 0 || !self.outside.dice.permille(self.faults.strike) {
            return Ok(());
        }
        // One that is not kept for certain ends the story; most are.
        if shell.link.word() != "ready" && !self.outside.dice.permille(50) {
            return Ok(());
        }
        let cause = match self.outside.dice.below(2) {
            0 => Cause::ShimSignal { number: 15 },
            _ => Cause::ShimKilled,
        };
        shell.tell(&mut self.outside, Input::Stop(cause))?;
        if shell.link.doubted() && self.outside.dice.permille(30) {
            self.client.close(&mut self.outside);
        }
        let ms = self.outside.dice.delay_ms(4_000);
        self.later(ms, Happening::ClientReturns);
        Ok(())
    }

    /// The client starts the server once more, if it is still kept.
    fn client_returns(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        if shell.link.doubted() || (shell.link.away() && !shell.takes_in()) {
            self.later(50, Happening::ClientReturns);
            return Ok(());
        }
        if !shell.link.away() {
            return Ok(());
        }
        let outside = &mut self.outside;
        outside.attachment += 1;
        outside.from_client = Pipe::new(65_536);
        let room = outside.dice.pick(&[32, 1_024, 65_536]) as usize;
        outside.to_client = Pipe::new(room);
        outside.watch.client_returns();
        outside.note(|| "the client comes back".into());
        self.told.reattached += 1;
        self.client = Client::returning(outside, shell.link.modern());
        shell.reattach(outside)?;
        self.client.act(outside);
        Ok(())
    }

    fn next_phase(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        match self.phase {
            Phase::Busy => {
                self.outside.note(|| "all is calm now".into());
                self.phase = Phase::Calm;
                self.outside.start_fails = 0;
                self.temper = chance::calm(&self.temper);
                if let Some(server) = &mut self.server {
                    server.temper = chance::calm(&server.temper);
                    server.read_most = 65_536;
                }
                self.client.read_most = 65_536;
                self.outside.fuse = None;
                self.later(CALM_MS, Happening::Next);
            }
            Phase::Calm => {
                self.phase = Phase::Ending;
                self.outside.note(|| shell.told());
                let process = self.outside.process.as_ref();
                let up = process
                    .filter(|process| process.serves())
                    .map(|process| process.generation);
                let silent = self.server.as_ref().map(|server| server.silent.clone());
                if shell.finished.is_none() && shell.writes() {
                    self.outside.watch.calm(up, &silent.unwrap_or_default())?;
                }
                self.later(END_MS, Happening::Next);
                self.end(shell)?;
            }
            Phase::Ending => {
                self.outside.watch.end(false)?;
                return outside::broken("the end does not come");
            }
        }
        Ok(())
    }

    /// Somebody or something ends it all.
    fn end(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        let cause = match self.outside.dice.below(9) {
            0 => Cause::ClientGone,
            1 => Cause::ShimSignal { number: 15 },
            2 => Cause::ShimKilled,
            3 => Cause::Asked,
            5 => Cause::LeaseEnded(LeaseEnded {
                lease: "night".into(),
                over: Over::Closed { by: None },
            }),
            4 => {
                self.outside.note(|| "the client is gone".into());
                self.client.close(&mut self.outside);
                self.outside.to_client.reader_gone = true;
                return Ok(());
            }
            _ => {
                self.client.close(&mut self.outside);
                return Ok(());
            }
        };
        shell.tell(&mut self.outside, Input::Stop(cause))
    }
}
