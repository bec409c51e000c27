//! When the cache answers in place of the server, and what the server's own answers teach it.

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{FromCache, ListChanged, What};
use mainstay_protocol::message::frame::{Frame, Id, Kind};
use mainstay_protocol::message::inflight::{Entry, Opened, Token, Tracked};
use mainstay_protocol::message::lists::{Check, Which};
use mainstay_protocol::message::{envelope, settle};

use super::cache::{Cache, Question};
use super::owed::Owed;
use crate::link::io::Route;
use crate::link::own::Own;
use crate::link::requests::Requests;
use crate::link::session::Session;

/// What a request was answered with from the cache.
pub(in crate::link) enum Recalled {
    Opening,
    Other,
}

impl Cache {
    /// When the opening request is answered from the cache, if it can be.
    pub fn instant_at(&self, owed: &Owed<'_>) -> Option<Moment> {
        if owed.limits.instant_opening_ms == 0
            || owed.session.greeted()
            || (owed.session.modern() && owed.session.served())
        {
            return None;
        }
        let (_, entry) = self.recallable(owed)?;
        if self.is_too_slow(owed.session.generation()) {
            return Some(entry.opened);
        }
        Some(entry.opened.after_ms(owed.limits.instant_opening_ms))
    }

    /// The oldest request in flight that the cache can answer. A message that waits within us is not counted: it goes
    /// to the next server, which would answer it a second time.
    fn recallable(&self, owed: &Owed<'_>) -> Option<(Token, Entry)> {
        let mut all = owed.requests.iter();
        all.find_map(|(id, entry)| {
            let line = owed.requests.line(id);
            let known = !entry.is_held() && self.knows(entry.method, line, &owed.session);
            known.then_some((Token::new(id)?, entry))
        })
    }

    fn recalled_answer(&self, id: &[u8], method: Tracked, owed: &Owed<'_>) -> Option<Vec<u8>> {
        let line = owed.requests.line(id);
        self.answer(id, method, line, &owed.session, owed.policy.advertise)
    }

    /// The server is slow to answer: the cache answers.
    pub fn answer_from_record(&mut self, now: Moment, owed: &mut Owed<'_>) -> Option<Recalled> {
        let (id, entry) = self.recallable(owed)?;
        let line = self.recalled_answer(&id, entry.method, owed)?;
        let generation = owed.session.generation();
        let recalled = if entry.method == Tracked::Initialize {
            owed.answer_opening(&id, &line);
            self.opening_recalled(id, generation);
            Recalled::Opening
        } else {
            // The server's own answer does not reach the client, but is compared with this one when it comes.
            let which = owed.requests.line(&id).and_then(Which::asked);
            self.request_recalled(id, which, &line, generation);
            owed.answered_ahead_by_next(&id);
            Recalled::Other
        };
        owed.send_client(line);
        owed.tell(What::FromCache(FromCache {
            method: entry.method.word().into(),
            ms: now.ms_since(entry.opened),
        }));
        Some(recalled)
    }

