//! What the front writes into the ledger, and what it reads there about servers of its own.

use std::cell::RefCell;
use std::ops::ControlFlow;

use mainstay_os::identity;
use mainstay_protocol::event::What;
use mainstay_protocol::ids::LinkId;
use mainstay_store::ledger::append::Ledger;
use mainstay_store::ledger::read::Events;
use mainstay_store::paths::Paths;

/// The ledger, as the front uses it.
pub struct Journal {
    id: LinkId,
    ledger: RefCell<Ledger>,
    /// What keepers have written since the front started.
    news: RefCell<Events>,
}

impl Journal {
    /// Events are written under this id, and read from now on.
    pub fn open(paths: &Paths, id: LinkId) -> Self {
        Self {
            id,
            ledger: RefCell::new(Ledger::open(paths)),
            news: RefCell::new(Events::from_now(paths)),
        }
    }

    /// The id of the front in events and notes.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// Writes an event.
    pub fn record(&self, server: &str, what: What) {
        self.ledger.borrow_mut().record(self.id, server, what);
    }

    /// How often servers of ours were started again since the last call. The ledger is asked, because a link that has ended took
    /// its card along. What cannot be read is not counted.
    pub fn restarts(&self) -> u64 {
        let Ok(me) = identity::me() else {
            return 0;
        };
        let mut restarts = 0;
        let read = self.news.borrow_mut().read::<()>(|event, _| {
            if let What::Start(start) = &event.what
                && start.generation > 1
                && start.client.as_ref().is_some_and(|client| client.who == me)
            {
                restarts += 1;
            }
            ControlFlow::Continue(())
        });
        drop(read);
        restarts
    }
}
