//! The plan of `adopt`.

use std::collections::BTreeSet;
use std::ops::Range;

use mainstay_protocol::redact;

use super::entries::{self, FoundEntry, Parts, is_tied, member, merges};
use super::release::released;
use super::{Action, Change, Draft, EntryPlan, Plan, Reason, bridge, finish};
use crate::form::{self, Flags, Form};
use crate::format::{Document, drop_front, insert_after, prepend, quote, replace};
use crate::node::{Kind, Mark, Node, Table, Value};
use crate::policy::Policy;
use crate::profile::{Client, ConfigFile};
use crate::refusal::Refusal;
use crate::stateful;

/// What `adopt` was asked for.
#[derive(Clone, Debug, Default)]
pub struct Adopt {
    /// The path of the mainstay program, as it will stand in the config. It must stay: never a package cache.
    pub program: String,
    /// `--thrifty`: start servers when they are needed, and stop them after this time without a call (`10m`).
    pub thrifty: Option<String>,
    /// Only these servers.
    pub servers: Option<BTreeSet<String>>,
    /// Of entries that belong to one project, only those of this directory; of all projects if none is given.
    pub project: Option<String>,
    /// What becomes of servers behind a URL.
    pub remote: RemoteEntries,
    /// Put this program, and the flags of `--thrifty` or none, into entries that were adopted before. The user's own flags stay.
    pub update: bool,
    /// What the client's policy files say.
    pub policy: Policy,
}

/// What becomes of servers behind a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteEntries {
    /// Bridge them where the client leaves sessions open, if they have credentials or are on this machine.
    #[default]
    Safe,
    /// Also those without credentials, for which the client might have to log in.
    WithoutCredentials,
    /// Leave them alone.
    Leave,
}

/// Whether an entry gets lazy start and hibernation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thrift {
    /// It was not asked for.
    NotAsked,
    /// It gets both.
    Thrifty,
    /// It keeps running, because it keeps state: a browser, a REPL, a debugger.
    KeepsState(&'static str),
}

impl Adopt {
    fn check(&self) -> Result<(), Refusal> {
        let bad = |problem: String| Err(Refusal::BadOption { problem });
        let expands = |c: char| "$`{}%".contains(c) || c.is_control();
        if !form::is_mainstay(&self.program) {
            return bad(format!("`{}` is not a mainstay program", self.program));
        }
        if self.program.contains(expands) {
            return bad(format!(
                "the path `{}` has characters that clients expand",
                self.program
            ));
        }
        match self.thrifty.as_deref().and_then(form::time_problem) {
            Some(problem) => bad(problem),
            None => Ok(()),
        }
    }

    /// What `--thrifty` means for a server, and the idle time if it gets one.
    fn thrift_of(&self, name: &str, words: &[Option<&str>]) -> (Thrift, Option<&str>) {
        let Some(time) = &self.thrifty else {
            return (Thrift::NotAsked, None);
        };
        match stateful::keeps_state(name, words.iter().copied().flatten()) {
            Some(what) => (Thrift::KeepsState(what), None),
            None => (Thrift::Thrifty, Some(time)),
        }
    }

    /// The same with the flags of a server that is adopted for the first time.
    pub(super) fn thrift(&self, name: &str, words: &[Option<&str>]) -> (Thrift, Vec<String>) {
        let (thrift, time) = self.thrift_of(name, words);
        (thrift, time.map(form::thrift).unwrap_or_default())
    }

    /// The words that come before a server's own command, for people who edit by hand.
    pub fn words_before(&self, name: &str, words: &[&str]) -> Vec<String> {
        let all: Vec<Option<&str>> = words.iter().copied().map(Some).collect();
        let (_, flags) = self.thrift(name, &all);
        let mut before = vec![self.program.clone()];
        before.extend(form::wrapping(&flags, &form::name_of(name), true));
        before
    }

    pub(super) fn program_token(&self) -> String {
        quote(&self.program)
    }
}

