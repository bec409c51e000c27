//! What is behind one path: how its server is started, and what is known of it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use mainstay_core::clock::Moment;

use super::joint::Joint;
use super::link::Spec;
use super::modern::Modern;
use super::upstream::Upstream;
use crate::config::ServerConfig;

/// One path.
pub struct Endpoint {
    /// `/mcp`, or `/NAME/mcp`.
    pub path: String,
    /// What is started.
    pub spec: Spec,
    /// The server that is passed on to, instead of one that is started.
    pub upstream: Option<Rc<Upstream>>,
    /// What the config file says about it: another text is another server.
    pub config: ServerConfig,
    /// Whether its sessions of the legacy era share one server.
    pub share: bool,
    /// That one, while there is one.
    pub joint: RefCell<Weak<Joint>>,
    /// The server for everybody of the modern era, if it has been started.
    pub modern: RefCell<Option<Rc<Modern>>>,
    /// When the server was found to be of the legacy era.
    pub legacy: Cell<Option<Moment>>,
    /// It is not in the config file any more: sessions go on, new ones are refused.
    pub retired: Cell<bool>,
}

impl Endpoint {
    /// A path that nobody has asked for yet.
    pub fn new(
        path: String,
        spec: Spec,
        config: ServerConfig,
        share: bool,
        upstream: Option<Rc<Upstream>>,
    ) -> Self {
        Self {
            path,
            spec,
            upstream,
            config,
            share,
            joint: RefCell::default(),
            modern: RefCell::default(),
            legacy: Cell::new(None),
            retired: Cell::new(false),
        }
    }

    /// Nothing new is started here; what is in flight goes on.
    pub fn retire(&self) {
        self.retired.set(true);
        if let Some(modern) = self.modern.borrow_mut().take() {
            modern.retire();
        }
    }
}
