//! Entries with a URL: to `mainstay run --url`, and back.
//!
//! The raw URL moves into the arguments. The table of headers becomes the table of variables: its values stay where they are, so no secret
//! reaches a command line and the client goes on expanding them. Keys and `type` change to what one form of the client allows, so that the way
//! back is clear; an entry that writes them in another way (escaped, quoted in YAML) is left alone.

use std::collections::BTreeSet;

use mainstay_http_core::headers::is_token;
use mainstay_protocol::redact;

use super::adopt::{Adopt, RemoteEntries};
use super::entries::{FoundEntry, Parts, is_tied, member, merges};
use super::{Action, Change, Reason};
use crate::form;
use crate::format::{
    Document, Format, Splice, insert_after, plain_key, quote, remove_member, replace,
};
use crate::node::{Kind, Member, Table, Value};
use crate::profile::{Bridge, Client, Remote, Words};

/// The bridge of an entry that has no command.
pub(super) fn adopt(
    document: &Document<'_>,
    client: &Client,
    found: &FoundEntry<'_>,
    entry: &Table,
    wish: &Adopt,
) -> Result<(Action, Option<Change>), Reason> {
    let shape = &client.config.entry;
    let duplicates = client.config.duplicates;
    let kind = member(entry, "type", duplicates)?.map(|place| &entry.members[place]);
    let kind_text = kind.and_then(|kind| kind.value.text());
    let url_key = shape.urls.iter().find(|key| entry.last(key).is_some());
    let Some(url_key) = url_key else {
        return Err(match kind_text {
            Some(text) if !shape.process_types.contains(&text) => Reason::OtherType {
                of: Some(text.into()),
            },
            Some(_) | None => Reason::NoCommand,
        });
    };
    let bridge = match shape.remote {
        Remote::EndsSessions => return Err(Reason::RemoteEndsSessions),
        Remote::NotTested => return Err(Reason::RemoteNotTested),
        Remote::LeavesSessionsOpen(bridge) => bridge,
    };
    if wish.remote == RemoteEntries::Leave {
        return Err(Reason::RemoteNotAsked);
    }
    for key in shape.oauth {
        if let Some(member) = entry.last(key) {
            return Err(match &member.value.kind {
                Kind::Other(text) if text == "false" => Reason::RemoteKey {
                    key: (*key).to_owned(),
                },
                Kind::Other(_) | Kind::Text(_) | Kind::List(_) | Kind::Table(_) => Reason::OAuth,
            });
        }
    }
    let other_type = || Reason::RemoteType {
        of: kind_text.map(Into::into),
    };
    if *url_key != bridge.url {
        return Err(other_type());
    }
    let taken = [
        "args",
        bridge.headers.map_or("env", |(_, variables)| variables),
    ];
    let blocker = bridge.blockers.iter().chain(&taken);
    if let Some(key) = blocker.into_iter().find(|key| entry.last(key).is_some()) {
        return Err(Reason::RemoteKey {
            key: (*key).to_owned(),
        });
    }
    match (bridge.types, kind_text) {
        (Some((remote, _)), Some(text)) if remote == text => {}
        (None, None) => {}
        (Some(_) | None, _) => return Err(other_type()),
    }
    let Some(place) = member(entry, bridge.url, duplicates)? else {
        return Err(Reason::NoCommand);
    };
    let url = &entry.members[place];
    let address = url.value.text().ok_or(Reason::Unusual)?;
    let headers = headers_of(document, entry, &bridge, client)?;
    let names: Vec<String> = headers.iter().map(|header| header.key.clone()).collect();
    if wish.remote == RemoteEntries::Safe && !has_credentials(address, &names) {
        return Err(Reason::MayNeedLogin);
    }
    wish.policy.check_url()?;
    let words = [Some(address)];
    let (thrift, flags) = wish.thrift(&found.name, &words);
    let words = form::bridging(&flags, &form::name_of(&found.name), &names);
    let change = change(
        document,
        client,
        found,
        (entry, url),
        &headers,
        &bridge,
        &words,
        wish,
    );
    Ok((Action::Bridge(thrift), Some(change.ok_or(Reason::Unusual)?)))
}

