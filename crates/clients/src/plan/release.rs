//! The plan of `release`: the exact inverse of `adopt`, from the file alone.

use std::collections::BTreeSet;

use super::adopt::{check_ties, checked_entry, shown};
use super::entries::{self, FoundEntry, Parts};
use super::{Action, Change, Draft, EntryPlan, Plan, Reason, bridge, finish};
use crate::form::{self, Form};
use crate::format::{self, Document, drop_front, remove_member, replace};
use crate::node::{Mark, Value};
use crate::profile::{Client, ConfigFile};
use crate::refusal::Refusal;

/// What `release` was asked for.
#[derive(Clone, Debug, Default)]
pub struct Release {
    /// Only these servers.
    pub servers: Option<BTreeSet<String>>,
    /// Of entries that belong to one project, only those of this directory; of all projects if none is given.
    pub project: Option<String>,
}

/// Plans to give the servers of a config file their old commands back.
pub fn release(
    bytes: &[u8],
    client: &Client,
    file: &ConfigFile,
    wish: &Release,
) -> Result<Plan, Refusal> {
    if let Some(why) = file.never {
        return Err(Refusal::Never { why });
    }
    let document = Document::read(bytes, file.format)?;
    let found = entries::find(&document, client, file, wish.project.as_deref())?;
    let drafts = found
        .into_iter()
        .map(|found| {
            let shown = shown(client, found.node);
            let (action, change) = match decide(&document, client, &found, wish) {
                Ok(Some(change)) => (Action::Restore, Some(change)),
                Ok(None) => (Action::NotAdopted, None),
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
        })
        .collect();
    finish(bytes, &document, drafts, &|_, _| true)
}

/// A text with the entries at these paths released; none if one of them cannot be.
pub(super) fn released(
    text: &str,
    client: &Client,
    file: &ConfigFile,
    paths: &[&[usize]],
) -> Option<String> {
    let document = Document::read(text.as_bytes(), file.format).ok()?;
    let paths: BTreeSet<&[usize]> = paths.iter().copied().collect();
    let everything = Release::default();
    let mut splices = Vec::new();
    for found in entries::find(&document, client, file, None).ok()? {
        if paths.contains(found.path.as_slice()) {
            let change = decide(&document, client, &found, &everything).ok()?;
            splices.extend(change.into_iter().flat_map(|change| change.splices));
        }
    }
    Some(format::apply(document.text, &splices))
}

fn decide(
    document: &Document<'_>,
    client: &Client,
    found: &FoundEntry<'_>,
    wish: &Release,
) -> Result<Option<Change>, Reason> {
    if let Some(chosen) = &wish.servers
        && !chosen.contains(&found.name)
    {
        return Err(Reason::NotChosen);
    }
    let config = &client.config;
    let Some(table) = found.node.table() else {
        return Ok(None);
    };
    let parts = match Parts::of(table, config.entry.words, config.duplicates) {
        Ok(Some(parts)) => parts,
        Ok(None) => return Ok(None),
        Err(reason) => return Err(reason),
    };
    let Ok(words) = parts.words() else {
        return Ok(None);
    };
    let form = form::recognise(&words);
    if form == Form::Bare {
        return Ok(None);
    }
    if let Some(trouble) = &found.trouble {
        return Err(trouble.clone());
    }
    let entry = checked_entry(found.node)?;
    check_ties(&parts)?;
    match form {
        Form::Bare => Ok(None),
        Form::Wrapped { old, had_args } => {
            let change = unwrap(document, found, &parts, old, had_args);
            change.map(Some).ok_or(Reason::Unusual)
        }
        Form::Bridged { headers } => {
            bridge::release(document, client, found, entry, &parts, &headers).map(Some)
        }
        Form::ByHand => Err(Reason::ByHand),
    }
}

fn unwrap(
    document: &Document<'_>,
    found: &FoundEntry<'_>,
    parts: &Parts<'_>,
    old: usize,
    had_args: bool,
) -> Option<Change> {
    let command = parts.node_of(old)?;
    let movable = command.mark.is_none() && command.text().is_some();
    if !movable || command.mark == Some(Mark::Lines) {
        return None;
    }
    let mut becomes = found.node.value();
    let holder = match parts.within {
        Some(key) => becomes.get_mut(key)?,
        None => &mut becomes,
    };
    let splices = match (parts.args, parts.args_member()) {
        (None, _) => {
            let Value::List(items) = holder.get_mut(&parts.command.key)? else {
                return None;
            };
            items.drain(..old);
            let key_end = parts.command.key_span.end;
            drop_front(document, &parts.command.value, key_end, old).ok()?
        }
        (Some((key, place)), Some(args)) => {
            let raw = document.raw(&command.span);
            holder.set(&parts.command.key, Value::Text(command.text()?.to_owned()));
            let mut splices = vec![replace(&parts.command.value.span, raw)];
            if had_args {
                let Value::List(items) = holder.get_mut(key)? else {
                    return None;
                };
                // Our words and the command; the command of the entry is no item.
                items.drain(..old);
                let gone = drop_front(document, &args.value, args.key_span.end, old);
                splices.extend(gone.ok()?);
            } else {
                holder.take(key)?;
                splices.extend(remove_member(document, parts.holder, place?).ok()?);
            }
            splices
        }
        (Some(_), None) => return None,
    };
    Some(Change { splices, becomes })
}
