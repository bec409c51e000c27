//! The way of a line: which way it goes, who waits for an answer to it, what of it must be known later.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::own::{Own, Purpose};
use super::state::{Because, Closing, Life, Silence, Stage};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Junk, What};
use crate::limits::HELD_LINE_BYTES;
use crate::message::asked::{Answered, Label};
use crate::message::envelope::{self, Era, cancelled_id};
use crate::message::frame::{Frame, Id, Kind, Scanner};
use crate::message::inflight::{Opened, Tracked};
use crate::message::lists::Which;
use crate::message::{batch, settle, token};
use crate::policy::Retry;

/// The generation of a request that waits within us and belongs to none yet.
pub(super) const HELD: u32 = u32::MAX;

impl Link<'_> {
    /// Routes a whole line from the client.
    pub fn client_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &self.life {
            Life::Up(up) => match &up.stage {
                Stage::Serving if up.giving_way.is_some() && frame.kind == Kind::Request => {
                    self.hold_back(now, frame, line)
                }
                Stage::Serving => self.track(now, frame, line),
                Stage::Instant => self.line_before_opening(now, frame, line),
                Stage::Greeting { .. } | Stage::Replaying { .. } if up.trial.is_some() => {
                    self.refuse(now, frame, line)
                }
                Stage::Greeting { .. } | Stage::Replaying { .. } => Route::Hold,
            },
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Swapping(_)
            | Life::Closing(Closing {
                because: Because::Leaving,
                ..
            }) => Route::Hold,
            Life::Resting => self.line_at_rest(now, frame, line),
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => {
                let route = self.refuse(now, frame, line);
                self.finish_if_done();
                route
            }
        }
    }

    /// May a line from the client that is too long to be held go on? Not all of it may be known yet.
    pub fn client_cut(&mut self, frame: Option<&Frame<'_>>) -> Route {
        match &self.life {
            Life::Up(up) => match up.stage {
                Stage::Serving if up.giving_way.is_none() => {
                    let labelled = self.head.generation > 1 && self.asked.pending() > 0;
                    let answer = frame
                        .is_none_or(|frame| matches!(frame.kind, Kind::Response | Kind::Error));
                    if labelled && answer {
                        self.gather()
                    } else {
                        Route::Forward
                    }
                }
                Stage::Greeting { .. }
                | Stage::Replaying { .. }
                | Stage::Instant
                | Stage::Serving => Route::Hold,
            },
            Life::Absent { .. } | Life::Waiting { .. } | Life::Swapping(_) => Route::Hold,
            Life::Resting => {
                self.spawn(None);
                Route::Hold
            }
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => Route::Drop,
        }
    }

    /// Learns what is known of a long line from the client while it is being forwarded.
    pub fn client_known(&mut self, now: Moment, frame: &Frame<'_>) {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.open(now, id, tracked);
        }
    }

    /// The end of a long line from the client that went nowhere, and that nobody knew: it is answered now.
    pub fn client_lost(&mut self, now: Moment, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        if matches!(
            self.life,
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished
        ) {
            if self.refuse(now, frame, b"") == Route::Hold {
                // It cannot be shown again: it is answered without a place in the table.
                let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
                self.answer(id, tracked, &Because::Lost);
            }
            self.finish_if_done();
            return;
        }
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        self.inflight.open(id, tracked, self.head.generation, now);
        self.answer(id, tracked, &Because::Lost);
    }

    /// Routes a whole line from the server.
    pub fn server_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &mut self.life {
            Life::Up(up) => {
                up.silence = Silence::Broken;
                // An answer to a question of our own is of use to nobody else.
                if !matches!(frame.id, Id::Token(id) if Own::is(id)) {
                    up.used = now;
                }
                up.health.heard(now);
                self.knows_probes = up.health.knows();
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
        if self.limits.hibernate_ms > 0 {
            self.tasks.seen(now, line);
        }
        if self.changed.is_some() && matches!(frame.kind, Kind::Response | Kind::Error) {
            // It is up, be it good or bad.
            self.changed = None;
        }
        let route = match frame.kind {
            Kind::Request => self.server_asks(frame, line),
            Kind::Notification => self.notified(frame, line),
            Kind::Response | Kind::Error => self.answered(now, frame, line),
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
        route
    }

    /// The server wrote something, be it a part of a line: it is there.
    pub fn server_wrote(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.health.heard(now);
        }
    }

    /// Learns what is known of a long line from the server before it is forwarded: may it go on?
    pub fn server_known(&mut self, frame: Option<&Frame<'_>>) -> Route {
        match &self.life {
            Life::Up(_) => {}
            Life::Swapping(swapping) if !swapping.is_over() => {}
            Life::Closing(closing) if !closing.is_over() => {}
            Life::Closing(_)
            | Life::Swapping(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => return Route::Drop,
        }
        match frame {
            Some(frame) if matches!(frame.kind, Kind::Response | Kind::Error) => match frame.id {
                Id::Token(id) if self.inflight.is_settled(id) => Route::Drop,
                Id::Token(id) if Own::is(id) || self.must_see(id) => self.gather(),
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong => Route::Forward,
            },
            Some(frame) if frame.kind == Kind::Request && self.head.generation > 1 => self.gather(),
            None if self.must_see_any() => self.gather(),
            Some(_) | None => Route::Forward,
        }
    }

    /// The next piece of a long line that is gathered.
    pub fn gathered_piece(&mut self, piece: &[u8]) {
        if let Some(gathered) = &mut self.gathered
            && gathered.len() <= HELD_LINE_BYTES
        {
            gathered.extend_from_slice(piece);
        }
    }

    /// The end of a long line from the server that was gathered.
    pub fn gathered_from_server(&mut self, now: Moment, frame: &Frame<'_>) {
        let line = self.gathered.take().unwrap_or_default();
        if line.len() > HELD_LINE_BYTES {
            self.too_long(frame);
            return;
        }
        match self.server_line(now, frame, &line) {
            Route::Forward | Route::Hold => {
                if let Id::Token(id) = frame.id {
                    self.inflight.goes_with_ours(id);
                }
                self.push(Output::ToClient(line));
            }
            Route::Drop | Route::Instead | Route::Gather => {}
        }
    }

    /// The end of a long line from the client that was gathered.
    pub fn gathered_from_client(&mut self, now: Moment, frame: &Frame<'_>) {
        let line = self.gathered.take().unwrap_or_default();
        match self.client_line(now, frame, &line) {
            Route::Forward => self.push(Output::ToServer(line)),
            Route::Hold => self.held.push_back(line),
            Route::Drop | Route::Instead | Route::Gather => {}
        }
    }

    fn gather(&mut self) -> Route {
        self.gathered = Some(Vec::new());
        Route::Gather
    }

    /// An answer that we had to hold whole and could not.
    fn too_long(&mut self, frame: &Frame<'_>) {
        if let Id::Token(id) = frame.id
            && let Some(entry) = self.inflight.get(id)
        {
            let id = id.to_vec();
            self.answer(&id, entry.method, &Because::TooLong);
        }
    }

    /// Whether the answer to this request is one that we learn from.
    fn must_see(&self, id: &[u8]) -> bool {
        self.inflight
            .get(id)
            .is_some_and(|entry| entry.method.teaches())
            || self
                .instant_id
                .as_ref()
                .is_some_and(|own| token::same(own, id))
    }

    /// Whether any answer that may come is one that we learn from.
    fn must_see_any(&self) -> bool {
        !self.own.is_empty()
            || self.head.generation > 1
            || self.instant_id.is_some()
            || self.inflight.settled() > 0
            || self
                .inflight
                .iter()
                .any(|(_, entry)| entry.method.teaches())
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

    /// A line of the client's on its way to a server that serves.
    pub(super) fn track(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if let Life::Up(up) = &mut self.life {
            up.used = now;
        }
        match frame.kind {
            Kind::Request => self.track_request(now, frame, line),
            Kind::Notification => {
                match frame.method.as_deref() {
                    Some("notifications/initialized") => self.head.initialized = 1,
                    Some("notifications/cancelled") if self.client_cancels(line) => {
                        return Route::Drop;
                    }
                    Some(_) | None => {}
                }
                self.busy_or_idle(now);
                Route::Forward
            }
            Kind::Batch => {
                if !self.has_room(line) {
                    return Route::Hold;
                }
                self.head.spoken = 1;
                batch::each_member(line, |member| {
                    if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                        let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                        self.open(now, id, tracked);
                    }
                });
                Route::Forward
            }
            Kind::Response | Kind::Error => self.client_answers(frame, line),
            Kind::Blank | Kind::Junk => Route::Forward,
        }
    }

    fn track_request(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        let method = frame.method.as_deref().unwrap_or_default();
        let tracked = Tracked::of(method);
        if tracked == Tracked::Discover && !self.opened() && self.remembered.is_legacy() {
            // An earlier session has seen that the server dies of it.
            self.inflight.open(id, tracked, self.head.generation, now);
            self.inflight.answered_by_us(id);
            self.push(Output::ToClient(settle::method_not_found(id, method)));
            return Route::Instead;
        }
        if !self.open(now, id, tracked) {
            return Route::Hold;
        }
        match tracked {
            Tracked::Initialize => self.remember_opening(line),
            Tracked::Listen => {
                self.keepsakes.put(Kept::Listen, id, line);
            }
            Tracked::ToolsCall => {
                if self.policy.retry == Retry::Annotated && self.may_repeat_call(line) {
                    self.again.keep(id, line);
                } else {
                    self.again.forget(id);
                }
            }
            Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe => self.again.keep(id, line),
            Tracked::Task | Tracked::Other => {}
        }
        self.note_era(tracked, line);
        Route::Forward
    }

    /// The first request that belongs to an era fixes it.
    fn note_era(&mut self, tracked: Tracked, line: &[u8]) {
        if self.head.modern == 0
            && !self.greeted()
            && tracked != Tracked::Initialize
            && envelope::era(line) == Era::Modern
        {
            self.head.modern = 1;
            if let Some(meta) = envelope::meta(line) {
                self.keepsakes.put(Kept::Greeting, b"meta", &meta);
            }
        }
    }

    /// Whether a tool says of itself that calling it twice does no harm, and nothing in the call speaks against it.
    fn may_repeat_call(&self, line: &[u8]) -> bool {
        let Some(name) = envelope::tool_name(line) else {
            return false;
        };
        let hints = self.lists.tool(&name);
        hints.is_some_and(|hints| hints.read_only || hints.idempotent)
            && !envelope::has_param(line, &["task", "inputResponses", "requestState"])
    }

    /// The client takes a request back; whether no server has seen it yet.
    fn client_cancels(&mut self, line: &[u8]) -> bool {
        let Some(id) = cancelled_id(line) else {
            return false;
        };
        let entry = self.inflight.close(id);
        self.again.forget(id);
        self.stop_listening(id);
        let held = entry.is_some_and(|entry| entry.generation == HELD);
        if held {
            self.let_go(id);
        }
        held
    }

    /// Forgets a message that waits within us: its request has its answer, or needs none. Of a batch, all members came at
    /// one time, so that what is answered for one of them is answered for all.
    pub(super) fn let_go(&mut self, id: &[u8]) {
        self.held.retain(|line| {
            let mut found = false;
            each_request(line, |held, _| found |= token::same(held, id));
            !found
        });
        self.held_bytes = self.held.iter().map(Vec::len).sum();
    }

    fn stop_listening(&mut self, id: &[u8]) {
        self.keepsakes.remove(Kept::Listen, id);
        self.keepsakes.remove(Kept::Acknowledged, id);
    }

    /// The client answers a request of the server's.
    fn client_answers(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        self.keepsakes.remove(Kept::Asked, id);
        match self.asked.answered(id) {
            Answered::Relabel(own) => match envelope::with_id(line, &own) {
                Some(line) => {
                    self.push(Output::ToServer(line));
                    Route::Instead
                }
                None => Route::Drop,
            },
            Answered::Swallow => Route::Drop,
            Answered::Unknown if self.head.generation > 1 => Route::Drop,
            Answered::Forward | Answered::Unknown => Route::Forward,
        }
    }

    /// The server asks the client.
    fn server_asks(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
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

    /// A call that has led to a question is not sent again: the question would be asked twice. Which one has is not told, so
    /// it may be any.
    fn forget_calls(&mut self) {
        let generation = self.head.generation;
        for (id, entry) in self.inflight.iter() {
            if entry.method == Tracked::ToolsCall && entry.generation == generation {
                self.again.forget(id);
            }
        }
    }

    fn notified(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let method = frame.method.as_deref().unwrap_or_default();
        match method {
            // What a server on its way down has begun is answered by us or begun anew.
            "notifications/progress" if matches!(self.life, Life::Swapping(_)) => Route::Drop,
            "notifications/progress" if !self.again.may_progress(line) => Route::Drop,
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
                        self.changed_in_replay.extend(lists);
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
    fn server_cancels(&mut self, line: &[u8]) -> Route {
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
            None => Route::Forward,
        }
    }

    /// A listening request is granted; a second time after a respawn, which the client need not know.
    fn acknowledged(&mut self, line: &[u8]) -> Route {
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
        self.push(Output::ToClient(result));
        self.push(Output::ToServer(settle::cancel(
            &id,
            "the client was granted something else",
        )));
        self.inflight.settle(&id);
        self.stop_listening(&id);
        self.differs("a listening request is granted something else than before".into());
        Route::Instead
    }

    /// Opens an entry; `false` if there is no room and the client must wait.
    pub(super) fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        // A client that is served already may call something that takes its time.
        let opened = self.opened();
        if let Life::Up(up) = &mut self.life {
            if let (Silence::NothingAsked, false) = (&up.silence, opened) {
                up.silence = Silence::Since(now);
            }
            up.health.busy(now);
        }
        self.head.spoken = 1;
        match self.inflight.open(id, tracked, self.head.generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    /// Keeps a message within us until the server can take it; not if there is no room.
    pub(super) fn hold_back(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let full = self.held.len() >= self.limits.held_messages as usize
            || self.held_bytes + line.len() > self.limits.held_bytes as usize;
        if full || line.is_empty() {
            return Route::Hold;
        }
        if matches!(frame.kind, Kind::Request | Kind::Batch) {
            if !self.has_room(line) {
                return Route::Hold;
            }
            each_request(line, |id, tracked| {
                self.inflight.open(id, tracked, HELD, now);
            });
        }
        if self.held.is_empty() {
            self.held_since = now;
        }
        self.held_bytes += line.len();
        self.held.push_back(line.to_vec());
        Route::Drop
    }

    /// Whether every request of a message can be tracked.
    pub(super) fn has_room(&self, line: &[u8]) -> bool {
        let mut wanted = 0;
        each_request(line, |id, _| {
            wanted += usize::from(self.inflight.get(id).is_none());
        });
        wanted <= self.inflight.room()
    }

    /// A message of the client's while nobody is there to take it: a request wakes the server.
    fn line_at_rest(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if frame.kind == Kind::Request {
            let method = frame.method.as_deref().unwrap_or_default();
            self.note_era(Tracked::of(method), line);
        }
        if self.answered_from_record(now, frame, line) {
            return Route::Instead;
        }
        match frame.kind {
            Kind::Request | Kind::Batch => {
                self.spawn(None);
                Route::Hold
            }
            Kind::Notification => {
                if frame.method.as_deref() == Some("notifications/initialized") {
                    self.head.initialized = 1;
                }
                Route::Drop
            }
            Kind::Response | Kind::Error => {
                if let Id::Token(id) = frame.id {
                    self.asked.answered(id);
                }
                Route::Drop
            }
            Kind::Blank | Kind::Junk => Route::Drop,
        }
    }

    pub(super) fn remember_opening(&mut self, line: &[u8]) {
        self.head.opening_len = 0;
        if let Some(room) = self.opening.get_mut(..line.len()) {
            room.copy_from_slice(line);
            self.head.opening_len = line.len() as u32;
        }
    }

    fn answered(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if Own::is(id) {
            self.own_answer(now, frame, id, line);
            return Route::Drop;
        }
        if self
            .instant_id
            .as_ref()
            .is_some_and(|own| token::same(own, id))
        {
            self.opening_confirmed(now, frame, line);
            return Route::Instead;
        }
        if self.inflight.swallow(id) {
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
            return Route::Forward;
        };
        self.on_way.answer = true;
        self.served_by = self.head.generation;
        if frame.kind == Kind::Response {
            self.learn(id, entry.method, line);
        }
        if entry.method == Tracked::Listen {
            self.stop_listening(id);
        }
        self.again.forget(id);
        Route::Forward
    }

    /// The answer to a request of our own.
    fn own_answer(&mut self, now: Moment, frame: &Frame<'_>, id: &[u8], line: &[u8]) {
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
            Some(Purpose::List { .. }) | None => {}
        }
    }

    /// What a good answer teaches: what the next generation must be told, and what the client has seen.
    fn learn(&mut self, id: &[u8], method: Tracked, line: &[u8]) {
        match method {
            Tracked::Initialize => {
                self.on_way.greeting = true;
                self.keepsakes.put(Kept::Greeting, b"", line);
                self.learn_opening(line);
            }
            Tracked::Discover => self.learn_discover(line),
            Tracked::SetLevel => {
                if let Some(request) = self.again.line(id) {
                    let request = envelope::without_progress(request);
                    self.keepsakes.put(Kept::Level, b"", &request);
                }
            }
            Tracked::Subscribe => {
                if let Some(request) = self.again.line(id)
                    && let Some(uri) = envelope::uri(request)
                {
                    if envelope::method(request).as_deref() == Some("resources/subscribe") {
                        let request = envelope::without_progress(request);
                        self.keepsakes
                            .put(Kept::Subscription, uri.as_bytes(), &request);
                    } else {
                        self.keepsakes.remove(Kept::Subscription, uri.as_bytes());
                    }
                }
            }
            Tracked::List => {
                if let Some(request) = self.again.line(id) {
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

    /// Whether resources or lists are listened to, which a sleeping server could not tell about.
    pub(super) fn subscribed(&self) -> bool {
        self.keepsakes.each(Kept::Subscription).next().is_some()
            || self.keepsakes.each(Kept::Listen).next().is_some()
    }

    /// Tells the health whether the server has work.
    pub(super) fn busy_or_idle(&mut self, now: Moment) {
        let busy = !self.inflight.is_empty() || self.asked.pending() > 0;
        // A message of ours before the opening would fix the era, and a server that is not open yet may be slow.
        let opened = self.opened();
        if let Life::Up(up) = &mut self.life {
            let serving = opened && matches!(up.stage, Stage::Serving);
            if busy || !serving {
                up.health.busy(now);
            } else {
                up.health.idle(now);
            }
        }
    }
}

/// Shows the ids of the requests in a line, be it a batch.
fn each_request(line: &[u8], mut show: impl FnMut(&[u8], Tracked)) {
    let mut one = |frame: &Frame<'_>| {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let method = frame.method.as_deref().unwrap_or_default();
            show(id, Tracked::of(method));
        }
    };
    let mut scanner = Scanner::new();
    scanner.feed(line);
    let frame = scanner.frame();
    if frame.kind == Kind::Batch {
        batch::each_member(line, |member| one(&member));
    } else {
        one(&frame);
    }
}

fn power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}