/// The members of the table of headers.
fn headers_of<'d>(
    document: &Document<'_>,
    entry: &'d Table,
    bridge: &Bridge,
    client: &Client,
) -> Result<Vec<&'d Member>, Reason> {
    let Some((key, _)) = bridge.headers else {
        return Ok(Vec::new());
    };
    let Some(place) = member(entry, key, client.config.duplicates)? else {
        return Ok(Vec::new());
    };
    let node = &entry.members[place].value;
    let table = node.table().ok_or(Reason::Unusual)?;
    if is_tied(node) || merges(table) {
        return Err(Reason::Tied);
    }
    let mut names = BTreeSet::new();
    for header in &table.members {
        let once = names.insert(header.key.as_str());
        let canonical = document.raw(&header.key_span) == plain_key(document.format, &header.key);
        if !once || !canonical || !is_token(&header.key) || header.value.text().is_none() {
            return Err(Reason::Unusual);
        }
    }
    Ok(table.members.iter().collect())
}

/// Whether the client will hardly have to log in: there is a credential, or the server is on this machine.
fn has_credentials(url: &str, headers: &[String]) -> bool {
    let speaks = |name: &String| redact::speaks(name) || name.to_lowercase().ends_with("key");
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host_end = after_scheme.find(['/', '?', '#']);
    let authority = &after_scheme[..host_end.unwrap_or(after_scheme.len())];
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let here = ["localhost", "127.", "[::1]"];
    headers.iter().any(speaks)
        || authority.contains('@')
        || url.contains('?')
        || here.iter().any(|name| host.starts_with(name))
}

/// A word of a type as this format writes it.
fn type_token(format: Format, word: &str) -> String {
    if format.is_json() || format == Format::Toml {
        quote(word)
    } else {
        word.to_owned()
    }
}

#[expect(clippy::too_many_arguments, reason = "one change, all its parts")]
fn change(
    document: &Document<'_>,
    client: &Client,
    found: &FoundEntry<'_>,
    (entry, url): (&Table, &Member),
    headers: &[&Member],
    bridge: &Bridge,
    words: &[String],
    wish: &Adopt,
) -> Option<Change> {
    let format = document.format;
    let raw = document.raw(&url.value.span);
    let canonical = document.raw(&url.key_span) == plain_key(format, bridge.url);
    if raw.contains(['\n', '\r']) || !canonical || is_tied(&url.value) {
        return None;
    }
    let mut becomes = found.node.value();
    let Value::Text(address) = becomes.take(bridge.url)? else {
        return None;
    };
    let mut tokens: Vec<String> = words.iter().map(|word| quote(word)).collect();
    tokens.push(raw.to_owned());
    let all = words.iter().cloned().chain([address]);
    let (key, mut splices) = match client.config.entry.words.first()? {
        Words::Split { command, args, .. } => {
            becomes.set(command, Value::Text(wish.program.clone()));
            becomes.set(args, Value::words(all));
            let mut splices = vec![replace(&url.value.span, wish.program_token())];
            splices.extend(insert_after(document, entry, url, args, &tokens).ok()?);
            (command, splices)
        }
        Words::Joined { command } => {
            let program = [wish.program.clone()].into_iter();
            becomes.set(command, Value::words(program.chain(all)));
            tokens.insert(0, wish.program_token());
            let list = format!("[{}]", tokens.join(", "));
            (command, vec![replace(&url.value.span, list)])
        }
    };
    splices.push(replace(&url.key_span, plain_key(format, key)));
    splices.extend(retype(document, entry, bridge, &mut becomes, Way::Adopt)?);
    if let Some((from, to)) = bridge.headers
        && let Some(table) = entry.last(from)
    {
        splices.push(rename(document, table, from, to)?);
        for (number, header) in headers.iter().enumerate() {
            let variable = plain_key(format, &form::variable(number));
            splices.push(replace(&header.key_span, variable));
        }
        let mut values = becomes.take(from)?;
        let mut variables = Value::Table(Vec::new());
        for (number, header) in headers.iter().enumerate() {
            variables.set(&form::variable(number), values.take(&header.key)?);
        }
        becomes.set(to, variables);
    }
    Some(Change { splices, becomes })
}

