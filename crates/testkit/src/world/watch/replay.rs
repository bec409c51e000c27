//! What the next generation must be told before the client's traffic reaches it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::outside::{Halt, broken};
use super::super::said::Said;

/// What a server of this session should know by now. Where that is uncertain, all that it may be.
#[derive(Clone, Debug)]
pub struct Known {
    /// The client has the answer to its opening, and the link knows it.
    pub greeted: bool,
    /// The client has said so.
    pub initialized: bool,
    levels: BTreeSet<Option<String>>,
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
    /// It was told that the client is initialized.
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
            subscriptions: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }
}

impl Known {
    /// The client asks for something that is to last.
    pub fn client_asks(&mut self, said: &Said) {
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
    pub fn answered(&mut self, id: &str, said: &Said, cancelled: bool) {
        if cancelled {
            // What became of it is uncertain for ever.
            return;
        }
        let wish = self.asked.remove(id);
        if !said.is_success() || said.by().is_none() {
            return;
        }
        match wish {
            Some(Wish::Level(level)) => {
                self.levels = [Some(level)].into();
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

    /// The client is gone: nothing that it wanted to be told of lasts, but the level does.
    pub fn client_leaves(&mut self) {
        self.asked.clear();
        for may_be in self.subscriptions.values_mut() {
            *may_be = [false].into();
        }
    }

    /// A client opens anew: what an earlier one wanted is forgotten, what this one has asked for already is not.
    pub fn opens_anew(&mut self) {
        let mut known = Self {
            asked: std::mem::take(&mut self.asked),
            ..Self::default()
        };
        for wish in known.asked.values() {
            match wish {
                Wish::Level(level) => {
                    known.levels.insert(Some(level.clone()));
                }
                Wish::Subscription(uri, on) => {
                    let may_be = known.subscriptions.entry(uri.clone());
                    may_be.or_insert_with(|| [false].into()).insert(*on);
                }
            }
        }
        *self = known;
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
    pub fn ours(&mut self, said: &Said) -> Result<(), Halt> {
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

    /// The first of the client's own traffic: all must be known by now.
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