/// Plans to send the servers of a config file through mainstay.
pub fn adopt(
    bytes: &[u8],
    client: &Client,
    file: &ConfigFile,
    wish: &Adopt,
) -> Result<Plan, Refusal> {
    if let Some(why) = file.never {
        return Err(Refusal::Never { why });
    }
    wish.check()?;
    let document = Document::read(bytes, file.format)?;
    let found = entries::find(&document, client, file, wish.project.as_deref())?;
    let drafts = found
        .into_iter()
        .map(|found| draft(&document, client, found, wish))
        .collect();
    // Releasing must give the same bytes from the new text as from the old one, in which entries are bare or adopted before.
    let undoes = |text: &str, paths: &[&[usize]]| {
        let released = |text: &str| released(text, client, file, paths);
        released(text).is_some_and(|back| Some(back) == released(document.text))
    };
    finish(bytes, &document, drafts, &undoes)
}

fn draft(document: &Document<'_>, client: &Client, found: FoundEntry<'_>, wish: &Adopt) -> Draft {
    let shown = shown(client, found.node);
    let (action, change) = match decide(document, client, &found, wish) {
        Ok((action, change)) => (action, change),
        Err(reason) => (Action::Leave(reason), None),
    };
    Draft {
        plan: EntryPlan {
            name: found.name,
            table: found.table,
            shown,
            action,
        },
        path: found.path,
        change,
    }
}

type Decision = Result<(Action, Option<Change>), Reason>;

fn decide(
    document: &Document<'_>,
    client: &Client,
    found: &FoundEntry<'_>,
    wish: &Adopt,
) -> Decision {
    if let Some(chosen) = &wish.servers
        && !chosen.contains(&found.name)
    {
        return Err(Reason::NotChosen);
    }
    if let Some(trouble) = &found.trouble {
        return Err(trouble.clone());
    }
    let entry = checked_entry(found.node)?;
    let config = &client.config;
    let Some(parts) = Parts::of(entry, config.entry.words, config.duplicates)? else {
        return bridge::adopt(document, client, found, entry, wish);
    };
    check_type(client, entry, parts.within)?;
    for &(key, why) in config.entry.kept_by {
        let off = |node: &Node| node.kind == Kind::Other("false".into());
        if entry.last(key).is_some_and(|member| !off(&member.value)) {
            return Err(Reason::KeptBy { key, why });
        }
    }
    let words = parts.words()?;
    check_ties(&parts)?;
    let form = form::recognise(&words);
    match form {
        Form::Bare => {
            let command = command_of(&parts)?;
            wish.policy.check_command(&found.name, &words)?;
            let (thrift, flags) = wish.thrift(&found.name, &words);
            let change = wrap(document, found, &parts, command, &flags, wish);
            Ok((Action::Wrap(thrift), Some(change.ok_or(Reason::Unusual)?)))
        }
        Form::Wrapped { old, .. } if wish.update => {
            update(document, found, &parts, old, &form, wish)
        }
        Form::Bridged { .. } if wish.update => {
            update(document, found, &parts, words.len() - 1, &form, wish)
        }
        Form::Wrapped { .. } | Form::Bridged { .. } => Ok((Action::Already, None)),
        Form::ByHand => Err(Reason::ByHand),
    }
}

/// The table of an entry whose own members say everything about it.
pub(super) fn checked_entry(node: &Node) -> Result<&Table, Reason> {
    if is_tied(node) {
        return Err(Reason::Tied);
    }
    let entry = node.table().ok_or(Reason::NotATable)?;
    if merges(entry) {
        return Err(Reason::Tied);
    }
    Ok(entry)
}

/// Whether the type of an entry says that it is a process. It may stand beside the command.
fn check_type(client: &Client, entry: &Table, within: Option<&str>) -> Result<(), Reason> {
    let config = &client.config;
    let holder = within.and_then(|key| entry.last(key)?.value.table());
    for table in [Some(entry), holder].into_iter().flatten() {
        let place = member(table, "type", config.duplicates)?;
        let kind = place.map(|place| &table.members[place].value);
        match kind.map(|kind| (kind, kind.text())) {
            Some((_, Some(text))) if config.entry.process_types.contains(&text) => return Ok(()),
            Some((kind, _)) if is_tied(kind) => return Err(Reason::Tied),
            Some((_, text)) => {
                return Err(Reason::OtherType {
                    of: text.map(Into::into),
                });
            }
            None => {}
        }
    }
    if config.entry.type_needed {
        return Err(Reason::OtherType { of: None });
    }
    Ok(())
}

