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
//! is up, and the next one is asked for only when the tree of the last one is empty; after the link's own end has begun
//! nothing is started any more; the last output is always [`Output::Finish`].

mod attachment;
mod closing;
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
#[cfg(test)]
mod tests;
mod up;

use alloc::string::String;
use alloc::vec::Vec;

use crate::clock::Moment;
use crate::event::{Cause, Lost, Renewing, Status, What};
use crate::limits::Limits;
use crate::message::frame::Scanner;
use crate::message::inflight::Tracked;
use crate::message::remembered::Remembered;
use crate::policy::Policy;
use crate::record::{Phase, Record};

use attachment::Attachment;
use exchange::{Exchange, Happened};
use generation::{Generation, Opening};
pub use io::{About, Exited, Holders, Input, Output, Reason, Route};
pub use session::MidLine;
use state::{Because, Life, Settling, earliest};

/// The machine.
#[derive(Debug)]
pub struct Link<'a> {
    exchange: Exchange<'a>,
    generation: Generation,
    attachment: Attachment,
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
        Self {
            attachment: Attachment::new(limits.linger_ms),
            generation: Generation::new(limits.clone()),
            exchange: Exchange::new(about, limits, policy, record, remembered),
        }
    }

    /// Begins, or goes on where a killed keeper stopped.
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
            // What is kept for a first generation wants one.
            Phase::Fresh if ex.policy().lazy && ex.requests().is_empty() => self.generation.rest(),
            Phase::Fresh | Phase::Serving => self.generation.spawn(None, ex),
            // The killed keeper was on its way down, and its guard has finished the descent.
            Phase::Stopping | Phase::Finished => self.generation.close_after_keeper(now, ex),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Moment, input: Input) {
        if self.generation.is_finished() {
            // The last output is out: whatever else is told changes nothing.
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
                generation.explained();
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
            Some(Opening::Asked) => self.generation.busy_or_idle(now, &self.exchange),
            None => {}
        }
    }

    /// The server knows what its predecessor knew: on with the client's traffic.
    fn resume(&mut self, now: Moment) {
        self.generation.serve(now, &mut self.exchange);
        self.release_held(now);
        self.exchange.check_lists();
        self.generation.busy_or_idle(now, &self.exchange);
    }

    /// Messages that waited within us are routed as if they came now.
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

    /// Does what the server's lines meant for its life.
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
                Happened::OpeningRefused => generation.renew(now, Renewing::Opening, at, ex),
                Happened::ReplayAnswered => {
                    if generation.replay_answered() {
                        self.resume(now);
                    }
                }
                Happened::RecordConfirmed => {
                    if generation.awaits_last_answers() {
                        self.release_held(now);
                    } else {
                        self.resume(now);
                    }
                }
                Happened::RecordRefused => {
                    let what =
                        "it refuses the opening that an earlier session's record has answered";
                    if generation.up_since().is_some() {
                        // One refusal may be a moment's trouble. The client has its answer, so it is the next one's turn, as
                        // after any opening of ours that is refused; what waits goes there.
                        ex.owed().tell_differs(what.into());
                        generation.renew(now, Renewing::Opening, at, ex);
                    } else {
                        self.end_differing(now, what.into());
                    }
                }
                Happened::Differs(what) => self.end_differing(now, what),
                Happened::ProbeAnswered(n) => generation.probe_answered(now, n),
                Happened::Fit => at.fit(),
            }
        }
    }

    /// The server cannot go on with the session: it ends, and requests that come still are told why.
    fn end_differing(&mut self, now: Moment, what: String) {
        let ex = &mut self.exchange;
        ex.owed().tell_differs(what.clone());
        let because = Because::Differs { what };
        ex.owed().answer_all_ahead(&because);
        ex.owed().settle(&Settling::All(because.clone()));
        self.attachment
            .stop(now, Cause::Differs, &mut self.generation, ex);
        self.generation.set_differing(because);
    }

    /// The next thing to do.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is drained like one, but outputs come and go"
    )]
    pub fn next(&mut self) -> Option<Output> {
        self.exchange.outbox().next()
    }

    /// Whether there is something to do.
    pub fn has_output(&self) -> bool {
        self.exchange.has_output()
    }

    /// When to be woken if nothing happens, and why.
    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        if self.generation.is_finished() {
            return None;
        }
        let linger = self.attachment.wake_at().map(|at| (at, Reason::Linger));
        let away = self.attachment.away();
        earliest([linger, self.generation.wake_at(away, &self.exchange)])
    }

    /// The generation that is up, or was last.
    pub fn generation(&self) -> u32 {
        self.exchange.session().generation()
    }

    /// Client requests without an answer.
    pub fn in_flight(&self) -> u32 {
        self.exchange.in_flight()
    }

    /// All client requests without an answer, the oldest first: id, sort, and when it came.
    pub fn waiting(&self) -> impl Iterator<Item = (&[u8], Tracked, Moment)> {
        let all = self.exchange.requests().iter();
        all.map(|(id, entry)| (id, entry.method, entry.opened))
    }

    /// Lends what an earlier session of this configuration saw.
    pub fn recall(&mut self, remembered: Remembered) {
        self.exchange.cache_mut().recall(remembered);
    }

    /// What was learned is written down.
    pub fn remembered_written(&mut self) {
        self.exchange.cache_mut().remembered_written();
    }

    /// What is known about the configuration.
    pub fn remembered(&self) -> &Remembered {
        self.exchange.cache().remembered()
    }

    /// Whether no server serves, and the next generation comes when its time has come.
    pub fn awaits_generation(&self) -> bool {
        matches!(self.generation.life(), Life::Waiting { .. })
    }

    /// Whether a tree is on its way down.
    pub fn descending(&self) -> bool {
        self.generation.ladder().is_some()
    }

    /// True if a server that ended like this was ended by a signal of ours.
    pub fn sent(&self, status: Status) -> bool {
        self.generation.sent(status)
    }

    /// Whether a long line is on its way and an answer of ours must wait or end it.
    pub fn mid_line(&mut self) -> MidLine<'_> {
        self.exchange.mid_line()
    }

    /// The state in one word, for views.
    pub fn word(&self) -> &'static str {
        let opened = self.exchange.session().opened();
        self.generation.word(self.attachment.away(), opened)
    }

    /// How long the server is kept from now on, if it comes to that.
    pub fn set_linger(&mut self, ms: u64) {
        self.attachment.set_linger(ms);
    }

    /// Whether no client is attached.
    pub fn away(&self) -> bool {
        self.attachment.away()
    }

    /// Whether an EOF is waited for that would say that the client wants the end.
    pub fn doubted(&self) -> bool {
        self.attachment.doubted()
    }

    /// Whether a newcomer may be taken in now: with the server that is kept, or (`false`) with the next generation.
    pub fn judged(&self) -> Option<bool> {
        self.attachment.judged()
    }

    /// Whether the modern era is spoken.
    pub fn modern(&self) -> bool {
        self.exchange.session().modern()
    }

    /// How the server that is kept would answer a `server/discover`, as far as that is known without asking it: asked
    /// now, it would take the question for the session's.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.exchange.discovered(id)
    }

    /// A dead server has not read these lines: whatever they ask, the next generation can be asked it for the first time.
    pub fn unread(&mut self, lines: &[u8]) {
        self.exchange.unread(lines);
    }

    /// Lines that a killed keeper had read, and may have taken note of, but had not passed on: they are routed as if they
    /// were new, so they are not answered now. To be told before [`begin`](Self::begin).
    /// `within_a_line`: they begin with the rest of a line whose beginning is gone.
    pub fn never_sent(&mut self, lines: &[u8], within_a_line: bool) {
        self.exchange.owed().never_sent(lines, within_a_line);
    }

    /// The server's line that is routed next ends at this byte of what goes on to the client.
    #[inline]
    pub fn line_ends_at(&mut self, end: u64) {
        self.exchange.owed().line_ends_at(end);
    }

    /// What goes on to the client has been written up to this byte: what it answered is closed for good.
    pub fn delivered_to(&mut self, end: u64) {
        self.exchange.owed().delivered_to(end);
    }

    /// Our lines up to this one, counted from 1, have been written to the client: what they answered is closed.
    pub fn written_to(&mut self, line: u64) {
        self.exchange.owed().written_to(line);
    }
}
