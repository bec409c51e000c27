//! What client and server have agreed on: the part that a killed keeper's successor, and the next generation, must know.
//!
//! It lives in the record, so that every change is there for a successor at once. What is on its way to the client counts
//! as said for this keeper, and for a successor only when it is written.
//!
//! Invariants: a phase never goes back; generations only count up; the client's opening is remembered whole or not at all.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::ids::LinkId;
use mainstay_protocol::kill_point::kill_point;
use mainstay_protocol::message::envelope::{self, Era};
use mainstay_protocol::message::frame::{Id, Scanner};
use mainstay_protocol::message::inflight::Tracked;
use mainstay_protocol::message::lists::{DIGEST_BYTES, Which};
use mainstay_protocol::message::{remembered, token};

use crate::record::long_ids::LongIds;
use crate::record::replay_log::{Board, EntryKind, ReplayLog};
use crate::record::{Attached, Head, Phase};

/// The key of what there is only one of.
const ONLY: &[u8] = b"";
/// The key of the `_meta` of the modern era.
const META: &[u8] = b"meta";

#[derive(Debug)]
pub(super) struct Session<'a> {
    head: &'a mut Head,
    opening: &'a mut [u8],
    log: ReplayLog<'a>,
    on_way: OnWay,
    /// The last generation that has answered the client.
    answered_by: Option<u32>,
    /// The server has heard the `notifications/initialized` that this client is about to send.
    initialized_before: bool,
    /// The client's ids that are too long for the table.
    long_ids: LongIds,
}

/// What is on its way to the client and will have been said once it is written.
#[derive(Debug, Default)]
struct OnWay {
    /// The answer to the client's `initialize`.
    greeting: Option<At>,
    /// Any answer of the server's, the first that is on its way.
    answer: Option<At>,
}

/// Where a line on its way to the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At this byte of what goes on from the server.
    Passed(u64),
    /// With this line of ours.
    Ours(u64),
}

impl<'a> Session<'a> {
    pub fn over(
        link: LinkId,
        head: &'a mut Head,
        opening: &'a mut [u8],
        board: &'a Board,
        log: &'a mut [u8],
    ) -> Self {
        let log = ReplayLog::over(board, log);
        let mut session = Self {
            head,
            opening,
            on_way: OnWay::default(),
            answered_by: None,
            initialized_before: false,
            long_ids: LongIds::of(link, &log),
            log,
        };
        session.complete_reopening();
        session
    }

    /// A keeper that was killed while it noted how a client that came back opens has left an opening that no server can be
    /// told: then that client opens anew.
    fn complete_reopening(&mut self) {
        let known = self.head.greeted != 0 && self.opening().is_some() && self.greeting().is_some();
        if self.attached() == Attached::Again && !known {
            self.open_anew();
            self.forget_opening();
            self.set_attached(Attached::Yes);
        }
    }

    /// The generation that is up, or was last.
    pub fn generation(&self) -> u32 {
        self.head.generation
    }

    /// The next generation was started.
    pub fn next_generation(&mut self) {
        debug_assert!(
            self.head.phase() <= Phase::Serving,
            "no start after the end has begun"
        );
        kill_point();
        self.head.generation += 1;
        kill_point();
        self.head.set_phase(Phase::Serving);
    }

    pub fn phase(&self) -> Phase {
        self.head.phase()
    }

    /// The end has begun. A keeper that was killed when all was done leaves nothing to go back to.
    pub fn set_stopping(&mut self) {
        kill_point();
        self.head.set_phase(self.head.phase().max(Phase::Stopping));
    }

    pub fn set_finished(&mut self) {
        kill_point();
        self.head.set_phase(Phase::Finished);
    }

    pub fn attached(&self) -> Attached {
        self.head.attached()
    }

    pub fn set_attached(&mut self, attached: Attached) {
        kill_point();
        self.head.set_attached(attached);
    }

    /// Whether the modern era is spoken.
    pub fn modern(&self) -> bool {
        self.head.modern != 0
    }

    /// Whether the client has asked something.
    pub fn spoken(&self) -> bool {
        self.head.spoken != 0
    }

    pub fn set_spoken(&mut self) {
        kill_point();
        self.head.spoken = 1;
    }

    /// Whether the client has said that it is initialized.
    pub fn initialized(&self) -> bool {
        self.head.initialized != 0
    }

    pub fn set_initialized(&mut self) {
        kill_point();
        self.head.initialized = 1;
    }

    /// Whether the client has, or is about to have, the answer to its `initialize`.
    pub fn greeted(&self) -> bool {
        self.head.greeted != 0 || self.on_way.greeting.is_some()
    }

