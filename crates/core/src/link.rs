//! One client with one server: the machine that the keeper drives.
//!
//! The shell tells it what happened (one input), performs what it asks for (drain [`Link::next`]), and sleeps until
//! [`Link::wake_at`]. Lines are routed in passing by [`Link::client_line`] and [`Link::server_line`]. It knows no
//! descriptor and no process but by number.
//!
//! Invariants: each tracked client request gets exactly one answer, from the server or from us; at most one generation
//! is up, and the next one is asked for only when the tree of the last one is empty; after the link's own end has begun
//! nothing is started any more; the last output is always [`Output::Finish`].

mod answer;
mod apart;
mod end;
mod gather;
mod heard;
mod io;
mod life;
mod linger;
mod long;
mod own;
mod recall;
mod replay;
mod route;
mod state;
mod steady;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::clock::Moment;
use crate::event::{Lost, StartFailed, Status, What};
use crate::limits::{EXPLAIN_MS, Limits};
use crate::message::asked::Asked;
use crate::message::inflight::{Inflight, Slot, Token, Tracked};
use crate::message::lists::{Lists, Which};
use crate::message::long_ids::LongIds;
use crate::message::orphans::Orphans;
use crate::message::remembered::Remembered;
use crate::message::resend::Resend;
use crate::message::tasks::Tasks;
use crate::policy::Policy;
use crate::record::keepsakes::{Keepsakes, Kind as Kept};
use crate::record::{Head, Phase, Record};
use crate::server::backoff::Budget;
use crate::server::health::Knows;
use crate::server::stop::Ladder;

pub use io::{About, Exited, Holders, Input, Output, Reason, Route};
use own::Own;
use state::{Attachment, Because, Closing, Life, Server, Silence, Stage, TreeState, Up};

/// The machine.
#[derive(Debug)]
pub struct Link<'a> {
    about: About,
    limits: Limits,
    policy: Policy,
    head: &'a mut Head,
    opening: &'a mut [u8],
    inflight: Inflight<&'a mut [Slot]>,
    keepsakes: Keepsakes<'a>,
    life: Life,
    attachment: Attachment,
    outputs: VecDeque<Output>,
    on_way: OnWay,
    junk: heard::JunkCount,
    budget: Budget,
    /// Generations that died before the client had any answer.
    tries: u32,
    /// The last generation that has answered the client.
    served_by: u32,
    /// How the last generation ended, as an exit code.
    code: u8,
    /// Requests that can be sent once more.
    resend: Resend,
    /// What the server asks the client.
    asked: Asked,
    /// What the client has seen of the server's lists.
    lists: Lists,
    /// What the server works on after it has answered.
    tasks: Tasks,
    /// Requests of ours at the server.
    own: Own,
    /// What the server works on for clients that are gone.
    orphans: Orphans,
    /// The client's ids that are too long for the table.
    long_ids: LongIds,
    /// The server has heard the `notifications/initialized` that this client is about to send.
    initialized_before: bool,
    /// Client messages that wait within us, in order.
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// When the first of them came.
    held_since: Moment,
    /// A long line from the client that we must see whole.
    client_gathered: Option<Vec<u8>>,
    /// The same from the server: both may be on their way at one time.
    server_gathered: Option<Vec<u8>>,
    /// The request in flight whose long line is on its way, and of which no server sees anything yet.
    cut: Option<Token>,
    knows_probes: Knows,
    /// The change of a watched file that led to a generation which has not answered anything yet.
    changed: Option<String>,
    /// What an earlier session of this configuration saw.
    remembered: Remembered,
    /// The client's `initialize` that the record has answered, until the generation that was asked does, or is gone.
    instant_id: Option<Token>,
    /// Requests that the record has answered while a server was up, with the list that was asked for (none:
    /// `server/discover`), until that server answers them or is gone.
    recalled: Vec<(Token, Option<Which>)>,
    /// The generation for which the client has waited in vain: the record answers at once. 0 is none.
    waited_for: u32,
    /// The client was shown lists that no server of this session has shown.
    lists_from_record: bool,
    /// Lists that a server has called changed while it was being told what it must know.
    changed_in_replay: Vec<Which>,
    /// A server of this session has died of `server/discover`.
    discover_killed: bool,
    /// Questions of a dead generation's; that they are taken back is on its way to the client.
    taken_back: Vec<Vec<u8>>,
}

/// What is on its way to the client and will have been said once it is written.
#[derive(Debug, Default)]
struct OnWay {
    /// The server's answer to the client's `initialize`.
    greeting: bool,
    /// Any answer of the server's.
    answer: bool,
    /// Our own answer to the client's `initialize`.
    greeting_of_ours: bool,
}

