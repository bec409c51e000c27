//! What is owed to the client: its requests, the answers that we give ourselves, and what becomes of both at a death.
//!
//! Its parts are machines with private fields. They are one type because an answer of ours changes them together: the
//! table, the record, and the lines that go out. It knows neither the server's side nor the cache.
//!
//! Invariant: each tracked request has exactly one answer, from the server or from us.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{FromCache, OpeningSilent, ServerChanged, What};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::asked::{Answered, Label};
use mainstay_protocol::message::envelope;
use mainstay_protocol::message::frame::{Begun, Fed, Frame, Id, Kind, Scanner};
use mainstay_protocol::message::inflight::{Opened, Tracked};
use mainstay_protocol::message::resend::Fate;
use mainstay_protocol::message::{batch, settle};
use mainstay_protocol::policy::{Policy, Retry};

use crate::link::io::{About, Route};
use crate::link::long_ids::{self, Short};
use crate::link::outbox::Outbox;
use crate::link::requests::Requests;
use crate::link::server_requests::ServerRequests;
use crate::link::session::Session;
use crate::link::state::{Because, GivenUp, Settling};
use crate::record::{Phase, Record};

#[derive(Debug)]
pub(in crate::link) struct Owed<'a> {
    pub(super) about: About,
    pub(super) policy: Policy,
    pub(super) limits: Limits,
    pub(super) outbox: Outbox,
    pub(super) session: Session<'a>,
    pub(super) requests: Requests<'a>,
    pub(super) server_requests: ServerRequests,
    /// Where the server's line that is being routed ends in what goes on to the client.
    pub(super) line_end: u64,
    /// When that line came.
    pub(super) heard_at: Moment,
}

/// How many requests a new generation was sent that an earlier one had left unanswered.
pub(in crate::link) struct Resent {
    pub listens: u32,
    pub calls: u32,
}

impl<'a> Owed<'a> {
    pub fn new(about: About, limits: Limits, policy: Policy, record: Record<'a>) -> Self {
        let Record {
            head,
            opening,
            slots,
            board,
            replay_log,
        } = record;
        Self {
            outbox: Outbox::default(),
            session: Session::over(about.link, head, opening, board, replay_log),
            requests: Requests::over(slots, &limits),
            server_requests: ServerRequests::default(),
            line_end: 0,
            heard_at: Moment::default(),
            about,
            policy,
            limits,
        }
    }

    pub fn tell(&mut self, what: What) {
        self.outbox.tell(what);
    }

    /// The server is not what the client knows.
    pub fn tell_differs(&mut self, what: String) {
        let generation = self.session.generation();
        self.tell(What::ServerChanged(ServerChanged { generation, what }));
    }

    /// A line for the client, with the client's own ids.
    pub fn send_client(&mut self, line: Vec<u8>) {
        let own = long_ids::lengthen(&line, &self.session);
        self.outbox.send_client(own.unwrap_or(line));
    }

    /// Puts labels in the places of ids that are too long for the table.
    pub fn shorten(&mut self, frame: &Frame<'_>, line: &[u8]) -> Short {
        let (session, requests) = (&mut self.session, &self.requests);
        long_ids::shorten(frame, line, session, requests, &mut self.outbox)
    }

    /// Opens a request of the client's that the server is asked; false if there is no room and the client must wait.
    pub fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        self.session.set_spoken();
        let generation = self.session.generation();
        match self.requests.open(id, tracked, generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    /// The same for a batch, whose requests have room.
    pub fn open_batch(&mut self, now: Moment, line: &[u8]) {
        self.session.set_spoken();
        let generation = self.session.generation();
        batch::each_member(line, |member| {
            if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                self.requests.open(id, tracked, generation, now);
            }
        });
    }

