//! A message without what looks like a secret. The message may be whole, cut off anywhere, or no JSON at all.
//!
//! It does not parse: it walks over strings, words and brackets, and a string or word before a colon is a name. So a
//! message that ends in the middle of a secret is treated like a whole one, and what was valid JSON stays valid. A text
//! within a message that is JSON itself (tools answer like that) is treated as a message, other texts as prose.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::ops::Range;

use super::{BEGINNINGS, HIDDEN, secret_of, speaks};

/// What stands in place of a secret in JSON.
const QUOTED: &str = "\"[hidden]\"";
/// How deep messages within texts of messages are followed; deeper ones are prose.
const DEPTH: u32 = 4;
/// The shortest word behind a known beginning that is a token.
const TOKEN_CHARS: usize = 12;

/// The same text with each secret hidden.
pub fn body(text: &str) -> Cow<'_, str> {
    any(text, DEPTH)
}

fn any(text: &str, depth: u32) -> Cow<'_, str> {
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    if depth > 0 && begins.starts_with(['{', '[']) {
        Walk::new(text, depth).run()
    } else {
        prose(text)
    }
}

/// What a name says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Nothing.
    Plain,
    /// It is a secret.
    Secret,
    /// It is a secret unless it is a number: `max_tokens`.
    Countable,
    /// It is the name of what stands beside it: `{"name": "API_KEY", "value": "…"}`.
    Naming,
    /// It is what such a name names.
    Named,
}

fn name(key: &str) -> Name {
    let plain: String = key
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    match plain.as_str() {
        // The protocol's own word for what progress belongs to.
        "progresstoken" => Name::Plain,
        "auth" => Name::Secret,
        // Also what tests do.
        "pass" => Name::Countable,
        "name" | "key" | "header" | "variable" => Name::Naming,
        "value" => Name::Named,
        _ if !speaks(key) => Name::Plain,
        _ if plain.ends_with("tokens") || plain.ends_with("tokencount") => Name::Countable,
        _ => Name::Secret,
    }
}

struct Walk<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
    brackets: u32,
    /// All within these brackets is secret.
    hidden: Option<u32>,
    /// The name whose value comes.
    name: Name,
    /// Within these brackets, what stands beside it was named like a secret.
    named: Option<u32>,
    /// The word before, in a list of words, is an option whose value is a secret.
    follows: bool,
    out: Rewritten<'t>,
}

impl<'t> Walk<'t> {
    fn new(text: &'t str, depth: u32) -> Self {
        Self {
            text,
            at: 0,
            depth,
            brackets: 0,
            hidden: None,
            name: Name::Plain,
            named: None,
            follows: false,
            out: Rewritten::new(text),
        }
    }

    fn run(mut self) -> Cow<'t, str> {
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => self.open(),
                b'}' | b']' => self.close(),
                b',' => {
                    self.name = Name::Plain;
                    self.at += 1;
                }
                b':' | b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                _ => self.word(),
            }
        }
        self.out.done()
    }

    fn open(&mut self) {
        self.brackets += 1;
        self.at += 1;
        if self.secret() && self.hidden.is_none() {
            self.hidden = Some(self.brackets);
        }
        self.name = Name::Plain;
        self.follows = false;
    }

    fn close(&mut self) {
        if self.hidden == Some(self.brackets) {
            self.hidden = None;
        }
        if self.named == Some(self.brackets) {
            self.named = None;
        }
        self.brackets = self.brackets.saturating_sub(1);
        self.name = Name::Plain;
        self.follows = false;
        self.at += 1;
    }

    /// Whether the value that comes is one.
    fn secret(&self) -> bool {
        let by_name = match self.name {
            Name::Secret | Name::Countable => true,
            Name::Named => self.named == Some(self.brackets),
            Name::Plain | Name::Naming => false,
        };
        by_name || self.hidden.is_some() || self.follows
    }

    fn string(&mut self) {
        let start = self.at;
        let (end, closed) = string_end(self.text, start);
        self.at = end;
        let inner = &self.text[start + 1..end - usize::from(closed)];
        let said = decoded(inner);
        if closed && self.colon_follows() {
            self.name = said.as_deref().map_or(Name::Secret, name);
            return;
        }
        if self.secret() {
            self.follows = false;
            self.out.replace(start..end, QUOTED);
        } else if let Some(said) = said {
            if self.name == Name::Naming {
                self.named = speaks(&said).then_some(self.brackets).or(self.named);
            }
            self.follows = said.starts_with('-') && !said.contains(['=', ' ']) && speaks(&said);
            if let Cow::Owned(other) = any(&said, self.depth - 1) {
                let other = serde_json::to_string(&other);
                let other = other.unwrap_or_else(|_| QUOTED.into());
                self.out.replace(start..end, &other);
            }
        } else {
            // It cannot be read, so it cannot be judged.
            self.out.replace(start..end, QUOTED);
        }
        self.name = Name::Plain;
    }

    /// A number, `true`, or something that no JSON has.
    fn word(&mut self) {
        let start = self.at;
        let rest = &self.text[start..];
        // It begins with something else, so it is never empty.
        let ends = |c: char| "\",:{}[] \t\r\n".contains(c);
        self.at = start + rest.find(ends).unwrap_or(rest.len());
        let word = &self.text[start..self.at];
        if self.colon_follows() {
            self.name = name(word);
            return;
        }
        let harmless = matches!(word, "true" | "false" | "null");
        let counted = self.name == Name::Countable && self.hidden.is_none();
        let number = word.bytes().all(|b| b"+-.eE0123456789".contains(&b));
        if self.secret() && !harmless && !(counted && number) {
            // The name stays: what is no JSON may have several words.
            self.out.replace(start..self.at, QUOTED);
        } else if let Cow::Owned(other) = prose(word) {
            self.out.replace(start..self.at, &other);
        }
    }

    fn colon_follows(&self) -> bool {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        rest.starts_with(':')
    }
}

