//! A `SessionEnd` hook in Claude Code's settings: put there, and taken out again so that the old bytes are back.
//!
//! The hook is one group of the list `hooks.SessionEnd`. Its `matcher` says what was made for it, so that the file alone is enough to take it out; to
//! Claude Code all four mean the same.
//!
//! ```text
//! no matcher   the list was there
//! ""           the list was made
//! "*"          `hooks` was made, with the list
//! ".*"         the file was made
//! ```

use super::Plan;
use crate::form;
use crate::format::{
    self, Document, Format, Splice, insert_member, prepend, quote, remove_from, remove_item,
    replace,
};
use crate::node::{Node, Value};
use crate::profile::Place;
use crate::refusal::Refusal;

const HOOKS: &str = "hooks";
const EVENT: &str = "SessionEnd";
const MATCHER: &str = "matcher";
const COMMAND: &str = "command";
/// The verb of our command.
const REAP: &str = "reap";
/// Claude Code reads its settings with `JSON.parse`; a file with comments is edited as well.
const FORMAT: Format = Format::JsonLenient;

/// Where Claude Code has the settings of this user.
pub const SETTINGS: Place = Place::Own {
    variable: "CLAUDE_CONFIG_DIR",
    home: ".claude",
    file: "settings.json",
};

/// Where an administrator has settings for all users.
pub const MANAGED: Place = Place::Machine("/etc/claude-code/managed-settings.json");

/// What was made for the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// Nothing: the list was there.
    Group,
    /// The list.
    List,
    /// `hooks`, with the list.
    Table,
    /// The whole file.
    File,
}

/// How a hook is taken out.
#[derive(Clone, Debug)]
pub enum Unhook {
    /// The file changes.
    Edit(Plan),
    /// The file holds nothing else, and was made for the hook.
    RemoveFile,
}

/// A file with the hook alone.
pub fn new_settings(command: &str) -> Vec<u8> {
    let [matcher, command] = [Made::File.matcher().unwrap_or_default(), command].map(quote);
    let lines = [
        "{".to_owned(),
        format!("  \"{HOOKS}\": {{"),
        format!("    \"{EVENT}\": ["),
        "      {".to_owned(),
        format!("        \"{MATCHER}\": {matcher},"),
        format!("        \"{HOOKS}\": ["),
        "          {".to_owned(),
        "            \"type\": \"command\",".to_owned(),
        format!("            \"{COMMAND}\": {command}"),
        "          }\n        ]\n      }\n    ]\n  }\n}\n".to_owned(),
    ];
    lines.join("\n").into_bytes()
}

/// Plans to put the hook into the settings, or to give the one that is there this command.
pub fn hook(bytes: &[u8], command: &str) -> Result<Plan, Refusal> {
    let document = Document::read(bytes, FORMAT)?;
    let settings = Settings::of(&document)?;
    let plan = planned(bytes, &document, settings.hook(&document, command))?;
    // Taking it out must give the same bytes from the new text as from the old one, which may have the hook already.
    let without = |bytes: &[u8]| match unhook(bytes) {
        Ok(Unhook::Edit(plan)) => Some(Some(plan.new)),
        Ok(Unhook::RemoveFile) => Some(None),
        Err(_) => None,
    };
    let before = without(bytes);
    if before.is_none() || before != without(&plan.new) {
        return Err(Refusal::Mismatch);
    }
    Ok(plan)
}

/// Plans to take the hook out.
pub fn unhook(bytes: &[u8]) -> Result<Unhook, Refusal> {
    let document = Document::read(bytes, FORMAT)?;
    let settings = Settings::of(&document)?;
    if settings.is_ours_alone() {
        return Ok(Unhook::RemoveFile);
    }
    planned(bytes, &document, settings.unhook(&document)).map(Unhook::Edit)
}

