//! A config file as a tree of values with their places.
//!
//! The readers of all formats make the same tree, so that finding entries, planning and comparing exist once. It knows
//! nothing about clients. Duplicate keys are kept, in the order of the file.

use std::ops::Range;

/// One value and where it stands, in bytes from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// From its first to behind its last byte, quotes and brackets included.
    pub span: Range<usize>,
    /// The value.
    pub kind: Kind,
    /// What ties it to another place of the file, or changes how it is read.
    pub mark: Option<Mark>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text(String),
    /// A number, truth value, date or null, as it is written.
    Other(String),
    /// A list.
    List(List),
    /// A table (object, mapping).
    Table(Table),
}

/// A list with its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Its items in order.
    pub items: Vec<Node>,
    /// How it is written.
    pub style: Style,
}

/// A table with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its members; in TOML sorted by key, else in the order of the file.
    pub members: Vec<Member>,
    /// How it is written.
    pub style: Style,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key as the client reads it.
    pub key: String,
    /// Where the key stands, quotes included.
    pub key_span: Range<usize>,
    /// Its value.
    pub value: Node,
}

/// How a list or table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Between brackets, with commas.
    Brackets,
    /// One line for each member or item: YAML blocks, TOML tables.
    Lines,
}

/// What makes a YAML value more than its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has an anchor: other places of the file may repeat it.
    Anchor,
    /// It repeats another place of the file.
    Alias,
    /// It has a tag, which changes its type.
    Tag,
    /// It is written over several lines (`|`, `>` or folded).
    Lines,
}

/// A value without its place. Members are sorted by key, duplicates stay in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// Any other scalar, as it is written.
    Other(String),
    /// A list.
    List(Vec<Value>),
    /// A table.
    Table(Vec<(String, Value)>),
}

impl Node {
    /// Its text, if it is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Other(_) | Kind::List(_) | Kind::Table(_) => None,
        }
    }

    /// Itself as a list.
    pub fn list(&self) -> Option<&List> {
        match &self.kind {
            Kind::List(list) => Some(list),
            Kind::Other(_) | Kind::Text(_) | Kind::Table(_) => None,
        }
    }

    /// Itself as a table.
    pub fn table(&self) -> Option<&Table> {
        match &self.kind {
            Kind::Table(table) => Some(table),
            Kind::Other(_) | Kind::Text(_) | Kind::List(_) => None,
        }
    }

    /// The value alone.
    pub fn value(&self) -> Value {
        self.value_with(&[])
    }

    /// The value alone, with other values at these paths, which are sorted.
    pub fn value_with(&self, others: &[(&[usize], &Value)]) -> Value {
        debug_assert!(others.is_sorted_by_key(|(path, _)| *path));
        self.value_below(0, others)
    }

    /// The same for a node that is this deep: its own path is the beginning of all paths.
    fn value_below(&self, depth: usize, others: &[(&[usize], &Value)]) -> Value {
        if let Some((path, value)) = others.first()
            && path.len() == depth
        {
            return (*value).clone();
        }
        let mut rest = others;
        let mut below = |step: usize, node: &Node| {
            let count = rest.partition_point(|(path, _)| path[depth] <= step);
            let (here, later) = rest.split_at(count);
            rest = later;
            node.value_below(depth + 1, here)
        };
        match &self.kind {
            Kind::Text(text) => Value::Text(text.clone()),
            Kind::Other(text) => Value::Other(text.clone()),
            Kind::List(list) => {
                let items = list.items.iter().enumerate();
                Value::List(items.map(|(step, item)| below(step, item)).collect())
            }
            Kind::Table(table) => {
                let members = table.members.iter().enumerate();
                let mut members: Vec<(String, Value)> = members
                    .map(|(step, member)| (member.key.clone(), below(step, &member.value)))
                    .collect();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                Value::Table(members)
            }
        }
    }

    /// The value below at this path: for each step the index of a member or item.
    pub fn at(&self, path: &[usize]) -> Option<&Node> {
        path.iter().try_fold(self, |node, &step| match &node.kind {
            Kind::List(list) => list.items.get(step),
            Kind::Table(table) => table.members.get(step).map(|member| &member.value),
            Kind::Text(_) | Kind::Other(_) => None,
        })
    }
}

impl Table {
    /// The places of all members with this key.
    pub fn all(&self, key: &str) -> impl DoubleEndedIterator<Item = usize> {
        let of_key = move |(place, member): (usize, &Member)| (member.key == key).then_some(place);
        self.members.iter().enumerate().filter_map(of_key)
    }

    /// The last member with this key.
    pub fn last(&self, key: &str) -> Option<&Member> {
        self.all(key).next_back().map(|place| &self.members[place])
    }
}

impl Value {
    /// Sets the last member of this key, or adds it.
    pub fn set(&mut self, key: &str, value: Value) {
        let Value::Table(members) = self else { return };
        if let Some(place) = members.iter().rposition(|(name, _)| name == key) {
            members[place].1 = value;
        } else {
            let place = members.partition_point(|(name, _)| name.as_str() <= key);
            members.insert(place, (key.to_owned(), value));
        }
    }

    /// Takes the last member of this key out.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        let Value::Table(members) = self else {
            return None;
        };
        let place = members.iter().rposition(|(name, _)| name == key)?;
        Some(members.remove(place).1)
    }

    /// The last member of this key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let Value::Table(members) = self else {
            return None;
        };
        let found = members.iter_mut().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// A list of strings.
    pub fn words<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Value {
        let text = |word: W| Value::Text(word.as_ref().to_owned());
        Value::List(words.into_iter().map(text).collect())
    }
}
