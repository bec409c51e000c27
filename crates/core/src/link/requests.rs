//! The client's requests: who waits for an answer, which lines may be sent once more, and which wait within us.
//!
//! One owner for all three, because they change together: a request that is answered is neither resent nor held. It
//! words no answer and knows no server.
//!
//! Invariants: an answered request is kept nowhere else; the count of the held bytes is their sum; lines that wait stay
//! within the limits, but for those that could not be shown again (a gathered line, and what a dead server left unread).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::frame::{Frame, Id, Kind, Scanner};
use mainstay_protocol::message::inflight::{Entry, Inflight, Opened, Slot, Token, Tracked};
use mainstay_protocol::message::resend::{Fate, Resend};
use mainstay_protocol::message::{batch, token};
use mainstay_protocol::traffic::Traffic;

use super::long_lines::LongAnswer;

/// Held lines that a debug build adds up after every change.
const CHECKED_MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Requests<'a> {
    table: Inflight<&'a mut [Slot]>,
    resend: Resend,
    /// Messages that wait within us, in order.
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// When the first of them came. None if there is none, or only notifications that a dead server left unread.
    held_since: Option<Moment>,
    held_messages_most: usize,
    held_bytes_most: usize,
    traffic: Traffic,
}

/// A request that waits: its id, its kind, and the generation that it was sent to.
pub(super) type Waiting = (Token, Tracked, Option<u32>);

impl<'a> Requests<'a> {
    pub fn over(slots: &'a mut [Slot], limits: &Limits) -> Self {
        Self {
            table: Inflight::new(slots),
            resend: Resend::new(limits.held_bytes as usize),
            held: VecDeque::new(),
            held_bytes: 0,
            held_since: None,
            held_messages_most: limits.held_messages as usize,
            held_bytes_most: limits.held_bytes as usize,
            traffic: Traffic::default(),
        }
    }

    /// What has been answered so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// A request goes to this generation.
    pub fn open(&mut self, id: &[u8], method: Tracked, generation: u32, now: Moment) -> Opened {
        self.table.open(id, method, generation, now)
    }

    /// The beginning of a request's long line is on its way, and no server has seen any of it.
    pub fn open_unsent(&mut self, id: &[u8], method: Tracked, now: Moment) -> Opened {
        self.table.hold(id, method, now)
    }

    /// The request was now sent to this generation, perhaps a second time; its waiting time continues.
    pub fn move_to(&mut self, id: &[u8], generation: u32) {
        if let Some(entry) = self.table.get(id) {
            self.table.open(id, entry.method, generation, entry.opened);
        }
    }

    /// The server's answer to it is on its way to the client.
    pub fn answered(&mut self, now: Moment, id: &[u8], kind: Kind) -> Option<Entry> {
        let entry = self.table.answered(id)?;
        self.traffic.answered(entry.method, now - entry.opened);
        self.traffic.errors += u64::from(kind == Kind::Error);
        Some(entry)
    }

    /// Our own answer to it is on its way to the client.
    pub fn answered_by_us(&mut self, id: &[u8], line: u64) -> Option<Entry> {
        self.table.next_of_ours(line);
        let entry = self.table.answered_by_us(id);
        self.resend.forget(id);
        self.traffic.answered_by_mainstay += u64::from(entry.is_some());
        debug_assert!(self.table.get(id).is_none(), "one answer per request");
        entry
    }

    /// The same, while the server may still answer.
    pub fn answered_ahead(&mut self, id: &[u8], line: u64) {
        self.table.next_of_ours(line);
        let waited = self.table.settle(id);
        self.resend.forget(id);
        self.traffic.answered_by_mainstay += u64::from(waited);
        debug_assert!(self.table.get(id).is_none(), "one answer per request");
    }

    /// No answer is wanted; what was known of the request.
    pub fn withdraw(&mut self, id: &[u8]) -> Option<Entry> {
        let entry = self.table.close(id);
        self.resend.forget(id);
        entry
    }

    /// The request never arrived whole, so it needs no answer.
    pub fn forget(&mut self, id: &[u8]) {
        self.table.close(id);
    }

    /// The server's answer goes to the client among ours.
    pub fn goes_with_ours(&mut self, id: &[u8], line: u64) {
        self.table.next_of_ours(line);
        self.table.goes_with_ours(id);
    }

    /// The answers of the server that end before this byte have reached the client.
    pub fn delivered_to(&mut self, end: u64) {
        self.table.delivered_to(end);
    }

    /// Our answers up to this line have reached the client.
    pub fn written_to(&mut self, line: u64) {
        self.table.written_to(line);
    }

    /// The server's line that is routed next ends here in what goes on to the client.
    #[inline]
    pub fn line_ends_at(&mut self, end: u64) {
        self.table.line_ends_at(end);
    }

    /// Whether we have answered it before the server did.
    pub fn is_answered_ahead(&self, id: &[u8]) -> bool {
        self.table.is_settled(id)
    }

