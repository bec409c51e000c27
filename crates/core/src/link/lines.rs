//! Which way a line goes, by which server lives and which client is there.
//!
//! The fast path ([`Link::calls`], [`Link::results`]): most of what passes a link is tool calls and their answers while
//! nothing else goes on. What holds for a whole run of them is asked once, before it; each line then costs a glance and
//! its place in the table. Whatever is not written in the usual way, or is no call, ends the run.
//!
//! Invariant: a line that passes on the fast path leaves the link as [`Link::client_line`] or [`Link::server_line`] would
//! have.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::RestartReason;
use mainstay_protocol::message::frame::{Frame, Id, Kind, Scanner};
use mainstay_protocol::message::inflight::{Token, Tracked};
use mainstay_protocol::message::{batch, settle};

use super::Link;
use super::attachment::Reopened;
use super::exchange::{Cut, Exchange, members};
use super::io::Route;
use super::long_ids::Short;
use super::long_lines::Gathered;
use super::requests::each_request;
use super::state::{Because, Life};
use super::up::Stage;
use crate::record::Attached;

impl Link<'_> {
    /// Lets the calls at the start of `lines` go on, and shows each; how many bytes they have.
    #[inline]
    pub fn calls(&mut self, now: Moment, lines: &[u8], passed: impl FnMut(&Frame<'_>)) -> usize {
        if !self.is_plain() {
            return 0;
        }
        let used = self.exchange.pass_calls(now, lines, passed);
        if used > 0
            && let Some(up) = self.generation.up()
        {
            up.used(now);
            up.busy_or_idle(now, &self.exchange);
        }
        used
    }

    /// Lets the results of calls at the start of `lines` go on, and shows each; how many bytes they have. The lines begin at the byte
    /// `begin` of what goes on to the client.
    #[inline]
    pub fn results(
        &mut self,
        now: Moment,
        lines: &[u8],
        begin: u64,
        passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        if !self.is_plain() {
            return 0;
        }
        let used = self.exchange.pass_results(now, lines, begin, passed);
        if used > 0
            && let Some(up) = self.generation.up()
        {
            up.answers_calls(now, used);
            up.busy_or_idle(now, &self.exchange);
        }
        used
    }

    /// True if the fast path is safe: nothing to relabel, to buffer for a retry, or to drain.
    fn is_plain(&self) -> bool {
        self.generation.is_serving()
            && !self.generation.is_changed()
            && self.attachment.is_held()
            && self.exchange.is_plain()
    }

    // From the client.

    /// Routes a whole line from the client.
    pub fn client_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if self.attachment.away() {
            // It came from a client that has left.
            return Route::Consumed;
        }
        match self.exchange.owed().shorten(frame, line) {
            Short::AsItIs => self.route(now, frame, line),
            Short::Full => Route::Later,
            Short::Refused => Route::Replaced,
            Short::Line(short) => {
                let mut scanner = Scanner::new();
                scanner.feed(&short);
                match self.route(now, &scanner.frame(), &short) {
                    Route::Pass => {
                        self.exchange.outbox().send_server(short);
                        Route::Replaced
                    }
                    route @ (Route::Consumed | Route::Replaced | Route::Gather | Route::Later) => {
                        route
                    }
                }
            }
        }
    }

    /// Routes a line from the client whose ids have their place in the table.
    fn route(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match self.generation.life() {
            Life::Up(up) => match up.stage() {
                Stage::Serving if up.gives_way() && frame.kind == Kind::Request => {
                    self.hold_or_later(now, frame, line)
                }
                Stage::Serving => self.track(now, frame, line),
                // The server may be waiting for this answer to its own question.
                Stage::Instant | Stage::Greeting { .. } | Stage::Replaying { .. }
                    if matches!(frame.kind, Kind::Response | Kind::Error) =>
                {
                    self.exchange.owed().client_answers(frame, line)
                }
                Stage::Instant => self.line_before_opening(now, frame, line),
                Stage::Greeting { .. } | Stage::Replaying { .. } if up.trial().is_some() => {
                    self.refuse(now, frame, line)
                }
                // The server waits for an answer that lies behind this line.
                Stage::Greeting { .. } if self.exchange.client_is_asked() => {
                    if is_initialized(frame) {
                        // The replay sends it itself. Set the flag in the record, because a successor keeper cannot see
                        // our queue.
                        self.exchange.session_mut().set_initialized();
                        return Route::Consumed;
                    }
                    self.hold_or_later(now, frame, line)
                }
                Stage::Replaying { .. } if self.exchange.client_is_asked() => {
                    self.hold_or_later(now, frame, line)
                }
                Stage::Greeting { .. } | Stage::Replaying { .. } => Route::Later,
            },
            Life::Closing(closing) if closing.is_leaving() => Route::Later,
            Life::Absent { .. } | Life::Waiting { .. } | Life::Swapping(_) => Route::Later,
            Life::Resting => self.line_at_rest(now, frame, line),
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => {
                let route = self.refuse(now, frame, line);
                self.generation.finish_if_done(&mut self.exchange);
                route
            }
        }
    }

    /// Keeps a line within us, or has it shown again later if there is no room.
    fn hold_or_later(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if self.exchange.try_hold(now, frame, line) {
            Route::Consumed
        } else {
            Route::Later
        }
    }

    /// A line of the client's on its way to a server that serves.
    pub(super) fn track(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if let Some(up) = self.generation.up() {
            up.used(now);
        }
        match frame.kind {
            Kind::Request => self.track_request(now, frame, line),
            Kind::Notification => self.track_notification(now, frame, line),
            Kind::Batch => self.track_batch(now, line),
            Kind::Response | Kind::Error => self.exchange.owed().client_answers(frame, line),
            Kind::Blank | Kind::Junk => Route::Pass,
        }
    }

    fn track_request(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        match self.attachment.reopen(now, frame, line, &mut self.exchange) {
            Some(Reopened::Routed(route)) => return route,
            Some(Reopened::Anew(why)) => return self.open_anew(now, frame, line, why),
            None => {}
        }
        let method = frame.method.as_deref().unwrap_or_default();
        let tracked = Tracked::of(method);
        if tracked == Tracked::Discover
            && let Some(route) = self.exchange.refuse_discover(now, id, method)
        {
            return route;
        }
        if !self.open(now, id, tracked) {
            return Route::Later;
        }
        self.exchange.send(id, tracked, line)
    }

    /// The server is asked this; false if the table has no room and the client must wait.
    fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        self.server_is_asked(now);
        self.exchange.owed().open(now, id, tracked)
    }

    fn server_is_asked(&mut self, now: Moment) {
        let opened = self.exchange.session().opened();
        if let Some(up) = self.generation.up() {
            up.asked(now, opened);
        }
    }

    fn track_notification(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let mut route = Route::Pass;
        match frame.method.as_deref() {
            Some("notifications/initialized") => {
                if self.exchange.session_mut().initialized_before() {
                    self.exchange.tell_changed_meanwhile();
                    return Route::Replaced;
                }
                self.exchange.session_mut().set_initialized();
            }
            Some("notifications/cancelled") => {
                let at_it;
                (route, at_it) = self.exchange.cancel(line);
                if at_it && let Some(up) = self.generation.up() {
                    up.taken_back(now);
                }
            }
            Some(_) | None => {}
        }
        self.busy_or_idle(now);
        route
    }

    fn track_batch(&mut self, now: Moment, line: &[u8]) -> Route {
        if !self.exchange.requests().has_room_for(line) {
            return Route::Later;
        }
        if self.exchange.splits_client_batch(line) {
            for (member, line) in members(line) {
                match self.track(now, &member.frame(), &line) {
                    Route::Pass | Route::Later => self.exchange.outbox().send_server(line),
                    Route::Consumed | Route::Replaced | Route::Gather => {}
                }
            }
            return Route::Replaced;
        }
        let mut asks = false;
        batch::each_member(line, |member| asks |= member.kind == Kind::Request);
        if asks {
            self.server_is_asked(now);
        }
        self.exchange.owed().open_batch(now, line);
        Route::Pass
    }

    /// A client that came back opens in another way than before, or the server is not fit: that takes a server that has
    /// not been opened yet.
    fn open_anew(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
        why: RestartReason,
    ) -> Route {
        let session = self.exchange.session_mut();
        session.open_anew();
        session.remember_opening(line);
        // Last: a successor completes a change that is half done as long as this is not noted.
        session.set_attached(Attached::Yes);
        self.generation.forget_tries();
        let route = self.hold_or_later(now, frame, line);
        self.generation.replace(now, why, &mut self.exchange);
        route
    }

    /// A message of the client's while no server is there to take it: a request wakes the server.
    fn line_at_rest(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if frame.kind == Kind::Request {
            let method = frame.method.as_deref().unwrap_or_default();
            self.exchange.note_era(Tracked::of(method), line);
        }
        if let Some(route) = self.exchange.answered_from_record(now, frame, line) {
            return route;
        }
        match frame.kind {
            Kind::Request | Kind::Batch => {
                self.generation.spawn(None, &mut self.exchange);
                Route::Later
            }
            Kind::Notification => {
                if is_initialized(frame) {
                    self.exchange.session_mut().set_initialized();
                }
                Route::Consumed
            }
            Kind::Response | Kind::Error => {
                if let Id::Token(id) = frame.id {
                    self.exchange.owed().client_answers_in_vain(id);
                }
                Route::Consumed
            }
            Kind::Blank | Kind::Junk => Route::Consumed,
        }
    }

    /// A message of the client's before the server has answered the opening that the cache has answered.
    fn line_before_opening(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if let Some(route) = self.exchange.answered_from_record(now, frame, line) {
            return route;
        }
        match frame.kind {
            Kind::Notification if is_initialized(frame) => {
                self.exchange.session_mut().set_initialized();
                Route::Consumed
            }
            Kind::Blank | Kind::Junk => Route::Consumed,
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                self.hold_or_later(now, frame, line)
            }
        }
    }

    /// Answers a message that no server will see.
    fn refuse(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if frame.kind != Kind::Batch {
            return self.refuse_one(now, frame);
        }
        if !self.exchange.requests().has_room_for(line) {
            return Route::Later;
        }
        let mut route = Route::Consumed;
        batch::each_member(line, |member| {
            if self.refuse_one(now, &member) == Route::Replaced {
                route = Route::Replaced;
            }
        });
        route
    }

    fn refuse_one(&mut self, now: Moment, frame: &Frame<'_>) -> Route {
        if is_initialized(frame) {
            self.exchange.session_mut().set_initialized();
        }
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return Route::Consumed;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        let about = self.exchange.about();
        let why = match self.generation.life() {
            Life::Closing(closing) => match closing.refusal() {
                Some(because) => because.why(about),
                None => return Route::Consumed,
            },
            Life::Abandoned(given_up) => given_up.why(about, false),
            Life::Up(up) => match up.trial() {
                Some(given_up) => given_up.why(about, false),
                None => return Route::Consumed,
            },
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Finished => return Route::Consumed,
        };
        let answer = settle::answer(id, tracked, self.exchange.session().modern(), &why);
        if tracked == Tracked::Initialize {
            // The client has got this answer already.
            if let Some(closing) = self.generation.closing() {
                closing.explained();
            }
        }
        if self.exchange.owed().answer_new(now, id, tracked, answer) {
            Route::Replaced
        } else {
            Route::Later
        }
    }

    /// Whether no server will see what the client says now.
    fn is_over(&self) -> bool {
        match self.generation.life() {
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => true,
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting => false,
        }
    }

    // Long lines from the client.

    /// May a line from the client that is too long to be held go on? Not all of it may be known yet.
    pub fn client_cut(&mut self, now: Moment, frame: Option<&Frame<'_>>) -> Route {
        let route = self.cut_route(frame);
        self.exchange.long_lines().set_unsent(None);
        if let (Route::Consumed, Life::Closing(_), Some(frame)) =
            (route, self.generation.life(), frame)
        {
            return self.refuse_cut(now, frame);
        }
        if route == Route::Gather {
            self.exchange.long_lines().begin_from_client();
        }
        let abandoned = matches!(self.generation.life(), Life::Abandoned(_));
        if let Some(frame) = frame
            && (route == Route::Gather || route == Route::Consumed && abandoned)
        {
            self.exchange.open_at_cut(now, frame);
        }
        route
    }

    /// The beginning of a request that no server will see: it is answered before its beginning is gone, because a successor of
    /// this keeper could not know it any more.
    fn refuse_cut(&mut self, now: Moment, frame: &Frame<'_>) -> Route {
        let route = self.refuse_one(now, frame);
        if route == Route::Later {
            return route;
        }
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            self.exchange.long_lines().set_unsent(Token::new(id));
        }
        self.generation.finish_if_done(&mut self.exchange);
        route
    }

    fn cut_route(&mut self, frame: Option<&Frame<'_>>) -> Route {
        if self.attachment.away() {
            return Route::Consumed;
        }
        let ex = &mut self.exchange;
        let full = ex.requests().room() == 0;
        match self.generation.life() {
            Life::Up(up) => match up.stage() {
                Stage::Serving if !up.gives_way() => {
                    let may_ask =
                        frame.is_none_or(|frame| matches!(frame.kind, Kind::Request | Kind::Batch));
                    if full && may_ask {
                        // Once its beginning is gone, the line could not wait for a place.
                        Route::Later
                    } else if ex.must_see_client_line(frame) {
                        Route::Gather
                    } else {
                        Route::Pass
                    }
                }
                // The server waits for it before it goes on.
                Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant
                    if is_answer(frame) && ex.client_is_asked() =>
                {
                    Route::Gather
                }
                Stage::Greeting { .. }
                | Stage::Replaying { .. }
                | Stage::Instant
                | Stage::Serving => Route::Later,
            },
            Life::Absent { .. } | Life::Waiting { .. } | Life::Swapping(_) => Route::Later,
            Life::Resting => {
                self.generation.spawn(None, ex);
                Route::Later
            }
            Life::Abandoned(_) if full && is_request(frame) => Route::Later,
            Life::Closing(closing) if closing.is_leaving() => Route::Later,
            Life::Abandoned(_) | Life::Closing(_) if Exchange::has_more_ids(frame) => Route::Gather,
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => Route::Consumed,
        }
    }

    /// Learns what is known of a long line from the client while it is being forwarded.
    pub fn client_known(&mut self, now: Moment, frame: &Frame<'_>) {
        let unanswered = match self.generation.life() {
            Life::Abandoned(_) | Life::Finished => true,
            Life::Closing(closing) => closing.is_over(),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting => false,
        };
        if unanswered {
            self.client_lost(now, frame);
        } else if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.open(now, id, tracked);
        }
    }

    /// The end of a long line from the client that went nowhere, and that was not known before: it is answered now.
    pub fn client_lost(&mut self, now: Moment, frame: &Frame<'_>) {
        let rest = self.exchange.long_lines().take_rest();
        let Id::Token(id) = frame.id else {
            return;
        };
        if rest.as_ref().is_some_and(|rest| rest.is_answered(id)) {
            return;
        }
        // The client may have answered what a dead server had asked. That question may have the id of a request of its own.
        if rest.is_some_and(|rest| rest.may_answer())
            && self.exchange.owed().client_answers_in_vain(id)
        {
            return;
        }
        if frame.kind != Kind::Request {
            return;
        }
        // If the request was registered when its line was cut, no server has seen any of it. Otherwise a dead server may
        // have read the start.
        let cut = self.exchange.end_of_cut();
        if cut == Some(Cut::Answered) {
            return;
        }
        if let (Life::Abandoned(given_up), None) = (self.generation.life(), cut) {
            let because = Because::Abandoned {
                given_up: given_up.clone().into(),
                sent: true,
            };
            self.exchange.owed().answer_line(now, frame, &because);
            return;
        }
        if self.is_over() {
            if self.refuse_one(now, frame) == Route::Later {
                // It cannot be shown again: it is answered without a place in the table.
                let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
                self.exchange.owed().answer(id, tracked, &Because::Lost);
            }
            self.generation.finish_if_done(&mut self.exchange);
            return;
        }
        self.exchange.owed().answer_line(now, frame, &Because::Lost);
    }

    /// The next piece of a long line from the client that is gathered.
    pub fn client_piece(&mut self, piece: &[u8]) {
        self.exchange.long_lines().client_piece(piece);
    }

    /// The end of a long line from the client that was gathered.
    pub fn gathered_from_client(&mut self, now: Moment, frame: &Frame<'_>) {
        let gathered = self.exchange.gathered_from_client();
        if self.exchange.end_of_cut() == Some(Cut::Answered) {
            return;
        }
        let line = match gathered {
            Gathered::Whole(line) => line,
            Gathered::TooLong(_) => return self.exchange.owed().client_too_long(now, frame),
        };
        match self.client_line(now, frame, &line) {
            Route::Pass => self.exchange.outbox().send_server(line),
            Route::Later if self.is_over() => self.refuse_gathered(now, frame, &line),
            Route::Later => self.exchange.owed().hold_gathered(now, frame, &line),
            Route::Consumed | Route::Replaced | Route::Gather => {}
        }
    }

    /// A gathered line that no server will see, and for which the table has no room: it is answered without.
    fn refuse_gathered(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        let Some(short) = self.exchange.owed().shorten_for_good(frame, line) else {
            return;
        };
        if self.refuse(now, frame, &short) == Route::Later {
            each_request(&short, |id, tracked| {
                self.exchange.owed().answer(id, tracked, &Because::Lost);
            });
        }
    }

    // From the server.

    /// The server wrote something, even if only part of a line: it is alive.
    pub fn server_wrote(&mut self, now: Moment) {
        if let Some(up) = self.generation.up() {
            up.wrote(now);
        }
    }

    /// Counts a line from the server that was no message.
    pub fn junk(&mut self, line: &[u8]) {
        self.generation.junk(Some(line), &mut self.exchange);
    }

    /// Routes a whole line from the server, which has been [heard](Self::server_wrote).
    pub fn server_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let whole = read_whole(frame, line);
        let frame = whole.as_ref().unwrap_or(frame);
        self.server_says(now, frame, Some(line))
    }

    /// The end of a long line from the server that has passed, or was dropped: all that is known of it is its frame.
    pub fn server_line_unseen(&mut self, now: Moment, frame: &Frame<'_>) -> Route {
        self.exchange.long_lines().answer_ends();
        self.server_says(now, frame, None)
    }

    fn server_says(&mut self, now: Moment, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        let Some(speaker) = self.generation.life().speaker() else {
            return Route::Consumed;
        };
        // No client needs the answer to a question of ours.
        let of_use = !matches!(frame.id, Id::Token(id) if self.exchange.is_own(id));
        let bytes = line.map_or(0, <[u8]>::len);
        if let Some(up) = self.generation.up() {
            up.says(now, frame.kind, bytes, of_use);
        }
        if let Some(line) = line {
            self.exchange.note_tasks(now, line);
        }
        if frame.kind == Kind::Junk {
            self.generation.junk(line, &mut self.exchange);
        }
        if self.attachment.away() {
            let dropped = self.exchange.unheard(frame, line);
            self.attachment.dropped(dropped);
            self.heed(now);
            self.busy_or_idle(now);
            return Route::Consumed;
        }
        if self.generation.is_changed() && matches!(frame.kind, Kind::Response | Kind::Error) {
            self.generation.answered_anything();
        }
        let route = self.exchange.server_says(now, speaker, frame, line);
        self.heed(now);
        let ex = &mut self.exchange;
        self.generation.drained_if_answered(now, ex);
        self.generation.give_way_if_drained(now, ex);
        self.busy_or_idle(now);
        match route {
            Route::Pass => self.exchange.owed().forwarded(frame, line),
            Route::Consumed | Route::Later | Route::Replaced | Route::Gather => route,
        }
    }

    /// Learns what is known of a long line from the server before it is forwarded: may it go on?
    pub fn server_known(&mut self, frame: Option<&Frame<'_>>) -> Route {
        // While no client is attached, only answers to us matter, and those are short.
        if self.generation.life().speaker().is_none() || self.attachment.away() {
            return Route::Consumed;
        }
        self.exchange.long_line_route(frame)
    }

    /// The next piece of a long line from the server that is gathered.
    pub fn server_piece(&mut self, piece: &[u8]) {
        self.exchange.long_lines().server_piece(piece);
    }

    /// The end of a long line from the server that was gathered.
    pub fn gathered_from_server(&mut self, now: Moment, frame: &Frame<'_>) {
        let line = match self.exchange.gathered_from_server() {
            Gathered::Whole(line) => line,
            Gathered::TooLong(begins) => {
                if frame.kind == Kind::Batch {
                    // What it answers is not known, so that no request gets the wrong answer.
                    self.junk(&begins);
                }
                return self.exchange.server_too_long(frame);
            }
        };
        match self.server_line(now, frame, &line) {
            Route::Pass | Route::Later => self.exchange.owed().send_gathered(frame, line),
            Route::Consumed | Route::Replaced | Route::Gather => {}
        }
    }
}

/// What only the whole line tells: whether an array is a batch, and the id of a long answer that has it between two nested
/// values. None if the scanner has said all.
fn read_whole<'a>(frame: &Frame<'a>, line: &'a [u8]) -> Option<Frame<'a>> {
    if frame.bytes != line.len() as u64 {
        return None;
    }
    match (frame.kind, frame.id) {
        (Kind::Batch, _) => (!batch::is_batch(line)).then(|| Frame {
            kind: Kind::Junk,
            ..frame.clone()
        }),
        (Kind::Response | Kind::Error, Id::Absent) => Some(frame.clone().completed(line)),
        (
            Kind::Request
            | Kind::Notification
            | Kind::Response
            | Kind::Error
            | Kind::Blank
            | Kind::Junk,
            _,
        ) => None,
    }
}

fn is_initialized(frame: &Frame<'_>) -> bool {
    frame.method.as_deref() == Some("notifications/initialized")
}

fn is_request(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| frame.kind == Kind::Request)
}

fn is_answer(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| matches!(frame.kind, Kind::Response | Kind::Error))
}