    /// The client asks while no server can be asked: the route, if the cache has the answer.
    pub fn answered_from_record(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
        owed: &mut Owed<'_>,
    ) -> Option<Route> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let method = frame.method.as_deref().unwrap_or_default();
        let tracked = Tracked::of(method);
        let (session, advertise) = (&mut owed.session, owed.policy.advertise);
        let answer = match tracked {
            Tracked::Ping if session.greeted() => Some(settle::empty_result(id)),
            Tracked::Initialize if !session.greeted() => {
                session.remember_opening(line);
                self.client_opens(line);
                self.answer(id, tracked, None, session, advertise)
            }
            Tracked::Discover if !session.opened() => {
                let discovered = self.discovered(id);
                discovered.or_else(|| self.refused_discover(id, method, owed))
            }
            Tracked::List => self.answer(id, tracked, Some(line), session, advertise),
            Tracked::Initialize
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::Other
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => None,
        };
        let answer = answer?;
        // The request gets an entry, so that if this keeper is killed right here, its successor answers.
        let generation = owed.session.generation();
        if owed.requests.open(id, tracked, generation, now) == Opened::Full {
            return Some(Route::Later);
        }
        owed.session.set_spoken();
        if tracked == Tracked::Initialize {
            owed.answer_opening(id, &answer);
        } else {
            owed.answered_by_next(id);
        }
        if let (Tracked::List, Some(which)) = (tracked, Which::asked(line)) {
            self.list_recalled(which, &answer);
        }
        owed.send_client(answer);
        if tracked != Tracked::Ping {
            owed.tell_instant(method);
        }
        Some(Route::Replaced)
    }

    /// The answer to a `server/discover` that needs no server.
    fn refused_discover(&self, id: &[u8], method: &str, owed: &Owed<'_>) -> Option<Vec<u8>> {
        if owed.session.opened() {
            return None;
        }
        let may_answer = owed.limits.instant_opening_ms > 0;
        self.refusal(id, method, may_answer)
    }

    /// A `server/discover` that the server is known to refuse is answered at once: the route, if so.
    pub fn refuse_discover(
        &self,
        now: Moment,
        id: &[u8],
        method: &str,
        owed: &mut Owed<'_>,
    ) -> Option<Route> {
        let answer = self.refused_discover(id, method, owed)?;
        if !owed.answer_new(now, id, Tracked::Discover, answer) {
            return Some(Route::Later);
        }
        owed.tell_instant(method);
        Some(Route::Replaced)
    }

    /// Asks the server for its lists, to compare them with what the client has seen, if the client can be told of a
    /// change.
    pub fn check_lists(&mut self, own: &mut Own, owed: &mut Owed<'_>) {
        self.tell_changed_meanwhile(owed);
        let later = owed.session.generation() > 1;
        let (session, advertise) = (&owed.session, owed.policy.advertise);
        let may_tell = |which| later && may_tell(session, which, advertise);
        for which in self.lists_to_check(may_tell) {
            own.ask_list(which, 0, None, &owed.session, &mut owed.outbox);
        }
    }

    /// Tells the client of lists that a server reported as changed while the client could not be told.
    pub fn tell_changed_meanwhile(&mut self, owed: &mut Owed<'_>) {
        let noted = self.take_changed_meanwhile();
        if !noted.is_empty() {
            self.tell_changed(&noted, owed);
        }
    }

    /// The server itself answers a request that the cache has answered already.
    pub fn recalled_answered(
        &mut self,
        id: &[u8],
        frame: &Frame<'_>,
        line: Option<&[u8]>,
        own: &mut Own,
        owed: &mut Owed<'_>,
    ) {
        let (Some(question), Some(line)) = (self.confirmed(id), line) else {
            return;
        };
        match question {
            Question::Discover => self.discover_answered(line, owed),
            Question::List(which) if frame.kind == Kind::Response => {
                self.list_checked(which, 0, line, own, owed);
            }
            Question::List(which) => self.learn_first_page(&owed.session, which, line),
        }
    }

    /// What an answer teaches: what the next generation must be told, and what the client has seen.
    pub fn learn(
        &mut self,
        kind: Kind,
        method: Tracked,
        id: &[u8],
        line: &[u8],
        owed: &mut Owed<'_>,
    ) {
        let good = kind == Kind::Response;
        match method {
            Tracked::Initialize if good => {
                owed.session.greeting_on_way(line, owed.line_end);
                self.learn_opening(&owed.session, line);
            }
            Tracked::Discover => self.discover_answered(line, owed),
            Tracked::SetLevel if good => {
                if let Some(request) = owed.requests.line(id) {
                    owed.session
                        .note_level(&envelope::without_progress(request));
                    supersede(id, method, None, &mut owed.requests);
                }
            }
            Tracked::Subscribe if good => learn_subscription(id, owed),
            Tracked::List if good => {
                if let Some(request) = owed.requests.line(id) {
                    self.learn_list(&mut owed.session, request, line);
                }
            }
            Tracked::List => {
                if let Some(which) = owed.requests.line(id).and_then(Which::asked) {
                    self.learn_first_page(&owed.session, which, line);
                }
            }
            Tracked::Initialize
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Other
            | Tracked::Ping
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::Listen
            | Tracked::Task => {}
        }
    }

    /// The server itself has answered a `server/discover`.
    fn discover_answered(&mut self, line: &[u8], owed: &mut Owed<'_>) {
        if self.learn_discover(line) {
            owed.tell_differs("its discovery is not what was remembered".into());
        }
    }

    /// A page of a list that we asked for, or that the cache has answered.
    pub fn list_checked(
        &mut self,
        which: Which,
        page: usize,
        line: &[u8],
        own: &mut Own,
        owed: &mut Owed<'_>,
    ) {
        match self.check_page(&owed.session, which, page, line) {
            Check::Same => {}
            Check::More { cursor } => {
                let (session, outbox) = (&owed.session, &mut owed.outbox);
                own.ask_list(which, page + 1, Some(&cursor), session, outbox);
            }
            Check::Differs => self.tell_changed(&[which], owed),
        }
    }

    /// Tells the client that lists have changed, once for each list.
    fn tell_changed(&mut self, all: &[Which], owed: &mut Owed<'_>) {
        let mut told: Vec<&'static str> = Vec::new();
        for &which in all {
            let method = which.changed();
            if told.contains(&method) || !may_tell(&owed.session, which, owed.policy.advertise) {
                continue;
            }
            told.push(method);
            for which in Which::changed_by(method) {
                self.list_changed(which);
            }
            for line in owed.session.change_lines(method) {
                owed.send_client(line);
            }
        }
        if !told.is_empty() {
            let names = told.iter().filter_map(|method| method.split('/').nth(1));
            let lists = names.map(ToString::to_string).collect();
            owed.tell(What::ListChanged(ListChanged { lists }));
        }
    }
}

/// A subscription was accepted or cancelled.
fn learn_subscription(id: &[u8], owed: &mut Owed<'_>) {
    if let Some(request) = owed.requests.line(id)
        && let Some(uri) = envelope::uri(request).map(Cow::into_owned)
    {
        if envelope::method(request).as_deref() == Some("resources/subscribe") {
            let request = envelope::without_progress(request);
            owed.session.note_subscription(&uri, &request);
        } else {
            owed.session.forget_subscription(&uri);
        }
        supersede(id, Tracked::Subscribe, Some(&uri), &mut owed.requests);
    }
}

/// Of several requests for the same setting, the last one asked is the one that counts, whatever the order of the
/// answers.
fn supersede(id: &[u8], method: Tracked, uri: Option<&str>, requests: &mut Requests<'_>) {
    requests.supersede(id, |older| {
        Tracked::of(&envelope::method(older).unwrap_or_default()) == method
            && envelope::uri(older).as_deref() == uri
    });
}

/// Whether the client may be told that this list has changed.
fn may_tell(session: &Session<'_>, which: Which, advertise: bool) -> bool {
    session.expects_change(which) || advertise && !session.modern()
}
