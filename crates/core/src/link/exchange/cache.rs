//! What is known of the server's answers without asking it: the cache of earlier sessions, and the lists that the
//! client has seen.
//!
//! While a server is not up yet, or is slow, the cache answers in its place; the server's own answer is compared later.
//! This machine knows what to say and what was said. When to say it is decided elsewhere.
//!
//! Invariants: a request that the cache has answered is compared with at most one answer of the server; a list is noted
//! as changed once.

use alloc::vec::Vec;

use mainstay_protocol::message::inflight::{Token, Tracked};
use mainstay_protocol::message::lists::{self, Check, Lists, Which};
use mainstay_protocol::message::remembered::{self, Learned, Remembered};
use mainstay_protocol::message::{envelope, retry, settle, token};
use mainstay_protocol::policy::Retry;

use crate::link::session::Session;

#[derive(Debug)]
pub(in crate::link) struct Cache {
    /// The cache: what an earlier session of this configuration saw.
    remembered: Remembered,
    /// What the client has seen of the server's lists.
    lists: Lists,
    /// The client's `initialize` that the cache has answered, until the generation that was asked answers it or is
    /// gone.
    opening: Option<Token>,
    /// Requests that the cache has answered while a server was up, until that server answers them or is gone.
    recalled: Vec<Recalled>,
    /// The generation for which the client has waited too long: the cache answers at once.
    too_slow: Option<u32>,
    /// The client was shown lists that no server of this session has shown.
    shows_recorded_lists: bool,
    /// Lists that a server reported as changed while the client could not be told.
    changed_meanwhile: Vec<Which>,
    /// A server of this session has died of `server/discover`.
    discover_killed: bool,
}

/// A request that the cache has answered.
#[derive(Debug)]
struct Recalled {
    id: Token,
    question: Question,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Question {
    Discover,
    List(Which),
}

/// The client of the legacy era has not opened.
struct Unopened;

impl Cache {
    pub fn new(remembered: Remembered) -> Self {
        Self {
            remembered,
            lists: Lists::default(),
            opening: None,
            recalled: Vec::new(),
            too_slow: None,
            shows_recorded_lists: false,
            changed_meanwhile: Vec::new(),
            discover_killed: false,
        }
    }

    pub fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    pub fn recall(&mut self, remembered: Remembered) {
        self.remembered = remembered;
    }

    /// The client opens with this line.
    pub fn client_opens(&mut self, line: &[u8]) {
        self.remembered.client_opens(line);
    }

    pub fn remembered_written(&mut self) {
        self.remembered.written();
    }

    /// What the client had seen under a killed keeper.
    pub fn restore(&mut self, session: &Session<'_>) {
        for which in Which::ALL {
            if let Some(digest) = session.seen(which) {
                self.lists.restore(which, digest);
            }
        }
    }

    /// A new generation will not answer the requests of its predecessor.
    pub fn generation_started(&mut self) {
        self.opening = None;
        self.recalled.clear();
    }

    /// The client is gone: what it has seen does not count for the next client.
    pub fn client_gone(&mut self) {
        self.changed_meanwhile.clear();
        self.lists = Lists::default();
        self.shows_recorded_lists = false;
    }

    /// Whether the client has waited for this generation already.
    pub fn is_too_slow(&self, generation: u32) -> bool {
        self.too_slow == Some(generation)
    }

    /// Whether the cache can answer a request. A list is known by the line that asks for it.
    pub fn knows(&self, method: Tracked, line: Option<&[u8]>, session: &Session<'_>) -> bool {
        match method {
            Tracked::Initialize => {
                let digest = session.params_digest();
                digest.is_some_and(|digest| self.remembered.opening(digest).is_some())
            }
            Tracked::Discover => self.remembered.discover().is_some(),
            Tracked::List => {
                let which = line.and_then(Which::asked);
                which.is_some_and(|which| {
                    lists_digest(session).is_ok_and(|digest| {
                        self.remembered.list(digest, which).is_some()
                            || self.remembered.list_refusal(digest, which).is_some()
                    })
                })
            }
            Tracked::Other
            | Tracked::Ping
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => false,
        }
    }

