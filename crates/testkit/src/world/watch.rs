//! The promises: what is checked after each byte that passes and each input.
//!
//! It sees what the client sends, what reaches the client, what reaches each generation, and the inputs and outputs of the link.
//! It knows nothing of how the link decides.

mod answers;
mod replay;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_core::link::{Input, Route};
use mainstay_core::relay::Output;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, RestartReason, What};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::frame::{Begun, Fed, Frame, Id, Kind, Scanner};
use mainstay_protocol::policy::{Policy, Retry};

use super::message::{Message, key, key_of};
use super::outside::{Halt, Outside, broken, text};
use super::pipe::Lines;
use replay::{Known, Met};

/// How a line reached the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the server wrote it.
    Passed,
    /// As a line of ours.
    Ours,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct Watch {
    /// Checks only the promises that hold for any bytes.
    pub lenient: bool,
    /// Whether requests may have to wait for a free slot for ever.
    pub crowded: bool,
    limits: Limits,
    policy: Policy,
    requests: BTreeMap<String, Request>,
    questions: Vec<Question>,
    labels: BTreeMap<String, usize>,
    progress: BTreeMap<String, f64>,
    /// Answers that reached the client and that the link has not noted yet.
    unconfirmed: Vec<Unconfirmed>,
    /// Our own lines that wait to be written to the client.
    ours: VecDeque<Vec<u8>>,
    known: Known,
    met: Met,
    generation: u32,
    spoken: bool,
    /// When the end was asked for, and all delays since.
    ending: Option<(Moment, u64)>,
    /// The client has got an answer of a server, and the link knows it.
    served: bool,
    /// A generation differs from its predecessor.
    differs: bool,
    finished: bool,
    /// The number of the client, from 1.
    attachment: u32,
    /// The id of this client's first `initialize`.
    opening: Option<String>,
    /// The server has half of a line, whose rest will not come.
    server_torn: bool,
    /// The client gets no further line.
    released: bool,
    dropped: bool,
    respawns: VecDeque<Moment>,
    torn_allowed: bool,
    /// Set if a killed keeper had begun the line that now ends at the client. The value says whether that keeper had noted what
    /// it wrote.
    half_told: Option<bool>,
    /// The client has bytes that the relay has not noted: the last write.
    unnoted: bool,
    keepers_killed: usize,
    at_client: Lines,
    at_server: Lines,
}

/// An answer that reached the client and that the link has not noted yet.
#[derive(Debug)]
struct Unconfirmed {
    key: String,
    way: Way,
    /// It opens the session.
    opens: bool,
}

/// A request of the client.
#[derive(Debug, Default)]
struct Request {
    method: String,
    /// The client's own mark for it, whatever its id.
    mark: Option<String>,
    /// The token of its progress.
    token: String,
    /// It may be sent to a second generation.
    repeatable: bool,
    routed: bool,
    cancelled: bool,
    sent: Vec<u32>,
    answers: u32,
    /// The generation whose answer the client got first, or none if that was ours.
    first_by: Option<u32>,
    /// Further answers that a killed keeper may cause.
    allowance: u32,
    /// Answers that each generation has written.
    written: BTreeMap<u32, u32>,
}

/// A request of a server.
#[derive(Debug)]
struct Question {
    generation: u32,
    n: u64,
    token: String,
    shown: bool,
    answered: bool,
    cancelled: bool,
}

impl Watch {
    /// Nothing was seen yet.
    pub fn new(limits: &Limits, policy: Policy) -> Self {
        Self {
            limits: limits.clone(),
            policy,
            attachment: 1,
            ..Self::default()
        }
    }

    /// The client is about to write this request.
    pub fn client_asks(&mut self, said: &Message) {
        let repeatable = match said.method.as_str() {
            "tools/call" => {
                let name = said.value["params"]["name"].as_str().unwrap_or_default();
                let plain = said.value["params"].get("task").is_none();
                self.policy.retry == Retry::Annotated && name.starts_with("ro") && plain
            }
            "initialize" | "subscriptions/listen" => true,
            "tasks/cancel" | "vendor/odd" => false,
            _ => self.policy.retry != Retry::Never,
        };
        self.known.client_asks(said);
        if said.method == "initialize" && self.opening.is_none() {
            self.opening = Some(said.key());
        }
        let request = Request {
            method: said.method.clone(),
            mark: said.mark().map(Into::into),
            token: key(&said.value["params"]["_meta"]["progressToken"]),
            repeatable,
            ..Request::default()
        };
        self.requests.insert(said.key(), request);
    }

    /// The client is about to cancel a request.
    pub fn client_cancels(&mut self, key: &str) {
        if let Some(request) = self.requests.get_mut(key) {
            request.cancelled = true;
        }
    }