/// Where a string that begins here ends, and whether it does.
fn string_end(text: &str, start: usize) -> (usize, bool) {
    let mut escaped = false;
    for (at, byte) in text[start + 1..].bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return (start + at + 2, true),
            _ => {}
        }
    }
    (text.len(), false)
}

/// What a string says; it may be cut off within an escape.
fn decoded(inner: &str) -> Option<Cow<'_, str>> {
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut inner = inner;
    // A character of two escapes may be cut off within its second one.
    for _ in 0..3 {
        if let Ok(said) = serde_json::from_str::<String>(&format!("\"{inner}\"")) {
            return Some(Cow::Owned(said));
        }
        inner = &inner[..inner.rfind('\\')?];
    }
    None
}

/// A text that is no message: names with values, headers, addresses, and words that are tokens by their look.
fn prose(text: &str) -> Cow<'_, str> {
    let mut out = Rewritten::new(text);
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        match secret_at(text, at) {
            Some(range) if !range.is_empty() => {
                at = range.end;
                out.replace(range, HIDDEN);
            }
            Some(_) | None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    out.done()
}

/// The secret that is told of here, if one is.
fn secret_at(text: &str, at: usize) -> Option<Range<usize>> {
    let (before, rest) = text.split_at(at);
    let starts_word = before
        .chars()
        .next_back()
        .is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    if rest.starts_with([':', '=']) {
        let value = at + 1;
        if text[value..].starts_with("//") {
            return password(before, text, value + 2);
        }
        let name = before.trim_end_matches([' ', '"', '\'', '\\', '`']);
        let name = &name[name.trim_end_matches(is_of_name).len()..];
        return speaks_here(name).then(|| value_of(text, value, name));
    }
    if !starts_word {
        return None;
    }
    if rest.starts_with("-----BEGIN ") {
        let end = rest.find("-----END").unwrap_or(rest.len());
        return Some(at..at + end);
    }
    for scheme in ["Bearer ", "bearer ", "Basic "] {
        if let Some(token) = rest.strip_prefix(scheme) {
            let len = word_len(token);
            let start = at + scheme.len();
            let looks = token[..len].bytes().any(|b| b.is_ascii_digit()) || len >= TOKEN_CHARS;
            return (looks || start + len == text.len()).then_some(start..start + len);
        }
    }
    if !BEGINNINGS.iter().any(|start| rest.starts_with(start)) {
        return None;
    }
    let end = at + word_len(rest);
    (end - at >= TOKEN_CHARS || end == text.len()).then_some(at..end)
}

fn speaks_here(named: &str) -> bool {
    matches!(name(named), Name::Secret)
}

/// A header goes to the end of its line, another value to the end of its word.
fn value_of(text: &str, start: usize, name: &str) -> Range<usize> {
    let rest = &text[start..];
    let value = rest.trim_start_matches([' ', '"', '\'', '\\', '`']);
    let start = start + rest.len() - value.len();
    let name = name.to_ascii_lowercase();
    let header = name.contains("authorization") || name.contains("cookie");
    let len = if header {
        let ends = |c: char| "\"'\n\r\\`".contains(c);
        value.find(ends).unwrap_or(value.len())
    } else {
        word_len(value)
    };
    start..start + len
}

/// `user:password@host`, `token@host`.
fn password(scheme: &str, text: &str, start: usize) -> Option<Range<usize>> {
    let rest = &text[start..];
    let ends = |c: char| c.is_whitespace() || "/\"'<>".contains(c);
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    if let Some(at) = authority.rfind('@') {
        let secret = secret_of(scheme, &authority[..at])?;
        return Some(start + secret..start + at);
    }
    // Cut off before the `@`, unless it is a port.
    let colon = authority.find(':')?;
    let tail = &authority[colon + 1..];
    let port = tail.len() <= 5 && tail.bytes().all(|b| b.is_ascii_digit());
    (authority.len() == rest.len() && !port).then_some(start + colon + 1..start + authority.len())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

fn word_len(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || "\"'`&,;()<>{}[]\\".contains(c);
    text.find(ends).unwrap_or(text.len())
}

/// A text of which parts are replaced, in order; it is copied with the first of them.
struct Rewritten<'t> {
    text: &'t str,
    out: Option<String>,
    kept: usize,
}

impl<'t> Rewritten<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            out: None,
            kept: 0,
        }
    }

    fn replace(&mut self, range: Range<usize>, by: &str) {
        let out = self.out.get_or_insert_default();
        out.push_str(&self.text[self.kept..range.start]);
        out.push_str(by);
        self.kept = range.end;
    }

    fn done(self) -> Cow<'t, str> {
        let Self { text, out, kept } = self;
        match out {
            None => Cow::Borrowed(text),
            Some(mut out) => {
                out.push_str(&text[kept..]);
                Cow::Owned(out)
            }
        }
    }
}

#[cfg(test)]
mod tests;
