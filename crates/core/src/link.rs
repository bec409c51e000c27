//! One client with one server: the machine that the keeper drives.
//!
//! The shell tells it what happened (one input), performs what it asks for (drain [`Link::next`]), and sleeps until
//! [`Link::wake_at`]. Lines are routed in passing by [`Link::client_line`] and [`Link::server_line`]. It knows no
//! descriptor and no process but by number.
//!
//! Invariants: each tracked client request gets exactly one answer, from the server or from us; after the ladder has
//! begun nothing is started any more; the last output is always [`Output::Finish`].

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::clock::Moment;
use crate::event::{
    Cause, Exit, Junk, Lost, OpeningSilent, Seen, StartFailed, Status, Teardown, Usage, What,
};
use crate::limits::Limits;
use crate::message::envelope::{self, Era};
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::{Entry, Inflight, Opened, Slot, Tracked};
use crate::message::settle::{self, Why};
use crate::message::{batch, envelope::cancelled_id};
use crate::record::{Head, Phase, Record};
use crate::server::stop::{Ladder, Standing, Step};

/// What the link is called and runs.
#[derive(Clone, Debug)]
pub struct About {
    /// The server's name.
    pub name: String,
    /// Its command.
    pub argv: Vec<String>,
    /// The directory that it runs in.
    pub cwd: String,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A generation was started.
    Started,
    /// It could not be.
    StartFailed {
        /// What went wrong.
        problem: String,
        /// How to mend it.
        hint: String,
        /// The exit code to leave with.
        code: u8,
    },
    /// The server process ended, and all that it wrote has been read.
    Exited(Exited),
    /// Nobody holds the server's stdout any more.
    StdoutClosed {
        /// Whether nobody is left of the tree.
        tree_empty: bool,
    },
    /// Nobody is left of the tree (or the kill rung is through, with these left).
    TreeEmpty {
        /// Processes that ended since the ladder began.
        ended: u32,
        /// Who could not be ended.
        left: Vec<Seen>,
    },
    /// The client closed our stdin.
    ClientEof,
    /// Somebody or something wants the end.
    Stop(Cause),
    /// Time has passed.
    Tick,
}

/// How the server process ended.
#[derive(Clone, Debug)]
pub struct Exited {
    /// The server process.
    pub pid: i32,
    /// How it ended.
    pub status: Status,
    /// What it used.
    pub usage: Usage,
    /// Its last words.
    pub stderr_tail: Vec<String>,
    /// Whether somebody of its tree still holds both its stdin and its stdout.
    pub served_on: bool,
    /// Whether nobody is left of the tree.
    pub tree_empty: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Start the next generation.
    Spawn,
    /// Write this line of ours to the client, between two lines.
    ToClient(Vec<u8>),
    /// Write this line of ours to the server, between two lines.
    ToServer(Vec<u8>),
    /// Say this on the client's stderr.
    Say(String),
    /// A step of the stop ladder.
    Stop(Step),
    /// Let go of the client's pipes once what is queued has been written.
    ReleaseClient,
    /// Let go of the client's pipes now: the client wants no more.
    DropClient,
    /// Write this down.
    Tell(What),
    /// All is done: leave with this code.
    Finish(u8),
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It goes on as it came.
    Forward,
    /// It goes nowhere.
    Drop,
    /// Not now: ask again later.
    Hold,
}

/// Why the link wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The next rung of the ladder.
    Rung,
    /// A server that cannot be started has been explained for long enough.
    Explained,
    /// The opening request has been unanswered for too long.
    OpeningSilent,
    /// The replayed opening has been unanswered for too long.
    GreetingSilent,
}

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
    junk: u64,
}

#[derive(Debug)]
enum Life {
    Absent,
    Up(Up),
    Closing(Closing),
    Finished,
}

#[derive(Debug)]
struct Up {
    since: Moment,
    stage: Stage,
    /// The process that we started has left and others serve on.
    left: Option<Exited>,
    /// Until when a server that has said nothing at all may leave its first request unanswered.
    silence: Silence,
}

