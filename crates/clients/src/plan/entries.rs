//! Entries in a document: the table of servers, and command and arguments of each.

use std::collections::HashMap;

use crate::format::Document;
use crate::node::{Kind, Mark, Member, Node, Table};
use crate::plan::Reason;
use crate::profile::{Client, ConfigFile, Duplicates, Key, Servers, Words};
use crate::refusal::Refusal;

/// One entry, with the way to it.
pub(super) struct FoundEntry<'d> {
    /// Places of members and items, from the root.
    pub path: Vec<usize>,
    /// Keys that lead to its table.
    pub table: Vec<String>,
    /// The name of the server.
    pub name: String,
    /// The entry.
    pub node: &'d Node,
    /// What is wrong with it already.
    pub trouble: Option<Reason>,
}

/// A place on the way to the servers.
struct Step<'d> {
    path: Vec<usize>,
    keys: Vec<String>,
    node: &'d Node,
}

/// All entries of a file. With a project, those of other projects are left out.
pub(super) fn find<'d>(
    document: &'d Document<'_>,
    client: &Client,
    file: &ConfigFile,
    project: Option<&str>,
) -> Result<Vec<FoundEntry<'d>>, Refusal> {
    let Some(root) = &document.root else {
        return Ok(Vec::new());
    };
    let duplicates = client.config.duplicates;
    let mut found = Vec::new();
    let mut any_table = false;
    for way in file.tables {
        if way.is_empty() && any_table {
            continue;
        }
        let start = Step {
            path: Vec::new(),
            keys: Vec::new(),
            node: root,
        };
        let mut steps = vec![start];
        for key in *way {
            let mut next = Vec::new();
            for step in steps {
                next.extend(below(&step, *key, duplicates, project)?);
            }
            steps = next;
        }
        for step in steps {
            any_table = true;
            found.extend(entries(&step, file.servers, duplicates, way.is_empty())?);
        }
    }
    Ok(found)
}

fn below<'d>(
    step: &Step<'d>,
    key: Key,
    duplicates: Duplicates,
    project: Option<&str>,
) -> Result<Vec<Step<'d>>, Refusal> {
    let last_key = step.keys.last().cloned().unwrap_or_default();
    let Some(table) = step.node.table() else {
        return Err(Refusal::NotATable { key: last_key });
    };
    let wanted = |member: &Member| match key {
        Key::Named(name) => member.key == name,
        Key::ProjectDirectory => project.is_none_or(|project| member.key == project),
    };
    let mut next: Vec<Step<'d>> = Vec::new();
    let last_of = last_places(table);
    for (place, member) in table.members.iter().enumerate() {
        if !wanted(member) {
            continue;
        }
        if last_of[member.key.as_str()].0 != place {
            if duplicates != Duplicates::Last {
                return Err(Refusal::Duplicate {
                    key: member.key.clone(),
                });
            }
            continue;
        }
        if is_tied(&member.value) {
            return Err(Refusal::Tied {
                key: member.key.clone(),
            });
        }
        if is_nothing(&member.value) {
            continue;
        }
        let mut path = step.path.clone();
        path.push(place);
        let mut keys = step.keys.clone();
        keys.push(member.key.clone());
        next.push(Step {
            path,
            keys,
            node: &member.value,
        });
    }
    Ok(next)
}

fn entries<'d>(
    step: &Step<'d>,
    servers: Servers,
    duplicates: Duplicates,
    whole_file: bool,
) -> Result<Vec<FoundEntry<'d>>, Refusal> {
    let key = step.keys.last().cloned().unwrap_or_default();
    let make = |place: usize, name: String, node: &'d Node, trouble: Option<Reason>| {
        let mut path = step.path.clone();
        path.push(place);
        FoundEntry {
            path,
            table: step.keys.clone(),
            name,
            node,
            trouble,
        }
    };
    match (&step.node.kind, servers) {
        (Kind::Table(table), Servers::ByKey) => {
            let mut found = Vec::new();
            let last_of = last_places(table);
            for (place, member) in table.members.iter().enumerate() {
                let (last, count) = last_of[member.key.as_str()];
                let is_last = last == place;
                let looks_like_one = member.value.table().is_some_and(|entry| {
                    let mut keys = entry.members.iter().map(|member| member.key.as_str());
                    keys.any(|key| ["command", "url"].contains(&key))
                });
                let dead = count > 1 && duplicates == Duplicates::Last && !is_last;
                if dead || member.key == "<<" || whole_file && !looks_like_one {
                    continue;
                }
                let trouble =
                    (count > 1 && duplicates != Duplicates::Last).then(|| Reason::Duplicate {
                        key: member.key.clone(),
                    });
                found.push(make(place, member.key.clone(), &member.value, trouble));
            }
            Ok(found)
        }
        (Kind::List(list), Servers::Listed(name_key)) => {
            let items = list.items.iter().enumerate();
            Ok(items
                .map(|(place, item)| {
                    let member = item.table().and_then(|entry| entry.last(name_key));
                    let name = member.and_then(|member| member.value.text());
                    let name = name.map_or_else(|| format!("server-{}", place + 1), Into::into);
                    make(place, name, item, None)
                })
                .collect())
        }
        (Kind::Table(_) | Kind::List(_) | Kind::Text(_) | Kind::Other(_), _) => {
            Err(Refusal::NotATable { key })
        }
    }
}

