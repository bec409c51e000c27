//! Adopted entries as their client starts them, for commands that look at a config and change nothing.

use std::ffi::OsString;

use super::entries::{self, Parts};
use crate::form::{self, Form};
use crate::format::Document;
use crate::node::{Kind, Node, Table};
use crate::profile::{Client, ConfigFile, Expansion};
use crate::refusal::Refusal;

/// An adopted entry as its client starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The name of the server.
    pub name: String,
    /// The project whose entry it is, for a local entry of Claude Code.
    pub project: Option<String>,
    /// The words after `mainstay run`, variables expanded.
    pub words: Vec<String>,
    /// Variables that the entry sets, expanded.
    pub env: Vec<(String, String)>,
    /// The directory that the entry asks for.
    pub cwd: Option<String>,
    /// A part that only the client can fill in, by a question to the user: `${input:token}`.
    pub asks: Option<String>,
}

/// How many servers of a file go through mainstay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Servers that are a process.
    pub servers: usize,
    /// Those that go through mainstay, in whatever form.
    pub through: usize,
}

/// Counts the servers of a file. It reads the file once and plans nothing.
pub fn survey(bytes: &[u8], client: &Client, file: &ConfigFile) -> Result<Survey, Refusal> {
    let document = Document::read(bytes, file.format)?;
    let config = &client.config;
    let mut survey = Survey::default();
    for found in entries::find(&document, client, file, None)? {
        let Some(entry) = found.node.table() else {
            continue;
        };
        let Ok(Some(parts)) = Parts::of(entry, config.entry.words, config.duplicates) else {
            continue;
        };
        survey.servers += 1;
        let words = parts.words().unwrap_or_default();
        survey.through += usize::from(form::recognise(&words) != Form::Bare);
    }
    Ok(survey)
}