#[derive(Debug)]
enum Stage {
    Greeting { until: Moment },
    Serving,
}

#[derive(Debug)]
enum Silence {
    NothingAsked,
    Since(Moment),
    Broken,
}

#[derive(Debug)]
struct Closing {
    since: Moment,
    tree: TreeState,
    explain: Option<Moment>,
    code: u8,
    because: Because,
    client: Client,
    server: Server,
}

/// Why requests are answered by us.
#[derive(Debug)]
enum Because {
    StartFailed {
        problem: String,
        hint: String,
    },
    ServerExit {
        status: Status,
        stderr_tail: Vec<String>,
    },
    KeeperLost,
    OpeningSilent {
        ms: u64,
    },
    Stopping,
}

impl Because {
    fn why<'b>(&'b self, about: &'b About) -> Why<'b> {
        let About { name, argv, .. } = about;
        match self {
            Self::StartFailed { problem, hint } => Why::StartFailed {
                argv,
                problem,
                hint,
            },
            Self::ServerExit {
                status,
                stderr_tail,
            } => Why::ServerExit {
                name,
                status: *status,
                stderr_tail,
                restarted: false,
            },
            Self::KeeperLost => Why::KeeperLost { name },
            Self::OpeningSilent { ms } => Why::OpeningSilent {
                name,
                ms: *ms,
                argv,
            },
            Self::Stopping => Why::ClientStopping { name },
        }
    }
}