    /// The cache's answer to a request, if it has one. A list is known by the line that asks for it.
    pub fn answer(
        &self,
        id: &[u8],
        method: Tracked,
        line: Option<&[u8]>,
        session: &Session<'_>,
        advertise: bool,
    ) -> Option<Vec<u8>> {
        match method {
            Tracked::Initialize => {
                let opening = self.remembered.opening(session.params_digest()?)?;
                Some(answer_from(id, &opening.result, advertise))
            }
            Tracked::Discover => {
                let result = self.remembered.discover()?;
                Some(answer_from(id, result, advertise))
            }
            Tracked::List => {
                let which = Which::asked(line?)?;
                let digest = lists_digest(session).ok()?;
                if let Some(result) = self.remembered.list(digest, which) {
                    return Some(answer_from(id, result, advertise));
                }
                // The server said that it has no lists of that kind.
                let error = self.remembered.list_refusal(digest, which)?;
                Some(remembered::refusal(id, error))
            }
            Tracked::Other
            | Tracked::Ping
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => None,
        }
    }

    /// The answer to a `server/discover` that the server is known to refuse or to die of. It is given at once without
    /// asking the server, because some servers take the question for the choice of an era.
    pub fn refusal(&self, id: &[u8], method: &str, may_answer: bool) -> Option<Vec<u8>> {
        if self.remembered.is_legacy() {
            return Some(settle::method_not_found(id, method));
        }
        let error = self.remembered.refusal()?;
        may_answer.then(|| remembered::refusal(id, error))
    }

    /// How a `server/discover` was answered, as it is answered to a newcomer.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        let result = self.remembered.discover()?;
        Some(remembered::answer(id, result))
    }

    /// The cache has answered the client's `initialize` in place of this generation.
    pub fn opening_recalled(&mut self, id: Token, generation: u32) {
        debug_assert!(
            self.opening.is_none(),
            "one opening is answered from the record"
        );
        self.opening = Some(id);
        self.too_slow = Some(generation);
    }

    /// The cache has answered another request in place of this generation.
    pub fn request_recalled(
        &mut self,
        id: Token,
        which: Option<Which>,
        line: &[u8],
        generation: u32,
    ) {
        if let Some(which) = which {
            self.lists.client_saw(which, false, line);
        }
        debug_assert!(
            !self
                .recalled
                .iter()
                .any(|recalled| token::same(&recalled.id, &id)),
            "one answer from the record"
        );
        let question = which.map_or(Question::Discover, Question::List);
        self.recalled.push(Recalled { id, question });
        self.too_slow = Some(generation);
    }

    /// The cache has answered a list request while no server was up.
    pub fn list_recalled(&mut self, which: Which, line: &[u8]) {
        self.lists.client_saw(which, false, line);
        self.shows_recorded_lists = true;
    }

    /// Whether the cache has answered the client's opening and the server has not.
    pub fn awaits_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Whether this is the id of that opening.
    pub fn is_recalled_opening(&self, id: &[u8]) -> bool {
        self.opening
            .as_ref()
            .is_some_and(|own| token::same(own, id))
    }

    /// The server itself has answered that opening.
    pub fn opening_confirmed(&mut self) {
        self.opening = None;
    }

    /// The server itself answers a request that the cache has answered. The server is up, so the next request may wait
    /// for it.
    pub fn confirmed(&mut self, id: &[u8]) -> Option<Question> {
        let mut all = self.recalled.iter();
        let at = all.position(|recalled| token::same(&recalled.id, id))?;
        self.too_slow = None;
        Some(self.recalled.swap_remove(at).question)
    }

    /// Whether the cache has no answer to the client's opening, because the server refused it.
    pub fn forgot_opening(&self, session: &Session<'_>) -> bool {
        let digest = session.params_digest();
        digest.is_some_and(|digest| self.remembered.opening(digest).is_none())
    }

    /// Remembers how the server answered the client's opening.
    pub fn learn_opening(&mut self, session: &Session<'_>, line: &[u8]) {
        if let (Some(digest), Some(result)) = (session.params_digest(), remembered::result_of(line))
        {
            self.remembered.learn_opening(digest, result);
            if self.discover_killed {
                self.remembered.learn_legacy();
            }
        }
    }

    /// The server has refused the opening that the cache has answered: the cache learns it again from the next
    /// generation that accepts it.
    pub fn opening_refused(&mut self, session: &Session<'_>) {
        if let Some(digest) = session.params_digest() {
            self.remembered.forget_opening(digest);
        }
        self.remembered.forget_refusal();
    }