    /// The client answers a request of the server's.
    pub fn client_answers(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        match self.server_requests.answers(id, &mut self.session) {
            Answered::Relabel(own) => match envelope::with_id(line, &own) {
                Some(line) => {
                    self.outbox.send_server(line);
                    Route::Replaced
                }
                None => Route::Consumed,
            },
            Answered::Swallow => Route::Consumed,
            Answered::Unknown if self.session.generation() > 1 => Route::Consumed,
            Answered::Forward | Answered::Unknown => Route::Pass,
        }
    }

    /// The client answers while no server is there; whether it is known what.
    pub fn client_answers_in_vain(&mut self, id: &[u8]) -> bool {
        let answered = self.server_requests.answers(id, &mut self.session);
        answered != Answered::Unknown
    }

    /// A gathered line cannot go on now, and cannot be shown again: it waits within us, or has its answer.
    pub fn hold_gathered(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        if let Some(line) = self.shorten_for_good(frame, line) {
            self.requests.hold(now, line);
        }
    }

    /// A line that cannot be shown again, with labels for its long ids; none if it has its answer.
    pub fn shorten_for_good(&mut self, frame: &Frame<'_>, line: &[u8]) -> Option<Vec<u8>> {
        match self.shorten(frame, line) {
            Short::AsItIs => Some(line.to_vec()),
            Short::Line(short) => Some(short),
            Short::Refused => None,
            Short::Full => {
                long_ids::refuse_all(line, &mut self.outbox);
                None
            }
        }
    }

    /// A line of the client's that we had to hold whole and could not: a request is answered, a batch as a whole.
    pub fn client_too_long(&mut self, now: Moment, frame: &Frame<'_>) {
        if frame.kind == Kind::Batch {
            let error = settle::error(b"null", TOO_LONG, "{}");
            self.outbox.send_client(error);
        } else {
            self.answer_line(now, frame, &Because::TooLong);
        }
    }

    /// Answers the request of a line that went nowhere.
    pub fn answer_line(&mut self, now: Moment, frame: &Frame<'_>, because: &Because) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        let generation = self.session.generation();
        self.requests.open(id, tracked, generation, now);
        self.answer(id, tracked, because);
    }

    /// Answers a request of which the table knows nothing yet; false if it has no room, and the client must wait.
    pub fn answer_new(&mut self, now: Moment, id: &[u8], method: Tracked, answer: Vec<u8>) -> bool {
        // An entry of its own, so that a keeper that is killed right here is followed by one that answers.
        let generation = self.session.generation();
        if self.requests.open(id, method, generation, now) == Opened::Full {
            return false;
        }
        self.answered_by_next(id);
        self.send_client(answer);
        true
    }

    /// Whether this is the answer to the client's opening, and more is to be announced in it than the server does.
    pub fn advertises(&self, frame: &Frame<'_>, id: &[u8]) -> bool {
        if !self.policy.advertise || frame.kind != Kind::Response {
            return false;
        }
        let entry = self.requests.get(id);
        entry.is_some_and(|entry| entry.method == Tracked::Initialize)
    }

    /// Tells the server that the client is ready, if the client has said so.
    pub fn replay_initialized(&mut self) {
        if self.session.initialized() {
            self.outbox.send_server(INITIALIZED.to_vec());
        }
    }

    /// We are about to answer the client's opening.
    pub fn answer_opening(&mut self, id: &[u8], line: &[u8]) {
        self.answered_by_next(id);
        self.session
            .our_greeting_on_way(line, self.outbox.next_for_client());
    }

    /// Our next line to the client answers this request.
    pub fn answered_by_next(&mut self, id: &[u8]) {
        self.requests
            .answered_by_us(id, self.outbox.next_for_client());
    }

    /// Our next line to the client answers this request before the server does, which is up and may answer all the same.
    pub fn answered_ahead_by_next(&mut self, id: &[u8]) {
        self.requests
            .answered_ahead(id, self.outbox.next_for_client());
    }

    /// The server's line that is being routed goes to the client as our next line.
    pub fn goes_with_ours(&mut self, id: &[u8]) {
        let line = self.outbox.next_for_client();
        self.requests.goes_with_ours(id, line);
        self.session.goes_with_ours(self.line_end, line);
    }

