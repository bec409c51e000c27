//! The schema and the reader of the config file agree: what one accepts, the other accepts.
//!
//! The validator knows exactly the keywords that the schema uses, and panics at any other. It is small because the usual crates
//! for this bring fifty others.

use std::path::Path;

use mainstay_store::config::file;
use serde_json::Value;

use super::schema;

/// Config files that are right.
const GOOD: [&str; 8] = [
    "",
    "[defaults]\ngrace_eof = '3s'\ngrace_term = 0\nmemory_max = '2G'\nhibernate = '10min'\nstderr_tail_lines = 10\n",
    "[defaults]\nstderr_tail_bytes = 8192\nrecord_bytes = '100 MB'\nheld_bytes = '512kib'\nheld_messages = '64'\nlinger = ' 1 h '\n",
    "[server.play]\ncommand = 'npx'\nargs = ['-y', '@playwright/mcp']\nenv = { DEBUG = 'pw:mcp' }\ncwd = '~/work'\nrequire_tier = 'cgroup'\n",
    "[server.far]\nurl = 'https://example.com/mcp'\nheaders = { X-Team = 'blue' }\nheader_env = { Authorization = 'MY_TOKEN' }\nretry = 'annotated'\n",
    "[server.'dotted.name']\nlazy = true\nwatch = ['src', '~/lib']\nrecord_file = '/tmp/x'\nrecord = false\nshare = true\n",
    "[serve]\nlisten = '127.0.0.1:8808'\ntoken_file = '~/token'\nallow_user = [1000, 'root', 'any']\nsession_ttl = '10m'\n",
    "[events]\ndays = 30\nsize = '100M'\n[reap]\nprotect = ['browser']\n",
];

/// Config files that are wrong, each in one place.
const BAD: [&str; 26] = [
    "[defaults]\ngrce_eof = '2s'\n",
    "[defaults]\ngrace_eof = 2\n",
    "[defaults]\ngrace_eof = '2'\n",
    "[defaults]\ngrace_eof = '2 sec'\n",
    "[defaults]\nmemory_max = '2 gigs'\n",
    "[defaults]\nmemory_max = '8i'\n",
    "[defaults]\nstderr_tail_lines = 'many'\n",
    "[defaults]\nstderr_tail_lines = -1\n",
    "[defaults]\ntier = 'jail'\n",
    "[defaults]\nretry = 'always'\n",
    "[defaults]\nlazy = 'yes'\n",
    "[defaults]\ncommand = 'npx'\n",
    "[servers.x]\n",
    "[server]\nx = 1\n",
    "[server.x]\nargs = ['a']\n",
    "[server.x]\ncommand = 'c'\nargs = [1]\n",
    "[server.x]\ncommand = 'c'\nurl = 'http://h/'\n",
    "[server.x]\ncwd = 'work'\n",
    "[server.x]\nurl = 'ftp://h/'\n",
    "[server.x]\nenv = { 'A=B' = '1' }\n",
    "[server.x]\nheaders = { 'A b' = '1' }\n",
    "[server.x]\nwatch = ['']\n",
    "[serve]\nallow_user = 1000\n",
    "[serve]\nlisten = 'here'\n",
    "[events]\ndays = 0\n",
    "[reap]\nprotect = ['']\n",
];

#[test]
fn schema_accepts_what_the_reader_accepts() {
    let schema = schema();
    for (texts, good) in [(&GOOD[..], true), (&BAD, false)] {
        for text in texts {
            let read = file::parse(Path::new("c.toml"), Path::new("/home/ann"), text);
            assert_eq!(read.is_ok(), good, "the reader: {text}: {read:?}");
            let value: Value = toml::from_str(text).unwrap();
            let mistake = mistake(&schema, &value, "");
            assert_eq!(mistake.is_none(), good, "the schema: {text}: {mistake:?}");
        }
    }
}

#[test]
fn patterns_are_matched_as_a_validator_does() {
    for (pattern, text, matches) in [
        ("[0-9]", "a1", true),
        ("^[0-9]", "a1", false),
        ("^(a|bc)+$", "abca", true),
        ("^(a|bc)+$", "abc ", false),
        ("^ab?(c(d)?)*$", "accdc", true),
        ("^[^=]+$", "a=b", false),
        ("^[-.]$", "-", true),
        ("^(/|~$)", "~x", false),
    ] {
        assert_eq!(finds(pattern, text), matches, "{pattern} {text}");
    }
}