    /// The server refuses the legacy era too: it must be asked again.
    pub fn forget_refusal(&mut self) {
        self.remembered.forget_refusal();
    }

    /// A server has died of `server/discover`.
    pub fn discover_killed(&mut self) {
        self.discover_killed = true;
    }

    /// Remembers a list that the client sees.
    pub fn learn_list(&mut self, session: &mut Session<'_>, request: &[u8], line: &[u8]) {
        let Some(which) = Which::of(&envelope::method(request).unwrap_or_default()) else {
            return;
        };
        let further = lists::has_cursor(request);
        self.lists.client_saw(which, further, line);
        if let Some(digest) = self.lists.digest(which) {
            session.note_seen(which, &digest);
        }
        if !further {
            self.learn_first_page(session, which, line);
        }
    }

    /// Remembers what the server now says of a list, whether the client has seen it or not.
    pub fn learn_first_page(&mut self, session: &Session<'_>, which: Which, line: &[u8]) {
        let Ok(digest) = lists_digest(session) else {
            return;
        };
        if let Some(result) = remembered::result_of(line) {
            self.remembered.learn_list(digest, which, result);
        } else if let Some(error) = remembered::error_of(line) {
            self.remembered.learn_list_refusal(digest, which, error);
        }
    }

    /// Remembers the server's own answer to a `server/discover`; whether it differs from the remembered one.
    pub fn learn_discover(&mut self, line: &[u8]) -> bool {
        if let Some(result) = remembered::result_of(line) {
            return self.remembered.learn_discover(result) == Learned::Other;
        }
        if let Some(error) = remembered::error_of(line) {
            self.remembered.learn_refusal(error);
        }
        false
    }

    /// A server reported lists as changed while the client could not be told; each is noted once.
    pub fn changed_meanwhile(&mut self, lists: impl IntoIterator<Item = Which>) {
        for which in lists {
            if !self.changed_meanwhile.contains(&which) {
                self.changed_meanwhile.push(which);
            }
        }
        debug_assert!(
            self.changed_meanwhile.len() <= Which::ALL.len(),
            "each once"
        );
    }

    /// Takes the lists that the client is to be told of now.
    pub fn take_changed_meanwhile(&mut self) -> Vec<Which> {
        core::mem::take(&mut self.changed_meanwhile)
    }

    /// The client is told that a list has changed: the content it has seen is out of date.
    pub fn list_changed(&mut self, which: Which) {
        self.lists.adopt(which);
    }

    /// The lists that a new generation is asked for, to compare them with what the client has seen. A list from the
    /// cache is asked for even if the client cannot be told of a change, so that the next session is not shown the same
    /// wrong list.
    pub fn lists_to_check(&mut self, may_tell: impl Fn(Which) -> bool) -> Vec<Which> {
        let recorded = core::mem::take(&mut self.shows_recorded_lists);
        let mut all = self.lists.to_check();
        all.retain(|&which| recorded || may_tell(which));
        all
    }

    /// A page of such a list.
    pub fn check_page(
        &mut self,
        session: &Session<'_>,
        which: Which,
        page: usize,
        line: &[u8],
    ) -> Check {
        if page == 0 {
            self.learn_first_page(session, which, line);
        }
        self.lists.check(which, page, line)
    }

    /// Whether a request may be sent twice, by what the client was shown of its tool.
    pub fn may_repeat(&self, retry: Retry, method: Tracked, line: &[u8]) -> bool {
        retry::may_repeat(retry, method, line, &self.lists)
    }
}

/// An answer from the cache, with the capabilities that the user wants to have announced.
fn answer_from(id: &[u8], result: &[u8], advertise: bool) -> Vec<u8> {
    let line = remembered::answer(id, result);
    let told = advertise.then(|| envelope::advertised(&line));
    told.flatten().unwrap_or(line)
}

/// The key under which lists are remembered: the client's opening, or nothing in the modern era.
fn lists_digest(session: &Session<'_>) -> Result<Option<u64>, Unopened> {
    if session.modern() {
        return Ok(None);
    }
    session.params_digest().map(Some).ok_or(Unopened)
}