    /// Forwards a line, with the client's own ids.
    pub fn forwarded(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        if self.session.no_long_ids()
            && !matches!(frame.id, Id::Token(id) if self.session.is_label(id))
        {
            return Route::Pass;
        }
        let own = line.and_then(|line| long_ids::lengthen(line, &self.session));
        match (own, frame.id) {
            (Some(own), Id::Token(label)) => {
                self.goes_with_ours(label);
                self.outbox.send_client(own);
                Route::Replaced
            }
            (Some(own), Id::Absent | Id::Null | Id::TooLong) => {
                self.outbox.send_client(own);
                Route::Replaced
            }
            // Its request was cancelled: the client knows of no such id.
            (None, Id::Token(id)) if self.session.is_label(id) => Route::Consumed,
            (None, _) => Route::Pass,
        }
    }

    /// The server asks the client.
    pub fn server_asks(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        self.requests.give_up_calls(self.session.generation());
        match self.server_requests.asks(id, &mut self.session) {
            Label::Same => Route::Pass,
            Label::New(label) => match line.and_then(|line| envelope::with_id(line, &label)) {
                Some(line) => {
                    self.send_client(line);
                    Route::Replaced
                }
                None => Route::Consumed,
            },
            Label::Full => {
                let answer = settle::error(id, "too many requests wait for the client", "{}");
                self.outbox.send_server(answer);
                Route::Consumed
            }
        }
    }

    /// Forwards a gathered line to the client.
    pub fn send_gathered(&mut self, frame: &Frame<'_>, line: Vec<u8>) {
        if let Id::Token(id) = frame.id {
            self.goes_with_ours(id);
        }
        if frame.kind == Kind::Batch {
            batch::each_member(&line, |member| {
                if let Id::Token(id) = member.id {
                    self.goes_with_ours(id);
                }
            });
        }
        self.send_client(line);
    }

    /// The server's answer could be taken for that of another request: we answer instead.
    pub fn not_understood(&mut self, id: &[u8]) -> Route {
        if let Some(entry) = self.requests.get(id) {
            self.answer(id, entry.method, &Because::Lost);
            return Route::Replaced;
        }
        Route::Consumed
    }

    pub fn tell_instant(&mut self, method: &str) {
        let method = method.into();
        self.tell(What::FromCache(FromCache { method, ms: 0 }));
    }

    /// Answers a request in flight. Its entry stays until the answer is written ([`Owed::written_to`]): a keeper that is
    /// killed in between is followed by one that answers again, and a second answer does no harm where a missing one would.
    pub fn answer(&mut self, id: &[u8], method: Tracked, because: &Because) {
        self.answered_by_next(id);
        self.word_answer(id, method, because);
        if method.listens() {
            self.session.stop_listening(id);
        }
    }

    /// Answers a request before the server does, which is up and may answer all the same: that is swallowed.
    pub fn answer_ahead(&mut self, id: &[u8], method: Tracked, because: &Because) {
        self.answered_ahead_by_next(id);
        self.word_answer(id, method, because);
        if method.listens() {
            self.session.stop_listening(id);
        }
    }

    fn word_answer(&mut self, id: &[u8], method: Tracked, because: &Because) {
        let why = because.why(&self.about);
        let answer = settle::answer(id, method, self.session.modern(), &why);
        self.send_client(answer);
    }

    /// Answers every request of the server before it does.
    pub fn answer_all_ahead(&mut self, because: &Because) {
        for (id, method, sent_to) in self.requests.all() {
            if sent_to.is_some() {
                self.answer_ahead(&id, method, because);
            }
        }
    }

    /// The server has said nothing since it was opened.
    pub fn opening_silent(&mut self, ms: u64) {
        self.tell(What::OpeningSilent(OpeningSilent { ms }));
        self.answer_all_ahead(&Because::OpeningSilent { ms });
    }