    /// A server is about to write the answer to a request.
    pub fn server_answers(&mut self, generation: u32, token: &str) {
        if let Some(request) = self.requests.get_mut(&key_of(token)) {
            *request.written.entry(generation).or_default() += 1;
        }
    }

    /// A server is about to ask the client.
    pub fn server_asks(&mut self, generation: u32, n: u64, token: &str) {
        self.questions.push(Question {
            generation,
            n,
            token: token.into(),
            shown: false,
            answered: false,
            cancelled: false,
        });
    }

    /// A server cancels its question.
    pub fn server_cancels(&mut self, generation: u32, n: u64) {
        let mut all = self.questions.iter_mut();
        if let Some(question) = all.find(|q| q.generation == generation && q.n == n) {
            question.cancelled = true;
        }
    }

    /// The client is about to answer a question.
    pub fn client_answers(&mut self, label: &str) {
        if let Some(&at) = self.labels.get(label) {
            self.questions[at].answered = true;
        }
    }

    /// The client's pipes are closed and the server is kept: no request waits.
    pub fn client_leaves(&mut self) {
        self.attachment += 1;
        self.opening = None;
        self.requests.clear();
        self.unconfirmed.clear();
        self.ours.clear();
        self.progress.clear();
        self.known.client_leaves();
        for question in &mut self.questions {
            question.cancelled = true;
        }
        self.at_client = Lines::default();
        self.half_told = None;
        self.unnoted = false;
        self.torn_allowed = false;
    }

    /// There is no client to answer.
    pub fn let_go(&mut self) {
        self.dropped = true;
    }

    /// The client gets what is queued, and then no more.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// Another client is connected.
    pub fn client_returns(&mut self) {
        self.dropped = false;
        self.released = false;
        // This client has got no answer yet.
        self.served = false;
    }

    /// The client left in the middle of a line to the server.
    pub fn server_is_left_with_half_a_line(&mut self) {
        self.server_torn = true;
    }

    /// The keeper was killed, in this state of the link.
    pub fn keeper_killed(&mut self, state: &str) {
        // It had decided to end, and was killed before it could say why.
        self.differs |= state == "stopping";
        // All of a line but its newline may have arrived. The successor ends the line and does not know what it was.
        let unnoted = std::mem::take(&mut self.unnoted);
        // A successor that was killed before it could end the line knew no more than its predecessor.
        let half_told = self.half_told.filter(|_| !unnoted).unwrap_or(!unnoted);
        self.half_told = (!self.at_client.rest().is_empty()).then_some(half_told);
        // A successor knows about every write but the last whether it was done.
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        if unnoted {
            for said in Message::read(self.at_client.rest()).unwrap_or_default() {
                self.allow(&said.key());
            }
            for answer in unconfirmed {
                self.allow(&answer.key);
            }
        }
        self.ours.clear();
        self.torn_allowed = true;
        self.keepers_killed += 1;
        self.at_server = Lines::default();
        self.respawns.clear();
    }

    fn allow(&mut self, key: &str) {
        if let Some(request) = self.requests.get_mut(key) {
            request.allowance += 1;
        }
    }

    /// The keeper was killed before it could note that it was to end, so its successor does not know.
    pub fn forget_end(&mut self) {
        self.ending = None;
    }

    /// This delay is not the link's fault.
    pub fn late(&mut self, ms: u64) {
        if let Some((_, late)) = &mut self.ending {
            *late += ms;
        }
    }

    /// An input of the link.
    pub fn told(&mut self, now: Moment, input: &Input) {
        match input {
            Input::ClientEof => self.ends(now),
            Input::Stop(Cause::ServerExit | Cause::ShimSignal { .. } | Cause::ShimKilled) => {}
            Input::Stop(cause) => {
                self.dropped |= *cause == Cause::ClientDeaf;
                self.ends(now);
            }
            Input::Renew(
                RestartReason::Asked | RestartReason::Changed { .. } | RestartReason::Memory { .. },
            ) => {
                self.respawns.clear();
            }
            Input::Exited(_) | Input::StdoutClosed { .. } | Input::TreeEmpty { .. } => {
                // We may have ended a half forwarded line.
                self.torn_allowed = true;
            }
            Input::Started
            | Input::StartFailed { .. }
            | Input::Renew(_)
            | Input::Measured { .. }
            | Input::Check
            | Input::Newcomer { .. }
            | Input::Reattached
            | Input::Tick => {}
        }
    }

    /// The end has begun.
    pub fn ends(&mut self, now: Moment) {
        self.ending.get_or_insert((now, 0));
    }

