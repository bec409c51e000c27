//! The shell around the machine that decides (`mainstay_http_core::serve::front`): it performs outputs, and owns what no
//! decision depends on: access rules, the ledger, connections, wakers, notes of sessions upstream.
//!
//! Everything here is of one thread. [`Front::with`] is the one way to the machine, and performs what comes out of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use mainstay_http_core::serve::access::AccessRules;
use mainstay_http_core::serve::front::{self as core, Ended, Output};
use mainstay_http_core::serve::limits::ServeLimits;
use mainstay_http_core::serve::server_queue::NextLine;
use mainstay_os::descriptors;
use mainstay_os::{clock, memory};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{ClientSessionClosed, ClientSessionOpened, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::paths::Paths;

use super::bell::Bell;
use super::connections::{Connections, Standing};
use super::endpoint::Endpoint;
use super::http::Owner;
use super::journal::Journal;
use super::metrics::{Metrics, count};
use super::seat::Seat;
use super::tasks::Tasks;
use super::{draw, link, upstream};
use crate::unclosed::LockedNote;

/// The front.
pub struct Front {
    /// All running tasks.
    pub tasks: Tasks,
    /// What is counted.
    pub metrics: Metrics,
    /// Where things are.
    pub paths: Paths,
    /// Rings when something is due sooner than expected, when a link or a connection has ended, when we stop.
    pub bell: Bell,
    /// Rings once, when connections are to end: thousands may wait for it, and nothing else wakes them.
    pub closing_bell: Bell,
    core: RefCell<core::Front>,
    /// When the machine is to be told the time.
    due: Cell<Option<Moment>>,
    /// The tasks that wait for exchanges.
    wakers: RefCell<BTreeMap<u64, Waker>>,
    /// The bells of the tasks that write to links.
    writers: RefCell<BTreeMap<u64, Rc<Bell>>>,
    limits: RefCell<ServeLimits>,
    access: RefCell<AccessRules>,
    endpoints: RefCell<Endpoints>,
    /// The notes of sessions upstream, so that no death of ours forgets them.
    notes: RefCell<BTreeMap<u64, LockedNote>>,
    connections: Connections,
    journal: Journal,
}

/// What is behind each path.
#[derive(Default)]
struct Endpoints {
    by_url: BTreeMap<String, Rc<Endpoint>>,
    by_number: BTreeMap<u64, Rc<Endpoint>>,
}

impl Front {
    /// A front with nothing open.
    pub fn new(paths: Paths, id: LinkId, limits: ServeLimits, access: AccessRules) -> Rc<Self> {
        descriptors::raise();
        Rc::new(Self {
            tasks: Tasks::default(),
            metrics: Metrics::default(),
            bell: Bell::default(),
            closing_bell: Bell::default(),
            core: RefCell::new(core::Front::new(limits.clone(), draw)),
            due: Cell::new(None),
            wakers: RefCell::default(),
            writers: RefCell::default(),
            limits: RefCell::new(limits),
            access: RefCell::new(access),
            endpoints: RefCell::default(),
            notes: RefCell::default(),
            connections: Connections::default(),
            journal: Journal::open(&paths, id),
            paths,
        })
    }

    /// Tells the machine something, and performs what comes of it.
    pub fn with<T>(self: &Rc<Self>, tell: impl FnOnce(&mut core::Front, Moment) -> T) -> T {
        let told = tell(&mut self.core.borrow_mut(), clock::now());
        self.perform();
        told
    }

    fn perform(self: &Rc<Self>) {
        loop {
            let next = self.core.borrow_mut().next_output();
            let Some(output) = next else { break };
            match output {
                Output::Start { link, path } => self.start(link, path),
                Output::Write(link) => {
                    if let Some(writer) = self.writers.borrow().get(&link) {
                        writer.ring();
                    }
                }
                Output::Wake(exchange) => {
                    let waker = self.wakers.borrow_mut().remove(&exchange);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                Output::Began { session, path } => {
                    count(&self.metrics.opened);
                    let began = What::ClientSessionOpened(ClientSessionOpened { session });
                    self.record(&self.server_at(path), began);
                }
                Output::Over(ended) => self.over(&ended),
                Output::EndUpstream {
                    session,
                    path,
                    must_close,
                } => self.end_upstream(session, path, must_close),
                Output::Count(counted) => self.metrics.counted(counted),
                Output::CloseConnections => {
                    self.closing_bell.ring();
                    self.bell.ring();
                }
            }
        }
        let due = self.core.borrow().wake_at();
        if due.is_some_and(|due| self.due.get().is_none_or(|told| due < told)) {
            self.due.set(due);
            self.bell.ring();
        }
    }

    fn start(self: &Rc<Self>, link: u64, path: u64) {
        let endpoint = self.endpoint_of(path);
        let started = match &endpoint {
            Some(endpoint) => link::open(self, link, &endpoint.spec),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        match started {
            Ok(bell) => {
                self.writers.borrow_mut().insert(link, bell);
                self.with(|core, now| core.started(now, link));
            }
            Err(error) => {
                let why = error.to_string();
                self.with(|core, now| core.start_failed(now, link, &why));
            }
        }
    }

    /// A link has ended, and how.
    pub fn end_link(self: &Rc<Self>, link: u64, how: &str) {
        self.with(|core, now| core.link_over(now, link, how));
        self.writers.borrow_mut().remove(&link);
        self.bell.ring();
    }

    /// What is to be written to a link next.
    pub fn next_line(&self, link: u64) -> NextLine {
        self.core.borrow_mut().next_line(link)
    }

    /// An exchange is waited for by this task.
    pub fn wake_by(&self, exchange: u64, waker: &Waker) {
        self.wakers.borrow_mut().insert(exchange, waker.clone());
    }

    /// The client of an exchange has left.
    pub fn forget_waker(&self, exchange: u64) {
        self.wakers.borrow_mut().remove(&exchange);
    }

    /// Tells the machine the time; how long until the next time.
    pub fn tick(self: &Rc<Self>) -> Option<Duration> {
        self.due.set(None);
        self.with(core::Front::tick);
        let due = self.core.borrow().wake_at();
        self.due.set(due);
        due.map(|due| Duration::from_nanos(due - clock::now()))
    }

    /// What holds from now on.
    pub fn settle(
        self: &Rc<Self>,
        limits: ServeLimits,
        access: AccessRules,
        by_url: BTreeMap<String, Rc<Endpoint>>,
    ) {
        self.with(|core, _| core.limit(limits.clone()));
        self.limits.replace(limits);
        self.access.replace(access);
        let mut endpoints = self.endpoints.borrow_mut();
        let numbered = by_url.values().map(|one| (one.number, Rc::clone(one)));
        endpoints.by_number.extend(numbered);
        endpoints.by_url = by_url;
        drop(endpoints);
        self.bell.ring();
    }

    /// Our name and link in events and notes.
    pub fn id(&self) -> LinkId {
        self.journal.id()
    }

    /// The limits in force.
    pub fn limits(&self) -> ServeLimits {
        self.limits.borrow().clone()
    }

    /// Which clients may connect.
    pub fn access(&self) -> std::cell::Ref<'_, AccessRules> {
        self.access.borrow()
    }

    /// What is behind a path.
    pub fn endpoint(&self, path: &str) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().by_url.get(path).cloned()
    }

    /// What is behind the path with this number.
    pub fn endpoint_of(&self, path: u64) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().by_number.get(&path).cloned()
    }

    /// Everything that is behind some path.
    pub fn endpoints(&self) -> BTreeMap<String, Rc<Endpoint>> {
        self.endpoints.borrow().by_url.clone()
    }

    fn server_at(&self, path: u64) -> String {
        let endpoints = self.endpoints.borrow();
        let endpoint = endpoints.by_number.get(&path);
        endpoint.map_or_else(String::new, |endpoint| endpoint.spec.name.clone())
    }

    /// Writes an event.
    pub fn record(&self, server: &str, what: What) {
        self.journal.record(server, what);
    }

    /// Counts how often servers of ours were started again.
    pub fn count_restarts(&self) {
        let restarts = &self.metrics.restarts;
        restarts.set(restarts.get() + self.journal.restarts());
    }

    /// True if no session is opened any more.
    pub fn leaving(&self) -> bool {
        self.core.borrow().is_leaving()
    }

    /// True if no request is taken any more.
    pub fn stopping(&self) -> bool {
        self.core.borrow().is_stopping()
    }

    /// From now on no session is opened, and after the delay no request is taken; connections end when everything is answered, or the time for
    /// it is up.
    pub fn stop(self: &Rc<Self>, delay_ms: u64) {
        self.with(|core, now| core.stop(now, delay_ms));
        self.bell.ring();
    }

    /// True if connections must end.
    pub fn closing(&self) -> bool {
        self.core.borrow().is_closing()
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> usize {
        self.core.borrow().open_sessions()
    }

    /// Links that have not ended.
    pub fn links(&self) -> usize {
        self.core.borrow().links()
    }

    /// Sessions upstream that are still to be ended.
    pub fn unclosed(&self) -> usize {
        self.core.borrow().unclosed()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A connection came; it leaves with the seat. None if there are too many of its kind.
    pub fn connect(self: &Rc<Self>, standing: Standing) -> Option<Seat> {
        let most = self.limits.borrow().connections_max;
        if !self.connections.enter(standing, most) {
            return None;
        }
        count(&self.metrics.connections);
        let front = Rc::downgrade(self);
        Some(Seat::new(move || {
            if let Some(front) = front.upgrade() {
                front.connections.leave(standing);
                front.bell.ring();
            }
        }))
    }

    /// Gives memory back when most connections of a crowd are gone.
    pub fn give_back(&self) {
        if self.connections.crowd_has_left() {
            self.tasks.forget_done();
            memory::trim();
        }
    }

    /// True if this refused user was not reported before.
    pub fn is_news(&self, user: Owner) -> bool {
        self.connections.is_news(user)
    }

    /// A session upstream was written down; none if it could not be.
    pub fn keep_note(&self, session: u64, note: Option<LockedNote>) {
        if let Some(note) = note {
            self.notes.borrow_mut().insert(session, note);
        }
    }

    /// A session upstream is over here. If it must still be closed, DELETE is sent.
    fn end_upstream(self: &Rc<Self>, session: u64, path: u64, must_close: bool) {
        let note = self.notes.borrow_mut().remove(&session);
        if must_close {
            let end = upstream::end(Rc::clone(self), session, path, note);
            self.tasks.start(end);
        } else if let Some(note) = note {
            drop(note.remove());
        }
    }

    fn over(&self, ended: &Ended) {
        self.metrics.closed(ended.why);
        let over = ClientSessionClosed {
            session: ended.session,
            why: ended.why,
            ms: clock::now().ms_since(ended.since),
            requests: ended.requests,
        };
        self.record(&self.server_at(ended.path), What::ClientSessionClosed(over));
    }
}
