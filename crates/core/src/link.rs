//! One client with one server: the machine that the relay drives.
//!
//! The shell tells it what happened (one input), performs what it asks for (drain [`Link::next`]), and sleeps until
//! [`Link::wake_at`]. Lines are routed in passing by [`Link::client_line`] and [`Link::server_line`]. It knows no
//! descriptor and no process but by number.
//!
//! It is made of three machines: `Exchange` knows what client and server say to each other,
//! `Generation` which server lives, `Attachment` whose pipes are held.
//! This file composes them for inputs and time, `link/lines.rs` for lines. `docs/design/link.md` has the picture.
//!
//! Invariants: each tracked client request gets exactly one answer, from the server or from us; at most one generation
//! is up, and the next one is asked for only when the tree of the last one is empty; after the
//! link has begun to end, no server is started; the last output is always [`Output::Finish`].

mod attachment;
mod closing;
mod death;
mod exchange;
mod generation;
mod io;
mod junk;
mod lines;
mod long_ids;
mod long_lines;
mod outbox;
mod own;
mod requests;
mod restarts;
mod server_requests;
mod session;
mod state;
mod swapping;
#[cfg(test)]
mod tests;
mod up;

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Lost, RestartReason, Status, What};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::frame::{Begun, Scanner};
use mainstay_protocol::message::inflight::Tracked;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::Policy;
use mainstay_protocol::traffic::Traffic;

use crate::record::{Phase, Record};

use attachment::Attachment;
use exchange::{Exchange, Happened};
use generation::Generation;
pub use io::{About, Exited, Holders, Input, Output, Reason, Route};
pub use session::MidLine;
use state::{Because, Life, Settling, earliest};
use up::{Opening, Up};

/// One client with one server.
#[derive(Debug)]
pub struct Link<'a> {
    exchange: Exchange<'a>,
    generation: Generation,
    attachment: Attachment,
}

impl<'a> Link<'a> {
    /// A link over this record. The record may be a killed keeper's.
    pub fn new(
        about: About,
        limits: Limits,
        policy: Policy,
        record: Record<'a>,
        remembered: Remembered,
    ) -> Self {
        Self {
            attachment: Attachment::new(limits.linger_ms),
            generation: Generation::new(limits.clone()),
            exchange: Exchange::new(about, limits, policy, record, remembered),
        }
    }