/// Whether settings say that hooks of users do not run.
pub fn are_off(bytes: &[u8]) -> bool {
    let document = Document::read(bytes, FORMAT);
    let root = document.ok().and_then(|document| document.root);
    let on = |key: &str| {
        let member = root.as_ref()?.table()?.last(key)?;
        (member.value.value() == Value::Other("true".into())).then_some(())
    };
    on("disableAllHooks")
        .or_else(|| on("allowManagedHooksOnly"))
        .is_some()
}

impl Made {
    fn matcher(self) -> Option<&'static str> {
        match self {
            Self::Group => None,
            Self::List => Some(""),
            Self::Table => Some("*"),
            Self::File => Some(".*"),
        }
    }

    fn of(matcher: Option<&str>) -> Option<Self> {
        let all = [Self::Group, Self::List, Self::Table, Self::File];
        all.into_iter().find(|made| made.matcher() == matcher)
    }

    fn token(self, command: &str) -> String {
        let matcher = self.matcher().map_or(String::new(), |matcher| {
            format!("{}: {}, ", quote(MATCHER), quote(matcher))
        });
        format!(
            "{{{matcher}{}: [{{\"type\": \"command\", {}: {}}}]}}",
            quote(HOOKS),
            quote(COMMAND),
            quote(command)
        )
    }
}

/// The splices of a change, and the value that the whole file has after it. None if the layout is one that our edits do not know.
type Edit = Option<(Vec<Splice>, Value)>;

/// Does the change, reads the result again and compares it with what was meant.
fn planned(bytes: &[u8], document: &Document<'_>, edit: Edit) -> Result<Plan, Refusal> {
    let (splices, meant) = edit.ok_or(Refusal::Mismatch)?;
    let text = format::apply(document.text, &splices);
    let read = Document::read(text.as_bytes(), FORMAT)?;
    if read.root.map(|root| root.value()) != Some(meant) {
        return Err(Refusal::Mismatch);
    }
    let mut new = bytes[..document.skipped].to_vec();
    new.extend_from_slice(text.as_bytes());
    Ok(Plan {
        entries: Vec::new(),
        old: bytes.to_vec(),
        new,
        splices,
        format: FORMAT,
    })
}

/// The part of the settings that holds hooks, as far as it is there.
struct Settings<'d> {
    root: &'d Node,
    hooks: Option<&'d Node>,
    event: Option<&'d Node>,
    ours: Option<Ours<'d>>,
}

/// The group that we wrote.
struct Ours<'d> {
    place: usize,
    made: Made,
    command: &'d Node,
}

impl<'d> Settings<'d> {
    fn of(document: &'d Document<'_>) -> Result<Self, Refusal> {
        let not = |key: &str| Refusal::NotSettings { key: key.into() };
        let root = document.root.as_ref().ok_or_else(|| not("the file"))?;
        let table = root.table().ok_or_else(|| not("the file"))?;
        let hooks = table.last(HOOKS).map(|member| &member.value);
        let event = match hooks {
            Some(hooks) => hooks.table().ok_or_else(|| not(HOOKS))?.last(EVENT),
            None => None,
        };
        let event = event.map(|member| &member.value);
        let groups = match event {
            Some(event) => &event.list().ok_or_else(|| not(EVENT))?.items[..],
            None => &[],
        };
        let mut found = groups.iter().enumerate().filter_map(|(place, group)| {
            let commands = commands(group);
            let ours = commands.iter().find(|command| is_ours(command))?;
            Some((place, group.table()?, commands.len(), *ours))
        });
        let ours = match (found.next(), found.next()) {
            (None, _) => None,
            (Some((place, group, 1, command)), None) => {
                let matcher = group.last(MATCHER);
                let matcher = matcher.map(|matcher| matcher.value.text().unwrap_or("?"));
                let made = Made::of(matcher).ok_or(Refusal::HookByHand)?;
                Some(Ours {
                    place,
                    made,
                    command,
                })
            }
            (Some(_), _) => return Err(Refusal::HookByHand),
        };
        Ok(Self {
            root,
            hooks,
            event,
            ours,
        })
    }