    /// An output of the link.
    pub fn asked_for(&mut self, now: Moment, output: &Output) -> Result<(), Halt> {
        if self.finished {
            return broken(format!("an output after the last: {output:?}"));
        }
        match output {
            Output::Finish(_) => {
                self.finished = true;
                let Some((since, late)) = self.ending else {
                    if self.served
                        && !self.differs
                        && self.limits.restart_budget > 0
                        && !self.lenient
                    {
                        return broken("the link ends by itself");
                    }
                    return Ok(());
                };
                let Limits {
                    grace_eof_ms,
                    grace_term_ms,
                    ..
                } = self.limits;
                let most = 2 * grace_eof_ms + 2 * grace_term_ms + 2_100 + late;
                let took = now.ms_since(since);
                if took > most {
                    return broken(format!("the end took {took} ms of {most}"));
                }
            }
            Output::Spawn if self.ending.is_some() => {
                return broken("a generation is started after the end has begun");
            }
            Output::DropClient | Output::Linger => self.dropped = true,
            Output::Tell(What::ServerChanged(_)) => self.differs = true,
            Output::Tell(What::LingerEnded(_)) => self.ends(now),
            Output::Tell(What::Restarting(restarting))
                if restarting.why == RestartReason::Reopened =>
            {
                self.opens_anew();
            }
            Output::Spawn
            | Output::Say(_)
            | Output::Stop(_)
            | Output::Measure
            | Output::LingerOver
            | Output::ClientEnded
            | Output::ClientDeaf
            | Output::CloseServerStdin
            | Output::ServerDeaf
            | Output::ServerStdoutEnded
            | Output::ExitDue
            | Output::Tell(_) => {}
        }
        Ok(())
    }

    /// The link has output this, and the keeper was killed before it performed it. The link's decision still counts.
    pub fn undone(&mut self, output: &Output) {
        if let Output::Tell(What::Restarting(restarting)) = output
            && restarting.why == RestartReason::Reopened
        {
            self.opens_anew();
        }
    }

    /// The first `initialize` of the client that is there, not a later one.
    fn is_opening(&self, said: &Message) -> bool {
        said.method == "initialize" && self.opening.as_ref() == Some(&said.key())
    }

    fn opens_anew(&mut self) {
        self.known.opens_anew();
        self.served = false;
        self.respawns.clear();
    }

    /// The next generation is about to be started.
    pub fn spawn(&mut self, now: Moment, generation: u32, before: &str) -> Result<(), Halt> {
        self.generation = generation;
        self.at_server = Lines::default();
        self.met = self.known.at_start();
        match before {
            "resting" | "" => return Ok(()),
            "abandoned" => {
                self.respawns.clear();
                return Ok(());
            }
            _ => {}
        }
        let window = self.limits.restart_window_ms;
        self.respawns.retain(|at| now.ms_since(*at) < window);
        self.respawns.push_back(now);
        // Before the first opening, three attempts are made that the budget does not count.
        let most = self.limits.restart_budget + 3;
        if !self.lenient && self.respawns.len() as u64 > most {
            return broken(format!(
                "{} respawns within {window} ms",
                self.respawns.len()
            ));
        }
        Ok(())
    }

    /// The link has seen a line of the client and decided this.
    pub fn routed(&mut self, line: &[u8], route: Route) {
        if route == Route::Later || self.lenient {
            return;
        }
        for said in Message::read(line).unwrap_or_default() {
            match said.kind {
                Kind::Request => {
                    self.saw(&said.key());
                    // A client that came back opens a server of its own. The server may die before it reads that opening. An opening
                    // that is held has changed nothing yet: the kept session may still answer it, and then the level lasts.
                    let own = route == Route::Pass;
                    if own && self.attachment > 1 && self.is_opening(&said) {
                        self.known.forget_earlier_level();
                    }
                }
                Kind::Notification if said.method == "notifications/initialized" => {
                    self.known.initialized = true;
                }
                Kind::Notification
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk => {}
            }
        }
    }

