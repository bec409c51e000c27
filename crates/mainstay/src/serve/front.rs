//! The front itself: what is open, who may use it, and how each of it ends.
//!
//! Everything here is of one thread. A session has one end, [`Front::end_session`], whoever asks for it. `start` is how
//! sessions and servers begin.

mod start;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use mainstay_core::clock::Moment;
use mainstay_core::event::{SessionBegan, SessionOver, What};
use mainstay_core::ids::LinkId;
use mainstay_core::serve::door::Door;
use mainstay_core::serve::limits::ServeLimits;
use mainstay_core::serve::sessions::{Full, Over, Sessions};
use mainstay_os::descriptors;
use mainstay_os::{clock, identity, memory};

use super::bell::Bell;
use super::endpoint::Endpoint;
use super::http::Owner;
use super::metrics::{Metrics, count};
use super::modern::Modern;
use super::reply::Refusal;
use super::session::Session;
use super::stream::Seat;
use super::tasks::Tasks;
use super::upstream::{Far, Upstream};
use crate::ledger::append::Ledger;
use crate::ledger::read::Events;
use crate::paths::Paths;
use crate::report::talk;

/// How many are told of for being turned away.
const STRANGERS_MAX: usize = 16;
/// Connections of refused users that are told why at a time.
const REFUSED_MAX: usize = 64;
/// This many connections leave memory behind that is worth giving back. Small, because a crowd leaves in parts: after three
/// quarters of it are gone and their memory is given back, the last quarter is a crowd too.
const CROWD: usize = 16;

/// How the user of a connection stands with the door when the connection is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may ask.
    Admitted,
    /// It is told that it may not.
    Refused,
}

/// The front.
pub struct Front {
    /// Everything that goes on.
    pub tasks: Tasks,
    /// What is counted.
    pub metrics: Metrics,
    /// Where things are.
    pub paths: Paths,
    /// Rings when a session may end sooner than expected, when a link has ended, when we stop.
    pub bell: Rc<Bell>,
    /// Rings once, when connections are to end: thousands may wait for it, and nothing else wakes them.
    pub last_orders: Bell,
    limits: RefCell<ServeLimits>,
    door: RefCell<Door>,
    endpoints: RefCell<BTreeMap<String, Rc<Endpoint>>>,
    table: RefCell<Sessions>,
    by_id: RefCell<BTreeMap<String, Rc<Session>>>,
    by_key: RefCell<BTreeMap<u64, Rc<Session>>>,
    far: RefCell<BTreeMap<u64, Far>>,
    /// Servers of the modern era that may still have something in flight.
    moderns: RefCell<Vec<Rc<Modern>>>,
    links: Cell<usize>,
    connections: Cell<usize>,
    /// Connections of refused users; they are no part of the others.
    refused: Cell<usize>,
    /// The most connections since memory was given back.
    crowd: Cell<usize>,
    /// Who was told of for being turned away.
    strangers: RefCell<Vec<Owner>>,
    stopping: Cell<bool>,
    closing: Cell<bool>,
    ledger: RefCell<Ledger>,
    /// What keepers have written down since we started.
    told: RefCell<Events>,
    id: LinkId,
}

impl Front {
    /// A front with nothing open.
    pub fn new(paths: Paths, id: LinkId, limits: ServeLimits, door: Door) -> Rc<Self> {
        descriptors::raise();
        Rc::new(Self {
            tasks: Tasks::default(),
            metrics: Metrics::default(),
            bell: Rc::default(),
            last_orders: Bell::default(),
            table: RefCell::new(Sessions::new(
                limits.session_ttl_ms,
                limits.session_cap as usize,
            )),
            limits: RefCell::new(limits),
            door: RefCell::new(door),
            endpoints: RefCell::default(),
            by_id: RefCell::default(),
            by_key: RefCell::default(),
            far: RefCell::default(),
            moderns: RefCell::default(),
            links: Cell::new(0),
            connections: Cell::new(0),
            refused: Cell::new(0),
            crowd: Cell::new(0),
            strangers: RefCell::default(),
            stopping: Cell::new(false),
            closing: Cell::new(false),
            ledger: RefCell::new(Ledger::open(&paths)),
            told: RefCell::new(Events::from_now(&paths)),
            paths,
            id,
        })
    }

    /// What holds from now on.
    pub fn settle(
        &self,
        limits: ServeLimits,
        door: Door,
        endpoints: BTreeMap<String, Rc<Endpoint>>,
    ) {
        self.table
            .borrow_mut()
            .limit(limits.session_ttl_ms, limits.session_cap as usize);
        self.limits.replace(limits);
        self.door.replace(door);
        self.endpoints.replace(endpoints);
        self.bell.ring();
    }

    /// Who we are in events and notes.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The limits in force.
    pub fn limits(&self) -> ServeLimits {
        self.limits.borrow().clone()
    }