    /// Whether the client has had an answer that it builds on. What is on its way reaches it, unless this keeper is killed.
    pub fn opened(&self) -> bool {
        self.head.served != 0 || self.on_way.answer.is_some() || self.greeted()
    }

    /// Whether a server has answered the client, as far as that is written.
    pub fn served(&self) -> bool {
        self.head.served != 0
    }

    /// Whether the client has chosen an era: a `server/discover` and its answer leave both open.
    pub fn era_settled(&self) -> bool {
        self.modern() || self.greeted()
    }

    /// An answer of the server is on its way to the client.
    pub fn answer_on_way(&mut self, end: impl FnOnce() -> u64) {
        if self.head.served == 0 {
            self.on_way.answer.get_or_insert_with(|| At::Passed(end()));
        }
        self.answered_by = Some(self.head.generation);
    }

    /// Whether the generation that is up, or was last, has answered the client.
    pub fn has_answered(&self) -> bool {
        self.answered_by == Some(self.head.generation)
    }

    /// The server's answer to the client's `initialize` is on its way.
    pub fn greeting_on_way(&mut self, line: &[u8], end: u64) {
        self.on_way.greeting = Some(At::Passed(end));
        self.log.put(EntryKind::Greeting, ONLY, line);
    }

    /// Our own answer to the client's `initialize` is on its way.
    pub fn our_greeting_on_way(&mut self, line: &[u8], of_ours: u64) {
        self.on_way.greeting = Some(At::Ours(of_ours));
        self.log.put(EntryKind::Greeting, ONLY, line);
    }

    /// The same for a client that came back: it is told what an earlier one was told.
    pub fn greeting_again_on_way(&mut self, of_ours: u64) {
        self.on_way.greeting = Some(At::Ours(of_ours));
        self.initialized_before = self.initialized();
    }

    /// The client says that it is initialized; whether the server has heard that before.
    pub fn initialized_before(&mut self) -> bool {
        core::mem::take(&mut self.initialized_before)
    }

    /// The line that ends at this byte goes to the client among ours.
    pub fn goes_with_ours(&mut self, end: u64, of_ours: u64) {
        for at in [&mut self.on_way.greeting, &mut self.on_way.answer] {
            if *at == Some(At::Passed(end)) {
                *at = Some(At::Ours(of_ours));
            }
        }
    }

    /// What goes on from the server has been written up to this byte, and our lines up to this one.
    pub fn delivered_to(&mut self, end: u64, of_ours: u64) {
        let there = |at: &mut At| match *at {
            At::Passed(at) => at <= end,
            At::Ours(at) => at <= of_ours,
        };
        if self.on_way.greeting.take_if(there).is_some() {
            kill_point();
            self.head.greeted = 1;
            if self.attached() == Attached::Again {
                self.set_attached(Attached::Yes);
            }
        }
        if self.on_way.answer.take_if(there).is_some() {
            kill_point();
            self.head.served = 1;
        }
    }

    /// The client opens anew: earlier answers to it do not count.
    pub fn open_anew(&mut self) {
        kill_point();
        self.head.greeted = 0;
        kill_point();
        self.head.served = 0;
        kill_point();
        self.head.initialized = 0;
        self.on_way = OnWay::default();
        self.log.clear(EntryKind::Greeting);
        self.log.clear(EntryKind::Level);
    }

    /// The client is gone, and with it all that it had asked to be told of: the URIs that it had subscribed to. The log
    /// level stays, because what it was before is not known.
    pub fn client_gone(&mut self) -> Vec<Vec<u8>> {
        let subscriptions = self.log.each(EntryKind::Subscription);
        let uris = subscriptions.map(|(uri, _)| uri.to_vec()).collect();
        for kind in [
            EntryKind::Subscription,
            EntryKind::Listen,
            EntryKind::Acknowledged,
            EntryKind::Asked,
            EntryKind::Seen,
        ] {
            self.log.clear(kind);
        }
        self.initialized_before = false;
        kill_point();
        self.head.server_mid_line = 0;
        uris
    }

