//! Requests of the client's that have no answer yet: the workspace's one [table](Inflight), and beside each entry how its
//! exchange stands.
//!
//! What follows when an exchange ends without an answer is decided here, per request: it rests and is sent again, its
//! answer is resumed, or we answer it ourselves.
//!
//! Invariants:
//! - Each entry of the table has its details at the same place, and there are no others.
//! - Nothing that the server may have acted upon is sent again unless [`retry`] allows it, and then once.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits;
use mainstay_protocol::message::inflight::{Inflight, Opened, Slot, Token, Tracked};
use mainstay_protocol::message::retry::SENT_MOST;

use super::io::{Content, End, ExchangeId, Head};
use super::queue::Waiting;
use crate::sse;
use crate::words::Why;

/// A place beyond those of other requests for `initialize`, which waits for none of them.
const OPENINGS: usize = 1;

/// The requests.
#[derive(Debug)]
pub(super) struct Requests {
    table: Inflight<Vec<Slot>>,
    /// By place in the table.
    details: Vec<Option<Request>>,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    line: Vec<u8>,
    method: Tracked,
    /// The version that it names itself, in the modern era.
    modern: Option<String>,
    flight: Flight,
    /// How often it was sent, or could not be.
    sent: u8,
    unsent: u8,
    resumption: Resumption,
    /// The server asked the client something on behalf of it.
    asked: bool,
    /// It was refused because its session was gone.
    refused: bool,
    /// The tool list was asked for because its headers did not match, or could not be known.
    refreshed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// On its way.
    Sent(ExchangeId),
    /// It goes out, or its answer is resumed, at this time.
    Resting(Moment),
    /// It waits for something else: a tool list, or an answer on the old transport's stream.
    Elsewhere,
}

/// Where an answer that is a stream goes on when it breaks.
#[derive(Clone, Debug, Default)]
struct Resumption {
    /// Its last event, and the session that this event is of.
    last: Option<(String, u32)>,
    retry_ms: Option<u64>,
    /// Since when no resumption has brought anything; how many.
    stalled: Option<(Moment, u32)>,
}

/// What a request does not know of itself when its exchange ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub now: Moment,
    /// The session that is there.
    pub epoch: u32,
    /// The bridge is about to end: no request waits for a retry from now on.
    pub closing: bool,
    /// The retry rule allows that it is sent twice.
    pub may_repeat: bool,
}

impl Requests {
    pub fn new() -> Self {
        Self {
            table: Inflight::new(vec![Slot::free(); limits::HTTP_EXCHANGES + OPENINGS]),
            details: Vec::new(),
        }
    }

    /// Takes a request up, in place of one with the same id; false if there is no room.
    pub fn open(&mut self, now: Moment, epoch: u32, id: &[u8], request: Request) -> bool {
        match self.table.open(id, request.method, epoch, now) {
            Opened::New | Opened::Again => {}
            Opened::Full | Opened::Untracked => return false,
        }
        if let Some(place) = self.table.place(id) {
            if self.details.len() <= place {
                self.details.resize_with(place + 1, || None);
            }
            self.details[place] = Some(request);
        }
        true
    }

    pub fn get(&self, id: &[u8]) -> Option<&Request> {
        self.details.get(self.table.place(id)?)?.as_ref()
    }

    pub fn get_mut(&mut self, id: &[u8]) -> Option<&mut Request> {
        self.details.get_mut(self.table.place(id)?)?.as_mut()
    }

    /// True if a request waits for the result of this exchange.
    pub fn went_with(&self, id: &[u8], exchange: ExchangeId) -> bool {
        let request = self.get(id);
        request.is_some_and(|one| one.flight() == Flight::Sent(exchange))
    }

    /// It has its answer, or is handled elsewhere.
    pub fn close(&mut self, id: &[u8]) -> Option<Request> {
        let place = self.table.place(id)?;
        self.table.close(id);
        self.details.get_mut(place)?.take()
    }

    /// Forgets all but those that this keeps: no answer to them is wanted any more.
    pub fn retain(&mut self, keep: impl Fn(&Request) -> bool) {
        for id in self.ids(|one| !keep(one)) {
            self.close(&id);
        }
    }

    /// The request that opens the session, if it has no answer yet.
    pub fn opening(&self) -> Option<Token> {
        let openings = self.ids(|one| one.method == Tracked::Initialize);
        debug_assert!(
            openings.len() < 2,
            "the client begins one session at a time"
        );
        openings.into_iter().next()
    }

    /// Those whose time has come.
    pub fn due(&self, now: Moment) -> Vec<Token> {
        self.ids(|one| matches!(one.flight, Flight::Resting(at) if at <= now))
    }

    /// Those whose answer comes on another stream than their own.
    pub fn elsewhere(&self) -> Vec<Token> {
        self.ids(|one| one.flight == Flight::Elsewhere)
    }

    fn ids(&self, matches: impl Fn(&Request) -> bool) -> Vec<Token> {
        if !self.details.iter().flatten().any(&matches) {
            return Vec::new();
        }
        let all = self.table.iter().map(|(id, _)| id);
        all.filter(|id| self.get(id).is_some_and(&matches))
            .filter_map(Token::new)
            .collect()
    }