pub(super) fn check_ties(parts: &Parts<'_>) -> Result<(), Reason> {
    let args = parts.args_member().map(|args| &args.value);
    let nodes = [Some(&parts.command.value), args];
    if merges(parts.holder) || nodes.into_iter().flatten().any(is_tied) {
        return Err(Reason::Tied);
    }
    Ok(())
}

/// The node of a command that can move.
fn command_of<'d>(parts: &Parts<'d>) -> Result<&'d Node, Reason> {
    let node = parts.node_of(0).ok_or(Reason::CommandNotText)?;
    if is_tied(node) {
        return Err(Reason::Tied);
    }
    let text = node.text().ok_or(Reason::CommandNotText)?;
    if text.trim().is_empty() || text.starts_with('-') || node.mark == Some(Mark::Lines) {
        return Err(Reason::CommandNotText);
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.len() < text.len() && !first.contains('/') {
        return Err(Reason::CommandLine);
    }
    Ok(node)
}

fn tokens(words: &[String]) -> Vec<String> {
    words.iter().map(|word| quote(word)).collect()
}

/// The raw token of an old command, which moves as it stands. Only one line can move.
fn raw<'d>(document: &'d Document<'_>, node: &Node) -> Option<&'d str> {
    let raw = document.raw(&node.span);
    (!raw.contains(['\n', '\r'])).then_some(raw)
}

fn wrap(
    document: &Document<'_>,
    found: &FoundEntry<'_>,
    parts: &Parts<'_>,
    command: &Node,
    flags: &[String],
    wish: &Adopt,
) -> Option<Change> {
    let raw = raw(document, command)?;
    let name = form::name_of(&found.name);
    let old = command.text()?.to_owned();
    let mut becomes = found.node.value();
    let holder = match parts.within {
        Some(key) => becomes.get_mut(key)?,
        None => &mut becomes,
    };
    let splices = match parts.args {
        // One list: our words come before the old ones.
        None => {
            let words = form::wrapping(flags, &name, true);
            let mut before = vec![wish.program.clone()];
            before.extend(words);
            let Value::List(items) = holder.get_mut(&parts.command.key)? else {
                return None;
            };
            items.splice(0..0, before.iter().cloned().map(Value::Text));
            prepend(document, &parts.command.value, &tokens(&before)).ok()?
        }
        Some((key, place)) => {
            let words = form::wrapping(flags, &name, place.is_some());
            let mut new_tokens = tokens(&words);
            new_tokens.push(raw.to_owned());
            holder.set(&parts.command.key, Value::Text(wish.program.clone()));
            let mut splices = vec![replace(&command.span, wish.program_token())];
            let words = words.into_iter().chain([old]);
            let more = if let Some(place) = place {
                let Value::List(items) = holder.get_mut(key)? else {
                    return None;
                };
                items.splice(0..0, words.map(Value::Text));
                prepend(document, &parts.holder.members[place].value, &new_tokens)
            } else {
                holder.set(key, Value::words(words));
                insert_after(document, parts.holder, parts.command, key, &new_tokens)
            };
            splices.extend(more.ok()?);
            splices
        }
    };
    Some(Change { splices, becomes })
}

/// A word of a config, with the token that stands for it there.
struct Word {
    token: String,
    value: Value,
}

impl Word {
    fn ours(text: &str) -> Self {
        Self {
            token: quote(text),
            value: Value::Text(text.to_owned()),
        }
    }

    /// One that stays as it is written.
    fn kept(document: &Document<'_>, node: &Node) -> Option<Self> {
        let token = raw(document, node)?.to_owned();
        let movable = node.mark.is_none();
        movable.then(|| Self {
            token,
            value: node.value(),
        })
    }
}

