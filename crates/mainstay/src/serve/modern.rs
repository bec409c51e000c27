//! The modern era: one server for all clients of a configuration, started by the first of them.
//!
//! Before any client's traffic the server is asked what it speaks: a legacy server might take a modern request under its
//! own rules. One that does not speak modern is ended again and remembered for a while; its clients fall back to the
//! legacy era by what they are told.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mainstay_core::clock::Moment;
use mainstay_core::message::envelope::PROTOCOL_VERSION_KEY;
use mainstay_core::message::remembered::result_of;
use mainstay_core::serve::headers::Mirrors;
use mainstay_core::serve::limits::{QUESTION_MS, TOOLS_PAGES};
use mainstay_core::serve::posted::{CAPABILITIES_KEY, Posted};
use mainstay_core::serve::shared::{Heard, Shared};
use mainstay_core::serve::words::{self, Code};
use mainstay_os::clock;
use serde_json::{Value, json};

use super::bell::{Bell, Slot};
use super::draw;
use super::front::Front;
use super::link::{Link, Said};
use super::metrics::count;
use super::stream::{Seat, Stream};

/// The version that our own questions are asked in.
const VERSION: &str = "2026-07-28";
/// How long the tool list may take that calls are compared with; after that they go on without.
const TOOLS_WAIT_MS: u64 = 5_000;

/// A server for many.
pub struct Modern {
    link: Rc<Link>,
    table: RefCell<Shared>,
    streams: RefCell<BTreeMap<u64, Open>>,
    ours: RefCell<BTreeMap<u64, Rc<Slot<Vec<u8>>>>>,
    /// What it speaks, when it has said so: none is a server of the legacy era, or one that has ended.
    speaks: Slot<Option<Rc<Vec<String>>>>,
    tools: RefCell<Option<(Moment, Rc<Mirrors>)>>,
    used: Cell<Moment>,
    /// Rung when somebody has left.
    bell: Rc<Bell>,
    /// It takes no new request.
    over: Cell<bool>,
}

struct Open {
    stream: Rc<Stream>,
    since: Moment,
}

impl Modern {
    /// A server whose link has just been started; it is asked what it speaks.
    pub fn new(link: Rc<Link>, bell: Rc<Bell>) -> Self {
        Self {
            link,
            table: RefCell::new(Shared::new(draw)),
            streams: RefCell::default(),
            ours: RefCell::default(),
            speaks: Slot::default(),
            tools: RefCell::default(),
            used: Cell::new(clock::now()),
            bell,
            over: Cell::new(false),
        }
    }

    /// Asks what it speaks, and fills it in; whether it has said anything. Who is silent counts as one of the legacy era,
    /// but only for those who wait now: it may have been slow to start.
    pub async fn discover(&self) -> bool {
        let within = Duration::from_millis(QUESTION_MS);
        let answer = self.question("server/discover", json!({}), within).await;
        let result = answer.as_deref().and_then(result_of);
        let versions = result.and_then(|result| {
            let result: Value = serde_json::from_slice(result).ok()?;
            let listed = result.get("supportedVersions")?.as_array()?;
            Some(
                listed
                    .iter()
                    .filter_map(|one| one.as_str().map(String::from))
                    .collect::<Vec<_>>(),
            )
        });
        self.speaks
            .fill(versions.filter(|all| !all.is_empty()).map(Rc::new));
        answer.is_some()
    }

    /// What it speaks; none if it is of the legacy era.
    pub async fn speaks(&self) -> Option<Rc<Vec<String>>> {
        self.speaks.filled().await
    }

    /// Whether it was found to be of the legacy era.
    pub fn is_legacy(&self) -> bool {
        matches!(self.speaks.now(), Some(None))
    }

    /// Whether it takes no new request.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Requests of clients that are not answered.
    pub fn in_flight(&self) -> usize {
        self.table.borrow().len()
    }

    /// Those of them that only listen.
    pub fn listening(&self) -> usize {
        self.table.borrow().listening().len()
    }

    /// Since when nobody uses it; none while somebody does.
    pub fn unused_since(&self) -> Option<Moment> {
        (self.in_flight() == 0 && self.speaks.now().is_some()).then(|| self.used.get())
    }

    /// Passes a request on: its stream, and the seat whose drop cancels it.
    pub fn ask(self: &Rc<Self>, posted: &Posted<'_>, line: &[u8]) -> Option<(Rc<Stream>, Seat)> {
        let (key, line) = self.table.borrow_mut().asked(posted, line)?;
        let stream = Rc::new(Stream::default());
        let open = Open {
            stream: Rc::clone(&stream),
            since: clock::now(),
        };
        self.streams.borrow_mut().insert(key, open);
        self.link.send(line);
        let modern = Rc::downgrade(self);
        let seat = Seat::new(move || {
            let Some(modern) = modern.upgrade() else {
                return;
            };
            modern.used.set(clock::now());
            modern.streams.borrow_mut().remove(&key);
            let told = modern.table.borrow_mut().cancel(key);
            if let Some(line) = told {
                modern.link.send(line);
            }
            if modern.over.get() && modern.in_flight() == 0 {
                modern.link.close();
            }
            modern.bell.ring();
        });
        Some((stream, seat))
    }