    /// Whether the file was made for the hook, and holds nothing else.
    fn is_ours_alone(&self) -> bool {
        let Some(command) = self.ours.as_ref().and_then(|ours| ours.command.text()) else {
            return false;
        };
        let alone = new_settings(command);
        let alone = Document::read(&alone, FORMAT).ok();
        let alone = alone.and_then(|alone| Some(alone.root?.value()));
        alone == Some(self.root.value())
    }

    fn hook(&self, document: &Document<'_>, command: &str) -> Edit {
        let mut meant = self.root.value();
        if let Some(ours) = &self.ours {
            let Value::List(groups) = meant.get_mut(HOOKS)?.get_mut(EVENT)? else {
                return None;
            };
            let Value::List(hooks) = groups.get_mut(ours.place)?.get_mut(HOOKS)? else {
                return None;
            };
            hooks.first_mut()?.set(COMMAND, Value::Text(command.into()));
            if ours.command.text() == Some(command) {
                return Some((Vec::new(), meant));
            }
            return Some((vec![replace(&ours.command.span, quote(command))], meant));
        }
        let splices = match (self.hooks, self.event) {
            (_, Some(event)) => {
                let token = Made::Group.token(command);
                let Value::List(groups) = meant.get_mut(HOOKS)?.get_mut(EVENT)? else {
                    return None;
                };
                groups.insert(0, value_of(&token)?);
                prepend(document, event, &[token]).ok()?
            }
            (Some(hooks), None) => {
                let list = format!("[{}]", Made::List.token(command));
                meant.get_mut(HOOKS)?.set(EVENT, value_of(&list)?);
                insert_member(document, hooks, EVENT, &list).ok()?
            }
            (None, None) => {
                let list = format!("{{\"{EVENT}\": [{}]}}", Made::Table.token(command));
                meant.set(HOOKS, value_of(&list)?);
                insert_member(document, self.root, HOOKS, &list).ok()?
            }
        };
        Some((splices, meant))
    }

    fn unhook(&self, document: &Document<'_>) -> Edit {
        let mut meant = self.root.value();
        let (Some(ours), Some(hooks), Some(event)) = (&self.ours, self.hooks, self.event) else {
            return Some((Vec::new(), meant));
        };
        let groups = event.list()?.items.len();
        if ours.made == Made::Group || groups > 1 {
            let Value::List(groups) = meant.get_mut(HOOKS)?.get_mut(EVENT)? else {
                return None;
            };
            groups.remove(ours.place);
            return Some((remove_item(document, event, ours.place).ok()?, meant));
        }
        let events = hooks.table()?.members.len();
        if ours.made == Made::List || events > 1 {
            meant.get_mut(HOOKS)?.take(EVENT)?;
            return Some((remove_key(document, hooks, EVENT)?, meant));
        }
        meant.take(HOOKS)?;
        Some((remove_key(document, self.root, HOOKS)?, meant))
    }
}

fn remove_key(document: &Document<'_>, table: &Node, key: &str) -> Option<Vec<Splice>> {
    let place = table.table()?.all(key).next_back()?;
    remove_from(document, table, place).ok()
}

fn value_of(token: &str) -> Option<Value> {
    let read = Document::read(token.as_bytes(), FORMAT).ok()?;
    read.root.map(|root| root.value())
}

/// The commands of a group; a hook without a command counts as an empty text.
fn commands(group: &Node) -> Vec<&Node> {
    let hooks = group.table().and_then(|group| group.last(HOOKS));
    let hooks = hooks.and_then(|hooks| hooks.value.list());
    let items = hooks.map_or(&[][..], |hooks| &hooks.items);
    items
        .iter()
        .map(|hook| command(hook).unwrap_or(hook))
        .collect()
}

fn command(hook: &Node) -> Option<&Node> {
    hook.table()?.last(COMMAND).map(|member| &member.value)
}

/// Whether a command of a hook is `mainstay reap`, in any place, with any options.
fn is_ours(command: &Node) -> bool {
    let mut words = command.text().unwrap_or_default().split_whitespace();
    words.next().is_some_and(form::is_mainstay) && words.next() == Some(REAP)
}