    /// The link has seen a line of the client of which only this is known.
    pub fn routed_frame(&mut self, frame: &Frame<'_>) {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            self.saw(&key_of(&String::from_utf8_lossy(id)));
        }
    }

    /// A successor routes these lines, although a killed keeper may have routed them: it was killed before it could move the mark. The
    /// promise to answer them begins with the successor.
    pub fn unrouted(&mut self, lines: &[u8], within_a_line: Option<Begun>) {
        let mut scanner = within_a_line.map_or_else(Scanner::new, Scanner::within_a_line);
        let mut rest = lines;
        while let Fed::Line { used } = scanner.feed(rest) {
            let (line, others) = rest.split_at(used);
            // The end of a line may show its request, and a whole line may be a batch.
            if let (Kind::Request, Id::Token(id)) = (scanner.frame().kind, scanner.frame().id) {
                self.unroute(&key_of(&String::from_utf8_lossy(id)));
            }
            for said in Message::read(line).unwrap_or_default() {
                if said.kind == Kind::Request {
                    self.unroute(&said.key());
                }
            }
            rest = others;
        }
    }

    fn unroute(&mut self, key: &str) {
        if let Some(request) = self.requests.get_mut(key) {
            request.routed = false;
        }
    }

    fn saw(&mut self, key: &str) {
        self.spoken = true;
        if let Some(request) = self.requests.get_mut(key) {
            request.routed |= !self.released;
        }
    }

    /// One of our own lines is queued for the client.
    pub fn ours_queued(&mut self, line: &[u8]) {
        self.ours.push_back(line.to_vec());
    }

    /// How a line has reached the client.
    fn way(&mut self, line: &[u8]) -> Way {
        match self.ours.front() {
            Some(ours) if ours == line => {
                self.ours.pop_front();
                Way::Ours
            }
            Some(_) | None => Way::Passed,
        }
    }

    /// The dead generation has not read these lines, so they never reached it.
    pub fn unread(&mut self, lines: &[u8]) {
        let generation = self.generation;
        for line in lines.split(|&byte| byte == b'\n') {
            for said in Message::read(line).unwrap_or_default() {
                // By the client's mark, because its id may be a label of ours.
                let mut all = self.requests.values_mut();
                let asked = |request: &&mut Request| request.mark.as_deref() == said.mark();
                if let Some(request) = all.find(asked).filter(|_| said.mark().is_some()) {
                    request.sent.retain(|sent| *sent != generation);
                }
            }
        }
    }

    /// The link knows that all lines of this kind have reached the client.
    pub fn delivered(&mut self, way: Way) {
        let (done, rest) = std::mem::take(&mut self.unconfirmed)
            .into_iter()
            .partition(|answer| answer.way == way);
        self.unconfirmed = rest;
        self.unnoted = false;
        self.confirm(done);
    }

    fn confirm(&mut self, done: Vec<Unconfirmed>) {
        for Unconfirmed { key, way, opens } in done {
            let request = self.requests.get(&key);
            let wanted = request.is_some_and(|request| !request.cancelled && request.answers == 1);
            self.served |= way == Way::Passed && wanted;
            self.known.greeted |= opens;
        }
    }

    /// While all is calm, nothing hangs. `silent` are the requests that the running server will never answer.
    pub fn calm(&self, up: Option<u32>, silent: &BTreeSet<String>) -> Result<(), Halt> {
        let unopened =
            |key: &String| self.requests.get(key).map(|r| r.method.as_str()) == Some("initialize");
        // A batch waits for the server's own answer to its opening.
        let patient = self.crowded || silent.iter().any(unopened);
        for (key, request) in &self.requests {
            if request.answers > 0 || request.cancelled {
                continue;
            }
            if !request.routed {
                if !patient {
                    return broken(format!("held for ever: {} {key}", request.method));
                }
                continue;
            }
            let waits = up.is_some_and(|up| request.sent.last() == Some(&up));
            let listens = request.method == "subscriptions/listen";
            // The server may know it by a label of ours.
            let mark = request.mark.as_ref();
            let silent = silent.contains(key) || mark.is_some_and(|mark| silent.contains(mark));
            if !waits || !(listens || silent) {
                return broken(format!("a request hangs: {} {key}", request.method));
            }
        }
        for question in &self.questions {
            let dead = up != Some(question.generation);
            if dead && question.shown && !question.answered && !question.cancelled {
                return broken(format!(
                    "a question is not taken back: {} of generation {}",
                    question.n, question.generation
                ));
            }
        }
        Ok(())
    }

    /// After the last output, every request has an answer. `flushed`: the client has read all that was written.
    pub fn end(&self, flushed: bool) -> Result<(), Halt> {
        if !self.finished {
            return broken("the link does not end");
        }
        if self.dropped || !flushed {
            return Ok(());
        }
        for (key, request) in &self.requests {
            if request.routed && request.answers == 0 && !request.cancelled {
                return broken(format!("never answered: {} {key}", request.method));
            }
        }
        Ok(())
    }
}

impl Outside {
    /// Bytes have reached the client.
    pub fn to_client_tap(&mut self, bytes: &[u8]) {
        self.watch.unnoted = true;
        for line in self.watch.at_client.feed(bytes) {
            self.note(|| format!("at client: {}", text(&line)));
            let way = self.watch.way(&line);
            if !self.watch.lenient {
                let verdict = self.watch.client_gets(&line, way);
                self.judge(verdict);
            }
        }
    }

    /// Bytes have reached the server.
    pub fn to_server_tap(&mut self, bytes: &[u8]) {
        let Some(process) = &self.process else {
            return;
        };
        let generation = process.generation;
        for line in self.watch.at_server.feed(bytes) {
            self.note(|| format!("at server {generation}: {}", text(&line)));
            if !self.watch.lenient {
                let verdict = self.watch.server_gets(generation, &line);
                self.judge(verdict);
            }
        }
    }
}