/// Program and flags of this call in front of the old command or URL, which has this place. The user's own words stay, in their order.
fn update(
    document: &Document<'_>,
    found: &FoundEntry<'_>,
    parts: &Parts<'_>,
    old: usize,
    form: &Form,
    wish: &Adopt,
) -> Decision {
    let words = parts.words()?;
    let flags = Flags::of(&words, old);
    let (thrift, time) = wish.thrift_of(&found.name, &words[old..]);
    let last = form::last_word(form);
    let name = flags.name.clone();
    let name = name.unwrap_or_else(|| form::name_of(&found.name));
    let kept = |range: Range<usize>| range.map(|place| Word::kept(document, parts.node_of(place)?));
    let ours = |words: Vec<String>| words.into_iter().map(|word| Some(Word::ours(&word)));
    // Adopt writes no idle time for a server with state, so what stands there is the user's.
    let thrifty = match thrift {
        Thrift::KeepsState(_) => kept(flags.thrifty.clone()).collect(),
        Thrift::NotAsked | Thrift::Thrifty => {
            let new = time.map(|time| flags.thrift(&words, time));
            ours(new.unwrap_or_default()).collect::<Vec<_>>()
        }
    };
    let new: Option<Vec<Word>> = ours(vec![form::RUN.to_owned()])
        .chain(kept(flags.before.clone()))
        .chain(thrifty)
        .chain(ours(form::naming(&name, last)))
        .chain(kept(flags.after.clone()))
        .chain(ours(last.map(ToOwned::to_owned).into_iter().collect()))
        .collect();
    let new = new.ok_or(Reason::Unusual)?;
    let same_program = words[0] == Some(&wish.program);
    let there = (1..old).map(|place| parts.node_of(place).map(Node::value));
    if same_program && there.eq(new.iter().map(|word| Some(word.value.clone()))) {
        return Ok((Action::Already, None));
    }
    let change = replace_front(document, found, parts, old, new, wish);
    Ok((Action::Update(thrift), Some(change.ok_or(Reason::Unusual)?)))
}

/// Other words between the program and the old command or URL.
fn replace_front(
    document: &Document<'_>,
    found: &FoundEntry<'_>,
    parts: &Parts<'_>,
    old: usize,
    mut new: Vec<Word>,
    wish: &Adopt,
) -> Option<Change> {
    let mut becomes = found.node.value();
    let holder = match parts.within {
        Some(key) => becomes.get_mut(key)?,
        None => &mut becomes,
    };
    // In one list the program is the first item; else it stands apart.
    let (list, count, mut splices) = if let Some(args) = parts.args_member() {
        holder.set(&parts.command.key, Value::Text(wish.program.clone()));
        let program = replace(&parts.command.value.span, wish.program_token());
        (args, old - 1, vec![program])
    } else {
        new.insert(0, Word::ours(&wish.program));
        (parts.command, old, Vec::new())
    };
    let Value::List(items) = holder.get_mut(&list.key)? else {
        return None;
    };
    let (tokens, values): (Vec<String>, Vec<Value>) =
        new.into_iter().map(|word| (word.token, word.value)).unzip();
    items.splice(0..count, values);
    let before = prepend(document, &list.value, &tokens).ok()?;
    let gone = drop_front(document, &list.value, list.key_span.end, count).ok()?;
    splices.extend(before.into_iter().chain(gone));
    Some(Change { splices, becomes })
}

/// The command line or URL of an entry for people, without secrets.
pub(super) fn shown(client: &Client, node: &Node) -> String {
    let Some(entry) = node.table() else {
        return String::new();
    };
    let shape = &client.config.entry;
    let parts = Parts::of(entry, shape.words, client.config.duplicates);
    let line: Vec<String> = if let Ok(Some(parts)) = parts {
        let items = parts.items().unwrap_or(&[]);
        let command = parts.args.map(|_| &parts.command.value);
        let words = command.into_iter().chain(items);
        words
            .map(|word| match &word.kind {
                Kind::Text(text) | Kind::Other(text) => text.clone(),
                Kind::List(_) | Kind::Table(_) => "…".into(),
            })
            .collect()
    } else {
        let mut urls = shape.urls.iter();
        let url = urls.find_map(|key| entry.last(key)?.value.text());
        url.into_iter().map(ToOwned::to_owned).collect()
    };
    redact::words(&line).join(" ")
}