    /// The marks of half-forwarded lines.
    pub fn mid_line(&mut self) -> MidLine<'_> {
        MidLine { head: self.head }
    }

    /// Whether a line to the client is half written.
    pub fn mid_line_to_client(&self) -> bool {
        self.head.server_mid_line != 0
    }

    /// The client's `initialize`; none if it sent none, or one that was too long to be remembered.
    pub fn opening(&self) -> Option<&[u8]> {
        let opening = self.opening.get(..self.head.opening_len as usize)?;
        (!opening.is_empty()).then_some(opening)
    }

    pub fn remember_opening(&mut self, line: &[u8]) {
        kill_point();
        self.head.opening_len = 0;
        if let Some(room) = self.opening.get_mut(..line.len()) {
            room.copy_from_slice(line);
            kill_point();
            self.head.opening_len = line.len() as u32;
            debug_assert_eq!(self.opening(), Some(line), "remembered whole");
        }
    }

    /// The opening was never forwarded.
    pub fn forget_opening(&mut self) {
        kill_point();
        self.head.opening_len = 0;
    }

    /// Whether this is the id of the opening that is remembered: of two, only the last one is.
    pub fn is_opening(&self, id: &[u8]) -> bool {
        let mut scanner = Scanner::new();
        let Some(opening) = self.opening() else {
            return false;
        };
        scanner.feed(opening);
        matches!(scanner.frame().id, Id::Token(own) if token::same(own, id))
    }

    /// Whether a request with this id is the client's opening, and has no answer yet.
    pub fn awaits_greeting(&self, id: &[u8]) -> bool {
        !self.greeted() && self.is_opening(id)
    }

    /// The digest of the client's opening.
    pub fn params_digest(&self) -> Option<u64> {
        remembered::digest_of_params(self.opening()?)
    }

    /// The first request that belongs to an era fixes it: its `_meta`, if that is the modern one.
    pub fn note_era(&mut self, tracked: Tracked, line: &[u8]) -> Option<Vec<u8>> {
        if self.modern()
            || self.greeted()
            || tracked == Tracked::Initialize
            || envelope::era(line) != Era::Modern
        {
            return None;
        }
        kill_point();
        self.head.modern = 1;
        let meta = envelope::meta(line)?;
        self.log.put(EntryKind::Greeting, META, &meta);
        Some(meta)
    }

    /// The `_meta` that requests of ours carry in the modern era.
    pub fn modern_meta(&self) -> Option<Vec<u8>> {
        if !self.modern() {
            return None;
        }
        self.log.get(EntryKind::Greeting, META).map(<[u8]>::to_vec)
    }

    /// What the client was told about the server.
    pub fn greeting(&self) -> Option<&[u8]> {
        self.log.get(EntryKind::Greeting, ONLY)
    }

    /// What opened the session, in either era.
    pub fn openings(&self) -> impl Iterator<Item = &[u8]> {
        self.log.each(EntryKind::Greeting).map(|(_, value)| value)
    }

    /// This request set the log level.
    pub fn note_level(&mut self, request: &[u8]) {
        self.log.put(EntryKind::Level, ONLY, request);
    }

    pub fn has_level(&self) -> bool {
        self.log.each(EntryKind::Level).next().is_some()
    }

    /// This request subscribed to a resource.
    pub fn note_subscription(&mut self, uri: &str, request: &[u8]) {
        self.log
            .put(EntryKind::Subscription, uri.as_bytes(), request);
    }

    pub fn forget_subscription(&mut self, uri: &str) {
        self.log.remove(EntryKind::Subscription, uri.as_bytes());
    }

    pub fn subscriptions(&self) -> u32 {
        self.log.each(EntryKind::Subscription).count() as u32
    }

    /// The requests that the next generation is sent after its opening: log level and subscriptions.
    pub fn to_replay(&self) -> Vec<Vec<u8>> {
        let level = self.log.each(EntryKind::Level);
        let all = level.chain(self.log.each(EntryKind::Subscription));
        all.map(|(_, line)| line.to_vec()).collect()
    }

    /// Whether resources or lists are listened to, which a sleeping server could not tell about.
    pub fn subscribed(&self) -> bool {
        self.log.each(EntryKind::Subscription).next().is_some()
            || self.log.each(EntryKind::Listen).next().is_some()
    }

    /// A listening request, as it is sent to each generation.
    pub fn note_listening(&mut self, id: &[u8], line: &[u8]) {
        self.log.put(EntryKind::Listen, id, line);
    }

    pub fn listening(&self, id: &[u8]) -> Option<&[u8]> {
        self.log.get(EntryKind::Listen, id)
    }

    pub fn stop_listening(&mut self, id: &[u8]) {
        self.log.remove(EntryKind::Listen, id);
        self.log.remove(EntryKind::Acknowledged, id);
    }

    /// The request never reached a server.
    pub fn forget_listening(&mut self, id: &[u8]) {
        self.log.remove(EntryKind::Listen, id);
    }

    /// What a listening request was granted before, if it was.
    pub fn granted(&self, id: &[u8]) -> Option<&[u8]> {
        self.log.get(EntryKind::Acknowledged, id)
    }

    pub fn note_granted(&mut self, id: &[u8], granted: &[u8]) {
        self.log.put(EntryKind::Acknowledged, id, granted);
    }

    /// Open listening requests that were granted this kind of news.
    pub fn listeners(&self, changed: &str) -> Vec<Vec<u8>> {
        let wanted = match changed {
            "notifications/tools/list_changed" => "toolsListChanged",
            "notifications/prompts/list_changed" => "promptsListChanged",
            _ => "resourcesListChanged",
        };
        self.log
            .each(EntryKind::Acknowledged)
            .filter(|(_, granted)| envelope::is_true(granted, wanted))
            .map(|(id, _)| id.to_vec())
            .collect()
    }

    /// Whether the client expects to be told that this list has changed.
    pub fn expects_change(&self, which: Which) -> bool {
        if self.modern() {
            return !self.listeners(which.changed()).is_empty();
        }
        let name = which.changed().split('/').nth(1).unwrap_or_default();
        let told = self.greeting().and_then(envelope::greeting);
        told.is_some_and(|told| told.capabilities.contains(&format!("{name}.listChanged")))
    }

    /// The lines that tell the client that a list has changed.
    pub fn change_lines(&self, changed: &str) -> Vec<Vec<u8>> {
        if !self.modern() {
            return alloc::vec![
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{changed}\"}}\n").into_bytes()
            ];
        }
        let key = envelope::SUBSCRIPTION_KEY;
        self.listeners(changed)
            .iter()
            .map(|id| {
                let id = String::from_utf8_lossy(id);
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{changed}\",\"params\":{{\"_meta\":{{\"{key}\":{id}}}}}}}\n").into_bytes()
            })
            .collect()
    }

    /// The server has asked the client something, under this id.
    pub fn note_asked(&mut self, id: &[u8]) {
        self.log.put(EntryKind::Asked, id, b"");
    }

    pub fn forget_asked(&mut self, id: &[u8]) {
        self.log.remove(EntryKind::Asked, id);
    }

    pub fn all_asked(&self) -> Vec<Vec<u8>> {
        let all = self.log.each(EntryKind::Asked);
        all.map(|(id, _)| id.to_vec()).collect()
    }

    /// What the client has seen of a list.
    pub fn note_seen(&mut self, which: Which, digest: &[u8; DIGEST_BYTES]) {
        self.log
            .put(EntryKind::Seen, which.method().as_bytes(), digest);
    }

    pub fn seen(&self, which: Which) -> Option<&[u8]> {
        self.log.get(EntryKind::Seen, which.method().as_bytes())
    }

    /// Whether no id is too long for the table, so that none has a label.
    pub fn no_long_ids(&self) -> bool {
        self.long_ids.is_empty()
    }

    /// The label of an id that is too long for the table, a new one if it has none. None if there is no room.
    pub fn give_label(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let generation = self.head.generation;
        self.long_ids.label(id, generation, &mut self.log)
    }

    pub fn label_of(&self, id: &[u8]) -> Option<&[u8]> {
        self.long_ids.label_of(id)
    }

    /// The long id behind a label.
    pub fn long_id(&self, label: &[u8]) -> Option<&[u8]> {
        self.long_ids.id_of(label)
    }

    /// Whether an id is a label of ours, even if its request is over.
    pub fn is_label(&self, id: &[u8]) -> bool {
        self.long_ids.is_label(id)
    }

    /// Forgets the labels of requests that are over.
    pub fn forget_labels(&mut self, in_use: impl Fn(&[u8]) -> bool) {
        if !self.long_ids.is_empty() {
            self.long_ids.retain(in_use, &mut self.log);
        }
    }
}

#[cfg(test)]
impl Session<'_> {
    /// What a successor would find.
    pub fn left_behind(&self) -> (Head, &[u8], &ReplayLog<'_>) {
        (*self.head, self.opening, &self.log)
    }
}

/// The mark of a line that is half written to the client, which a killed keeper leaves behind.
pub struct MidLine<'a> {
    head: &'a mut Head,
}

impl MidLine<'_> {
    /// Whether a line to the client is half written.
    pub fn to_client(&self) -> bool {
        self.head.server_mid_line != 0
    }

    /// Notes that a line to the client is half written, or that it is not.
    pub fn set_to_client(&mut self, yes: bool) {
        kill_point();
        self.head.server_mid_line = u8::from(yes);
    }
}