    /// How often a silent stream gets a comment.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.limits.borrow().sse_keep_alive_ms)
    }

    /// Who may come in.
    pub fn door(&self) -> std::cell::Ref<'_, Door> {
        self.door.borrow()
    }

    /// What is behind a path.
    pub fn endpoint(&self, path: &str) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().get(path).cloned()
    }

    /// Everything that is behind some path.
    pub fn endpoints(&self) -> BTreeMap<String, Rc<Endpoint>> {
        self.endpoints.borrow().clone()
    }

    /// Writes an event.
    pub fn record(&self, server: &str, what: What) {
        self.ledger.borrow_mut().record(self.id, server, what);
    }

    /// Looks up how often servers of ours were started again: a link that has ended took its card along, but what it
    /// wrote down is there. What cannot be read is not counted.
    pub fn count_restarts(&self) {
        let Ok(me) = identity::me() else {
            return;
        };
        let restarts = &self.metrics.restarts;
        let read = self.told.borrow_mut().read::<()>(|event, _| {
            if let What::Start(start) = &event.what
                && start.generation > 1
                && start.client.as_ref().is_some_and(|client| client.who == me)
            {
                count(restarts);
            }
            ControlFlow::Continue(())
        });
        drop(read);
    }

    /// Whether we are on our way out.
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }

    /// From now on nothing new is taken.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.bell.ring();
    }

    /// Whether connections are to end.
    pub fn closing(&self) -> bool {
        self.closing.get()
    }

    /// From now on connections end as soon as they have sent what they have.
    pub fn close(&self) {
        self.closing.set(true);
        self.last_orders.ring();
        self.bell.ring();
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> usize {
        self.table.borrow().len()
    }

    /// Links that have not ended.
    pub fn links(&self) -> usize {
        self.links.get()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.get() + self.refused.get()
    }

    /// A connection came; it leaves with the seat. None if there are too many of its kind.
    pub fn connect(self: &Rc<Self>, standing: Standing) -> Option<Seat> {
        let most = match standing {
            Standing::Admitted => self.limits.borrow().connections_max,
            Standing::Refused => REFUSED_MAX as u64,
        };
        let seats = self.seats(standing);
        if seats.get() as u64 >= most {
            return None;
        }
        seats.set(seats.get() + 1);
        self.crowd.set(self.crowd.get().max(self.connections()));
        count(&self.metrics.connections);
        let front = Rc::downgrade(self);
        Some(Seat::new(move || {
            if let Some(front) = front.upgrade() {
                let seats = front.seats(standing);
                seats.set(seats.get() - 1);
                front.bell.ring();
            }
        }))
    }

    fn seats(&self, standing: Standing) -> &Cell<usize> {
        match standing {
            Standing::Admitted => &self.connections,
            Standing::Refused => &self.refused,
        }
    }

    /// Gives memory back when most connections of a crowd are gone.
    pub fn give_back(&self) {
        let (crowd, left) = (self.crowd.get(), self.connections());
        if crowd >= CROWD && left <= crowd / 4 {
            self.crowd.set(left);
            self.tasks.forget_done();
            memory::trim();
        }
    }

    /// Whether it has not been told yet that such a one was turned away. Who comes again and again fills no log.
    pub fn is_news(&self, stranger: Owner) -> bool {
        let mut told = self.strangers.borrow_mut();
        let news = told.len() < STRANGERS_MAX && !told.contains(&stranger);
        if news {
            told.push(stranger);
        }
        news
    }

    /// The session with this name on this path.
    pub fn session(&self, id: &str, path: &str) -> Option<Rc<Session>> {
        let found = self.by_id.borrow().get(id).cloned();
        found.filter(|session| session.path == path)
    }

    /// A place for a session, with its first connection there.
    pub fn reserve(self: &Rc<Self>) -> Result<u64, Refusal> {
        let opened = self.table.borrow_mut().open(clock::now());
        let (key, evicted) = opened.map_err(|Full| {
            Refusal::later(
                StatusCode::SERVICE_UNAVAILABLE,
                "every session is in use; end one, or raise --session-cap",
            )
        })?;
        for one in evicted {
            self.end_session(one, Over::Evicted);
        }
        Ok(key)
    }

    /// A place for a session that others have opened, if one is free: nobody makes room for it.
    pub fn reserve_beside(&self) -> Option<u64> {
        self.table.borrow_mut().open_beside(clock::now())
    }

    /// Nobody took the place.
    pub fn release(&self, key: u64) {
        self.table.borrow_mut().close(key);
    }

    /// A session upstream takes a place. The seat is that of its first connection.
    pub fn open_far(self: &Rc<Self>, far: Far) -> Seat {
        let key = far.key;
        count(&self.metrics.opened);
        self.record(
            &far.server,
            What::SessionBegan(SessionBegan { session: key }),
        );
        self.far.borrow_mut().insert(key, far);
        self.leaving(key)
    }

    /// A request of a session upstream.
    pub fn far_request(&self, key: u64, headers: &HeaderMap) {
        if let Some(far) = self.far.borrow().get(&key) {
            far.asked(headers);
        }
    }

    /// What a server upstream has said to a request of a session: whether that is said to the one whose session it is.
    pub fn far_answered(&self, key: u64, headers: &HeaderMap, taken: bool) -> bool {
        let all = self.far.borrow();
        let Some(far) = all.get(&key) else {
            return true;
        };
        if taken {
            far.taken(headers);
        }
        far.is_of(headers)
    }

    /// Ends a session upstream. Where its server does not know of it yet, it is told.
    fn end_far(self: &Rc<Self>, far: Far, why: Over) {
        far.forget();
        self.over(&far.server, far.key, why, far.since, far.requests.get());
        let known = match why {
            Over::Deleted | Over::ServerGone => true,
            Over::Idle | Over::Evicted | Over::OpeningFailed | Over::Shutdown => false,
        };
        if known {
            return far.strike_out();
        }
        // It counts from here on, and not from when the task gets its turn: a stop waits for it.
        let owed = far.owe();
        let front = Rc::downgrade(self);
        self.tasks.start(async move {
            match far.pay().await {
                Ok(()) => far.strike_out(),
                // It stays written down: the next start of any command tries again.
                Err(why) => talk(&format!(
                    "warning: a session of {} could not be ended now: {why}\n",
                    far.server
                )),
            }
            drop((far, owed));
            if let Some(front) = front.upgrade() {
                front.bell.ring();
            }
        });
    }

    fn over(&self, server: &str, session: u64, why: Over, since: Moment, requests: u64) {
        self.metrics.closed(why);
        let over = SessionOver {
            session,
            why,
            ms: clock::now().ms_since(since),
            requests,
        };
        self.record(server, What::SessionOver(over));
    }

    /// Sessions upstream that are still to be ended.
    pub fn owed(&self) -> usize {
        self.upstreams(Upstream::owed)
    }

    /// Requests that servers upstream have not answered.
    pub fn passing(&self) -> usize {
        self.upstreams(Upstream::in_flight)
    }

    fn upstreams(&self, count: impl Fn(&Upstream) -> usize) -> usize {
        let endpoints = self.endpoints.borrow();
        let all = endpoints.values().filter_map(|one| one.upstream.as_ref());
        all.map(|one| count(one)).sum()
    }

    /// The numbers of all sessions.
    pub fn keys(&self) -> Vec<u64> {
        let own = self.by_key.borrow();
        let far = self.far.borrow();
        own.keys().chain(far.keys()).copied().collect()
    }

    /// Ends a session: whatever is in flight is answered, its server is told that its client is gone.
    pub fn end_session(self: &Rc<Self>, key: u64, why: Over) {
        self.table.borrow_mut().close(key);
        let far = self.far.borrow_mut().remove(&key);
        if let Some(far) = far {
            return self.end_far(far, why);
        }
        let Some(session) = self.by_key.borrow_mut().remove(&key) else {
            return;
        };
        self.by_id.borrow_mut().remove(&session.id);
        session.settle(self, &format!("the session is over: {why}"));
        session.behind.close();
        let requests = session.requests.get();
        self.over(&session.server, key, why, session.since, requests);
    }

    /// Another connection of a session's client; it leaves with the seat.
    pub fn seat(self: &Rc<Self>, key: u64) -> Seat {
        self.table.borrow_mut().enter(key);
        self.leaving(key)
    }

    /// Ends what nobody has used for its whole time; when to look again.
    pub fn expire(self: &Rc<Self>) -> Option<Duration> {
        let now = clock::now();
        let over = self.table.borrow_mut().expire(now);
        for key in over {
            self.end_session(key, Over::Idle);
        }
        let ttl = self.limits.borrow().session_ttl_ms;
        let mut wake = self.table.borrow().wake();
        self.moderns.borrow_mut().retain(|modern| {
            if modern.is_over() {
                return modern.in_flight() > 0;
            }
            if let Some(since) = modern.unused_since() {
                let end = since.after_ms(ttl);
                if end <= now {
                    modern.end(self, "nobody used it for a while");
                    return false;
                }
                wake = Some(wake.map_or(end, |wake| wake.min(end)));
            } else {
                // Somebody uses it; nothing tells when that ends, so it is looked at again.
                let later = now.after_ms(ttl);
                wake = Some(wake.map_or(later, |wake| wake.min(later)));
            }
            true
        });
        wake.map(|wake| Duration::from_nanos(wake - now))
    }

    /// Every server for many that has not ended.
    pub fn moderns(&self) -> Vec<Rc<Modern>> {
        self.moderns.borrow().clone()
    }

    /// Every open session.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        self.by_key.borrow().values().cloned().collect()
    }

    fn leaving(self: &Rc<Self>, key: u64) -> Seat {
        let front = Rc::downgrade(self);
        Seat::new(move || {
            let Some(front) = front.upgrade() else {
                return;
            };
            let mut table = front.table.borrow_mut();
            let slept = table.wake().is_none();
            table.leave(clock::now(), key);
            drop(table);
            // Later ends than the one that is waited for need no waking.
            if slept || front.stopping() {
                front.bell.ring();
            }
        })
    }
}