    /// A late answer of the server: whether we have answered its request ourselves.
    pub fn swallow(&mut self, id: &[u8]) -> bool {
        self.table.swallow(id)
    }

    /// How many late answers may still come.
    pub fn late_answers(&self) -> usize {
        self.table.settled()
    }

    /// This generation and those before it are gone: no late answer can come.
    pub fn forget_late_answers(&mut self, generation: u32) {
        self.table.forget_settled(generation);
    }

    pub fn get(&self, id: &[u8]) -> Option<Entry> {
        self.table.get(id)
    }

    /// Whether the table has this id, waiting or not.
    pub fn knows(&self, id: &[u8]) -> bool {
        self.table.knows(id)
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many more can wait.
    pub fn room(&self) -> usize {
        self.table.room()
    }

    /// Whether every request of a message has room.
    pub fn has_room_for(&self, line: &[u8]) -> bool {
        let mut wanted = 0;
        each_request(line, |id, _| {
            wanted += usize::from(self.table.get(id).is_none());
        });
        wanted <= self.table.room()
    }

    /// All that wait, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        self.table.iter()
    }

    /// The same, as they are now.
    pub fn all(&self) -> Vec<Waiting> {
        let all = self.table.iter();
        all.filter_map(|(id, entry)| Some((Token::new(id)?, entry.method, entry.sent_to)))
            .collect()
    }

    /// The requests that were sent to a generation before this one, the oldest first.
    pub fn sent_before(&self, generation: u32) -> Vec<(Token, Tracked)> {
        let all = self.all().into_iter();
        all.filter(|(_, _, sent_to)| sent_to.is_some_and(|sent_to| sent_to < generation))
            .map(|(id, method, _)| (id, method))
            .collect()
    }

    /// Whether the server owes an answer that ends by itself: listening does not.
    pub fn owes(&self) -> bool {
        let mut all = self.table.iter();
        all.any(|(_, entry)| !entry.is_held() && !entry.method.listens())
    }

    /// Whether the client waits for an answer that ends by itself.
    pub fn answers_due(&self) -> bool {
        self.table.iter().any(|(_, entry)| !entry.method.listens())
    }

    /// Whether an awaited answer is one that we learn from.
    pub fn teaches(&self) -> bool {
        self.table.iter().any(|(_, entry)| entry.method.teaches())
    }

    /// The oldest request that a deadline holds for: listening has none, and an opening has its own and is never cancelled.
    /// Nor does it hold for one whose answer is on its way already.
    pub fn oldest_call(&self, answer: Option<&LongAnswer>) -> Option<(&[u8], Entry)> {
        let mut all = self.table.iter();
        all.find(|(id, entry)| {
            let comes = match answer {
                None => false,
                Some(LongAnswer::To(request)) => token::same(request, id),
                Some(LongAnswer::ToAny) => !entry.is_held(),
            };
            !comes && !entry.method.listens() && entry.method != Tracked::Initialize
        })
    }

    /// Keeps the line of a request that is sent, so that it can be sent once more.
    pub fn keep_line(&mut self, id: &[u8], line: &[u8]) {
        self.resend.keep(id, line);
    }

    pub fn forget_line(&mut self, id: &[u8]) {
        self.resend.forget(id);
    }

    /// The line of a request that was kept.
    pub fn line(&self, id: &[u8]) -> Option<&[u8]> {
        self.resend.line(id)
    }

    /// The same, to be sent once more.
    pub fn resend(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        self.resend.resend(id)
    }

    /// What happens to a request when its server dies.
    pub fn fate(&self, id: &[u8]) -> Fate {
        self.resend.fate(id)
    }

    /// Whether a server may have read a request that waits within us.
    pub fn was_sent(&self, id: &[u8]) -> bool {
        self.resend.was_sent(id)
    }

    /// A call that has led to a question is not sent again: the question would be asked twice. Which one has is not told,
    /// so it may be any.
    pub fn give_up_calls(&mut self, generation: u32) {
        for (id, entry) in self.table.iter() {
            if entry.method == Tracked::ToolsCall && entry.sent_to == Some(generation) {
                self.resend.give_up(id);
            }
        }
    }

    /// Of several wishes for the same, the last one that was asked lasts, whichever is answered last.
    pub fn supersede(&mut self, id: &[u8], same: impl Fn(&[u8]) -> bool) {
        self.resend.supersede(id, same);
    }

    /// Whether a progress notification may pass.
    pub fn may_progress(&mut self, line: &[u8]) -> bool {
        self.resend.may_progress(line)
    }