    /// The server has not answered the opening that the cache has answered: requests that wait for it are answered.
    pub fn held_in_vain(&mut self, ms: u64) {
        for (id, method, sent_to) in self.requests.all() {
            if sent_to.is_none() {
                self.answer(&id, method, &Because::OpeningSilent { ms });
            }
        }
        self.requests.release();
    }

    /// A server is gone, or none will come: what becomes of the requests in flight. How many are kept for the next one.
    pub fn settle(&mut self, settling: &Settling) -> u32 {
        let mut kept = 0;
        for (id, method, sent_to) in self.requests.all() {
            match settling {
                Settling::Keep { because, poisoned } => match self.fate(&id, method, sent_to) {
                    Fate::Resend => kept += 1,
                    Fate::Poisoned => {
                        self.answer(&id, method, poisoned.as_ref().unwrap_or(because));
                    }
                    Fate::NotKept => self.answer(&id, method, because),
                },
                Settling::Abandoned(given_up) => {
                    self.answer_abandoned(&id, method, sent_to, given_up);
                }
                Settling::All(because) => self.answer(&id, method, because),
            }
        }
        match settling {
            Settling::Keep { .. } => {}
            Settling::Abandoned(_) | Settling::All(_) => {
                self.requests.release();
                debug_assert!(self.requests.is_empty(), "each request has its answer");
            }
        }
        kept
    }

    /// That a request was not sent is said only of what waits within us and of what the dead server has not read, unless
    /// an earlier generation had it.
    fn answer_abandoned(
        &mut self,
        id: &[u8],
        method: Tracked,
        sent_to: Option<u32>,
        given_up: &GivenUp,
    ) {
        let because = Because::Abandoned {
            given_up: given_up.clone().into(),
            sent: sent_to.is_some() || self.requests.was_sent(id),
        };
        self.answer(id, method, &because);
    }

    fn fate(&self, id: &[u8], method: Tracked, sent_to: Option<u32>) -> Fate {
        if sent_to.is_none() || self.survives_keeper(id, method) {
            return Fate::Resend;
        }
        match self.policy.retry {
            Retry::Never => Fate::NotKept,
            Retry::Safe | Retry::Annotated => self.requests.fate(id),
        }
    }

    /// Whether the record has the line of a request, so that any later generation can be asked it.
    pub fn survives_keeper(&self, id: &[u8], method: Tracked) -> bool {
        match method {
            Tracked::Initialize => self.session.awaits_greeting(id),
            Tracked::Listen => self.session.listening(id).is_some(),
            Tracked::Other
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Task => false,
        }
    }

    /// The server's line that is routed next ends at this byte of what goes on to the client.
    #[inline]
    pub fn line_ends_at(&mut self, end: u64) {
        self.line_end = end;
        self.requests.line_ends_at(end);
    }

    /// What goes on to the client has been written up to this byte: what it answered is closed for good. What the session has
    /// come to is noted first: a successor must not take an opening that is closed for one that is still to be answered.
    pub fn delivered_to(&mut self, end: u64) {
        self.session.delivered_to(end, 0);
        self.requests.delivered_to(end);
        self.session
            .forget_labels(|label| self.requests.knows(label));
    }

    /// Our lines up to this one have been written to the client: what they answered is closed.
    pub fn written_to(&mut self, line: u64) {
        self.session.delivered_to(0, line);
        self.requests.written_to(line);
        self.server_requests.written_to(line, &mut self.session);
        self.session
            .forget_labels(|label| self.requests.knows(label));
    }

    /// Lines that a killed keeper had read, and may have taken note of, but had not passed on: they are routed as if they
    /// were new, so they are not answered now.
    pub fn never_sent(&mut self, mut lines: &[u8], within_a_line: Option<Begun>) {
        // The rest of a line may name its request at its end: then it is answered when it is routed, and not now.
        let mut scanner = within_a_line.map_or_else(Scanner::new, Scanner::within_a_line);
        while let Fed::Line { used } = scanner.feed(lines) {
            let frame = scanner.frame();
            self.unrouted(&frame);
            if frame.kind == Kind::Batch {
                batch::each_member(&lines[..used], |member| self.unrouted(&member));
            }
            for label in long_ids::labels_in(&lines[..used], &self.session) {
                self.forget_request(&Frame {
                    kind: Kind::Request,
                    id: Id::Token(&label),
                    method: None,
                    bytes: 0,
                });
            }
            lines = &lines[used..];
        }
        if let Some(frame) = scanner.known() {
            self.unrouted(&frame);
        }
    }

