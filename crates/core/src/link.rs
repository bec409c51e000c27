//! One client with one server: the machine that the keeper drives.
//!
//! The shell tells it what happened (one input), performs what it asks for (drain [`Link::next`]), and sleeps until
//! [`Link::wake_at`]. Lines are routed in passing by [`Link::client_line`] and [`Link::server_line`]. It knows no
//! descriptor and no process but by number.
//!
//! Invariants: each tracked client request gets exactly one answer, from the server or from us; after the ladder has
//! begun nothing is started any more; the last output is always [`Output::Finish`].

mod end;
mod io;
mod route;
mod state;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;

use crate::clock::Moment;
use crate::event::{Lost, StartFailed, What};
use crate::limits::Limits;
use crate::message::envelope;
use crate::message::inflight::{Inflight, Slot, Tracked};
use crate::record::{Head, Phase, Record};

pub use io::{About, Exited, Input, Output, Reason, Route};
use state::{Because, Closing, Life, Server, Silence, Stage, TreeState, Up};

/// How long a link stays to explain a failed start to a client that goes on asking.
const EXPLAIN_MS: u64 = 2_000;
/// The id of our replayed `initialize`: a string that is no number.
const GREETING_ID: &[u8] = b"\"ms:initialize\"";

/// The machine.
#[derive(Debug)]
pub struct Link<'a> {
    about: About,
    limits: Limits,
    head: &'a mut Head,
    opening: &'a mut [u8],
    inflight: Inflight<&'a mut [Slot]>,
    life: Life,
    outputs: VecDeque<Output>,
    /// Answers of ours for this generation and older are on their way to the client.
    owed: Option<u32>,
    /// The answer to the client's `initialize` is on its way.
    greeting_routed: bool,
    junk: u64,
}

impl<'a> Link<'a> {
    /// A link over this record, which may be a killed keeper's.
    pub fn new(about: About, limits: Limits, record: Record<'a>) -> Self {
        let Record {
            head,
            opening,
            slots,
        } = record;
        Self {
            about,
            limits,
            head,
            opening,
            inflight: Inflight::new(slots),
            life: Life::Absent,
            outputs: VecDeque::new(),
            owed: None,
            greeting_routed: false,
            junk: 0,
        }
    }