#[derive(Debug)]
enum TreeState {
    Descending(Ladder),
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Its pipes are ours to write to.
    Reading,
    /// They are let go.
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Up,
    Gone,
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
            junk: 0,
        }
    }

    /// Begins, or goes on where a killed keeper stopped.
    pub fn begin(&mut self, now: Moment, lost: Option<Lost>) {
        let resent = self.initialize_in_flight();
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

    /// Routes a whole line from the client.
    pub fn client_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &self.life {
            Life::Absent => Route::Hold,
            Life::Up(Up {
                stage: Stage::Greeting { .. },
                ..
            }) => Route::Hold,
            Life::Up(_) => self.track(now, frame, line),
            Life::Closing(_) | Life::Finished => {
                self.refuse(frame);
                self.finish_if_done();
                Route::Drop
            }
        }
    }

    /// May a line from the client that is too long to be held go on?
    pub fn client_cut(&self) -> Route {
        match &self.life {
            Life::Absent
            | Life::Up(Up {
                stage: Stage::Greeting { .. },
                ..
            }) => Route::Hold,
            Life::Up(_) => Route::Forward,
            Life::Closing(_) | Life::Finished => Route::Drop,
        }
    }

    /// Learns what is known of a long line from the client while it is being forwarded.
    pub fn client_known(&mut self, now: Moment, frame: &Frame<'_>) {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.open(now, id, tracked);
        }
    }

    /// Routes a whole line from the server.
    pub fn server_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &mut self.life {
            Life::Up(up) => up.silence = Silence::Broken,
            Life::Closing(closing) if closing.client == Client::Released => return Route::Drop,
            Life::Closing(_) => {}
            Life::Absent | Life::Finished => return Route::Drop,
        }
        let route = match frame.kind {
            Kind::Request | Kind::Notification => Route::Forward,
            Kind::Response | Kind::Error => self.answered(frame),
            Kind::Batch => {
                batch::each_member(line, |member| {
                    if matches!(member.kind, Kind::Response | Kind::Error) {
                        self.answered(&member);
                    }
                });
                Route::Forward
            }
            Kind::Blank => Route::Drop,
            Kind::Junk => {
                self.junk(line);
                Route::Drop
            }
        };
        self.drained_if_answered(now);
        route
    }

    /// Learns what is known of a long line from the server before it is forwarded: may it go on?
    pub fn server_known(&mut self, frame: Option<&Frame<'_>>) -> Route {
        match &self.life {
            Life::Up(_) => {}
            Life::Closing(closing) if closing.client == Client::Reading => {}
            Life::Closing(_) | Life::Absent | Life::Finished => return Route::Drop,
        }
        match frame {
            Some(frame) if matches!(frame.kind, Kind::Response | Kind::Error) => match frame.id {
                Id::Token(id) if self.inflight.is_settled(id) => Route::Drop,
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong => Route::Forward,
            },
            Some(_) | None => Route::Forward,
        }
    }

    /// Counts a line from the server that was no message.
    pub fn junk(&mut self, line: &[u8]) {
        self.junk += 1;
        // Once per power of ten: a server that logs to stdout must not fill the event files.
        if power_of_ten(self.junk) {
            let sample = String::from_utf8_lossy(&line[..line.len().min(120)])
                .trim_end()
                .to_string();
            self.tell(What::Junk(Junk {
                lines: self.junk,
                sample,
            }));
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
        } else if self.initialize_in_flight() {
            let line = opening.to_vec();
            self.push(Output::ToServer(line));
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

    fn exited(&mut self, now: Moment, exited: Exited) {
        match &mut self.life {
            // A launcher that ends well while somebody else serves on has only done its part.
            Life::Up(up) if exited.served_on && exited.status.success() => up.left = Some(exited),
            Life::Up(_) | Life::Closing(_) => self.server_gone(now, exited),
            Life::Absent | Life::Finished => {}
        }
    }

    fn stdout_closed(&mut self, now: Moment, tree_empty: bool) {
        match &mut self.life {
            Life::Up(up) => match up.left.take() {
                Some(exited) => self.server_gone(
                    now,
                    Exited {
                        tree_empty,
                        ..exited
                    },
                ),
                // It can answer nobody any more: help it to end.
                None => self.stop(now, Cause::ServerExit),
            },
            Life::Absent | Life::Closing(_) | Life::Finished => {}
        }
    }

    fn server_gone(&mut self, now: Moment, exited: Exited) {
        let Exited {
            pid,
            status,
            usage,
            stderr_tail,
            tree_empty,
            ..
        } = exited;
        let since = match &self.life {
            Life::Up(Up { since, .. }) | Life::Closing(Closing { since, .. }) => *since,
            Life::Absent | Life::Finished => now,
        };
        self.tell(What::Exit(Exit {
            generation: self.head.generation,
            pid,
            status,
            uptime_ms: now.ms_since(since),
            usage,
            in_flight: self.in_flight(),
            stderr_tail: stderr_tail.clone(),
        }));
        let because = Because::ServerExit {
            status,
            stderr_tail,
        };
        let opened = self.head.greeted != 0 || self.head.modern != 0;
        let asked = self.settle(&because, false) > 0;
        match &mut self.life {
            Life::Closing(closing) => {
                closing.code = status.exit_code();
                closing.server = Server::Gone;
                if let (TreeState::Descending(ladder), false) = (&mut closing.tree, tree_empty)
                    && let Some(step) = ladder.server_left(now)
                {
                    self.push(Output::Stop(step));
                }
                self.release();
            }
            Life::Absent | Life::Up(_) | Life::Finished => {
                let (ladder, step) =
                    Ladder::begin(Cause::ServerExit, Standing::Left, &self.limits, now);
                let tree = if tree_empty {
                    TreeState::Empty
                } else {
                    TreeState::Descending(ladder)
                };
                self.close(now, tree, status.exit_code(), because, Server::Gone);
                if let (false, Some(step)) = (tree_empty, step) {
                    self.push(Output::Stop(step));
                }
                // A client whose probe just failed may ask again in the other era; one that never asked is about to.
                if !opened && (asked || !status.success()) {
                    self.explain(now);
                } else {
                    self.release();
                }
            }
        }
    }

    fn tree_empty(&mut self, now: Moment, ended: u32, left: Vec<Seen>) {
        if let Life::Closing(closing) = &mut self.life
            && let TreeState::Descending(ladder) =
                core::mem::replace(&mut closing.tree, TreeState::Empty)
        {
            if closing.server == Server::Up {
                // Not even the kill ended it: the teardown names it.
                closing.server = Server::Gone;
                closing.code = 128 + 9;
            }
            let told: Teardown = ladder.finish(ended, left, now);
            self.tell(What::Teardown(told));
        }
    }

    fn client_eof(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = None;
        }
        self.stop(now, Cause::ClientEof);
    }

    fn stop(&mut self, now: Moment, cause: Cause) {
        let client_wants_more = match &cause {
            Cause::ClientEof | Cause::Asked | Cause::ServerExit => true,
            Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::KeeperLost => false,
        };
        match &mut self.life {
            Life::Up(_) => {
                let owing = cause == Cause::ClientEof && self.inflight.len() > 0;
                let standing = if owing { Standing::Owing } else { Standing::Up };
                let (ladder, step) = Ladder::begin(cause, standing, &self.limits, now);
                self.close(
                    now,
                    TreeState::Descending(ladder),
                    0,
                    Because::Stopping,
                    Server::Up,
                );
                if let Some(step) = step {
                    self.push(Output::Stop(step));
                }
                if !client_wants_more {
                    self.drop_client();
                }
            }
            Life::Closing(closing) => {
                if !client_wants_more {
                    closing.explain = None;
                    if let TreeState::Descending(ladder) = &mut closing.tree
                        && let Some(step) = ladder.drained(now)
                    {
                        self.outputs.push_back(Output::Stop(step));
                    }
                    self.drop_client();
                }
            }
            Life::Absent => {
                self.close(now, TreeState::Empty, 0, Because::Stopping, Server::Gone);
            }
            Life::Finished => {}
        }
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

    fn opening_silent(&mut self, ms: u64) {
        self.tell(What::OpeningSilent(OpeningSilent { ms }));
        let why = Because::OpeningSilent { ms };
        let why = why.why(&self.about);
        let modern = self.head.modern != 0;
        let open: Vec<_> = self
            .inflight
            .iter()
            .map(|(id, entry)| (id.to_vec(), entry.method))
            .collect();
        for (id, method) in open {
            self.outputs
                .push_back(Output::ToClient(settle::answer(&id, method, modern, &why)));
            self.inflight.settle(&id);
        }
    }

    fn track(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match frame.kind {
            Kind::Request => {
                let Id::Token(id) = frame.id else {
                    return Route::Forward;
                };
                let method = frame.method.as_deref().unwrap_or_default();
                let tracked = Tracked::of(method);
                if !self.open(now, id, tracked) {
                    return Route::Hold;
                }
                if tracked == Tracked::Initialize {
                    self.remember_opening(line);
                } else if self.head.greeted == 0 && envelope::era(line) == Era::Modern {
                    self.head.modern = 1;
                }
            }
            Kind::Notification => match frame.method.as_deref() {
                Some("notifications/initialized") => self.head.initialized = 1,
                Some("notifications/cancelled") => {
                    if let Some(id) = cancelled_id(line) {
                        self.inflight.close(id);
                    }
                }
                Some(_) | None => {}
            },
            Kind::Batch => {
                batch::each_member(line, |member| {
                    if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                        let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                        self.open(now, id, tracked);
                    }
                });
            }
            Kind::Response | Kind::Error | Kind::Blank | Kind::Junk => {}
        }
        Route::Forward
    }

    /// Opens an entry; `false` if there is no room and the client must wait.
    fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        if let Life::Up(Up {
            silence: silence @ Silence::NothingAsked,
            ..
        }) = &mut self.life
        {
            *silence = Silence::Since(now);
        }
        match self.inflight.open(id, tracked, self.head.generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    fn remember_opening(&mut self, line: &[u8]) {
        self.head.opening_len = 0;
        if let Some(room) = self.opening.get_mut(..line.len()) {
            room.copy_from_slice(line);
            self.head.opening_len = line.len() as u32;
        }
    }

    fn answered(&mut self, frame: &Frame<'_>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if id == GREETING_ID {
            self.greeted_again();
            return Route::Drop;
        }
        if self.inflight.is_settled(id) {
            self.inflight.close(id);
            return Route::Drop;
        }
        if let Some(entry) = self.inflight.close(id)
            && entry.method == Tracked::Initialize
            && frame.kind == Kind::Response
        {
            self.head.greeted = 1;
        }
        Route::Forward
    }

    /// The replayed opening has its answer: the server is where the client believes it to be.
    fn greeted_again(&mut self) {
        if let Life::Up(up) = &mut self.life
            && let Stage::Greeting { .. } = up.stage
        {
            up.stage = Stage::Serving;
            if self.head.initialized != 0 {
                let line =
                    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n".to_vec();
                self.push(Output::ToServer(line));
            }
        }
    }

    /// Answers a request that no server will see.
    fn refuse(&mut self, frame: &Frame<'_>) {
        let modern = self.head.modern != 0;
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
            && let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id)
        {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            if tracked == Tracked::Initialize {
                // The client has heard it where it matters; it need not be told twice.
                closing.explain = None;
            }
            let why = closing.because.why(&self.about);
            self.outputs
                .push_back(Output::ToClient(settle::answer(id, tracked, modern, &why)));
        }
    }

    /// Answers everything in flight; how many. The opening can be kept: it is sent again.
    fn settle(&mut self, because: &Because, keep_opening: bool) -> u32 {
        let modern = self.head.modern != 0;
        let why = because.why(&self.about);
        let mut kept = None;
        let mut count = 0;
        for (id, entry) in self.inflight.drain() {
            if keep_opening && entry.method == Tracked::Initialize {
                kept = Some((id, entry));
                continue;
            }
            self.outputs.push_back(Output::ToClient(settle::answer(
                &id,
                entry.method,
                modern,
                &why,
            )));
            count += 1;
        }
        if let Some((
            id,
            Entry {
                method,
                generation,
                opened,
            },
        )) = kept
        {
            self.inflight.open(&id, method, generation, opened);
        }
        count
    }

    fn initialize_in_flight(&self) -> bool {
        self.head.greeted == 0
            && self.head.opening_len > 0
            && self
                .inflight
                .iter()
                .any(|(_, entry)| entry.method == Tracked::Initialize)
    }

    fn close(&mut self, now: Moment, tree: TreeState, code: u8, because: Because, server: Server) {
        self.head.set_phase(Phase::Stopping);
        let since = match &self.life {
            Life::Up(up) => up.since,
            Life::Absent | Life::Closing(_) | Life::Finished => now,
        };
        self.life = Life::Closing(Closing {
            since,
            tree,
            explain: None,
            code,
            because,
            client: Client::Reading,
            server,
        });
    }

    fn explain(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = Some(now.after_ms(EXPLAIN_MS));
        }
    }

    fn release(&mut self) {
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
        {
            closing.client = Client::Released;
            self.push(Output::ReleaseClient);
        }
    }

    fn drop_client(&mut self) {
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
        {
            closing.client = Client::Released;
            self.push(Output::DropClient);
        }
    }

    fn drained_if_answered(&mut self, now: Moment) {
        if self.inflight.len() == 0
            && let Life::Closing(closing) = &mut self.life
            && let TreeState::Descending(ladder) = &mut closing.tree
            && let Some(step) = ladder.drained(now)
        {
            self.push(Output::Stop(step));
        }
    }

    fn finish_if_done(&mut self) {
        if let Life::Closing(Closing {
            tree: TreeState::Empty,
            explain: None,
            code,
            server: Server::Gone,
            ..
        }) = &self.life
        {
            let code = *code;
            self.release();
            self.head.set_phase(Phase::Finished);
            self.push(Output::Finish(code));
            self.life = Life::Finished;
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

fn power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}
