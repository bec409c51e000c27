//! The HTTP front: the machine that `mainstay serve` runs around.
//!
//! Inputs and time go in by the verbs of [`Front`]; what is to be done comes out of [`Front::next_output`]. The shell owns
//! sockets, pipes and files, and performs outputs in their order. `Front` composes smaller machines and owns what belongs to all of
//! them: which one an input is for, how a session ends, and the stop.
//!
//! Invariants, walked by [`Front::check`]:
//! - A session has one lifetime; its connections are the exchanges that name it.
//! - A client leaves in one way, [`Front::left`], whatever its exchange was waiting for.
//! - After the stop there is no session, and no link that is not closing.

use alloc::format;
use alloc::string::String;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::SessionEnd;

use super::exchanges::{Shown, Source, State};
use super::legacy_era::{self, Joined, LegacyEra};
use super::lifetimes::{Full, Lifetimes};
use super::limits::ServeLimits;
use super::links::{Role, whole_or_error};
use super::modern_era::{ModernEra, is_modern};
use super::paths::Paths;
use super::relabel::Draw;
use super::server_queue::NextLine;
use super::stop::Stop;
use super::traffic::{Next, Progress, Traffic};
use super::upstream::{Pass, PassAnswer, Upstream};

pub use super::outputs::{Count, Ended, Output};
pub use super::requests::{Get, Post, Read, Refused, Step};

/// The front.
pub struct Front {
    stop: Stop,
    traffic: Traffic,
    paths: Paths,
    lifetimes: Lifetimes,
    legacy: LegacyEra,
    modern: ModernEra,
    upstream: Upstream,
}

/// Its life: time, limits, paths, the stop.
impl Front {
    /// A front with nothing open. `draw` gives bits that no client can guess.
    pub fn new(limits: ServeLimits, draw: Draw) -> Self {
        Self {
            stop: Stop::default(),
            lifetimes: Lifetimes::new(limits.session_ttl_ms, limits.session_cap as usize),
            traffic: Traffic::new(limits, draw),
            paths: Paths::default(),
            legacy: LegacyEra::default(),
            modern: ModernEra::default(),
            upstream: Upstream::default(),
        }
    }

    /// What is to be done next.
    pub fn next_output(&mut self) -> Option<Output> {
        self.traffic.out.next()
    }