impl<'a> Link<'a> {
    /// A link over this record, which may be a killed keeper's.
    pub fn new(
        about: About,
        limits: Limits,
        policy: Policy,
        record: Record<'a>,
        remembered: Remembered,
    ) -> Self {
        let Record {
            head,
            opening,
            slots,
            board,
            keepsakes,
        } = record;
        let keepsakes = Keepsakes::over(board, keepsakes);
        Self {
            own: Own::of(about.link),
            long_ids: LongIds::of(about.link, &keepsakes),
            about,
            policy,
            head,
            opening,
            inflight: Inflight::new(slots),
            keepsakes,
            life: Life::Absent { trial: None },
            attachment: Attachment::Held,
            outputs: VecDeque::new(),
            on_way: OnWay::default(),
            junk: heard::JunkCount::default(),
            budget: Budget::new(&limits),
            tries: 0,
            served_by: 0,
            code: 0,
            resend: Resend::new(limits.held_bytes as usize),
            asked: Asked::new(),
            lists: Lists::default(),
            tasks: Tasks::default(),
            orphans: Orphans::default(),
            initialized_before: false,
            held: VecDeque::new(),
            held_bytes: 0,
            held_since: Moment::default(),
            client_gathered: None,
            server_gathered: None,
            cut: None,
            knows_probes: Knows::Unknown,
            changed: None,
            remembered,
            instant_id: None,
            recalled: Vec::new(),
            waited_for: 0,
            lists_from_record: false,
            changed_in_replay: Vec::new(),
            discover_killed: false,
            taken_back: Vec::new(),
            limits,
        }
    }

