//! What the next generation must be told before the client's traffic reaches it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::message::Message;
use super::super::outside::{Halt, broken};

/// What a server of this session must know by now. If that is uncertain, all values that are possible.
#[derive(Clone, Debug)]
pub struct Known {
    /// The client has the answer to its opening, and the link knows it.
    pub greeted: bool,
    /// The client has sent `initialized`.
    pub initialized: bool,
    levels: BTreeSet<Option<String>>,
    /// The present client has set the level itself.
    own_level: bool,
    /// The subscriptions of the present client. Those of earlier clients are cancelled when they leave.
    subscriptions: BTreeMap<String, BTreeSet<bool>>,
    asked: BTreeMap<String, Wish>,
}

#[derive(Clone, Debug)]
enum Wish {
    Level(String),
    Subscription(String, bool),
}

/// What a generation has been told so far.
#[derive(Debug, Default)]
pub struct Met {
    expected: Option<Known>,
    opening: bool,
    /// It got `initialized`.
    pub initialized: bool,
    level: Option<String>,
    subscriptions: BTreeSet<String>,
    checked: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            greeted: false,
            initialized: false,
            levels: [None].into(),
            own_level: false,
            subscriptions: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }
}

impl Known {
    /// The client asks for something that lasts.
    pub fn client_asks(&mut self, said: &Message) {
        let params = &said.value["params"];
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_string();
        let wish = match said.method.as_str() {
            "logging/setLevel" => {
                self.levels.insert(Some(text("level")));
                Wish::Level(text("level"))
            }
            "resources/subscribe" | "resources/unsubscribe" => {
                let on = said.method == "resources/subscribe";
                let known = self.subscriptions.entry(text("uri"));
                known.or_insert_with(|| [false].into()).insert(on);
                Wish::Subscription(text("uri"), on)
            }
            _ => return,
        };
        self.asked.insert(said.key(), wish);
    }

    /// The client gets an answer.
    pub fn answered(&mut self, id: &str, said: &Message, cancelled: bool) {
        if cancelled {
            // It is uncertain for ever whether it took effect.
            return;
        }
        let wish = self.asked.remove(id);
        if !said.is_success() || said.by().is_none() {
            return;
        }
        match wish {
            Some(Wish::Level(level)) => {
                self.levels = [Some(level)].into();
                self.own_level = true;
                for wish in self.asked.values() {
                    if let Wish::Level(other) = wish {
                        self.levels.insert(Some(other.clone()));
                    }
                }
            }
            Some(Wish::Subscription(uri, on)) => {
                let mut may_be = BTreeSet::from([on]);
                for wish in self.asked.values() {
                    if let Wish::Subscription(other, on) = wish
                        && *other == uri
                    {
                        may_be.insert(*on);
                    }
                }
                self.subscriptions.insert(uri, may_be);
            }
            None => {}
        }
    }

    /// The client is gone: its subscriptions end, but the level lasts.
    pub fn client_leaves(&mut self) {
        self.asked.clear();
        self.own_level = false;
        for may_be in self.subscriptions.values_mut() {
            *may_be = [false].into();
        }
    }

    /// A client opens again: the level of an earlier client is forgotten, but what this client has already asked for is not.
    pub fn opens_anew(&mut self) {
        self.greeted = false;
        self.initialized = false;
        self.forget_earlier_level();
    }

    /// Forgets the level that an earlier client has set.
    pub fn forget_earlier_level(&mut self) {
        if self.own_level {
            return;
        }
        self.levels = [None].into();
        for wish in self.asked.values() {
            if let Wish::Level(level) = wish {
                self.levels.insert(Some(level.clone()));
            }
        }
    }

    /// What a generation that is started now must be told.
    pub fn at_start(&self) -> Met {
        Met {
            expected: self.greeted.then(|| self.clone()),
            ..Met::default()
        }
    }
}

impl Met {
    /// Whether it was opened by us.
    pub fn greeted(&self) -> bool {
        self.opening
    }

    /// A request of ours.
    pub fn ours(&mut self, said: &Message) -> Result<(), Halt> {
        let params = &said.value["params"];
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_string();
        match said.method.as_str() {
            "initialize" => self.opening = true,
            "logging/setLevel" => self.level = Some(text("level")),
            "resources/subscribe" => {
                self.subscriptions.insert(text("uri"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The first line of the client's own traffic: the server must know everything by now.
    pub fn client_traffic(&mut self, method: &str) -> Result<(), Halt> {
        if std::mem::replace(&mut self.checked, true) {
            return Ok(());
        }
        let Some(expected) = &self.expected else {
            return Ok(());
        };
        if !self.opening {
            return broken(format!("too early, before the replayed opening: {method}"));
        }
        if expected.initialized && !self.initialized {
            return broken(format!("too early, before `initialized`: {method}"));
        }
        if !expected.levels.contains(&self.level) {
            let (is, levels) = (&self.level, &expected.levels);
            return broken(format!("the level is wrong: {is:?} instead of {levels:?}"));
        }
        for (uri, may_be) in &expected.subscriptions {
            if !may_be.contains(&self.subscriptions.contains(uri)) {
                return broken(format!("a subscription is wrong: {uri} is not {may_be:?}"));
            }
        }
        Ok(())
    }
}
