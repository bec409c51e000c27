//! Whether an idle server is still there.
//!
//! One machine for each generation. It decides when to ask the server something that any living one answers, when to
//! look at the processor time of its tree, and when the silence is proof enough. It does not know what a probe looks
//! like, nor how a tree is measured.
//!
//! Invariants:
//! - **A busy server is left alone**: with requests in flight nothing is asked and no loss is counted. A cancelled
//!   request may still keep it busy: no loss is counted until the server answers a later question, at most for an hour
//!   after its last output.
//! - At most one probe is outstanding, and none is sent soon after output.
//! - A server is given up only if it was idle all the time, left enough probes in a row unanswered, wrote nothing, used
//!   no processor time meanwhile, is not held by a debugger, and has answered a probe in this or an earlier generation.
//!   One that never did is [`Knows::Deaf`] and is never asked again.
//! - Time during which we did not run proves nothing: a wait that ends much too late begins again.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::{ALIVE_CPU_MS, Limits, TAKEN_BACK_MS};

/// What is known about a server and probes. It outlives a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// It has not answered a probe yet.
    Unknown,
    /// It has answered a probe.
    Answers,
    /// It leaves probes unanswered although it works.
    Deaf,
}

/// Why a server is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not react at all.
    Unresponsive {
        /// Probes lost in a row.
        lost: u32,
        /// Since when it has written nothing.
        silent_ms: u64,
    },
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// Ask the server; this is the number of the probe, from 1.
    Probe(u64),
    /// Measure the processor time of the tree and report it with [`Health::measured`].
    Measure,
    /// Give this generation up. Returned once.
    Restart(Verdict),
    /// Nothing, from now on: the server does not answer probes. Returned once.
    LeaveAlone,
}

/// The health of one generation.
#[derive(Clone, Debug)]
pub struct Health {
    /// None: probes are off.
    pace: Option<Pace>,
    knows: Knows,
    state: State,
    /// Probes sent so far.
    probes: u64,
    /// When the server last wrote something.
    heard: Moment,
    /// Cancelled work that may still keep the server busy.
    taken_back: Option<TakenBack>,
}

#[derive(Clone, Copy, Debug)]
struct TakenBack {
    /// Since when the server has written nothing.
    since: Moment,
    /// The last probe before that. A server that answers a later probe is free.
    probe: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    idle_ms: u64,
    wait_ms: u64,
    lost: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Requests are in flight.
    Busy,
    /// Nothing is wrong; a probe is due at this time.
    Calm { until: Moment },
    /// A probe is out; it is lost at this time.
    Asking { until: Moment, doubt: Doubt },
    /// A probe was lost; the next one is due at this time.
    Again { at: Moment, doubt: Doubt },
    /// Enough probes are lost: only used processor time can save the server.
    Weighing { lost: u32, cpu_ms: u64 },
    /// Nothing saved it.
    Condemned { at: Moment, lost: u32 },
    /// It was given up.
    Over,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    lost: u32,
    /// The processor time of the tree after the first loss.
    cpu_ms: Option<u64>,
}

impl Health {
    /// A generation that is ready and idle. `knows` comes from earlier generations.
    pub fn new(limits: &Limits, now: Moment, knows: Knows) -> Self {
        let pace = Pace {
            idle_ms: limits.probe_idle_ms,
            wait_ms: limits.probe_wait_ms,
            lost: limits.probe_lost,
        };
        let mut health = Self {
            pace: (pace.idle_ms != 0).then_some(pace),
            knows,
            state: State::Over,
            probes: 0,
            heard: now,
            taken_back: None,
        };
        health.calm(now);
        health
    }

    /// Requests are in flight.
    pub fn busy(&mut self, _now: Moment) {
        self.state = match self.state {
            State::Over => State::Over,
            State::Busy
            | State::Calm { .. }
            | State::Asking { .. }
            | State::Again { .. }
            | State::Weighing { .. }
            | State::Condemned { .. } => State::Busy,
        };
    }

    /// No request is in flight.
    pub fn idle(&mut self, now: Moment) {
        if matches!(self.state, State::Busy) {
            self.calm(now);
        }
    }

    /// Something may have happened to the server: if it is idle, it is probed now.
    pub fn check(&mut self, now: Moment) {
        if let State::Calm { until } = &mut self.state {
            *until = now;
        }
    }

    /// A request of the client's was cancelled: the server may stop working on it, or may continue and read nothing
    /// else meanwhile.
    pub fn taken_back(&mut self, now: Moment) {
        let since = self.taken_back.map_or(now, |before| before.since);
        let probe = self.probes;
        self.taken_back = Some(TakenBack { since, probe });
        self.busy(now);
    }

    /// The server wrote something, even a single byte.
    pub fn heard(&mut self, now: Moment) {
        self.heard = now;
        if let Some(taken_back) = &mut self.taken_back {
            taken_back.since = now;
        }
        match self.state {
            State::Busy | State::Over => {}
            State::Calm { .. }
            | State::Asking { .. }
            | State::Again { .. }
            | State::Weighing { .. }
            | State::Condemned { .. } => self.calm(now),
        }
    }

