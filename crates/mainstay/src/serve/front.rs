//! The shell around the machine that decides (`mainstay_core::serve::front`): it performs outputs, and owns what no
//! decision depends on: the door, the ledger, connections, wakers, sessions upstream.
//!
//! Everything here is of one thread. [`Front::with`] is the one way to the machine, and performs what comes out of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use hyper::header::HeaderMap;
use mainstay_core::clock::Moment;
use mainstay_core::event::{SessionBegan, SessionOver, What};
use mainstay_core::ids::LinkId;
use mainstay_core::serve::door::Door;
use mainstay_core::serve::front::{self as core, Ended, Output};
use mainstay_core::serve::inlet::Next;
use mainstay_core::serve::limits::ServeLimits;
use mainstay_os::descriptors;
use mainstay_os::{clock, identity, memory};

use super::bell::Bell;
use super::endpoint::Endpoint;
use super::http::Owner;
use super::metrics::{Metrics, count};
use super::seat::Seat;
use super::tasks::Tasks;
use super::upstream::Far;
use super::{draw, link};
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
    /// Rings when something is due sooner than expected, when a link or a connection has ended, when we stop.
    pub bell: Bell,
    /// Rings once, when connections are to end: thousands may wait for it, and nothing else wakes them.
    pub last_orders: Bell,
    core: RefCell<core::Front>,
    /// When the machine is to be told the time.
    due: Cell<Option<Moment>>,
    /// The tasks that wait for exchanges.
    wakers: RefCell<BTreeMap<u64, Waker>>,
    /// The bells of the tasks that write to links.
    writers: RefCell<BTreeMap<u64, Rc<Bell>>>,
    limits: RefCell<ServeLimits>,
    door: RefCell<Door>,
    endpoints: RefCell<Endpoints>,
    far: RefCell<BTreeMap<u64, Far>>,
    connections: Connections,
    /// Who was told of for being turned away.
    strangers: RefCell<Vec<Owner>>,
    ledger: RefCell<Ledger>,
    /// What keepers have written down since we started.
    told: RefCell<Events>,
    id: LinkId,
}

/// What is behind each path.
#[derive(Default)]
struct Endpoints {
    by_url: BTreeMap<String, Rc<Endpoint>>,
    by_number: BTreeMap<u64, Rc<Endpoint>>,
}

/// Connections that are there.
#[derive(Debug, Default)]
struct Connections {
    admitted: Cell<usize>,
    /// Those of refused users; they are no part of the others.
    refused: Cell<usize>,
    /// The most since memory was given back.
    crowd: Cell<usize>,
}

