//! One story: its client, its server, its keepers, and its turns.

use std::collections::BTreeMap;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Lost, Status};
use mainstay_protocol::kill_point::set_fuse;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::{Policy, Retry};

use super::StoryCounts;
use super::chance::{self, AtLines, Faults};
use super::client::Client;
use super::dice::Dice;
use super::outside::{self, Halt, Outside};
use super::pipe::Pipe;
use super::server::{Server, Temper};
use super::shell::{Memory, OwnMemory, Plan, Shell, until_killed};
use super::watch::Watch;

/// Steps after which a story counts as endless.
const STEPS: u32 = 100_000;

/// One story with all its parts.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) outside: Outside,
    pub(super) plan: Plan,
    pub(super) client: Client,
    pub(super) server: Option<Server>,
    pub(super) temper: Temper,
    pub(super) faults: Faults,
    pub(super) agenda: BTreeMap<(Moment, u64), Happening>,
    pub(super) count: u64,
    pub(super) reading: bool,
    pub(super) server_reading: bool,
    pub(super) phase: Phase,
    pub(super) slots: usize,
    pub(super) told: StoryCounts,
}

/// The phase of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Busy,
    /// From now on nothing goes wrong.
    Calm,
    Ending,
}

/// What is going to happen.
#[derive(Debug)]
pub(super) enum Happening {
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
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let limits = chance::limits(&mut dice);
        let mut policy = Policy {
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
        let mut faults = chance::faults(&mut dice);
        let manners = chance::manners(&mut dice);
        let mut slots = dice.pick(&[8, 64, 256]) as usize;
        let client_room = dice.pick(&[32, 1_024, 65_536]) as usize;
        let start_fails = dice.pick(&[0, 0, 50, 400]);
        let watched = dice.permille(300);
        // A long line that meets a full table is answered without a slot, and that answer dies with its keeper.
        let mut bulky = slots >= 64 && dice.permille(200);
        let at_lines = chance::kills_at_lines(seed);
        if let Some(at_lines) = at_lines {
            faults = at_lines.faults(faults);
            policy.retry = dice.pick(&[Retry::Never, Retry::Safe]);
            slots = slots.max(64);
            bulky |= at_lines == AtLines::Large;
        }
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
            bulky,
            calls_mostly: at_lines.is_some(),
            watched,
            broken: None,
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
            told: StoryCounts::default(),
        }
    }

    pub(super) fn tell(&mut self) -> Result<StoryCounts, Halt> {
        let mut memory = Memory::new(self.slots);
        self.later(1, Happening::ClientActs);
        let busy = self.outside.dice.between(1_000, 40_000);
        self.later(busy, Happening::Next);
        let mut lost = None;
        loop {
            let plan = self.plan.clone();
            let mut own = OwnMemory::default();
            let mut shell = None;
            let lost_before = lost.take();
            let life = until_killed(|| {
                if lost_before.is_some() {
                    self.light_a_fuse_for_successor();
                }
                let shell = shell.insert(Shell::new(&plan, &mut memory, &mut own));
                shell.begin(lost_before, &mut self.outside)?;
                self.keep(shell)
            });
            match (life, shell) {
                (Ok(()), Some(shell)) => {
                    let flushed = shell.flushed();
                    if !shell.writes() {
                        self.outside.watch.let_go();
                    }
                    self.told.generations = shell.link().generation();
                    self.outside.watch.end(flushed)?;
                    return Ok(self.told);
                }
                (Err(Halt::Killed), shell) => {
                    self.told.killed += 1;
                    self.outside.note(|| "the keeper is killed".into());
                    self.outside.verdict()?;
                    self.outside.end_tree_of_killed_keeper();
                    // None: it was killed before it had taken over what its predecessor left.
                    if let Some(mut shell) = shell {
                        self.outside.watch.keeper_killed(shell.link().word());
                        for output in shell.undone() {
                            self.outside.watch.undone(&output);
                        }
                    }
                    self.server = None;
                    if !memory.ending() {
                        self.outside.watch.forget_end();
                    }
                    if memory.away() {
                        self.outside.watch.let_go();
                    }
                    if memory.finished() {
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
                (Err(halt), _) => return Err(halt),
                (Ok(()), None) => return outside::broken("a keeper that was not there ends"),
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
            let wake = shell.wake_at();
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
            kill_at_lines,
            kill_within,
            ..
        } = self.faults;
        if self.phase != Phase::Busy || keepers_left == 0 {
            return;
        }
        // With large lines, mostly while more is in flight than one read takes.
        let large = !self.outside.bulky || self.outside.from_client.len() > 32_768;
        let chance = if self.outside.from_client.is_empty() {
            0
        } else if large {
            kill_at_lines
        } else {
            kill_at_lines / 8
        };
        let dice = &mut self.outside.dice;
        let most = if chance > 0 && dice.permille(chance) {
            kill_within
        } else if dice.permille(kill_keeper) {
            dice.pick(&[30, 300, 3_000])
        } else {
            return;
        };
        set_fuse(Some(dice.below(most) as u32));
        self.faults.keepers_left -= 1;
    }

    /// A successor may be killed before it has taken over.
    fn light_a_fuse_for_successor(&mut self) {
        let Faults {
            keepers_left,
            kill_successor,
            ..
        } = self.faults;
        let dice = &mut self.outside.dice;
        if kill_successor > 0 && keepers_left > 0 && dice.permille(kill_successor) {
            set_fuse(Some(dice.below(40) as u32));
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

    pub(super) fn later(&mut self, ms: u64, happening: Happening) {
        self.count += 1;
        let at = self.outside.now.after_ms(ms);
        self.agenda.insert((at, self.count), happening);
    }

    /// The peers see what has arrived for them.
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
            // Once all is calm, every server reads fast, also one that starts then.
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
        let word = shell.link().word();
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
}