    /// A request that is in the record and was not routed, or only noted.
    fn unrouted(&mut self, frame: &Frame<'_>) {
        match self.session.phase() {
            Phase::Fresh | Phase::Serving => self.forget_request(frame),
            // Routing has stopped: it is answered with what is in flight.
            Phase::Stopping | Phase::Finished => {
                if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id)
                    && !self.requests.knows(id)
                {
                    let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
                    let generation = self.session.generation();
                    self.requests
                        .open(id, tracked, generation, Moment::default());
                }
            }
        }
    }

    fn forget_request(&mut self, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        if self.session.awaits_greeting(id) {
            self.session.forget_opening();
        }
        self.session.forget_listening(id);
        self.requests.forget(id);
    }

    /// The generation knows what its predecessor knew: it is sent what that one has left unanswered.
    pub fn resend(&mut self) -> Resent {
        let generation = self.session.generation();
        let (mut listens, mut calls) = (0, 0);
        for (id, method) in self.requests.sent_before(generation) {
            let line = match method {
                Tracked::Initialize if self.session.awaits_greeting(&id) => {
                    self.session.opening().map(<[u8]>::to_vec)
                }
                Tracked::Listen => self.session.listening(&id).map(<[u8]>::to_vec),
                Tracked::Initialize
                | Tracked::Other
                | Tracked::Discover
                | Tracked::Ping
                | Tracked::List
                | Tracked::ToolsCall
                | Tracked::Read
                | Tracked::SetLevel
                | Tracked::Subscribe
                | Tracked::Task => self.requests.resend(&id),
            };
            let Some(line) = line else {
                self.answer(&id, method, &Because::Lost);
                continue;
            };
            if method.listens() {
                listens += 1;
            } else {
                calls += 1;
            }
            self.requests.move_to(&id, generation);
            self.outbox.send_server(line);
        }
        debug_assert!(
            self.requests.sent_before(generation).is_empty(),
            "a request that no generation is asked has its answer"
        );
        Resent { listens, calls }
    }

    /// Compares what the server now says of itself with what the client was told; why it cannot go on, if it cannot.
    pub fn compare_greeting(&mut self, line: &[u8]) -> Result<(), VersionChanged> {
        let told = self.session.greeting().and_then(envelope::greeting);
        let (Some(told), Some(says)) = (told, envelope::greeting(line)) else {
            return Ok(());
        };
        if told.version != says.version {
            return Err(VersionChanged {
                says: says.version,
                told: told.version,
                from_cache: self.session.generation() <= 1,
            });
        }
        let lost: Vec<&str> = told
            .capabilities
            .iter()
            .filter(|name| !says.capabilities.contains(name))
            .filter(|name| !(self.policy.advertise && name.ends_with(".listChanged")))
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            self.tell_differs(format!("it has lost {}", lost.join(", ")));
        }
        Ok(())
    }
}

/// A server speaks another protocol version than the client was told, so the client cannot go on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChanged {
    says: String,
    told: String,
    /// The cache has told the client, not an earlier generation.
    from_cache: bool,
}

impl fmt::Display for VersionChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { says, told, .. } = self;
        let by = if self.from_cache {
            "the record of an earlier session"
        } else {
            "its predecessor"
        };
        write!(
            f,
            "it speaks protocol version {says}, the client was told {told} by {by}"
        )
    }
}

/// Why a line is not forwarded.
pub(super) const TOO_LONG: &str = "the message is longer than can be held (16 MiB)";

const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
