//! What a client's policy files say about changed commands.
//!
//! A list of allowed servers may name exact command lines. A wrapped command is none of them, so the client would drop the server: such an entry
//! is left alone. The files are read by the caller of [`Policy::read`]; what cannot be read counts as forbidden.

use std::path::{Path, PathBuf};

use crate::format::Document;
use crate::node::{Kind, Node, Table};
use crate::plan::Reason;
use crate::profile::{PolicyFile, PolicyRule};

/// What the policy files of a client say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Exclusive(PathBuf),
    Unreadable(PathBuf),
    /// Commands that may run.
    AllowsCommands(PathBuf),
    /// URLs that may be used.
    AllowsUrls(PathBuf),
    DeniesName(PathBuf, String),
    DeniesCommand(PathBuf, Vec<String>),
    DeniesUrls(PathBuf),
}

/// A policy file as it was found.
#[derive(Clone, Debug)]
pub struct PolicyText {
    /// Which one.
    pub of: &'static PolicyFile,
    /// Its place.
    pub path: PathBuf,
    /// Its bytes; none if it exists and cannot be read.
    pub bytes: Option<Vec<u8>>,
}

impl Policy {
    /// Reads the files that exist.
    pub fn read(texts: &[PolicyText]) -> Self {
        let mut rules = Vec::new();
        for PolicyText { of, path, bytes } in texts {
            let document = bytes.as_ref().map(|bytes| Document::read(bytes, of.format));
            match (of.rule, document) {
                (PolicyRule::Exclusive, _) => rules.push(Rule::Exclusive(path.clone())),
                (_, None | Some(Err(_))) => rules.push(Rule::Unreadable(path.clone())),
                (PolicyRule::ServerCommands, Some(Ok(document))) => {
                    let root = document.root.as_ref().and_then(Node::table);
                    rules.extend(root.into_iter().flat_map(|root| lists(root, path)));
                }
                (PolicyRule::MatchesCommands(key), Some(Ok(document))) => {
                    let root = document.root.as_ref().and_then(Node::table);
                    let value = root.and_then(|root| root.last(key));
                    let empty = value.is_none_or(|member| match &member.value.kind {
                        Kind::List(list) => list.items.is_empty(),
                        Kind::Table(table) => table.members.is_empty(),
                        Kind::Text(_) | Kind::Other(_) => false,
                    });
                    if !empty {
                        rules.push(Rule::AllowsCommands(path.clone()));
                    }
                }
            }
        }
        Self { rules }
    }

    /// Whether nothing stands against any change.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn check_command(&self, name: &str, words: &[Option<&str>]) -> Result<(), Reason> {
        for rule in &self.rules {
            match rule {
                Rule::Exclusive(file) => return Err(Reason::Managed { file: file.clone() }),
                Rule::Unreadable(file) => {
                    return Err(Reason::UnreadablePolicy { file: file.clone() });
                }
                Rule::AllowsCommands(file) => {
                    return Err(Reason::AllowList { file: file.clone() });
                }
                Rule::DeniesName(file, denied) if denied == name => {
                    return Err(Reason::DenyList { file: file.clone() });
                }
                Rule::DeniesCommand(file, denied)
                    if denied
                        .iter()
                        .map(|word| Some(word.as_str()))
                        .eq(words.iter().copied()) =>
                {
                    return Err(Reason::DenyList { file: file.clone() });
                }
                Rule::AllowsUrls(_)
                | Rule::DeniesUrls(_)
                | Rule::DeniesName(..)
                | Rule::DeniesCommand(..) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn check_url(&self) -> Result<(), Reason> {
        for rule in &self.rules {
            match rule {
                Rule::Exclusive(file) => return Err(Reason::Managed { file: file.clone() }),
                Rule::Unreadable(file) => {
                    return Err(Reason::UnreadablePolicy { file: file.clone() });
                }
                // As a command it would be matched by other rules than as a URL.
                Rule::AllowsCommands(file) | Rule::AllowsUrls(file) => {
                    return Err(Reason::AllowList { file: file.clone() });
                }
                Rule::DeniesUrls(file) => return Err(Reason::DenyList { file: file.clone() }),
                Rule::DeniesName(..) | Rule::DeniesCommand(..) => {}
            }
        }
        Ok(())
    }
}

fn lists(root: &Table, path: &Path) -> Vec<Rule> {
    let mut rules = Vec::new();
    let entries = |key: &str| -> Vec<&Table> {
        let member = root.last(key);
        // An enterprise may write `{ "overridable": [...] }`.
        let node = member.map(|member| {
            let inner = member
                .value
                .table()
                .and_then(|table| table.last("overridable"));
            inner.map_or(&member.value, |inner| &inner.value)
        });
        let list = node.and_then(Node::list);
        list.into_iter()
            .flat_map(|list| list.items.iter().filter_map(Node::table))
            .collect()
    };
    for allowed in entries("allowedMcpServers") {
        if allowed.last("serverCommand").is_some() {
            rules.push(Rule::AllowsCommands(path.to_owned()));
        }
        if allowed.last("serverUrl").is_some() {
            rules.push(Rule::AllowsUrls(path.to_owned()));
        }
    }
    for denied in entries("deniedMcpServers") {
        let text = |key: &str| denied.last(key).and_then(|member| member.value.text());
        if let Some(name) = text("serverName") {
            rules.push(Rule::DeniesName(path.to_owned(), name.to_owned()));
        }
        if denied.last("serverUrl").is_some() {
            rules.push(Rule::DeniesUrls(path.to_owned()));
        }
        if let Some(list) = denied.last("serverCommand").and_then(|m| m.value.list()) {
            let words = list.items.iter().filter_map(Node::text);
            let words = words.map(ToOwned::to_owned).collect();
            rules.push(Rule::DeniesCommand(path.to_owned(), words));
        }
    }
    rules
}