    pub fn wake_at(&self) -> Option<Moment> {
        let all = self.details.iter().flatten();
        all.filter_map(|one| match one.flight {
            Flight::Resting(at) => Some(at),
            Flight::Sent(_) | Flight::Elsewhere => None,
        })
        .min()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether the next one must wait, unless it is an `initialize`.
    pub fn is_full(&self) -> bool {
        self.table.len() >= limits::HTTP_EXCHANGES
    }

    /// Whether the table and the details agree.
    pub fn agree(&self) -> bool {
        let held = self.details.iter().flatten().count();
        held == self.table.len() && self.table.iter().all(|(id, _)| self.get(id).is_some())
    }
}

impl Request {
    pub fn new(waiting: Waiting, method: Tracked, modern: Option<String>) -> Self {
        Self {
            line: waiting.line,
            method,
            modern,
            flight: Flight::Elsewhere,
            sent: waiting.sent,
            unsent: 0,
            resumption: Resumption::default(),
            asked: false,
            refused: waiting.refused,
            refreshed: false,
        }
    }

    pub fn line(&self) -> &[u8] {
        &self.line
    }

    pub fn method(&self) -> Tracked {
        self.method
    }

    pub fn modern(&self) -> Option<&str> {
        self.modern.as_deref()
    }

    pub fn flight(&self) -> Flight {
        self.flight
    }

    /// True if the server asked the client something because of it.
    pub fn was_asked_about(&self) -> bool {
        self.asked
    }

    /// True if it was refused once because its session was gone.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// It goes out with this exchange.
    pub fn goes_with(&mut self, exchange: ExchangeId) {
        self.flight = Flight::Sent(exchange);
        self.sent = self.sent.saturating_add(1);
    }

    /// The rest of its answer is asked for with this exchange.
    pub fn resumes_with(&mut self, exchange: ExchangeId) {
        self.flight = Flight::Sent(exchange);
    }

    /// It was taken, and its answer comes on another stream.
    pub fn waits_elsewhere(&mut self) {
        self.flight = Flight::Elsewhere;
    }

    /// The server asks the client something on behalf of it.
    pub fn asks_client(&mut self) {
        self.asked = true;
    }

    /// Notes that the tool list is requested for it. True if that was not done before.
    pub fn refresh(&mut self) -> bool {
        if self.refreshed {
            return false;
        }
        self.refreshed = true;
        self.flight = Flight::Elsewhere;
        true
    }

    /// An event of its answer has come, in this session.
    pub fn heard(&mut self, event: &sse::Event, epoch: u32) {
        self.resumption.stalled = None;
        if let Some(id) = &event.id {
            self.resumption.last = sse::resumable(id).map(|last| (last, epoch));
        }
        self.resumption.retry_ms = event.retry_ms.or(self.resumption.retry_ms);
        if self.method == Tracked::Listen {
            // It has been heard: a stream that breaks later has its tries anew.
            (self.sent, self.unsent) = (1, 0);
        }
    }

    /// The event after which its answer is resumed, if that is of this session.
    pub fn resumes_after(&self, epoch: u32) -> Option<&str> {
        let (last, of) = self.resumption.last.as_ref()?;
        (*of == epoch).then_some(last)
    }

    /// Its answer can no longer be resumed. True if the answer had begun, so that the server has acted upon the request.
    pub fn stop_resuming(&mut self) -> bool {
        self.resumption.last.take().is_some()
    }

    /// As it waits for another session.
    pub fn into_waiting(self) -> Waiting {
        Waiting {
            line: self.line,
            sent: self.sent,
            refused: self.refused,
        }
    }

    /// Its exchange is over, and no answer has come: the answer that we give, unless it goes on.
    pub fn ended(&mut self, given: &Circumstances, head: Option<&Head>, end: End) -> Option<Why> {
        if end == End::TooLong {
            return Some(Why::TooLong { request: false });
        }
        if self.resumes_later(given, head, &end) {
            return None;
        }
        let resumed = self.stop_resuming();
        match (head, end) {
            // It was acted upon, whatever became of the question for the rest.
            (Some(head), _) if resumed && !head.ok() => {
                let status = head.status;
                let why = format!("it broke off, and the rest was refused with HTTP {status}");
                self.broke(given, why)
            }
            (None, End::Failed { why, .. }) if resumed => self.broke(given, why),
            (None, End::Failed { unsent: true, why }) => self.not_sent(given, why),
            (_, End::Failed { why, .. }) => self.broke(given, why),
            (Some(head), _) if !head.ok() => self.refused_with(given, head),
            (Some(head), _) => match &head.content {
                Content::Other(content) if head.status != 202 => Some(Why::NotMcp {
                    content: content.clone(),
                }),
                Content::Json | Content::Events | Content::Other(_) => self.unanswered(given),
            },
            (None, _) => self.unanswered(given),
        }
    }