    /// Begins, or goes on where a killed keeper stopped.
    pub fn begin(&mut self, now: Moment, lost: Option<Lost>) {
        let resent = self.initialize_in_flight().is_some();
        let settled = match lost {
            Some(_) => self.settle(&Because::KeeperLost, resent),
            None => 0,
        };
        if let Some(lost) = lost {
            self.tell(What::KeeperLost(Lost { settled, ..lost }));
        }
        match self.head.phase() {
            Phase::Fresh | Phase::Serving => self.push(Output::Spawn),
            // The killed keeper was on its way down, and its guard has finished the descent.
            Phase::Stopping | Phase::Finished => {
                self.close(
                    now,
                    TreeState::Empty,
                    128 + 9,
                    Because::Stopping,
                    Server::Gone,
                );
                self.finish_if_done();
            }
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Moment, input: Input) {
        match input {
            Input::Started => self.started(now),
            Input::StartFailed {
                problem,
                hint,
                code,
            } => self.start_failed(now, problem, hint, code),
            Input::Exited(exited) => self.exited(now, exited),
            Input::StdoutClosed { tree_empty } => self.stdout_closed(now, tree_empty),
            Input::TreeEmpty { ended, left } => self.tree_empty(now, ended, left),
            Input::ClientEof => self.client_eof(now),
            Input::Stop(cause) => self.stop(now, cause),
            Input::Tick => self.tick(now),
        }
        self.finish_if_done();
    }

    /// The next thing to do.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is drained like one, but outputs come and go"
    )]
    pub fn next(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to be woken if nothing happens, and why.
    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        match &self.life {
            Life::Absent | Life::Finished => None,
            Life::Up(up) => {
                let greeting = match up.stage {
                    Stage::Greeting { until } => Some((until, Reason::GreetingSilent)),
                    Stage::Serving => None,
                };
                let silence = match up.silence {
                    Silence::Since(asked) => Some((
                        asked.after_ms(self.limits.opening_ms),
                        Reason::OpeningSilent,
                    )),
                    Silence::NothingAsked | Silence::Broken => None,
                };
                earliest(greeting, silence)
            }
            Life::Closing(closing) => {
                let rung = match &closing.tree {
                    TreeState::Descending(ladder) => ladder.wake_at().map(|at| (at, Reason::Rung)),
                    TreeState::Empty => None,
                };
                earliest(
                    rung,
                    closing.explain.map(|until| (until, Reason::Explained)),
                )
            }
        }
    }

    /// The generation that is up, or was last.
    pub fn generation(&self) -> u32 {
        self.head.generation
    }

    /// Client requests without an answer.
    pub fn in_flight(&self) -> u32 {
        self.inflight.len() as u32
    }

    /// Whether a long line is on its way and an answer of ours must wait or end it.
    pub fn mid_line(&mut self) -> MidLine<'_> {
        MidLine { head: self.head }
    }

    /// The state in one word, for views.
    pub fn word(&self) -> &'static str {
        match &self.life {
            Life::Absent => "starting",
            Life::Up(Up {
                stage: Stage::Greeting { .. },
                ..
            }) => "greeting",
            Life::Up(_) if self.head.greeted == 0 && self.head.modern == 0 => "opening",
            Life::Up(_) => "ready",
            Life::Closing(Closing {
                explain: Some(_), ..
            }) => "failed",
            Life::Closing(_) => "stopping",
            Life::Finished => "gone",
        }
    }

    fn started(&mut self, now: Moment) {
        self.head.generation += 1;
        self.head.set_phase(Phase::Serving);
        let mut stage = Stage::Serving;
        let opening = self
            .opening
            .get(..self.head.opening_len as usize)
            .unwrap_or_default();
        if self.head.greeted != 0 {
            if let Some(line) = envelope::with_id(opening, GREETING_ID) {
                self.outputs.push_back(Output::ToServer(line));
                stage = Stage::Greeting {
                    until: now.after_ms(self.limits.opening_ms),
                };
            }
        } else if let Some(id) = self.initialize_in_flight() {
            self.outputs.push_back(Output::ToServer(opening.to_vec()));
            // It is this generation's to answer now.
            let generation = self.head.generation;
            self.inflight
                .open(&id, Tracked::Initialize, generation, now);
        }
        self.life = Life::Up(Up {
            since: now,
            stage,
            left: None,
            silence: Silence::NothingAsked,
        });
    }

    fn start_failed(&mut self, now: Moment, problem: String, hint: String, code: u8) {
        let About { name, argv, cwd } = self.about.clone();
        let mut words = alloc::format!("mainstay: cannot start `{name}`: {problem}");
        if !hint.is_empty() {
            words.push_str("\nhint: ");
            words.push_str(&hint);
        }
        self.push(Output::Say(words));
        self.tell(What::StartFailed(StartFailed {
            argv,
            cwd,
            problem: problem.clone(),
            hint: hint.clone(),
        }));
        let because = Because::StartFailed { problem, hint };
        self.settle(&because, false);
        self.close(now, TreeState::Empty, code, because, Server::Gone);
        self.explain(now);
    }

    fn tick(&mut self, now: Moment) {
        match &mut self.life {
            Life::Up(up) => {
                if let Stage::Greeting { until } = up.stage
                    && now >= until
                {
                    up.stage = Stage::Serving;
                }
                if let Silence::Since(asked) = up.silence
                    && now >= asked.after_ms(self.limits.opening_ms)
                {
                    up.silence = Silence::Broken;
                    self.opening_silent(now.ms_since(asked));
                }
            }
            Life::Closing(closing) => {
                if closing.explain.is_some_and(|until| now >= until) {
                    closing.explain = None;
                }
                if let TreeState::Descending(ladder) = &mut closing.tree
                    && let Some(step) = ladder.tick(now)
                {
                    self.outputs.push_back(Output::Stop(step));
                }
            }
            Life::Absent | Life::Finished => {}
        }
    }

    fn tell(&mut self, what: What) {
        self.push(Output::Tell(what));
    }

    fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }
}

/// The marks of half-forwarded lines, which a killed keeper leaves behind.
pub struct MidLine<'a> {
    head: &'a mut Head,
}

impl MidLine<'_> {
    /// Whether a line from the client is half forwarded.
    pub fn from_client(&self) -> bool {
        self.head.client_mid_line != 0
    }

    /// Notes it.
    pub fn set_from_client(&mut self, yes: bool) {
        self.head.client_mid_line = u8::from(yes);
    }

    /// Whether a line to the client is half written.
    pub fn to_client(&self) -> bool {
        self.head.server_mid_line != 0
    }

    /// Notes it.
    pub fn set_to_client(&mut self, yes: bool) {
        self.head.server_mid_line = u8::from(yes);
    }
}

fn earliest(a: Option<(Moment, Reason)>, b: Option<(Moment, Reason)>) -> Option<(Moment, Reason)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}