/// The entries of a file that adopt has written. `lookup` gives the value of a variable of the client's environment.
pub fn started(
    bytes: &[u8],
    client: &Client,
    file: &ConfigFile,
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<Started>, Refusal> {
    let document = Document::read(bytes, file.format)?;
    let config = &client.config;
    let expand = |text: &str| expand(text, config.entry.expands, lookup);
    let mut all = Vec::new();
    for found in entries::find(&document, client, file, None)? {
        let Some(entry) = found.node.table() else {
            continue;
        };
        let Ok(Some(parts)) = Parts::of(entry, config.entry.words, config.duplicates) else {
            continue;
        };
        let Ok(words) = parts.words() else { continue };
        match form::recognise(&words) {
            Form::Bare | Form::ByHand => continue,
            Form::Wrapped { .. } | Form::Bridged { .. } => {}
        }
        // The first two are the program and `run`.
        let words = words.iter().skip(2).flatten().map(|word| expand(word));
        let words: Vec<String> = words.collect();
        let env = variables(entry, parts.holder, config.entry.environment, &expand);
        let cwd = text(entry, parts.holder, config.entry.directory).map(|cwd| expand(&cwd));
        let values = env.iter().map(|(_, value)| value);
        let mut texts = words.iter().chain(values).chain(&cwd);
        all.push(Started {
            name: found.name,
            project: (found.table.len() > 1).then(|| found.table[1].clone()),
            asks: texts.find_map(|text| asked(text)),
            words,
            env,
            cwd,
        });
    }
    Ok(all)
}

/// The first `${input:…}` of a text.
fn asked(text: &str) -> Option<String> {
    let found = &text[text.find("${input:")?..];
    Some(found[..=found.find('}')?].to_owned())
}

fn variables(
    entry: &Table,
    holder: &Table,
    key: &str,
    expand: &dyn Fn(&str) -> String,
) -> Vec<(String, String)> {
    let member = holder.last(key).or_else(|| entry.last(key));
    let table = member.and_then(|member| member.value.table());
    let members = table.into_iter().flat_map(|table| &table.members);
    members
        .filter_map(|member| {
            let value = match &member.value.kind {
                Kind::Text(text) => expand(text),
                Kind::Other(text) if text != "null" => text.clone(),
                Kind::Other(_) | Kind::List(_) | Kind::Table(_) => return None,
            };
            Some((member.key.clone(), value))
        })
        .collect()
}

fn text(entry: &Table, holder: &Table, key: &str) -> Option<String> {
    let member = holder.last(key).or_else(|| entry.last(key))?;
    Node::text(&member.value).map(ToOwned::to_owned)
}

/// A text with its variables, as the client expands it. What is not set stays as it is written.
fn expand(
    text: &str,
    expansions: &[Expansion],
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> String {
    let value = |name: &str| lookup(name).and_then(|value| value.into_string().ok());
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let known = expansions.iter().find_map(|expansion| {
            let (length, name, default) = expansion.at(rest)?;
            let value = value(name).or_else(|| default.map(ToOwned::to_owned))?;
            Some((length, value))
        });
        if let Some((length, value)) = known {
            out.push_str(&value);
            rest = &rest[length..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

impl Expansion {
    /// A variable of this form at the start of a text: its length, its name and its default.
    fn at(self, text: &str) -> Option<(usize, &str, Option<&str>)> {
        let (open, close) = match self {
            Self::Dollar => {
                let name = text.strip_prefix('$')?;
                let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                let name = &name[..end.unwrap_or(name.len())];
                let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                return begins.then_some((1 + name.len(), name, None));
            }
            Self::Braces | Self::Default => ("${", '}'),
            Self::DollarEnv => ("${env:", '}'),
            Self::CurlyEnv => ("{env:", '}'),
        };
        let inner = text.strip_prefix(open)?;
        let inner = &inner[..inner.find(close)?];
        let length = open.len() + inner.len() + 1;
        if self == Self::Default {
            let (name, default) = inner.split_once(":-")?;
            return is_name(name).then_some((length, name, Some(default)));
        }
        is_name(inner).then_some((length, inner, None))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    fn lookup(name: &str) -> Option<OsString> {
        (name == "TOKEN").then(|| "secret".into())
    }

    #[test]
    fn each_form_of_a_variable_is_expanded_where_the_client_does_it() {
        use Expansion::{Braces, CurlyEnv, Default, Dollar, DollarEnv};
        for (text, forms, expanded) in [
            ("$TOKEN/x", &[Dollar][..], "secret/x"),
            ("$TOKEN_2 $ $1", &[Dollar], "$TOKEN_2 $ $1"),
            ("a${TOKEN}b", &[Braces, Default], "asecretb"),
            ("${NONE} ${NONE:-d}", &[Braces, Default], "${NONE} d"),
            ("${TOKEN:-d}", &[Braces, Default], "secret"),
            ("${env:TOKEN} ${TOKEN}", &[DollarEnv], "secret ${TOKEN}"),
            ("{env:TOKEN}", &[CurlyEnv], "secret"),
            ("${TOKEN} ${TOKEN", &[], "${TOKEN} ${TOKEN"),
            ("${TOKEN", &[Braces], "${TOKEN"),
            ("é${TOKEN}é", &[Braces], "ésecreté"),
        ] {
            assert_eq!(expand(text, forms, &lookup), expanded, "{text}");
        }
    }

    #[test]
    fn an_adopted_entry_is_given_as_the_client_starts_it() {
        let text = br#"{"mcpServers":{
            "bare":{"command":"npx","args":["x"]},
            "hand":{"command":"mainstay","args":["serve"]},
            "a":{"command":"/b/mainstay","args":["run","--name","a","--","npx","${TOKEN}"],"env":{"K":"${TOKEN}","N":"${NO}"},"cwd":"/srv"}
        },"projects":{"/home/p":{"mcpServers":{"b":{"command":"/b/mainstay","args":["run","--name=b","uvx"]}}}}}"#;
        let claude = profile::named("claude").unwrap();
        let file = &claude.config.files[0];
        let all = started(text, claude, file, &lookup).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].words, ["--name", "a", "--", "npx", "secret"]);
        let env = [("K", "secret"), ("N", "${NO}")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(all[0].env, env);
        assert_eq!(all[0].cwd.as_deref(), Some("/srv"));
        assert_eq!(all[1].project.as_deref(), Some("/home/p"));
        let count = survey(text, claude, file).unwrap();
        assert_eq!((count.servers, count.through), (4, 3));
    }

    #[test]
    fn what_only_the_client_can_fill_in_is_named() {
        let code = profile::named("code").unwrap();
        for (entry, asks) in [
            (
                r#""args":["run","--name","n","--","npx","--key=${input:key}!"]"#,
                Some("${input:key}"),
            ),
            (
                r#""args":["run","--name=n","npx"],"env":{"A":"a","T":"${input:notes-token}"}"#,
                Some("${input:notes-token}"),
            ),
            (
                r#""args":["run","--name=n","npx"],"env":{"T":"${env:TOKEN} ${input:"}"#,
                None,
            ),
        ] {
            let text = format!(r#"{{"servers":{{"n":{{"command":"/b/mainstay",{entry}}}}}}}"#);
            let all = started(text.as_bytes(), code, &code.config.files[0], &lookup).unwrap();
            assert_eq!(all[0].asks.as_deref(), asks, "{entry}");
        }
    }
}