impl Front {
    /// A front with nothing open.
    pub fn new(paths: Paths, id: LinkId, limits: ServeLimits, door: Door) -> Rc<Self> {
        descriptors::raise();
        Rc::new(Self {
            tasks: Tasks::default(),
            metrics: Metrics::default(),
            bell: Bell::default(),
            last_orders: Bell::default(),
            core: RefCell::new(core::Front::new(limits.clone(), draw)),
            due: Cell::new(None),
            wakers: RefCell::default(),
            writers: RefCell::default(),
            limits: RefCell::new(limits),
            door: RefCell::new(door),
            endpoints: RefCell::default(),
            far: RefCell::default(),
            connections: Connections::default(),
            strangers: RefCell::default(),
            ledger: RefCell::new(Ledger::open(&paths)),
            told: RefCell::new(Events::from_now(&paths)),
            paths,
            id,
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
                    let began = What::SessionBegan(SessionBegan { session });
                    self.record(&self.server_at(path), began);
                }
                Output::Over(ended) => self.over(&ended),
                Output::EndFar { session, owed } => self.end_far(session, owed),
                Output::Count(counted) => self.metrics.counted(counted),
                Output::LastOrders => {
                    self.last_orders.ring();
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
        let endpoint = self.endpoints.borrow().by_number.get(&path).cloned();
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
    pub fn next_line(&self, link: u64) -> Next {
        self.core.borrow_mut().next_line(link)
    }

    /// An exchange is waited for by this task.
    pub fn wake_by(&self, exchange: u64, waker: &Waker) {
        self.wakers.borrow_mut().insert(exchange, waker.clone());
    }

    /// An exchange is not waited for any more.
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
        door: Door,
        by_url: BTreeMap<String, Rc<Endpoint>>,
    ) {
        self.with(|core, _| core.limit(limits.clone()));
        self.limits.replace(limits);
        self.door.replace(door);
        let mut endpoints = self.endpoints.borrow_mut();
        let numbered = by_url.values().map(|one| (one.number, Rc::clone(one)));
        endpoints.by_number.extend(numbered);
        endpoints.by_url = by_url;
        drop(endpoints);
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

    /// Who may come in.
    pub fn door(&self) -> std::cell::Ref<'_, Door> {
        self.door.borrow()
    }

    /// What is behind a path.
    pub fn endpoint(&self, path: &str) -> Option<Rc<Endpoint>> {
        self.endpoints.borrow().by_url.get(path).cloned()
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
        self.core.borrow().is_stopping()
    }

    /// From now on nothing new is taken; connections end when everything is answered, or the time for it is up.
    pub fn stop(self: &Rc<Self>) {
        self.with(core::Front::stop);
        self.bell.ring();
    }

    /// Whether connections are to end.
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
    pub fn owed(&self) -> usize {
        self.core.borrow().owed()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.admitted.get() + self.connections.refused.get()
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
        let crowd = &self.connections.crowd;
        crowd.set(crowd.get().max(self.connections()));
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
            Standing::Admitted => &self.connections.admitted,
            Standing::Refused => &self.connections.refused,
        }
    }

    /// Gives memory back when most connections of a crowd are gone.
    pub fn give_back(&self) {
        let (crowd, left) = (self.connections.crowd.get(), self.connections());
        if crowd >= CROWD && left <= crowd / 4 {
            self.connections.crowd.set(left);
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

    /// A session upstream takes a place. The seat is that of its first connection.
    pub fn open_far(self: &Rc<Self>, far: Far) -> Seat {
        let (key, path) = (far.key, far.path);
        self.far.borrow_mut().insert(key, far);
        self.with(|core, now| core.begin_far(now, key, path));
        self.leaving(key)
    }

    /// A request of a session upstream.
    pub fn far_request(self: &Rc<Self>, key: u64, headers: &HeaderMap) {
        if let Some(far) = self.far.borrow().get(&key) {
            far.asked(headers);
        }
        self.with(|core, _| core.far_request(key));
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

    /// A session upstream is over here. Where its server does not know of it yet, it is told.
    fn end_far(self: &Rc<Self>, key: u64, owed: bool) {
        let Some(far) = self.far.borrow_mut().remove(&key) else {
            return;
        };
        far.forget();
        if !owed {
            return far.strike_out();
        }
        let front = Rc::clone(self);
        self.tasks.start(async move {
            match far.pay().await {
                Ok(()) => far.strike_out(),
                // It stays written down: the next start of any command tries again.
                Err(why) => talk(&format!(
                    "warning: a session of {} could not be ended now: {why}\n",
                    far.server
                )),
            }
            drop(far);
            front.with(|core, _| core.paid(key));
            front.bell.ring();
        });
    }

    fn over(&self, ended: &Ended) {
        self.metrics.closed(ended.why);
        let over = SessionOver {
            session: ended.session,
            why: ended.why,
            ms: clock::now().ms_since(ended.since),
            requests: ended.requests,
        };
        self.record(&self.server_at(ended.path), What::SessionOver(over));
    }

    /// Another connection of the client of a session upstream; it leaves with the seat.
    pub fn seat(self: &Rc<Self>, key: u64) -> Seat {
        self.with(|core, _| core.enter(key));
        self.leaving(key)
    }

    fn leaving(self: &Rc<Self>, key: u64) -> Seat {
        let front = Rc::downgrade(self);
        Seat::new(move || {
            if let Some(front) = front.upgrade() {
                front.with(|core, now| core.leave(now, key));
            }
        })
    }
}