    /// Waits until the link takes more.
    pub async fn room(&self) {
        self.link.room().await;
    }

    /// Which arguments its tools want repeated in headers, not older than this; none if it does not say in time.
    pub async fn tools(&self, not_older_ms: u64) -> Option<Rc<Mirrors>> {
        let known = self.tools.borrow().clone();
        if let Some((at, mirrors)) = known
            && clock::now().ms_since(at) <= not_older_ms
        {
            return Some(mirrors);
        }
        let mut mirrors = Mirrors::default();
        let mut cursor = None;
        for _ in 0..TOOLS_PAGES {
            let params =
                cursor.map_or_else(|| json!({}), |cursor: Value| json!({"cursor": cursor}));
            let within = Duration::from_millis(TOOLS_WAIT_MS);
            let answer = self.question("tools/list", params, within).await?;
            let Some(result) = result_of(&answer) else {
                break;
            };
            mirrors.learn(result);
            let page: Value = serde_json::from_slice(result).ok()?;
            cursor = page
                .get("nextCursor")
                .filter(|next| next.is_string())
                .cloned();
            if cursor.is_none() {
                break;
            }
        }
        let mirrors = Rc::new(mirrors);
        let known = (clock::now(), Rc::clone(&mirrors));
        self.tools.borrow_mut().replace(known);
        Some(mirrors)
    }

    /// What the link says.
    pub fn hear(&self, front: &Front, said: Said) {
        match said {
            Said::Line(line) => self.line(front, &line),
            Said::Over(how) => {
                self.over.set(true);
                self.settle(front, &format!("the server's link has ended ({how})"));
                self.speaks.fill(None);
            }
        }
    }

    /// It takes nothing new; what is in flight is answered, and then it ends.
    pub fn retire(&self) {
        self.over.set(true);
        if self.in_flight() == 0 {
            self.link.close();
        }
    }

    /// It ends now: what is in flight is answered by us.
    pub fn end(&self, front: &Front, why: &str) {
        self.over.set(true);
        self.settle(front, why);
        self.link.close();
    }

    /// Ends those who only listen, without anybody's fault.
    pub fn end_listening(&self) {
        let mut rest = Vec::new();
        let mut table = self.table.borrow_mut();
        for (key, id) in table.listening() {
            rest.push(table.cancel(key));
            if let Some(open) = self.streams.borrow_mut().remove(&key) {
                open.stream.finish(None, &words::listened(&id));
            }
        }
        for line in rest.into_iter().flatten() {
            self.link.send(line);
        }
    }

    fn settle(&self, front: &Front, why: &str) {
        self.end_listening();
        let open = self.table.borrow_mut().drain();
        for (key, id, _) in open {
            let stream = self.streams.borrow_mut().remove(&key);
            let (Some(id), Some(open)) = (id, stream) else {
                continue;
            };
            let message = format!("{why}; the request may or may not have taken effect");
            count(&front.metrics.settled);
            open.stream.finish(
                None,
                &words::error(Some(&id), Code::Internal, &message, None),
            );
        }
        for slot in std::mem::take(&mut *self.ours.borrow_mut()).into_values() {
            slot.fill(Vec::new());
        }
    }

    fn line(&self, front: &Front, line: &[u8]) {
        let heard = self.table.borrow_mut().heard(line);
        match heard {
            Heard::Last(key, line) => {
                self.used.set(clock::now());
                let open = self.streams.borrow_mut().remove(&key);
                if let Some(open) = open {
                    front.metrics.answered(clock::now() - open.since);
                    open.stream.finish(None, &line);
                }
                if self.over.get() && self.in_flight() == 0 {
                    self.link.close();
                }
            }
            Heard::On(key, line) => {
                if mainstay_core::message::envelope::method(&line).as_deref()
                    == Some("notifications/tools/list_changed")
                {
                    self.tools.borrow_mut().take();
                }
                let streams = self.streams.borrow();
                if let Some(open) = streams.get(&key)
                    && !open.stream.push(None, &line)
                {
                    count(&front.metrics.dropped);
                }
            }
            Heard::Ours(key, line) => {
                let slot = self.ours.borrow_mut().remove(&key);
                if let Some(slot) = slot {
                    slot.fill(line);
                }
            }
            Heard::Nobody => count(&front.metrics.stray_lines),
        }
    }

    /// A question of ours; none if it is not answered in time.
    async fn question(&self, method: &str, mut params: Value, within: Duration) -> Option<Vec<u8>> {
        params["_meta"] = json!({
            PROTOCOL_VERSION_KEY: VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "mainstay", "version": env!("CARGO_PKG_VERSION")},
            CAPABILITIES_KEY: {},
        });
        let (key, id) = self.table.borrow_mut().ask();
        let slot = Rc::new(Slot::default());
        self.ours.borrow_mut().insert(key, Rc::clone(&slot));
        let params = serde_json::to_string(&params).ok()?;
        let id = String::from_utf8_lossy(&id);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        self.link.send(line.into_bytes());
        if let Ok(answer) = tokio::time::timeout(within, slot.filled()).await {
            return (!answer.is_empty()).then_some(answer);
        }
        self.ours.borrow_mut().remove(&key);
        let told = self.table.borrow_mut().cancel(key);
        self.link.send(told?);
        None
    }
}
