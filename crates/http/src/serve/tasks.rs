//! The one place of the front that starts tasks: each has an owner that ends it.

use std::cell::RefCell;
use std::future::Future;

use tokio::task::JoinSet;

/// All tasks of the one thread. Dropping it ends them.
#[derive(Debug, Default)]
pub struct Tasks(RefCell<JoinSet<()>>);

impl Tasks {
    /// Starts one; it runs until it is done or all of this is dropped.
    pub fn start(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().spawn_local(task);
        // Those that are done are taken out whenever one is added.
        self.forget_done();
    }

    /// Frees what tasks that are done have left.
    pub fn forget_done(&self) {
        let mut set = self.0.borrow_mut();
        while set.try_join_next().is_some() {}
    }

    /// Ends all of them.
    pub fn end(&self) {
        self.0.borrow_mut().abort_all();
    }
}
