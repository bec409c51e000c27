//! The connections that are open: how many there may be, and which refused users were told of.

use std::cell::{Cell, RefCell};

use super::http::Owner;

/// How many refused users are reported on stderr.
const TOLD_MAX: usize = 16;
/// Connections of refused users that get an answer at a time.
const REFUSED_MAX: usize = 64;
/// After this many connections it is worth to give memory back. It is small because a crowd leaves in parts: after three
/// quarters of it are gone and their memory is given back, the last quarter is a crowd too.
const CROWD: usize = 16;

/// Whether the user of a connection may ask, when the connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may ask.
    Admitted,
    /// It may not: it gets a reply that says so.
    Refused,
}

/// The connections that are open.
#[derive(Debug, Default)]
pub struct Connections {
    admitted: Cell<usize>,
    /// Those of refused users. They take no place of the others.
    refused: Cell<usize>,
    /// The most since memory was given back.
    crowd: Cell<usize>,
    /// The refused users that were told of.
    told: RefCell<Vec<Owner>>,
}

impl Connections {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.admitted.get() + self.refused.get()
    }

    /// A connection came; false if there are too many of its kind, and it is not counted.
    pub fn enter(&self, standing: Standing, admitted_max: u64) -> bool {
        let most = match standing {
            Standing::Admitted => admitted_max,
            Standing::Refused => REFUSED_MAX as u64,
        };
        let count = self.count(standing);
        if count.get() as u64 >= most {
            return false;
        }
        count.set(count.get() + 1);
        self.crowd.set(self.crowd.get().max(self.len()));
        true
    }

    /// A connection that was counted has ended.
    pub fn leave(&self, standing: Standing) {
        let count = self.count(standing);
        count.set(count.get() - 1);
    }

    /// True, once, if most connections of a crowd are gone, so that memory should be given back.
    pub fn crowd_has_left(&self) -> bool {
        let (crowd, left) = (self.crowd.get(), self.len());
        let gone = crowd >= CROWD && left <= crowd / 4;
        if gone {
            self.crowd.set(left);
        }
        gone
    }

    /// True if this refused user was not reported before, so that repeated attempts do not fill the log.
    pub fn is_news(&self, user: Owner) -> bool {
        let mut told = self.told.borrow_mut();
        let news = told.len() < TOLD_MAX && !told.contains(&user);
        if news {
            told.push(user);
        }
        news
    }

    fn count(&self, standing: Standing) -> &Cell<usize> {
        match standing {
            Standing::Admitted => &self.admitted,
            Standing::Refused => &self.refused,
        }
    }
}
