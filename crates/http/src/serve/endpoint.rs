//! What is behind one path: how its server is started.

use std::cell::Cell;
use std::rc::Rc;

use mainstay_store::config::ServerConfig;

use super::front::Front;
use super::link::Spec;
use super::upstream::Upstream;

/// One path.
pub struct Endpoint {
    /// Its number in the machine.
    pub number: u64,
    /// What is started.
    pub spec: Spec,
    /// The server that is passed on to, instead of one that is started.
    pub upstream: Option<Rc<Upstream>>,
    /// Its text in the config file: another text means another server.
    pub config: ServerConfig,
    /// It was removed from the config file: sessions go on, new ones are refused.
    pub retired: Cell<bool>,
}

impl Endpoint {
    /// Nothing new is started here; what is in flight goes on.
    pub fn retire(&self, front: &Rc<Front>) {
        self.retired.set(true);
        front.with(|core, now| core.retire(now, self.number));
    }
}
