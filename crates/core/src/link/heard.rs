//! The way of a line from the server: whose answer it is, what it asks the client, what of it must be known later.

use super::own::Purpose;
use super::state::{Life, Stage};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Junk, What};
use crate::message::asked::Label;
use crate::message::envelope::{self, cancelled_id};
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::Tracked;
use crate::message::lists::Which;
use crate::message::{batch, settle, token};
use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Link<'_> {
    /// Routes a whole line from the server, which has been [heard](Self::server_wrote).
    pub fn server_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let whole = read_whole(frame, line);
        let frame = whole.as_ref().unwrap_or(frame);
        match &mut self.life {
            Life::Up(up) => {
                up.says(frame.kind, line);
                // An answer to a question of our own is of use to nobody else.
                if !matches!(frame.id, Id::Token(id) if self.own.is(id)) {
                    up.used = now;
                }
            }
            // Whoever of its tree speaks after the server's end speaks for nobody: what it owed is settled.
            Life::Closing(closing) if closing.is_over() => return Route::Drop,
            Life::Swapping(swapping) if swapping.is_over() => return Route::Drop,
            Life::Closing(_) | Life::Swapping(_) => {}
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => return Route::Drop,
        }
        if self.limits.hibernate_ms > 0 || self.tasks.possible() {
            self.tasks.seen(now, line);
        }
        if self.away() {
            self.unheard(now, frame, line);
            self.busy_or_idle(now);
            return Route::Drop;
        }
        if self.changed.is_some() && matches!(frame.kind, Kind::Response | Kind::Error) {
            // It is up, be it good or bad.
            self.changed = None;
        }
        let route = match frame.kind {
            Kind::Request => self.server_asks(frame, line),
            Kind::Notification => self.notified(frame, line),
            Kind::Response | Kind::Error => self.answered(now, frame, line),
            Kind::Batch if self.told_one_by_one(line) => self.split_server_batch(now, line),
            Kind::Batch => {
                batch::each_member(line, |member| {
                    if matches!(member.kind, Kind::Response | Kind::Error) {
                        self.answered(now, &member, b"");
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
        self.give_way_if_drained(now);
        self.busy_or_idle(now);
        if route == Route::Forward {
            self.forwarded(frame, line)
        } else {
            route
        }
    }

    /// The server wrote something, be it a part of a line: it is there.
    pub fn server_wrote(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.health.heard(now);
            up.silence.wrote(now);
        }
    }

    /// Counts a line from the server that was no message.
    pub fn junk(&mut self, line: &[u8]) {
        if let Some(junk) = self.junk.count(line) {
            self.tell(What::Junk(junk));
        }
    }

    /// A generation ends: the lines since the last event are told, so that the sum is right.
    pub(super) fn tell_rest_of_junk(&mut self) {
        if let Some(junk) = self.junk.rest() {
            self.tell(What::Junk(junk));
        }
    }

    /// The server asks the client.
    pub(super) fn server_asks(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        self.forget_calls();
        match self.asked.open(self.head.generation, id) {
            Label::Same => {
                self.keepsakes.put(Kept::Asked, id, b"");
                Route::Forward
            }
            Label::New(label) => match envelope::with_id(line, &label) {
                Some(line) => {
                    self.keepsakes.put(Kept::Asked, &label, b"");
                    self.push(Output::ToClient(line));
                    Route::Instead
                }
                None => Route::Drop,
            },
            Label::Full => {
                let answer = settle::error(id, "too many requests wait for the client", "{}");
                self.push(Output::ToServer(answer));
                Route::Drop
            }
        }
    }

    /// These lists have changed while nobody could be told; once is enough.
    pub(super) fn changed_meanwhile(&mut self, lists: impl IntoIterator<Item = Which>) {
        for which in lists {
            if !self.changed_in_replay.contains(&which) {
                self.changed_in_replay.push(which);
            }
        }
    }

    /// A call that has led to a question is not sent again: the question would be asked twice. Which one has is not told, so
    /// it may be any.
    pub(super) fn forget_calls(&mut self) {
        let generation = self.head.generation;
        for (id, entry) in self.inflight.iter() {
            if entry.method == Tracked::ToolsCall && entry.sent_to == Some(generation) {
                self.resend.give_up(id);
            }
        }
    }

    pub(super) fn notified(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        if let Some(route) = self.news_apart(frame, line) {
            return route;
        }
        self.notified_own(frame, line)
    }

    /// News that are no orphan's.
    pub(super) fn notified_own(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let method = frame.method.as_deref().unwrap_or_default();
        match method {
            // What a server on its way down has begun is answered by us or begun anew.
            "notifications/progress" if matches!(self.life, Life::Swapping(_)) => Route::Drop,
            "notifications/progress" if !self.orphans.is_empty() => self.progress_apart(line),
            "notifications/progress" if !self.resend.may_progress(line) => Route::Drop,
            "notifications/cancelled" => self.server_cancels(line),
            "notifications/subscriptions/acknowledged" => self.acknowledged(line),
            _ => {
                let lists: Vec<Which> = Which::changed_by(method).collect();
                if lists.is_empty() {
                    return Route::Forward;
                }
                let Life::Up(up) = &self.life else {
                    return Route::Forward;
                };
                match up.stage {
                    Stage::Greeting { .. } | Stage::Replaying { .. } => {
                        self.changed_meanwhile(lists);
                        Route::Drop
                    }
                    Stage::Instant | Stage::Serving => {
                        for which in lists {
                            self.lists.adopt(which);
                        }
                        Route::Forward
                    }
                }
            }
        }
    }

    /// The server takes a request of its own back: the client may know it by another name.
    pub(super) fn server_cancels(&mut self, line: &[u8]) -> Route {
        let Some(id) = cancelled_id(line) else {
            return Route::Forward;
        };
        match self.asked.cancelled(id) {
            Some(label) => {
                self.keepsakes.remove(Kept::Asked, &label);
                if label == id {
                    return Route::Forward;
                }
                match envelope::with_request_id(line, &label) {
                    Some(line) => {
                        self.push(Output::ToClient(line));
                        Route::Instead
                    }
                    None => Route::Drop,
                }
            }
            None => self.listening_ended(id, line),
        }
    }

    /// The server takes back what is no question of its own: a listening request ends like this.
    fn listening_ended(&mut self, id: &[u8], line: &[u8]) -> Route {
        let label = !self.orphans.is_empty();
        let own = if label {
            self.orphans.own(id)
        } else {
            Some(id)
        };
        let Some(own) = own.map(<[u8]>::to_vec) else {
            // It was asked for a client that is gone.
            return Route::Drop;
        };
        let entry = self.inflight.get(&own);
        if entry.is_some_and(|entry| entry.method.listens()) {
            self.orphans.close(id);
            self.inflight.close(&own);
            self.stop_listening(&own);
        }
        if !label {
            return Route::Forward;
        }
        match envelope::with_request_id(line, &own) {
            Some(line) => {
                self.push(Output::ToClient(line));
                Route::Instead
            }
            None => Route::Drop,
        }
    }

    /// A listening request is granted; a second time after a respawn, which the client need not know.
    pub(super) fn acknowledged(&mut self, line: &[u8]) -> Route {
        let (Some(id), Some(granted)) = (envelope::subscription(line), envelope::granted(line))
        else {
            return Route::Forward;
        };
        let Some(before) = self.keepsakes.get(Kept::Acknowledged, id) else {
            self.keepsakes.put(Kept::Acknowledged, id, granted);
            return Route::Forward;
        };
        if envelope::same_value(before, granted) {
            return Route::Drop;
        }
        // It grants something else than before: the listening ends, so that the client notices.
        let (id, result) = (id.to_vec(), settle::listening_ends(id));
        let label = self.orphans.unlabel(&id);
        self.push(Output::ToClient(result));
        self.push(Output::ToServer(settle::cancel(
            label.as_deref().unwrap_or(&id),
            "the client was granted something else",
        )));
        self.inflight.settle(&id);
        self.stop_listening(&id);
        self.differs("a listening request is granted something else than before".into());
        Route::Instead
    }

    pub(super) fn answered(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if self.own.is(id) {
            self.own_answer(now, frame, id, line);
            return Route::Drop;
        }
        if !self.orphans.is_empty() {
            return match self.orphans.close(id) {
                Some(own) => self.answered_label(now, frame, &own, line),
                None => Route::Drop,
            };
        }
        self.answered_own(now, frame, line)
    }

    /// The answer to a request of the client's that is attached.
    pub(super) fn answered_own(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if self
            .instant_id
            .as_ref()
            .is_some_and(|own| token::same(own, id))
        {
            self.opening_confirmed(now, frame, line);
            return Route::Instead;
        }
        if self.inflight.swallow(id) {
            self.recalled_answered(id, frame, line);
            return Route::Drop;
        }
        if self.policy.advertise
            && frame.kind == Kind::Response
            && self
                .inflight
                .get(id)
                .is_some_and(|entry| entry.method == Tracked::Initialize)
            && let Some(told) = envelope::advertised(line)
        {
            self.learn_opening(line);
            self.open_instantly(id, &told);
            self.push(Output::ToClient(told));
            return Route::Instead;
        }
        let Some(entry) = self.inflight.answered(id) else {
            return if self.orphans.is_empty() {
                Route::Forward
            } else {
                Route::Drop
            };
        };
        self.on_way.answer = true;
        self.served_by = self.head.generation;
        match (frame.kind, entry.method) {
            (Kind::Response, method) => self.learn(id, method, line),
            (_, Tracked::Discover) => self.learn_discover(line),
            (_, Tracked::List) => {
                if let Some(which) = self.resend.line(id).and_then(Which::asked) {
                    self.learn_first_page(which, line);
                }
            }
            // What a server that knows no `server/discover` must know.
            (_, Tracked::Initialize) => self.remembered.forget_refusal(),
            _ => {}
        }
        if entry.method == Tracked::Listen {
            self.stop_listening(id);
        }
        self.resend.forget(id);
        Route::Forward
    }

    /// The answer to a request of our own.
    pub(super) fn own_answer(&mut self, now: Moment, frame: &Frame<'_>, id: &[u8], line: &[u8]) {
        match self.own.close(id) {
            Some(Purpose::Opening) => self.greeted_again(now, frame, line),
            Some(Purpose::Replay) => self.replay_answered(now, frame),
            Some(Purpose::List { which, page }) if frame.kind == Kind::Response => {
                self.list_checked(which, page, line);
            }
            Some(Purpose::Probe { n }) => {
                if let Life::Up(up) = &mut self.life {
                    up.health.answered(now, n);
                    self.knows_probes = up.health.knows();
                }
            }
            Some(Purpose::Fitness) => self.fit(),
            Some(Purpose::List { .. } | Purpose::Undo) | None => {}
        }
    }

    /// What a good answer teaches: what the next generation must be told, and what the client has seen.
    pub(super) fn learn(&mut self, id: &[u8], method: Tracked, line: &[u8]) {
        match method {
            Tracked::Initialize => {
                self.on_way.greeting = true;
                self.keepsakes.put(Kept::Greeting, b"", line);
                self.learn_opening(line);
            }
            Tracked::Discover => self.learn_discover(line),
            Tracked::SetLevel => {
                if let Some(request) = self.resend.line(id) {
                    let request = envelope::without_progress(request);
                    self.keepsakes.put(Kept::Level, b"", &request);
                    self.supersede(id, method, None);
                }
            }
            Tracked::Subscribe => {
                if let Some(request) = self.resend.line(id)
                    && let Some(uri) = envelope::uri(request).map(Cow::into_owned)
                {
                    if envelope::method(request).as_deref() == Some("resources/subscribe") {
                        let request = envelope::without_progress(request);
                        self.keepsakes
                            .put(Kept::Subscription, uri.as_bytes(), &request);
                    } else {
                        self.keepsakes.remove(Kept::Subscription, uri.as_bytes());
                    }
                    self.supersede(id, method, Some(&uri));
                }
            }
            Tracked::List => {
                if let Some(request) = self.resend.line(id) {
                    let request = request.to_vec();
                    self.learn_list(&request, line);
                }
            }
            Tracked::Other
            | Tracked::Ping
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::Listen
            | Tracked::Task => {}
        }
    }

    /// Of several wishes for the same, the last one that was asked lasts, whichever is answered last.
    fn supersede(&mut self, id: &[u8], method: Tracked, uri: Option<&str>) {
        self.resend.supersede(id, |older| {
            Tracked::of(&envelope::method(older).unwrap_or_default()) == method
                && envelope::uri(older).as_deref() == uri
        });
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

/// Lines on stdout that are no messages.
#[derive(Debug, Default)]
pub(super) struct JunkCount {
    lines: u64,
    told: u64,
    /// The beginning of the first one.
    sample: String,
}

impl JunkCount {
    /// One more. Told once per power of ten: a server that logs to stdout must not fill the event files.
    fn count(&mut self, line: &[u8]) -> Option<Junk> {
        if self.lines == 0 {
            let sample = String::from_utf8_lossy(&line[..line.len().min(SAMPLE_BYTES)]);
            self.sample = sample.trim_end().to_string();
        }
        self.lines += 1;
        if power_of_ten(self.lines) {
            self.rest()
        } else {
            None
        }
    }

    /// The sum, if it was not told yet.
    fn rest(&mut self) -> Option<Junk> {
        let sample = self.sample.clone();
        let lines = self.lines;
        (core::mem::replace(&mut self.told, lines) < lines).then_some(Junk { lines, sample })
    }
}

/// Bytes of a line that are shown.
const SAMPLE_BYTES: usize = 120;

fn power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}