    /// Begins, or goes on where a killed keeper stopped.
    pub fn begin(&mut self, now: Moment, lost: Option<Lost>) {
        let taken_over = lost.is_some();
        if let Some(lost) = lost {
            self.restore();
            let settled = self.settle_after_keeper();
            self.tell(What::KeeperLost(Lost { settled, ..lost }));
        }
        if taken_over && self.away_no_more(now) {
            return;
        }
        match self.head.phase() {
            // What is kept for a first generation wants one.
            Phase::Fresh if self.policy.lazy && self.inflight.is_empty() => {
                self.life = Life::Resting;
            }
            Phase::Fresh | Phase::Serving => self.push(Output::Spawn),
            // The killed keeper was on its way down, and its guard has finished the descent.
            Phase::Stopping | Phase::Finished => {
                self.settle_all(&Because::KeeperLost);
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
        if matches!(self.life, Life::Finished) {
            // The last output is out: whatever else is told changes nothing.
            return;
        }
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
            Input::Newcomer { changed } => self.newcomer(now, changed),
            Input::Reattached => self.reattached(now),
            Input::Renew(why) => self.renew(now, why),
            Input::Check => self.check(now),
            Input::Measured { cpu_ms, traced } => self.measured(now, cpu_ms, traced),
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

    /// Whether there is something to do.
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// When to be woken if nothing happens, and why.
    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        if matches!(self.life, Life::Finished) {
            return None;
        }
        let linger = self.linger_at().map(|at| (at, Reason::Linger));
        earliest([linger, self.life_wake_at()])
    }

    fn life_wake_at(&self) -> Option<(Moment, Reason)> {
        match &self.life {
            Life::Absent { .. } | Life::Resting | Life::Finished => None,
            Life::Up(up) => self.wake_up_at(up),
            Life::Swapping(swapping) => swapping.ladder.wake_at().map(|at| (at, Reason::Rung)),
            Life::Waiting { until } => Some((*until, Reason::Respawn)),
            Life::Abandoned(given_up) => given_up.probe_at.map(|at| (at, Reason::Trial)),
            Life::Closing(closing) => {
                let rung = match &closing.tree {
                    TreeState::Descending(ladder) => ladder.wake_at().map(|at| (at, Reason::Rung)),
                    TreeState::Empty => None,
                };
                let explained = closing.explain.map(|until| (until, Reason::Explained));
                earliest([rung, explained])
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

    /// All client requests without an answer, the oldest first: id, sort, and when it came.
    pub fn waiting(&self) -> impl Iterator<Item = (&[u8], Tracked, Moment)> {
        let all = self.inflight.iter();
        all.map(|(id, entry)| (id, entry.method, entry.opened))
    }

    /// Lends what an earlier session of this configuration saw.
    pub fn recall(&mut self, remembered: Remembered) {
        self.remembered = remembered;
    }

    /// What was learned is written down.
    pub fn remembered_written(&mut self) {
        self.remembered.written();
    }

    /// What is known about the configuration.
    pub fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Whether nobody serves, and the next generation comes when its time has come.
    pub fn awaits_generation(&self) -> bool {
        matches!(self.life, Life::Waiting { .. })
    }

    /// Whether a tree is on its way down.
    pub fn descending(&self) -> bool {
        match &self.life {
            Life::Swapping(_) => true,
            Life::Closing(closing) => matches!(closing.tree, TreeState::Descending(_)),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => false,
        }
    }

    /// True if a server that ended like this was ended by a signal of ours.
    pub fn sent(&self, status: Status) -> bool {
        self.ladder().is_some_and(|ladder| ladder.sent(status))
    }

    /// The descent that is under way.
    pub(super) fn ladder(&self) -> Option<&Ladder> {
        match &self.life {
            Life::Swapping(swapping) => Some(&swapping.ladder),
            Life::Closing(Closing {
                tree: TreeState::Descending(ladder),
                ..
            }) => Some(ladder),
            Life::Closing(_)
            | Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        }
    }

    /// Whether a long line is on its way and an answer of ours must wait or end it.
    pub fn mid_line(&mut self) -> MidLine<'_> {
        MidLine { head: self.head }
    }

    /// The state in one word, for views.
    pub fn word(&self) -> &'static str {
        match &self.life {
            Life::Absent { .. } => "starting",
            Life::Up(_) if self.away() => "lingering",
            Life::Up(up) => match up.stage {
                Stage::Greeting { .. } | Stage::Replaying { .. } => "greeting",
                Stage::Instant => "opening",
                Stage::Serving if !self.opened() => "opening",
                Stage::Serving if up.giving_way.is_some() => "draining",
                Stage::Serving if up.health.doubtful() => "doubtful",
                Stage::Serving => "ready",
            },
            Life::Swapping(_) => "restarting",
            Life::Waiting { .. } => "waiting",
            Life::Resting => "resting",
            Life::Abandoned(_) => "abandoned",
            Life::Closing(Closing {
                explain: Some(_), ..
            }) => "failed",
            Life::Closing(_) => "stopping",
            Life::Finished => "gone",
        }
    }

    /// Whether the client has had an answer that it builds on.
    pub(super) fn opened(&self) -> bool {
        // What is on its way reaches the client, unless this keeper is killed.
        self.head.served != 0 || self.on_way.answer || self.greeted()
    }

    fn wake_up_at(&self, up: &Up) -> Option<(Moment, Reason)> {
        let stage = match up.stage {
            Stage::Greeting { until } | Stage::Replaying { until, .. } => {
                Some((until, Reason::ReplaySilent))
            }
            Stage::Instant | Stage::Serving => None,
        };
        let giving_way = up.giving_way.as_ref();
        // What is on its way to the client may be the very answer that we would give.
        let answers = if self.head.server_mid_line == 0 {
            self.answer_at(up)
        } else {
            None
        };
        earliest([
            stage,
            answers,
            giving_way.map(|giving_way| (giving_way.until, Reason::Drained)),
            up.health.wake_at().map(|at| (at, Reason::Health)),
            self.idle_at(up).map(|at| (at, Reason::Idle)),
        ])
    }

    /// When a request is answered by us if the server does not.
    fn answer_at(&self, up: &Up) -> Option<(Moment, Reason)> {
        let silence = match up.silence {
            Silence::Since(asked) => Some(asked.after_ms(self.limits.opening_ms)),
            Silence::NothingAsked | Silence::Broken => None,
        };
        let instant = match up.stage {
            Stage::Serving => self.instant_at(),
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant => None,
        };
        earliest([
            silence.map(|at| (at, Reason::OpeningSilent)),
            instant.map(|at| (at, Reason::Instant)),
            self.held_at().map(|at| (at, Reason::OpeningSilent)),
            self.deadline_at().map(|at| (at, Reason::Deadline)),
        ])
    }

    fn start_failed(&mut self, now: Moment, problem: String, hint: String, code: u8) {
        let About {
            name, argv, cwd, ..
        } = self.about.clone();
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
        if self.head.generation > 0 && self.opened() {
            self.not_started_again(now, &problem);
            return;
        }
        let because = Because::StartFailed { problem, hint };
        self.settle_all(&because);
        // It may be refused before it was tried.
        self.outputs.retain(|output| *output != Output::Spawn);
        self.close(now, TreeState::Empty, code, because, Server::Gone);
        self.explain(now);
    }

    fn tick(&mut self, now: Moment) {
        self.tick_linger(now);
        match &mut self.life {
            Life::Up(_) => self.tick_up(now),
            Life::Swapping(swapping) => {
                if let Some(step) = swapping.ladder.tick(now) {
                    self.outputs.push_back(Output::Stop(step));
                }
            }
            Life::Waiting { until } => {
                if now >= *until {
                    self.spawn(None);
                }
            }
            Life::Abandoned(given_up) => {
                if given_up.probe_at.is_some_and(|at| now >= at) {
                    let given_up = given_up.clone();
                    self.spawn(Some(given_up));
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
            Life::Absent { .. } | Life::Resting | Life::Finished => {}
        }
    }

    fn tell(&mut self, what: What) {
        self.push(Output::Tell(what));
    }

    fn push(&mut self, mut output: Output) {
        if let Output::ToClient(line) = &output
            && let Some(own) = self.lengthened(line)
        {
            output = Output::ToClient(own);
        }
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

fn earliest<const N: usize>(all: [Option<(Moment, Reason)>; N]) -> Option<(Moment, Reason)> {
    all.into_iter().flatten().min_by_key(|(at, _)| *at)
}