/// For each key the place of its last member, and how many there are.
fn last_places(table: &Table) -> HashMap<&str, (usize, usize)> {
    let mut places = HashMap::new();
    for (place, member) in table.members.iter().enumerate() {
        let (last, count) = places.entry(member.key.as_str()).or_insert((place, 0));
        *last = place;
        *count += 1;
    }
    places
}

/// Command and arguments of an entry.
pub(super) struct Parts<'d> {
    /// The table that holds both.
    pub holder: &'d Table,
    /// The key of that table in the entry, if it is not the entry itself.
    pub within: Option<&'static str>,
    /// The command.
    pub command: &'d Member,
    /// The arguments: their key, and the member if it is there. None if the command is one list with them.
    pub args: Option<(&'static str, Option<usize>)>,
}

impl<'d> Parts<'d> {
    /// Those of an entry; none if it has no command.
    pub fn of(
        entry: &'d Table,
        shapes: &'static [Words],
        duplicates: Duplicates,
    ) -> Result<Option<Self>, Reason> {
        for shape in shapes {
            let (within, command_key) = match *shape {
                Words::Split {
                    within, command, ..
                } => (within, command),
                Words::Joined { command } => (None, command),
            };
            let holder = match within {
                None => entry,
                Some(key) => match member(entry, key, duplicates)? {
                    Some(place) => match entry.members[place].value.table() {
                        Some(holder) => holder,
                        None => continue,
                    },
                    None => continue,
                },
            };
            let Some(place) = member(holder, command_key, duplicates)? else {
                continue;
            };
            let command = &holder.members[place];
            // A table under the key of the command is another form.
            if command.value.table().is_some() {
                continue;
            }
            let args = match *shape {
                Words::Split { args, .. } => Some((args, member(holder, args, duplicates)?)),
                Words::Joined { .. } => None,
            };
            return Ok(Some(Self {
                holder,
                within,
                command,
                args,
            }));
        }
        Ok(None)
    }

    /// The member with the arguments.
    pub fn args_member(&self) -> Option<&'d Member> {
        let (_, place) = self.args?;
        place.map(|place| &self.holder.members[place])
    }

    /// The items that are words: of the arguments, or of the one list.
    pub fn items(&self) -> Result<&'d [Node], Reason> {
        let list = match self.args {
            Some(_) => match self.args_member() {
                Some(args) => &args.value,
                None => return Ok(&[]),
            },
            None => &self.command.value,
        };
        let not_a_list = if self.args.is_some() {
            Reason::ArgsNotAList
        } else {
            Reason::CommandNotText
        };
        match &list.kind {
            Kind::List(list) => Ok(&list.items),
            Kind::Text(_) | Kind::Other(_) | Kind::Table(_) => Err(not_a_list),
        }
    }

    /// All words, the command first. A word that is no string is none.
    pub fn words(&self) -> Result<Vec<Option<&'d str>>, Reason> {
        let items = self.items()?.iter().map(Node::text);
        Ok(match self.args {
            Some(_) => std::iter::once(self.command.value.text())
                .chain(items)
                .collect(),
            None => items.collect(),
        })
    }

    /// The old words as nodes: the command first.
    pub fn node_of(&self, word: usize) -> Option<&'d Node> {
        let items = self.items().ok()?;
        match self.args {
            Some(_) if word == 0 => Some(&self.command.value),
            Some(_) => items.get(word - 1),
            None => items.get(word),
        }
    }
}

/// The member that the client takes.
pub(super) fn member(
    table: &Table,
    key: &str,
    duplicates: Duplicates,
) -> Result<Option<usize>, Reason> {
    if table.all(key).count() > 1 && duplicates != Duplicates::Last {
        return Err(Reason::Duplicate { key: key.into() });
    }
    Ok(table.all(key).next_back())
}

/// Whether a change of a value would change another place too, or its type.
pub(super) fn is_tied(node: &Node) -> bool {
    match node.mark {
        Some(Mark::Anchor | Mark::Alias | Mark::Tag) => true,
        Some(Mark::Lines) | None => false,
    }
}

/// Whether a value is null.
fn is_nothing(node: &Node) -> bool {
    match &node.kind {
        Kind::Other(text) => ["", "~", "null"].contains(&text.to_lowercase().as_str()),
        Kind::Text(_) | Kind::List(_) | Kind::Table(_) => false,
    }
}

/// Whether an entry takes members from elsewhere.
pub(super) fn merges(table: &Table) -> bool {
    table.members.iter().any(|member| member.key == "<<")
}
