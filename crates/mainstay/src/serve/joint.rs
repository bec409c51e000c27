//! One server of the legacy era for every session of a configuration, where the user allows it.
//!
//! It is opened once, by us, and lives as long as somebody has a [`Place`] with it. A session behind a place is a
//! session like any other: its ids come back as it sent them, and its streams are its own affair.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use mainstay_core::serve::joint::{self, Greeting, To};
use mainstay_core::serve::posted::Posted;

use super::bell::Slot;
use super::draw;
use super::front::Front;
use super::link::{Link, Said};
use super::metrics::count;
use super::session::Session;

/// A server for many sessions.
pub struct Joint {
    link: Rc<Link>,
    table: RefCell<joint::Joint>,
    sessions: RefCell<BTreeMap<u64, Weak<Session>>>,
    /// What the server said of itself; none if it could not be opened.
    greeting: Slot<Option<Rc<Greeting>>>,
    front: Weak<Front>,
    next: Cell<u64>,
    /// It takes nobody any more.
    over: Cell<bool>,
}

impl Joint {
    /// A server whose link has just been started; it is opened.
    pub fn new(link: Rc<Link>, front: Weak<Front>) -> Self {
        let mut table = joint::Joint::new(draw);
        link.send(table.open(env!("CARGO_PKG_VERSION")));
        Self {
            link,
            table: RefCell::new(table),
            sessions: RefCell::default(),
            greeting: Slot::default(),
            front,
            next: Cell::new(0),
            over: Cell::new(false),
        }
    }

    /// Whether it takes nobody any more.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Takes part in it.
    pub fn join(self: &Rc<Self>) -> Place {
        let number = self.next.replace(self.next.get() + 1);
        self.table.borrow_mut().join(number);
        Place {
            joint: Rc::clone(self),
            number,
        }
    }

    /// What the link says.
    pub fn hear(&self, front: &Rc<Front>, said: Said) {
        match said {
            Said::Line(line) => {
                let out = self.table.borrow_mut().heard(&line);
                if out.is_empty() {
                    count(&front.metrics.stray_lines);
                }
                let greeting = self.table.borrow().greeting().map(Option::<&_>::cloned);
                if let Some(greeting) = greeting {
                    self.over.set(self.over.get() || greeting.is_none());
                    self.greeting.fill(greeting.map(Rc::new));
                }
                self.pass(out);
            }
            Said::Over(how) => {
                self.over.set(true);
                self.greeting.fill(None);
                let sessions = std::mem::take(&mut *self.sessions.borrow_mut());
                for session in sessions.into_values().filter_map(|one| one.upgrade()) {
                    session.hear(front, Said::Over(how.clone()));
                }
            }
        }
    }

    fn pass(&self, out: Vec<To>) {
        let Some(front) = self.front.upgrade() else {
            return;
        };
        for to in out {
            match to {
                To::Server(line) => self.link.send(line),
                To::Session(number, line) => {
                    let session = self.sessions.borrow().get(&number).and_then(Weak::upgrade);
                    if let Some(session) = session {
                        session.hear(&front, Said::Line(line));
                    }
                }
            }
        }
    }
}

/// A part in a shared server. Whoever drops it leaves; with the last one the server ends.
pub struct Place {
    joint: Rc<Joint>,
    number: u64,
}

impl Place {
    /// What the server said of itself when it was opened; none if it cannot be shared (any more).
    pub async fn greeting(&self) -> Option<Rc<Greeting>> {
        let greeting = self.joint.greeting.filled().await;
        greeting.filter(|_| !self.joint.is_over())
    }

    /// Whose part it is: lines go there from now on.
    pub fn give(&self, session: &Rc<Session>) {
        let mut sessions = self.joint.sessions.borrow_mut();
        sessions.insert(self.number, Rc::downgrade(session));
    }

    /// Passes a message on.
    pub fn send(&self, posted: &Posted<'_>, line: &[u8]) {
        let out = self
            .joint
            .table
            .borrow_mut()
            .said(self.number, posted, line);
        self.joint.pass(out);
    }

    /// Requests of everybody that are not answered.
    pub fn in_flight(&self) -> usize {
        self.joint.table.borrow().in_flight()
    }

    /// The way to the server.
    pub fn link(&self) -> &Link {
        &self.joint.link
    }

    /// Leaves: what is in flight is cancelled at the server, which goes on for the others.
    pub fn leave(&self) {
        self.joint.sessions.borrow_mut().remove(&self.number);
        let out = self.joint.table.borrow_mut().leave(self.number);
        self.joint.pass(out);
        if self.joint.table.borrow().is_empty() {
            self.joint.over.set(true);
            self.joint.link.close();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