    /// The server answered this probe, however late, with a result or an error.
    pub fn answered(&mut self, now: Moment, probe: u64) {
        if (1..=self.probes).contains(&probe) {
            self.knows = Knows::Answers;
            self.taken_back = self.taken_back.filter(|before| before.probe >= probe);
            self.heard(now);
        }
    }

    /// The processor time that the tree has used so far, and whether a debugger holds one of its processes.
    pub fn measured(&mut self, now: Moment, cpu_ms_total: u64, traced: bool) {
        let wanted = match &mut self.state {
            State::Asking { doubt, .. } | State::Again { doubt, .. } if doubt.lost > 0 => {
                doubt.cpu_ms.get_or_insert(cpu_ms_total);
                true
            }
            &mut State::Weighing { lost, cpu_ms } => {
                // Less than before: a process of the tree has ended, which is also a sign of life.
                if cpu_ms.abs_diff(cpu_ms_total) < ALIVE_CPU_MS {
                    self.state = State::Condemned { at: now, lost };
                } else {
                    self.calm(now);
                }
                true
            }
            State::Busy
            | State::Calm { .. }
            | State::Asking { .. }
            | State::Again { .. }
            | State::Condemned { .. }
            | State::Over => false,
        };
        if wanted && traced {
            self.calm(now);
        }
    }

    /// Time has passed, and everything that the server wrote until now has been reported with [`heard`](Self::heard).
    /// Call it until it returns nothing.
    pub fn tick(&mut self, now: Moment) -> Option<Do> {
        let pace = self.pace?;
        if self.knows == Knows::Deaf {
            return None;
        }
        match self.state {
            State::Calm { until } if now >= until => match self.spared_until(now) {
                // It has been probed since, and need not be probed twice.
                Some((until, taken_back)) if self.probes > taken_back.probe => {
                    self.state = State::Calm { until };
                    None
                }
                Some(_) | None => Some(self.ask(now, pace, Doubt::default())),
            },
            State::Asking { until, doubt } if now >= until => {
                if now.ms_since(until) > pace.wait_ms / 2 {
                    let until = now.after_ms(pace.wait_ms);
                    self.state = State::Asking { until, doubt };
                    return None;
                }
                if let Some((until, _)) = self.spared_until(now) {
                    self.state = State::Calm { until };
                    return None;
                }
                Some(self.lost(now, pace, doubt))
            }
            State::Again { doubt, .. } => Some(self.ask(now, pace, doubt)),
            State::Condemned { lost, .. } => {
                self.state = State::Over;
                Some(Do::Restart(Verdict::Unresponsive {
                    lost,
                    silent_ms: now.ms_since(self.heard),
                }))
            }
            State::Busy
            | State::Calm { .. }
            | State::Asking { .. }
            | State::Weighing { .. }
            | State::Over => None,
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn wake_at(&self) -> Option<Moment> {
        if self.pace.is_none() || self.knows == Knows::Deaf {
            return None;
        }
        match self.state {
            State::Calm { until } | State::Asking { until, .. } => Some(until),
            State::Again { at, .. } | State::Condemned { at, .. } => Some(at),
            State::Busy | State::Weighing { .. } | State::Over => None,
        }
    }

    /// Whether probes were lost and the server has written nothing since.
    pub fn doubtful(&self) -> bool {
        match self.state {
            State::Asking { doubt, .. } | State::Again { doubt, .. } => doubt.lost > 0,
            State::Weighing { .. } | State::Condemned { .. } | State::Over => true,
            State::Busy | State::Calm { .. } => false,
        }
    }

    /// What the next generation should know.
    pub fn knows(&self) -> Knows {
        self.knows
    }

    /// Until when cancelled work may keep the server busy, if that time is still to come.
    fn spared_until(&self, now: Moment) -> Option<(Moment, TakenBack)> {
        let taken_back = self.taken_back?;
        let until = taken_back.since.after_ms(TAKEN_BACK_MS);
        (now < until).then_some((until, taken_back))
    }

    fn calm(&mut self, now: Moment) {
        let idle_ms = self.pace.map_or(0, |pace| pace.idle_ms);
        self.state = State::Calm {
            until: now.after_ms(idle_ms),
        };
    }

    fn ask(&mut self, now: Moment, pace: Pace, doubt: Doubt) -> Do {
        self.probes += 1;
        self.state = State::Asking {
            until: now.after_ms(pace.wait_ms),
            doubt,
        };
        Do::Probe(self.probes)
    }

    fn lost(&mut self, now: Moment, pace: Pace, mut doubt: Doubt) -> Do {
        doubt.lost = doubt.lost.saturating_add(1);
        let enough = u64::from(doubt.lost) >= pace.lost;
        if self.knows != Knows::Answers {
            if !enough {
                return self.ask(now, pace, doubt);
            }
            self.knows = Knows::Deaf;
            self.calm(now);
            return Do::LeaveAlone;
        }
        self.state = match doubt.cpu_ms {
            Some(cpu_ms) if enough => State::Weighing {
                lost: doubt.lost,
                cpu_ms,
            },
            Some(_) => return self.ask(now, pace, doubt),
            // Processor time is compared over at least one whole wait, so this asks once more even if one loss is enough.
            None => State::Again { at: now, doubt },
        };
        Do::Measure
    }
}

#[cfg(test)]
mod tests;