fn rename(document: &Document<'_>, member: &Member, from: &str, to: &str) -> Option<Splice> {
    let canonical = document.raw(&member.key_span) == plain_key(document.format, from);
    canonical.then(|| replace(&member.key_span, plain_key(document.format, to)))
}

/// Which way an entry goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Adopt,
    Release,
}

/// Changes `type` between remote and local, if such entries have a type. None if the type is not the expected one.
fn retype(
    document: &Document<'_>,
    entry: &Table,
    bridge: &Bridge,
    becomes: &mut Value,
    way: Way,
) -> Option<Vec<Splice>> {
    let Some((remote, local)) = bridge.types else {
        return Some(Vec::new());
    };
    let (from, to) = match way {
        Way::Adopt => (remote, local),
        Way::Release => (local, remote),
    };
    let kind = entry.last("type")?;
    let canonical = document.raw(&kind.value.span) == type_token(document.format, from);
    // On the way back any spelling will do: the client may have rewritten the file.
    if way == Way::Adopt && !canonical || kind.value.text() != Some(from) {
        return None;
    }
    becomes.set("type", Value::Text(to.to_owned()));
    let token = type_token(document.format, to);
    Some(vec![replace(&kind.value.span, token)])
}

/// Puts URL and headers of a bridged entry back.
pub(super) fn release(
    document: &Document<'_>,
    client: &Client,
    found: &FoundEntry<'_>,
    entry: &Table,
    parts: &Parts<'_>,
    headers: &[(String, String)],
) -> Result<Change, Reason> {
    let Remote::LeavesSessionsOpen(bridge) = client.config.entry.remote else {
        return Err(Reason::ByHand);
    };
    if parts.within.is_some() {
        return Err(Reason::ByHand);
    }
    let variables = bridge.headers.and_then(|(_, key)| entry.last(key));
    if let Some(variables) = variables {
        let table = variables.value.table().ok_or(Reason::ForeignVariables)?;
        let known = |member: &Member| headers.iter().any(|(_, name)| *name == member.key);
        if !table.members.iter().all(known) || table.members.len() != headers.len() {
            return Err(Reason::ForeignVariables);
        }
    } else if !headers.is_empty() {
        return Err(Reason::ForeignVariables);
    }
    let change = unbridge(document, found, entry, parts, headers, &bridge);
    change.ok_or(Reason::Unusual)
}

fn unbridge(
    document: &Document<'_>,
    found: &FoundEntry<'_>,
    entry: &Table,
    parts: &Parts<'_>,
    headers: &[(String, String)],
    bridge: &Bridge,
) -> Option<Change> {
    let format = document.format;
    let url = parts.items().ok()?.last()?;
    let raw = document.raw(&url.span);
    if raw.contains(['\n', '\r']) || url.mark.is_some() {
        return None;
    }
    let mut becomes = found.node.value();
    becomes.take(&parts.command.key)?;
    becomes.set(bridge.url, Value::Text(url.text()?.to_owned()));
    let mut splices = vec![
        replace(&parts.command.key_span, plain_key(format, bridge.url)),
        replace(&parts.command.value.span, raw),
    ];
    if let Some((key, place)) = parts.args {
        becomes.take(key)?;
        splices.extend(remove_member(document, entry, place?).ok()?);
    }
    splices.extend(retype(document, entry, bridge, &mut becomes, Way::Release)?);
    if let Some((to, from)) = bridge.headers
        && let Some(variables) = entry.last(from)
    {
        splices.push(replace(&variables.key_span, plain_key(format, to)));
        let mut values = becomes.take(from)?;
        let mut restored = Value::Table(Vec::new());
        for (header, variable) in headers {
            let member = variables.value.table()?.last(variable)?;
            splices.push(replace(&member.key_span, plain_key(format, header)));
            restored.set(header, values.take(variable)?);
        }
        becomes.set(to, restored);
    }
    Some(Change { splices, becomes })
}