    /// When [`Front::tick`] is due.
    pub fn wake_at(&self) -> Option<Moment> {
        let modern = self.modern.wake_at(self.traffic.limits.session_ttl_ms);
        let all = modern.into_iter().chain(self.lifetimes.wake());
        all.chain(self.stop.wake_at()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment) {
        for key in self.lifetimes.expire(now) {
            self.end(key, SessionEnd::Idle);
        }
        self.modern.tick(now, &mut self.traffic);
        self.finish_input(now);
    }

    /// New limits. They hold for what is open, too.
    pub fn limit(&mut self, limits: ServeLimits) {
        self.lifetimes
            .limit(limits.session_ttl_ms, limits.session_cap as usize);
        self.traffic.limits = limits;
    }

    /// Adds a path: its number.
    pub fn add_path(&mut self, url: String, share: bool) -> u64 {
        let number = self.traffic.number();
        self.paths.add(number, url, share);
        number
    }

    /// Nothing new is started at this path; what is in flight goes on.
    pub fn retire(&mut self, now: Moment, path: u64) {
        self.paths.retire(path);
        self.modern.retire(path, &mut self.traffic);
        self.finish_input(now);
    }

    /// From now on no session is opened, and after `delay_ms` no request is taken; what is in flight then has some time to be answered.
    pub fn stop(&mut self, now: Moment, delay_ms: u64) {
        self.stop
            .begin(now, delay_ms, self.traffic.limits.stop_wait_ms);
        self.finish_input(now);
    }

    /// Whether no session is opened any more.
    pub fn is_leaving(&self) -> bool {
        self.stop.has_begun()
    }

    /// Whether no request is taken any more.
    pub fn is_stopping(&self) -> bool {
        self.stop.refuses()
    }

    /// Whether connections are to end.
    pub fn is_closing(&self) -> bool {
        self.stop.is_closing()
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> usize {
        self.lifetimes.len()
    }

    /// Links that have not ended.
    pub fn links(&self) -> usize {
        self.traffic.links.len()
    }

    /// Sessions upstream whose end is not confirmed.
    pub fn unclosed(&self) -> usize {
        self.upstream.unclosed()
    }

    /// Bytes that wait for clients and servers.
    pub fn waiting_bytes(&self) -> usize {
        self.traffic.exchanges.bytes() + self.traffic.links.bytes()
    }

    /// What follows from any input: exchanges are woken, and a stop that has nothing to wait for ends everything.
    fn finish_input(&mut self, now: Moment) {
        let idle =
            || !self.legacy.is_waited_for() && self.modern.is_idle() && self.upstream.is_idle();
        if self.stop.closes(now, idle) {
            self.end_all();
        }
        let woken = self.traffic.exchanges.queues().woken();
        for number in woken {
            self.traffic.out.push(Output::Wake(number));
        }
    }

    fn end_all(&mut self) {
        self.modern.end_all("serve stops", &mut self.traffic);
        let mut keys = self.legacy.keys();
        keys.extend(self.upstream.keys());
        for key in keys {
            self.end(key, SessionEnd::Shutdown);
        }
        self.traffic.wake_all_waiting();
        self.traffic.out.push(Output::CloseConnections);
    }
}

/// What clients ask: exchanges.
impl Front {
    /// A request has come: the number of its exchange. [`Front::left`] ends it.
    pub fn open(&mut self) -> u64 {
        let number = self.traffic.number();
        self.traffic.exchanges.open(number);
        number
    }

    /// A message was posted, or its exchange is asked again after [`Output::Wake`]. Meanwhile only the state of the exchange is
    /// kept; the request stays with the caller.
    pub fn post(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Step {
        let step = loop {
            match self.step(now, number, post) {
                Ok(Progress::Becomes(state)) => self.traffic.exchanges.set_state(number, state),
                Ok(Progress::WaitsFor(link)) => {
                    self.traffic.wait_for(number, link);
                    break Step::Wait(None);
                }
                Ok(Progress::Is(step)) => break step,
                Err(refused) => break Step::Refuse(refused),
            }
        };
        if matches!(step, Step::Accepted | Step::Answer { .. }) {
            self.traffic.exchanges.set_state(number, State::Answered);
        }
        self.finish_input(now);
        step
    }

    /// A client reads news, or comes back for the rest of a stream.
    pub fn get(&mut self, now: Moment, number: u64, get: Get<'_>) -> Step {
        let step = self.stream(now, number, get);
        self.finish_input(now);
        step.unwrap_or_else(Step::Refuse)
    }

    /// A client ends its session.
    pub fn delete(&mut self, now: Moment, get: Get<'_>) -> Result<(), Refused> {
        let key = self.legacy.find_required(get, &self.paths)?;
        self.end(key, SessionEnd::Deleted);
        self.finish_input(now);
        Ok(())
    }

    /// The next piece of a stream of events.
    pub fn read(&mut self, now: Moment, number: u64) -> Read {
        let comment_at = self.traffic.comment_at(now);
        let read = self.traffic.exchanges.read(now, number, comment_at);
        if read == Read::End {
            // The client may take its time to close the connection; its session is free from here on.
            self.left(now, number);
        }
        read
    }

    /// The exchange is over: it was answered, or its client has left.
    pub fn left(&mut self, now: Moment, number: u64) {
        let Some(closed) = self.traffic.exchanges.close(number) else {
            return;
        };
        match closed.state {
            State::Legacy(legacy_era::Waits::Joining(link)) => {
                self.legacy.leave_shared(number, link, &mut self.traffic);
            }
            State::Opening(source) => {
                self.release(now, number, source);
                // The client does not know its session, and no other client does.
                if let Some(key) = closed.session {
                    self.end(key, SessionEnd::OpeningFailed);
                }
            }
            State::Asked(source) | State::Reading(source, _) => self.release(now, number, source),
            State::New
            | State::Legacy(legacy_era::Waits::InSession | legacy_era::Waits::OwnServer)
            | State::Modern(_)
            | State::Failed(_)
            | State::Answered => {}
        }
        if let Some(key) = closed.session {
            self.lifetimes.leave(now, key);
        }
        self.finish_input(now);
    }

    fn release(&mut self, now: Moment, number: u64, source: Source) {
        match source {
            Source::Stream { session, stream } => {
                self.legacy.left_stream(session, stream, number);
            }
            Source::News { session } => self.legacy.left_news(session, number),
            Source::Modern {
                link,
                number: request,
            } => self.modern.left(now, link, request, &mut self.traffic),
            Source::Kept => {}
        }
    }

    fn step(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Next {
        let Some(state) = self.traffic.exchanges.state(number).cloned() else {
            debug_assert!(false, "an exchange is asked that is over");
            return Err(Refused::NoSession);
        };
        let sent = matches!(state, State::Opening(_) | State::Asked(_));
        if !sent && self.is_closing() {
            return Err(Refused::Stopping);
        }
        match state {
            State::New => self.admit(number, post),
            State::Legacy(waits) => self.step_legacy(now, number, waits, post),
            State::Modern(waits) => self
                .modern
                .step(now, number, waits, post, &mut self.traffic),
            State::Opening(source) => self.first(now, number, source, true),
            State::Asked(source) => self.first(now, number, source, false),
            State::Failed(why) => Err(Refused::CannotStart(why)),
            State::Reading(..) | State::Answered => {
                debug_assert!(false, "an answered exchange is asked again");
                Err(Refused::NoSession)
            }
        }
    }

    /// Decides what a new message is: one in a session, one of the modern era, or one that opens a session.
    fn admit(&mut self, number: u64, post: &Post<'_>) -> Next {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        if let Some(key) = self.legacy.find(post.into(), &self.paths)? {
            self.enter(number, key);
            let waits = legacy_era::Waits::InSession;
            return Ok(Progress::Becomes(State::Legacy(waits)));
        }
        if is_modern(post) {
            return ModernEra::admit(post, &self.paths);
        }
        if self.is_leaving() {
            return Err(Refused::Stopping);
        }
        self.legacy
            .admit(number, post, &self.paths, &mut self.traffic)
    }

    fn step_legacy(
        &mut self,
        now: Moment,
        number: u64,
        waits: legacy_era::Waits,
        post: &Post<'_>,
    ) -> Next {
        let traffic = &mut self.traffic;
        match waits {
            legacy_era::Waits::InSession => {
                let key = traffic.exchanges.session(number);
                self.legacy.say(now, number, key, post, traffic)
            }
            legacy_era::Waits::OwnServer => {
                let key = self.reserve(now)?;
                let traffic = &mut self.traffic;
                self.legacy.begin_own(now, number, key, post, traffic)
            }
            legacy_era::Waits::Joining(link) => {
                match self.legacy.join(number, link, post, traffic)? {
                    Joined::NotYet => Ok(Progress::WaitsFor(link)),
                    Joined::Alone => {
                        let waits = legacy_era::Waits::OwnServer;
                        Ok(Progress::Becomes(State::Legacy(waits)))
                    }
                    Joined::Greeted { version, answer } => {
                        let key = self.reserve(now)?;
                        let at = (post.path, version.as_str());
                        let traffic = &mut self.traffic;
                        let name = self
                            .legacy
                            .begin_shared(now, number, key, link, at, traffic);
                        Ok(Progress::Is(Step::Answer {
                            message: answer,
                            session: Some(name),
                            modern: false,
                        }))
                    }
                }
            }
        }
    }

    /// Waits for the first message, which shows how the client is answered. After some time without one it gets a stream.
    fn first(&mut self, now: Moment, number: u64, source: Source, opens: bool) -> Next {
        let shown = self.traffic.exchanges.first(now, number);
        let key = self.traffic.exchanges.session(number);
        let session = key.filter(|_| opens).and_then(|key| self.legacy.name(key));
        let step = match shown.ok_or(Refused::NoSession)? {
            Shown::Nothing(until) => Step::Wait(Some(until)),
            Shown::Answer(message) => Step::Answer {
                message,
                session,
                modern: matches!(source, Source::Modern { .. }),
            },
            Shown::Events => {
                let priming = match source {
                    Source::Stream { session, stream } if !opens => {
                        self.legacy.priming(session, stream)
                    }
                    Source::Stream { .. }
                    | Source::News { .. }
                    | Source::Modern { .. }
                    | Source::Kept => None,
                };
                self.traffic.begin_stream(now, number, source, priming);
                Step::Events { session }
            }
        };
        Ok(Progress::Is(step))
    }

    fn stream(&mut self, now: Moment, number: u64, get: Get<'_>) -> Result<Step, Refused> {
        let key = self.legacy.find_required(get, &self.paths)?;
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        let traffic = &mut self.traffic;
        let (source, priming) = self.legacy.read(now, number, key, get.last, traffic)?;
        self.enter(number, key);
        self.traffic.begin_stream(now, number, source, priming);
        Ok(Step::Events { session: None })
    }

    /// The exchange is a connection of this session from now on.
    fn enter(&mut self, number: u64, key: u64) {
        self.lifetimes.enter(key);
        self.traffic.exchanges.set_session(number, key);
    }
}

/// Links: how they start, what their servers say, how they end.
impl Front {
    /// The link runs.
    pub fn started(&mut self, now: Moment, link: u64) {
        if let Some(Role::Session(key)) = self.traffic.links.role(link) {
            self.legacy.started(now, key, &mut self.traffic);
        }
        self.finish_input(now);
    }

    /// The link could not be started.
    pub fn start_failed(&mut self, now: Moment, link: u64, why: &str) {
        let Some(role) = self.traffic.links.remove(link) else {
            return;
        };
        let session = match role {
            Role::Session(key) => Some(key),
            Role::Shared | Role::Modern | Role::Unused => None,
        };
        self.traffic.fail_waiting(link, session, why);
        self.lose_server(link, role, SessionEnd::OpeningFailed, why);
        self.finish_input(now);
    }

    /// The link's server said something.
    pub fn server_bytes(&mut self, now: Moment, link: u64, bytes: &[u8]) {
        let Some(mut lines) = self.traffic.links.take_lines(link) else {
            return;
        };
        let mut piece = bytes;
        while let Some(line) = lines.next(&mut piece) {
            if let Some(line) = whole_or_error(line) {
                self.hear(now, link, &line);
            }
        }
        self.traffic.links.put_lines(link, lines);
        self.finish_input(now);
    }

    fn hear(&mut self, now: Moment, link: u64, line: &[u8]) {
        let traffic = &mut self.traffic;
        match traffic.links.role(link) {
            Some(Role::Session(key)) => {
                if !self.legacy.hear_own(now, key, line, traffic) {
                    self.end(key, SessionEnd::OpeningFailed);
                }
            }
            Some(Role::Shared) => self.legacy.hear_shared(now, link, line, traffic),
            Some(Role::Modern) => self.modern.hear(now, link, line, traffic),
            Some(Role::Unused) | None => {}
        }
    }

    /// The next line to write to this link. A link that is not known is closed.
    pub fn next_line(&mut self, link: u64) -> NextLine {
        self.traffic.links.next_line(link)
    }

    /// So many bytes of such a line were written.
    pub fn written(&mut self, link: u64, bytes: usize) {
        if self.traffic.links.written(link, bytes) {
            self.traffic.wake_waiting(link);
        }
    }

    /// The link reads no more; that it has ended is told by [`Front::link_over`].
    pub fn unwritable(&mut self, link: u64) {
        self.traffic.abandon_link(link);
    }

    /// The link has ended, and how.
    pub fn link_over(&mut self, now: Moment, link: u64, how: &str) {
        self.traffic.wake_waiting(link);
        let Some(role) = self.traffic.links.remove(link) else {
            return;
        };
        let why = format!("the server's link has ended ({how})");
        self.lose_server(link, role, SessionEnd::ServerGone, &why);
        self.finish_input(now);
    }

    /// What a link was used for goes without its server from now on.
    fn lose_server(&mut self, link: u64, role: Role, over: SessionEnd, why: &str) {
        let traffic = &mut self.traffic;
        let keys = match role {
            Role::Session(key) => alloc::vec![key],
            Role::Shared => self.legacy.lose_shared(link),
            Role::Modern => return self.modern.remove(link, why, traffic),
            Role::Unused => return,
        };
        for key in keys {
            self.legacy.settle(key, why, &mut self.traffic);
            self.end(key, over);
        }
    }
}

/// Requests that are passed on to a server upstream, and the ends of its sessions.
impl Front {
    /// A request is to be passed on: the number of its pass. [`Front::pass_left`] ends it.
    pub fn pass(&mut self, now: Moment, pass: Pass<'_>) -> Result<u64, Refused> {
        let opens = Upstream::opens(&pass);
        if self.is_stopping() || (opens && self.is_leaving()) {
            return Err(Refused::Stopping);
        }
        let unknown = self.upstream.check_name(&pass)?;
        if unknown || opens {
            self.paths.check_open(pass.path)?;
        }
        let key = opens.then(|| self.reserve(now)).transpose()?;
        let number = self.traffic.number();
        self.upstream.begin(number, pass, key, &mut self.lifetimes);
        self.finish_input(now);
        Ok(number)
    }

    /// The server has answered with this status, and with this name in its header for sessions.
    pub fn pass_answered(
        &mut self,
        now: Moment,
        number: u64,
        status: u16,
        session: Option<&str>,
    ) -> PassAnswer {
        let adopts = !self.is_stopping();
        let rest = (&mut self.lifetimes, &mut self.traffic.out);
        let said = (status, session);
        let answer = self.upstream.answered(now, number, said, adopts, rest);
        self.finish_input(now);
        answer
    }

    /// The session that began with an answer was written down, or could not be: whether the answer is passed on.
    pub fn pass_noted(&mut self, now: Moment, number: u64, noted: bool) -> bool {
        let closing = self.is_closing();
        let rest = (&mut self.lifetimes, &mut self.traffic.out);
        let passes = self.upstream.noted(number, noted, closing, rest);
        self.finish_input(now);
        passes
    }

    /// The server gave no answer.
    pub fn pass_failed(&mut self, now: Moment, number: u64) {
        self.upstream.failed(number, &mut self.lifetimes);
        self.finish_input(now);
    }

    /// The answer was sent to its end, or the client has left.
    pub fn pass_left(&mut self, now: Moment, number: u64) {
        self.upstream.left(now, number, &mut self.lifetimes);
        self.finish_input(now);
    }

    /// The sessions upstream, to ask for their names and to report how their ends go.
    pub fn upstream(&mut self) -> &mut Upstream {
        &mut self.upstream
    }
}

/// Sessions: how they begin and end.
impl Front {
    /// The key of a new session, with its first connection there. Sessions that are idle make room.
    fn reserve(&mut self, now: Moment) -> Result<u64, Refused> {
        let opened = self.lifetimes.open(now).map_err(|Full| Refused::Full);
        let (key, evicted) = opened?;
        for one in evicted {
            self.end(one, SessionEnd::Evicted);
        }
        Ok(key)
    }

    fn end(&mut self, key: u64, why: SessionEnd) {
        self.lifetimes.close(key);
        if self.upstream.contains(key) {
            let out = &mut self.traffic.out;
            self.upstream.end(key, why, &mut self.lifetimes, out);
        } else {
            self.legacy.end(key, why, &mut self.traffic);
        }
    }

    /// Walks all tables and states the invariants.
    pub fn check(&self) {
        self.traffic.check();
        self.legacy.check(&self.traffic);
        self.modern.check(&self.traffic);
        for key in self.legacy.keys() {
            debug_assert_eq!(
                self.lifetimes.connections(key),
                Some(self.traffic.exchanges.connections(key)),
                "a session's connections are its exchanges"
            );
        }
        self.upstream.check(&self.lifetimes);
        if self.is_closing() {
            debug_assert!(self.legacy.keys().is_empty(), "a session after the stop");
            debug_assert!(self.upstream.keys().is_empty(), "a session after the stop");
            // A shared server stays until the clients that wait for it have been told.
            let ended = |role| matches!(role, Role::Shared | Role::Unused);
            let mut links = self.traffic.links.roles();
            debug_assert!(
                links.all(|(_, role)| ended(role)),
                "a server of a session, or of the modern era, after the stop"
            );
        }
    }
}

#[cfg(test)]
#[path = "front/tests.rs"]
mod tests;