/// Where a value is not what the schema says, if anywhere.
fn mistake(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let Value::Object(rules) = schema else {
        let refuses = schema == &Value::Bool(false);
        return refuses.then(|| format!("{at}: not allowed"));
    };
    let broken = rules.iter().find_map(|(keyword, rule)| {
        let fits = match keyword.as_str() {
            // The last four are rules for what is inside a value.
            "$schema"
            | "title"
            | "description"
            | "deprecated"
            | "items"
            | "properties"
            | "additionalProperties"
            | "propertyNames" => true,
            "type" => is_type(rule.as_str().unwrap(), value),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "pattern" => {
                let pattern = rule.as_str().unwrap();
                value.as_str().is_none_or(|text| finds(pattern, text))
            }
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
            "minimum" => value.as_i64().is_none_or(|it| it >= rule.as_i64().unwrap()),
            "maximum" => value.as_i64().is_none_or(|it| it <= rule.as_i64().unwrap()),
            "anyOf" => {
                let mut any = rule.as_array().unwrap().iter();
                any.any(|one| mistake(one, value, at).is_none())
            }
            "not" => mistake(rule, value, at).is_some(),
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "dependencies" => rule.as_object().unwrap().iter().all(|(name, needs)| {
                let mut needs = needs.as_array().unwrap().iter();
                value.get(name).is_none()
                    || needs.all(|one| value.get(one.as_str().unwrap()).is_some())
            }),
            other => panic!("the validator does not know {other}"),
        };
        (!fits).then(|| format!("{at}: {keyword}"))
    });
    broken.or_else(|| inside(rules, value, at))
}

fn inside(rules: &serde_json::Map<String, Value>, value: &Value, at: &str) -> Option<String> {
    if let (Some(items), Some(list)) = (rules.get("items"), value.as_array()) {
        return list.iter().find_map(|one| mistake(items, one, at));
    }
    value.as_object()?.iter().find_map(|(name, one)| {
        let at = format!("{at}.{name}");
        let named = rules.get("propertyNames");
        let named = named.and_then(|rule| mistake(rule, &Value::String(name.clone()), &at));
        let known = rules.get("properties").and_then(|all| all.get(name));
        let rule = known.or_else(|| rules.get("additionalProperties"));
        named.or_else(|| mistake(rule?, one, &at))
    })
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("the validator does not know the type {other}"),
    }
}

/// Whether a regular expression is found in a text. It knows `^ $ | ? * + ( ) [ ]` and plain characters.
fn finds(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    (0..=text.len()).any(|from| choice(&pattern, &text, from, &mut |_| true))
}

/// One of the alternatives of a pattern, then what follows.
fn choice(pattern: &[char], text: &[char], at: usize, then: &mut dyn FnMut(usize) -> bool) -> bool {
    let mut rest = pattern;
    loop {
        let end = split(rest, |c| c == '|').unwrap_or(rest.len());
        if sequence(&rest[..end], text, at, then) {
            return true;
        }
        match rest.get(end + 1..) {
            Some(others) if end < rest.len() => rest = others,
            Some(_) | None => return false,
        }
    }
}

fn sequence(
    pattern: &[char],
    text: &[char],
    at: usize,
    then: &mut dyn FnMut(usize) -> bool,
) -> bool {
    let Some(first) = pattern.first() else {
        return then(at);
    };
    let length = match first {
        '(' => split(&pattern[1..], |c| c == ')').unwrap() + 2,
        '[' => pattern.iter().position(|c| *c == ']').unwrap() + 1,
        _ => 1,
    };
    let (atom, rest) = pattern.split_at(length);
    let repeat = rest.first().filter(|c| "?*+".contains(**c)).copied();
    let rest = if repeat.is_some() { &rest[1..] } else { rest };
    let once = |at: usize, then: &mut dyn FnMut(usize) -> bool| match first {
        '^' => at == 0 && then(at),
        '$' => at == text.len() && then(at),
        '(' => choice(&atom[1..length - 1], text, at, then),
        '[' => {
            text.get(at)
                .is_some_and(|c| class(&atom[1..length - 1], *c))
                && then(at + 1)
        }
        plain => text.get(at) == Some(plain) && then(at + 1),
    };
    match repeat {
        None => once(at, &mut |at| sequence(rest, text, at, then)),
        Some('?') => {
            once(at, &mut |at| sequence(rest, text, at, then)) || sequence(rest, text, at, then)
        }
        Some(repeat) => {
            // The atom, then the same pattern with any number of it.
            let mut more: Vec<char> = atom.to_vec();
            more.push('*');
            more.extend(rest);
            once(at, &mut |next| {
                next > at && sequence(&more, text, next, then)
            }) || repeat == '*' && sequence(rest, text, at, then)
        }
    }
}

/// Where a character is that is in no group or class.
fn split(pattern: &[char], is: impl Fn(char) -> bool) -> Option<usize> {
    let (mut depth, mut in_class) = (0, false);
    pattern.iter().position(|&c| {
        let found = depth == 0 && !in_class && is(c);
        match c {
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth -= 1,
            _ => {}
        }
        found
    })
}

fn class(inner: &[char], c: char) -> bool {
    let (negated, inner) = match inner {
        ['^', rest @ ..] => (true, rest),
        inner => (false, inner),
    };
    let mut rest = inner;
    let mut found = false;
    while let Some((&first, others)) = rest.split_first() {
        match others {
            ['-', last, after @ ..] => {
                found |= (first..=*last).contains(&c);
                rest = after;
            }
            others => {
                found |= first == c;
                rest = others;
            }
        }
    }
    found != negated
}