    /// Begins, or continues where a killed keeper stopped.
    pub fn begin(&mut self, now: Moment, lost: Option<Lost>) {
        let ex = &mut self.exchange;
        if let Some(lost) = lost {
            let settled = ex.take_over();
            ex.owed().tell(What::KeeperLost(Lost { settled, ..lost }));
            if self.attachment.take_over(ex) {
                self.generation.close_after_keeper(now, ex);
                return;
            }
        }
        match ex.session().phase() {
            // Messages that are kept for a first generation need one.
            Phase::Fresh if ex.policy().lazy && ex.requests().is_empty() => self.generation.rest(),
            Phase::Fresh | Phase::Serving => self.generation.spawn(None, ex),
            // The killed keeper had begun the end, and its guard has killed the rest of the tree.
            Phase::Stopping | Phase::Finished => self.generation.close_after_keeper(now, ex),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Moment, input: Input) {
        if self.generation.is_finished() {
            // The last output has been drained: no further input changes anything.
            return;
        }
        let Self {
            exchange: ex,
            generation,
            attachment: at,
        } = self;
        match input {
            Input::Started => self.started(now),
            Input::StartFailed {
                problem,
                hint,
                code,
            } => generation.start_failed(now, problem, hint, code, ex),
            Input::Exited(exited) => generation.exited(now, exited, at, ex),
            Input::StdoutClosed { tree_empty } => generation.stdout_closed(now, tree_empty, at, ex),
            Input::TreeEmpty { ended, left } => generation.tree_empty(now, ended, left, at, ex),
            Input::ClientEof => {
                if let Some(closing) = generation.closing() {
                    closing.explained();
                }
                at.stop(now, Cause::ClientEof, generation, ex);
            }
            Input::Stop(cause) => at.stop(now, cause, generation, ex),
            Input::Newcomer { changed } => at.newcomer(now, changed, ex),
            Input::Reattached => at.reattached(now, generation, ex),
            Input::Renew(why) => generation.renew(now, why, at, ex),
            Input::Check => generation.check(now, at, ex),
            Input::Measured { cpu_ms, traced } => generation.measured(now, cpu_ms, traced, at, ex),
            Input::Tick => {
                at.tick(now, generation, ex);
                if generation.tick(now, at, ex) {
                    self.resume(now);
                }
            }
        }
        self.generation.finish_if_done(&mut self.exchange);
    }

    fn started(&mut self, now: Moment) {
        match self.generation.started(now, &mut self.exchange) {
            Some(Opening::Nothing) => self.resume(now),
            Some(Opening::Asked) => self.busy_or_idle(now),
            None => {}
        }
    }

    /// The server knows what its predecessor knew: the client's traffic continues.
    fn resume(&mut self, now: Moment) {
        self.generation.serve(now, &mut self.exchange);
        self.release_held(now);
        self.exchange.check_lists();
        self.busy_or_idle(now);
    }

    /// Tells the server's health whether the server has work.
    fn busy_or_idle(&mut self, now: Moment) {
        if let Some(up) = self.generation.up() {
            up.busy_or_idle(now, &self.exchange);
        }
    }

    /// Routes the messages that waited within us, as if they came now.
    fn release_held(&mut self, now: Moment) {
        for line in self.exchange.release_held() {
            let mut scanner = Scanner::new();
            scanner.feed(&line);
            match self.track(now, &scanner.frame(), &line) {
                Route::Pass | Route::Later => self.exchange.outbox().send_server(line),
                Route::Consumed | Route::Replaced | Route::Gather => {}
            }
        }
    }

    /// Applies what the server's lines meant for its life.
    fn heed(&mut self, now: Moment) {
        while let Some(happened) = self.exchange.next_happened() {
            let Self {
                exchange: ex,
                generation,
                attachment: at,
            } = self;
            match happened {
                Happened::OpeningReplayed { unanswered: 0 } => self.resume(now),
                Happened::OpeningReplayed { unanswered } => generation.replaying(now, unanswered),
                Happened::OpeningRefused => generation.renew(now, RestartReason::Opening, at, ex),
                Happened::ReplayAnswered => {
                    if generation.up().is_some_and(Up::replay_answered) {
                        self.resume(now);
                    }
                }
                Happened::RecordConfirmed => {
                    let closing = generation.closing();
                    if closing.is_some_and(|closing| closing.awaits_last_answers()) {
                        self.release_held(now);
                    } else {
                        self.resume(now);
                    }
                }
                Happened::RecordRefused => {
                    let what =
                        "it refuses the opening that an earlier session's record has answered";
                    if generation.up().is_some() {
                        // One refusal may be a short problem. The client has its answer, so the next generation gets a
                        // try, as after any other refused opening of ours. Messages that wait go there.
                        ex.owed().tell_differs(what.into());
                        generation.renew(now, RestartReason::Opening, at, ex);
                    } else {
                        self.end_differing(now, what.into());
                    }
                }
                Happened::Differs(what) => self.end_differing(now, what),
                Happened::ProbeAnswered(n) => {
                    if let Some(up) = generation.up() {
                        up.probe_answered(now, n);
                    }
                }
                Happened::Fit => at.fit(),
            }
        }
    }

    /// The server cannot continue the session. The session ends, and later requests are answered with the reason.
    fn end_differing(&mut self, now: Moment, what: String) {
        let ex = &mut self.exchange;
        ex.owed().tell_differs(what.clone());
        let because = Because::Differs { what };
        ex.owed().answer_all_ahead(&because);
        ex.owed().settle(&Settling::All(because.clone()));
        self.attachment
            .stop(now, Cause::Differs, &mut self.generation, ex);
        if let Some(closing) = self.generation.closing() {
            closing.set_because(because);
        }
    }

    /// The next output.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is drained like one, but outputs come and go"
    )]
    pub fn next(&mut self) -> Option<Output> {
        self.exchange.outbox().next()
    }

    /// Whether there is an output to perform.
    pub fn has_output(&self) -> bool {
        self.exchange.has_output()
    }

    /// When to wake the link if no input comes, and why.
    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        if self.generation.is_finished() {
            return None;
        }
        let linger = self.attachment.wake_at().map(|at| (at, Reason::Linger));
        let away = self.attachment.away();
        earliest([linger, self.generation.wake_at(away, &self.exchange)])
    }

    /// The generation that is up, or the last one.
    pub fn generation(&self) -> u32 {
        self.exchange.session().generation()
    }

    /// What was answered since this keeper began.
    pub fn traffic(&self) -> &Traffic {
        self.exchange.requests().traffic()
    }

    /// Client requests without an answer.
    pub fn in_flight(&self) -> u32 {
        self.exchange.in_flight()
    }

    /// All client requests without an answer, the oldest first: id, kind, and when the request came.
    pub fn waiting(&self) -> impl Iterator<Item = (&[u8], Tracked, Moment)> {
        let all = self.exchange.requests().iter();
        all.map(|(id, entry)| (id, entry.method, entry.opened))
    }

    /// Gives the link what an earlier session of this configuration saw.
    pub fn recall(&mut self, remembered: Remembered) {
        self.exchange.recall(remembered);
    }

    /// The cache has been written.
    pub fn remembered_written(&mut self) {
        self.exchange.cache_mut().remembered_written();
    }

    /// What is known about the configuration.
    pub fn remembered(&self) -> &Remembered {
        self.exchange.cache().remembered()
    }

    /// Whether no server runs and the next generation is due at a later time.
    pub fn awaits_generation(&self) -> bool {
        matches!(self.generation.life(), Life::Waiting { .. })
    }

    /// Whether a tree is being ended.
    pub fn descending(&self) -> bool {
        self.generation.life().ladder().is_some()
    }

    /// True if a server that ended like this was ended by a signal of ours.
    pub fn sent(&self, status: Status) -> bool {
        self.generation.sent(status)
    }

    /// Whether a long line is half forwarded, so that an answer of ours must wait or end it.
    pub fn mid_line(&mut self) -> MidLine<'_> {
        self.exchange.mid_line()
    }

    /// The state in one word, for views.
    pub fn word(&self) -> &'static str {
        let opened = self.exchange.session().opened();
        let away = self.attachment.away();
        self.generation.life().word(away, opened)
    }

    /// How long the server is kept from now on if its client goes away.
    pub fn set_linger(&mut self, ms: u64) {
        self.attachment.set_linger(ms);
    }

    /// Whether no client is attached.
    pub fn away(&self) -> bool {
        self.attachment.away()
    }

    /// Whether the link waits for an EOF that would mean that the client wants the end.
    pub fn doubted(&self) -> bool {
        self.attachment.doubted()
    }

    /// Whether a newcomer can be attached now: to the kept server, or (`false`) to the next generation.
    pub fn judged(&self) -> Option<bool> {
        self.attachment.judged()
    }

    /// Whether client and server speak the modern era.
    pub fn modern(&self) -> bool {
        self.exchange.session().modern()
    }

    /// How the kept server would answer `server/discover`, if that is known without asking it. The question is not
    /// sent, because the server would count it as part of the session.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.exchange.discovered(id)
    }

    /// A dead server has not read these lines. The next generation is the first one that can read them.
    pub fn unread(&mut self, lines: &[u8]) {
        self.exchange.unread(lines);
    }

    /// Lines that a killed keeper had read, and may have noted, but had not forwarded. They are routed as new lines, so
    /// their requests are not answered now. Call this before [`begin`](Self::begin). `within_a_line`: the first bytes
    /// are the rest of a line whose beginning is lost.
    pub fn never_sent(&mut self, lines: &[u8], within_a_line: Option<Begun>) {
        if let Some(begun) = within_a_line {
            self.exchange.long_lines().await_rest(begun);
        }
        self.exchange.owed().never_sent(lines, within_a_line);
    }

    /// The next line from the server ends at this byte of the stream to the client.
    #[inline]
    pub fn line_ends_at(&mut self, end: u64) {
        self.exchange.owed().line_ends_at(end);
    }

    /// The client has been sent everything up to this byte: the requests answered in it are closed.
    pub fn delivered_to(&mut self, end: u64) {
        self.exchange.owed().delivered_to(end);
    }

    /// The client has been sent our lines up to this one, counted from 1: the requests answered in them are closed.
    pub fn written_to(&mut self, line: u64) {
        self.exchange.owed().written_to(line);
    }
}