    /// Keeps a message within us until a server can take it; false if there is no room.
    pub fn try_hold(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> bool {
        let full = self.held.len() >= self.held_messages_most
            || self.held_bytes + line.len() > self.held_bytes_most;
        let asks = matches!(frame.kind, Kind::Request | Kind::Batch);
        if full || asks && !self.has_room_for(line) {
            return false;
        }
        self.hold(now, line.to_vec());
        debug_assert!(
            self.held.len() <= self.held_messages_most,
            "within the limit"
        );
        debug_assert!(self.held_bytes <= self.held_bytes_most, "within the limit");
        true
    }

    /// Keeps a message that cannot be shown again.
    pub fn hold(&mut self, now: Moment, line: Vec<u8>) {
        each_request(&line, |id, tracked| {
            self.table.hold(id, tracked, now);
        });
        self.held_since.get_or_insert(now);
        self.held_bytes += line.len();
        self.held.push_back(line);
        self.check();
    }

    /// When the first of the messages that wait came.
    pub fn held_since(&self) -> Option<Moment> {
        self.held_since
    }

    /// The messages that waited; each is to be routed as if it came now.
    pub fn release(&mut self) -> VecDeque<Vec<u8>> {
        self.held_bytes = 0;
        self.held_since = None;
        core::mem::take(&mut self.held)
    }

    /// Forgets a message that waits: its request has its answer, or needs none. Of a batch, all members came at one time,
    /// so that what is answered for one of them is answered for all.
    pub fn let_go(&mut self, id: &[u8]) {
        self.held.retain(|line| {
            let mut found = false;
            each_request(line, |held, _| found |= token::same(held, id));
            !found
        });
        self.held_bytes = self.held.iter().map(Vec::len).sum();
        if self.held.is_empty() {
            self.held_since = None;
        }
        self.check();
    }

    /// A dead server has not read a request: it waits within us again. Whether it is one that waits at all.
    pub fn unread(&mut self, id: &[u8], method: Tracked) -> bool {
        let Some(entry) = self.table.get(id) else {
            return false;
        };
        self.table.hold(id, method, entry.opened);
        self.resend.unread(id);
        true
    }

    /// The messages that a dead server has not read wait before all others.
    pub fn put_back(&mut self, mut lines: VecDeque<Vec<u8>>) {
        for line in &lines {
            self.held_bytes += line.len();
            each_request(line, |id, _| {
                let came = self.table.get(id).map(|entry| entry.opened);
                self.held_since = self.held_since.into_iter().chain(came).min();
            });
        }
        lines.append(&mut self.held);
        self.held = lines;
        self.check();
    }

    /// The client is gone and waits for nothing. Returns the ids of listening requests that a server was sent.
    pub fn client_gone(&mut self, generation: u32) -> Vec<Token> {
        let mut listening = Vec::new();
        for (id, method, sent_to) in self.all() {
            self.table.close(&id);
            if sent_to.is_some() && method.listens() {
                listening.push(id);
            }
        }
        self.resend.clear();
        self.table.forget_settled(generation);
        self.release();
        debug_assert!(
            self.table.is_empty(),
            "a client that is gone waits for nothing"
        );
        listening
    }

    /// Lets calls that are written in the usual way pass: the table is all that has to know of them. How many bytes.
    #[inline]
    pub fn pass_calls(
        &mut self,
        now: Moment,
        generation: u32,
        lines: &[u8],
        mut passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        let mut used = 0;
        while let Some((frame, len)) = Frame::at_a_glance(&lines[used..])
            && let (Id::Token(id), Some("tools/call")) = (frame.id, frame.method.as_deref())
        {
            match self.table.open(id, Tracked::ToolsCall, generation, now) {
                Opened::New | Opened::Again => self.resend.forget(id),
                Opened::Full | Opened::Untracked => break,
            }
            passed(&frame);
            used += len;
        }
        used
    }

    /// The same for the results of calls.
    #[inline]
    pub fn pass_results(
        &mut self,
        now: Moment,
        lines: &[u8],
        begin: u64,
        mut passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        let mut used = 0;
        while let Some((frame, len)) = Frame::at_a_glance(&lines[used..])
            && let (Id::Token(id), Kind::Response) = (frame.id, frame.kind)
        {
            self.table.line_ends_at(begin + (used + len) as u64);
            let Some(opened) = self.table.answered_if(id, Tracked::ToolsCall) else {
                break;
            };
            self.traffic.answered(Tracked::ToolsCall, now - opened);
            self.resend.forget(id);
            passed(&frame);
            used += len;
        }
        used
    }

    /// What a successor would find.
    #[cfg(test)]
    pub fn slots(&self) -> &[Slot] {
        self.table.slots()
    }

    fn check(&self) {
        debug_assert!(
            self.held_since.is_none() || !self.held.is_empty(),
            "only what waits has waited since a time"
        );
        debug_assert!(
            self.held.len() > CHECKED_MOST
                || self.held_bytes == self.held.iter().map(Vec::len).sum::<usize>(),
            "the held bytes are those of the held lines"
        );
        debug_assert!(
            self.held.iter().all(|line| !line.is_empty()),
            "what waits is a message"
        );
    }
}

/// Shows the ids of the requests in a line or a batch.
pub(super) fn each_request(line: &[u8], mut show: impl FnMut(&[u8], Tracked)) {
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
