//! What a new generation is told before the client's traffic reaches it: what its predecessor knew.
//!
//! Legacy: opening → wait for its answer → initialized → log level and subscriptions → wait for their answers → requests
//! that are sent again → messages that were held. Modern: open listening requests, then the rest. Then we look whether
//! the lists are still what the client has seen.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::own::Purpose;
use super::state::{Because, Life, Silence, Stage, Up};
use super::{Kept, Link, Output};
use crate::clock::Moment;
use crate::event::{Cause, Differs, ListChanged, Renewing, Replayed, What};
use crate::message::envelope;
use crate::message::frame::{Frame, Kind, Scanner};
use crate::message::inflight::{Token, Tracked};
use crate::message::lists::{self, Check, Which};
use crate::record::Phase;
use crate::server::health::Health;

pub(super) const INITIALIZED: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

impl Link<'_> {
    /// The generation that was asked for was started. At most one lives: no other is counted.
    pub(super) fn started(&mut self, now: Moment) {
        let trial = match &mut self.life {
            Life::Absent { trial } => trial.take(),
            Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => return,
        };
        self.head.generation += 1;
        self.head.set_phase(Phase::Serving);
        self.tasks.forget();
        self.orphans.forget();
        // Nor will it answer the client's opening under the client's id: this one is asked under ours.
        self.instant_id = None;
        self.recalled.clear();
        let on_trial = trial.is_some();
        self.life = Life::Up(Up {
            since: now,
            stage: Stage::Serving,
            left: None,
            silence: Silence::NothingAsked,
            giving_way: None,
            health: Health::new(&self.limits, now, self.knows_probes),
            used: now,
            said: 0,
            trial,
        });
        if self.greeted() {
            self.greet(now);
        } else if let (true, Some(meta)) = (on_trial, self.modern_meta()) {
            let id = self.own.open(Purpose::Opening);
            let line = envelope::question("server/discover", &id, Some(&meta));
            self.push(Output::ToServer(line));
            self.set_stage(Stage::Greeting {
                until: now.after_ms(self.limits.opening_ms),
            });
        } else {
            self.resume(now);
        }
        self.busy_or_idle(now);
    }

    /// Whether the client has, or is about to have, the answer to its `initialize`.
    pub(super) fn greeted(&self) -> bool {
        self.head.greeted != 0 || self.on_way.greeting || self.on_way.greeting_of_ours
    }

    fn greet(&mut self, now: Moment) {
        let id = self.own.open(Purpose::Opening);
        let opening = self
            .opening
            .get(..self.head.opening_len as usize)
            .unwrap_or_default();
        if let Some(line) = envelope::with_id(&envelope::without_progress(opening), &id) {
            self.push(Output::ToServer(line));
            self.set_stage(Stage::Greeting {
                until: now.after_ms(self.limits.opening_ms),
            });
        } else {
            self.own.forget();
            self.differs("the client's opening was too long to be replayed".into());
            self.resume(now);
        }
    }

    /// Our replayed opening has its answer.
    pub(super) fn greeted_again(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        if self.head.modern != 0 {
            // Any answer will do: it is there.
            self.resume(now);
            return;
        }
        if frame.kind == Kind::Error {
            self.differs("it refuses the client's opening".into());
            self.renew(now, Renewing::Opening);
            return;
        }
        if self.forgot_opening() {
            self.learn_opening(line);
        }
        if !self.compare_greeting(now, line) {
            return;
        }
        if self.head.initialized != 0 {
            self.push(Output::ToServer(INITIALIZED.to_vec()));
        }
        let lines: Vec<Vec<u8>> = self
            .keepsakes
            .each(Kept::Level)
            .chain(self.keepsakes.each(Kept::Subscription))
            .map(|(_, line)| line.to_vec())
            .collect();
        let mut unanswered = 0;
        for line in lines {
            let id = self.own.open(Purpose::Replay);
            if let Some(line) = envelope::with_id(&line, &id) {
                self.push(Output::ToServer(line));
                unanswered += 1;
            }
        }
        if unanswered == 0 {
            self.resume(now);
        } else {
            self.set_stage(Stage::Replaying {
                unanswered,
                until: now.after_ms(self.limits.opening_ms),
            });
        }
    }

    /// Compares what the server now says of itself with what the client was told; `false` if that is the end.
    pub(super) fn compare_greeting(&mut self, now: Moment, line: &[u8]) -> bool {
        let told = self.keepsakes.get(Kept::Greeting, b"");
        let (Some(told), Some(says)) =
            (told.and_then(envelope::greeting), envelope::greeting(line))
        else {
            return true;
        };
        if told.version != says.version {
            let by = if self.head.generation > 1 {
                "its predecessor"
            } else {
                "the record of an earlier session"
            };
            let what = format!(
                "it speaks protocol version {}, the client was told {} by {by}",
                says.version, told.version
            );
            self.end_differing(now, what);
            return false;
        }
        let lost: Vec<&str> = told
            .capabilities
            .iter()
            .filter(|name| !says.capabilities.contains(name))
            .filter(|name| !(self.policy.advertise && name.ends_with(".listChanged")))
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            self.differs(format!("it has lost {}", lost.join(", ")));
        }
        true
    }

    /// The server cannot go on with the session: it ends, and whoever still asks is told why.
    pub(super) fn end_differing(&mut self, now: Moment, what: String) {
        self.differs(what.clone());
        let because = Because::Differs { what };
        self.answer_all_ahead(&because);
        self.settle_all(&because);
        self.stop(now, Cause::Differs);
        if let Life::Closing(closing) = &mut self.life {
            closing.because = because;
        }
    }

    /// One of our replayed requests has its answer.
    pub(super) fn replay_answered(&mut self, now: Moment, frame: &Frame<'_>) {
        if frame.kind == Kind::Error {
            self.differs(
                "it refuses the log level or a subscription that its predecessor had taken".into(),
            );
        }
        let Life::Up(up) = &mut self.life else { return };
        if let Stage::Replaying { unanswered, .. } = &mut up.stage {
            *unanswered = unanswered.saturating_sub(1);
            if *unanswered == 0 {
                self.resume(now);
            }
        }
    }

    /// The replay has been silent for too long.
    pub(super) fn replay_silent(&mut self, now: Moment) {
        let Life::Up(up) = &mut self.life else { return };
        match up.stage {
            Stage::Greeting { .. } => match &mut up.giving_way {
                // It is to be replaced anyway.
                Some(giving_way) => {
                    giving_way.until = now;
                    self.give_way_if_drained(now);
                }
                None => self.renew(now, Renewing::Opening),
            },
            // It has opened: what it leaves unanswered is its own affair.
            Stage::Replaying { .. } => self.resume(now),
            Stage::Instant | Stage::Serving => {}
        }
    }

    /// The server knows what its predecessor knew: on with the client's traffic.
    pub(super) fn resume(&mut self, now: Moment) {
        let Life::Up(up) = &mut self.life else { return };
        up.stage = Stage::Serving;
        up.used = now;
        let since = up.since;
        if up.trial.take().is_some() {
            self.budget.forgive();
        }
        let generation = self.head.generation;
        let mut listens = 0;
        let mut resent = 0;
        for (id, method) in self.unanswered_by_predecessors() {
            let line = match method {
                Tracked::Initialize if !self.greeted() && self.is_opening(&id) => {
                    Some(self.opening[..self.head.opening_len as usize].to_vec())
                }
                Tracked::Listen => self.keepsakes.get(Kept::Listen, &id).map(<[u8]>::to_vec),
                Tracked::Initialize
                | Tracked::Other
                | Tracked::Discover
                | Tracked::Ping
                | Tracked::List
                | Tracked::ToolsCall
                | Tracked::Read
                | Tracked::SetLevel
                | Tracked::Subscribe
                | Tracked::Task => self.resend.resend(&id),
            };
            let Some(line) = line else {
                self.answer(&id, method, &Because::Lost);
                continue;
            };
            if method.listens() {
                listens += 1;
            } else {
                resent += 1;
            }
            let opened = self.inflight.get(&id).map_or(now, |entry| entry.opened);
            self.inflight.open(&id, method, generation, opened);
            self.push(Output::ToServer(line));
        }
        if generation > 1 {
            let level = self.keepsakes.each(Kept::Level).next().is_some();
            let subscriptions = self.keepsakes.each(Kept::Subscription).count() as u32;
            self.tell(What::Replayed(Replayed {
                generation,
                ms: now.ms_since(since),
                level,
                subscriptions,
                listens,
                resent,
            }));
        }
        self.release_held(now);
        self.check_lists();
        self.busy_or_idle(now);
    }

    /// Requests in flight that this generation has not been sent, in the order of their opening.
    fn unanswered_by_predecessors(&self) -> Vec<(Token, Tracked)> {
        let generation = self.head.generation;
        self.inflight
            .iter()
            .filter(|(_, entry)| entry.sent_to.is_some_and(|sent_to| sent_to < generation))
            .filter_map(|(id, entry)| Some((Token::new(id)?, entry.method)))
            .collect()
    }

    /// Messages that waited within us are routed as if they came now.
    pub(super) fn release_held(&mut self, now: Moment) {
        self.held_bytes = 0;
        for line in core::mem::take(&mut self.held) {
            let mut scanner = Scanner::new();
            scanner.feed(&line);
            match self.track(now, &scanner.frame(), &line) {
                super::Route::Forward | super::Route::Hold => self.push(Output::ToServer(line)),
                super::Route::Drop | super::Route::Instead | super::Route::Gather => {}
            }
        }
    }

    /// Asks whether the lists are still what the client has seen, where it can be told.
    fn check_lists(&mut self) {
        self.tell_changed_meanwhile();
        for which in self.lists.to_check() {
            // A list from the record is asked for even if the client cannot be told of a change: the next session must not
            // be shown the same wrong list.
            if self.lists_from_record || self.head.generation > 1 && self.may_tell(which) {
                self.ask_list(which, 0, None);
            }
        }
        self.lists_from_record = false;
    }

    /// Lists that a server has called changed while the client could not hear it.
    pub(super) fn tell_changed_meanwhile(&mut self) {
        let noted = core::mem::take(&mut self.changed_in_replay);
        if !noted.is_empty() {
            self.tell_changed(noted);
        }
    }

    fn ask_list(&mut self, which: Which, page: usize, cursor: Option<&[u8]>) {
        let meta = self.modern_meta();
        let id = self.own.open(Purpose::List { which, page });
        self.push(Output::ToServer(lists::request(
            which,
            &id,
            cursor,
            meta.as_deref(),
        )));
    }

    /// A page of a list that we asked for.
    pub(super) fn list_checked(&mut self, which: Which, page: usize, line: &[u8]) {
        if page == 0 {
            self.learn_first_page(which, line);
        }
        match self.lists.check(which, page, line) {
            Check::Same => {}
            Check::More { cursor } => self.ask_list(which, page + 1, Some(&cursor)),
            Check::Differs => self.tell_changed(alloc::vec![which]),
        }
    }

    /// Tells the client that lists have changed, once each: what it has seen of them does not count any more.
    fn tell_changed(&mut self, all: Vec<Which>) {
        let mut told: Vec<&'static str> = Vec::new();
        for which in all {
            let method = which.changed();
            if told.contains(&method) || !self.may_tell(which) {
                continue;
            }
            told.push(method);
            for which in Which::changed_by(method) {
                self.lists.adopt(which);
            }
            for line in self.change_lines(method) {
                self.push(Output::ToClient(line));
            }
        }
        if !told.is_empty() {
            let lists = told
                .iter()
                .filter_map(|method| method.split('/').nth(1))
                .map(ToString::to_string)
                .collect();
            self.tell(What::ListChanged(ListChanged { lists }));
        }
    }

    /// Whether the client may be told that this list has changed.
    fn may_tell(&self, which: Which) -> bool {
        if self.head.modern != 0 {
            return !self.listeners(which.changed()).is_empty();
        }
        let name = which.changed().split('/').nth(1).unwrap_or_default();
        let greeting = self.keepsakes.get(Kept::Greeting, b"");
        let advertised = greeting.and_then(envelope::greeting).is_some_and(|told| {
            let wanted = format!("{name}.listChanged");
            told.capabilities.contains(&wanted)
        });
        advertised || self.policy.advertise
    }

    fn change_lines(&self, method: &str) -> Vec<Vec<u8>> {
        if self.head.modern == 0 {
            return alloc::vec![
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n").into_bytes()
            ];
        }
        self.listeners(method)
            .iter()
            .map(|id| {
                let id = String::from_utf8_lossy(id);
                let key = envelope::SUBSCRIPTION_KEY;
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"_meta\":{{\"{key}\":{id}}}}}}}\n").into_bytes()
            })
            .collect()
    }

    /// Open listening requests that were granted this kind of news.
    fn listeners(&self, method: &str) -> Vec<Vec<u8>> {
        let wanted = match method {
            "notifications/tools/list_changed" => "toolsListChanged",
            "notifications/prompts/list_changed" => "promptsListChanged",
            _ => "resourcesListChanged",
        };
        self.keepsakes
            .each(Kept::Acknowledged)
            .filter(|(_, granted)| envelope::is_true(granted, wanted))
            .map(|(id, _)| id.to_vec())
            .collect()
    }

    /// The `_meta` that requests of ours carry in the modern era.
    pub(super) fn modern_meta(&self) -> Option<Vec<u8>> {
        if self.head.modern == 0 {
            return None;
        }
        self.keepsakes
            .get(Kept::Greeting, b"meta")
            .map(<[u8]>::to_vec)
    }

    /// Asks an idle server whether it is there.
    /// Asks the server something that any living one answers at once.
    pub(super) fn probe(&mut self, purpose: Purpose) {
        let id = self.own.open(purpose);
        let meta = self.modern_meta();
        let method = if meta.is_some() {
            "server/discover"
        } else {
            "ping"
        };
        let line = envelope::question(method, &id, meta.as_deref());
        self.push(Output::ToServer(line));
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        if let Life::Up(up) = &mut self.life {
            up.stage = stage;
        }
    }

    pub(super) fn differs(&mut self, what: String) {
        let generation = self.head.generation;
        self.tell(What::Differs(Differs { generation, what }));
    }
}