    /// The server has not seen it: whatever it is, it may be sent again.
    fn not_sent(&mut self, given: &Circumstances, why: String) -> Option<Why> {
        self.sent = self.sent.saturating_sub(1);
        match limits::HTTP_AGAIN_MS.get(usize::from(self.unsent)) {
            Some(wait) if !given.closing => {
                self.unsent += 1;
                self.flight = Flight::Resting(given.now.after_ms(*wait));
                None
            }
            // An earlier sending may have been acted upon.
            Some(_) | None if self.sent > 0 => Some(Why::Broke { why, again: false }),
            Some(_) | None => Some(Why::Unreachable { why }),
        }
    }

    /// Its answer broke off, or can never come.
    pub fn broke(&mut self, given: &Circumstances, why: String) -> Option<Why> {
        if self.may_go_again(given) {
            return self.rests(given, limits::HTTP_AGAIN_MS[0]);
        }
        let again = self.sent > 1;
        Some(Why::Broke { why, again })
    }

    fn unanswered(&mut self, given: &Circumstances) -> Option<Why> {
        if self.may_go_again(given) {
            return self.rests(given, limits::HTTP_AGAIN_MS[0]);
        }
        Some(Why::Silent)
    }

    fn refused_with(&mut self, given: &Circumstances, head: &Head) -> Option<Why> {
        let status = head.status;
        let wait = head.retry_after_ms.unwrap_or(limits::HTTP_RETRY_MS);
        if matches!(status, 429 | 502 | 503 | 504)
            && wait <= limits::HTTP_RETRY_AFTER_MS
            && self.may_go_again(given)
        {
            return self.rests(given, wait);
        }
        Some(Why::Status { status })
    }

    fn may_go_again(&self, given: &Circumstances) -> bool {
        given.may_repeat && self.sent < SENT_MOST
    }

    fn rests(&mut self, given: &Circumstances, ms: u64) -> Option<Why> {
        self.resumption.last = None;
        self.flight = Flight::Resting(given.now.after_ms(ms));
        None
    }

    /// True if the answer is resumed where it broke off.
    fn resumes_later(&mut self, given: &Circumstances, head: Option<&Head>, end: &End) -> bool {
        let same_session = self.resumes_after(given.epoch).is_some();
        if !same_session || self.modern.is_some() || given.closing {
            return false;
        }
        let wait = self
            .resumption
            .retry_ms
            .unwrap_or(limits::HTTP_RETRY_MS)
            .clamp(limits::HTTP_RETRY_LEAST_MS, limits::HTTP_RETRY_MOST_MS);
        let (since, count) = self.resumption.stalled.unwrap_or((given.now, 0));
        let stalled_for = given.now.ms_since(since);
        let wait = match head {
            // It hung up in good order, or in the middle of what it had to say: it is asked for the rest.
            Some(head) if head.ok() && head.content == Content::Events => {
                let failed = matches!(end, End::Failed { .. });
                if failed && count > 0 && stalled_for > limits::HTTP_RESUME_MS {
                    return false;
                }
                wait
            }
            // The resumption itself did not work out: for a while it is tried again.
            None
            | Some(Head {
                status: 500..=599 | 429,
                ..
            }) => {
                if stalled_for > limits::HTTP_RESUME_MS {
                    return false;
                }
                let wait = wait.max(limits::HTTP_RETRY_MS);
                let grown = wait.saturating_mul(1 << count.min(16));
                grown.min(limits::HTTP_RETRY_MOST_MS).max(wait)
            }
            Some(_) => return false,
        };
        self.resumption.stalled = Some((since, count + 1));
        self.flight = Flight::Resting(given.now.after_ms(wait));
        true
    }

    /// The same for `initialize`, which is never resumed: a session whose opening was not answered is of no use.
    pub fn opening_ended(
        &mut self,
        given: &Circumstances,
        head: Option<&Head>,
        end: End,
    ) -> Option<Why> {
        match (&end, limits::HTTP_AGAIN_MS.get(usize::from(self.unsent))) {
            (End::Failed { unsent: true, .. }, Some(wait)) if !given.closing => {
                self.unsent += 1;
                self.sent = self.sent.saturating_sub(1);
                self.flight = Flight::Resting(given.now.after_ms(*wait));
                return None;
            }
            (End::Failed { unsent: false, .. }, _)
                if self.may_go_again(given) && !given.closing =>
            {
                self.flight = Flight::Resting(given.now.after_ms(limits::HTTP_AGAIN_MS[0]));
                return None;
            }
            (End::Failed { .. } | End::Done | End::TooLong, _) => {}
        }
        let again = self.sent > 1;
        Some(match (end, head) {
            (End::Failed { unsent: true, why }, _) => Why::Unreachable { why },
            (End::Failed { why, .. }, _) => Why::Broke { why, again },
            (End::TooLong, _) => Why::TooLong { request: false },
            (End::Done, Some(head)) if !head.ok() => Why::Status {
                status: head.status,
            },
            (End::Done, Some(head)) => match &head.content {
                Content::Other(content) => Why::NotMcp {
                    content: content.clone(),
                },
                Content::Json | Content::Events => Why::Silent,
            },
            (End::Done, None) => Why::Silent,
        })
    }
}
