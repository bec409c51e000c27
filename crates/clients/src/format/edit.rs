//! The edits that adopting and releasing need, as splices of a text.
//!
//! Each function looks at the text around a value and says which bytes to put where. `prepend` and `drop_front`, `insert_after` and
//! `remove_member` are pairs: the second undoes the first to the byte. Comments that stand between what is removed stay.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use super::{Document, Format};
use crate::node::{List, Member, Node, Style, Table};

/// Bytes that take the place of others. The places are those of the text without its byte order mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// What is taken out.
    pub span: Range<usize>,
    /// What is put there.
    pub text: String,
}

/// The layout around a value is one that these edits do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusual;

type Edits = Result<Vec<Splice>, Unusual>;

/// The text with all splices done. They must not overlap.
pub fn apply(text: &str, splices: &[Splice]) -> String {
    let ordered = in_order(splices);
    let mut done = String::with_capacity(text.len() + 256);
    let mut at = 0;
    for splice in ordered {
        debug_assert!(splice.span.start >= at, "splices overlap");
        done.push_str(&text[at..splice.span.start]);
        done.push_str(&splice.text);
        at = splice.span.end;
    }
    done.push_str(&text[at..]);
    done
}

/// Sorted by place; of two at one place the insertion comes first.
pub(crate) fn in_order(splices: &[Splice]) -> Vec<&Splice> {
    let mut ordered: Vec<&Splice> = splices.iter().collect();
    ordered.sort_by_key(|splice| (splice.span.start, splice.span.end));
    ordered
}

/// A string as this format writes it, in double quotes.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // Line ends in YAML and JavaScript, the byte order mark, and what TOML forbids.
            c if c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&c) => {
                // Writing to a string cannot fail.
                let _infallible = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Puts a token in the place of a value or key.
pub(crate) fn replace(span: &Range<usize>, token: impl Into<String>) -> Splice {
    Splice {
        span: span.clone(),
        text: token.into(),
    }
}

fn remove(span: Range<usize>) -> Splice {
    Splice {
        span,
        text: String::new(),
    }
}

/// Puts tokens before the first item of a list.
pub(crate) fn prepend(document: &Document<'_>, list: &Node, tokens: &[String]) -> Edits {
    let items = &list.list().ok_or(Unusual)?.items;
    match (style(list), items.first()) {
        (Style::Brackets, None) => Ok(vec![Splice {
            span: list.span.start + 1..list.span.start + 1,
            text: tokens.join(", "),
        }]),
        (Style::Brackets, Some(first)) => {
            let start = first.span.start;
            let gap = blank_before(document.text, start);
            let between = if gap.contains('\n') { gap } else { " " };
            let mut text = String::new();
            for token in tokens {
                text.push_str(token);
                text.push(',');
                text.push_str(between);
            }
            Ok(vec![Splice {
                span: start..start,
                text,
            }])
        }
        (Style::Lines, None) => Err(Unusual),
        (Style::Lines, Some(first)) => {
            let dash = dash_of(document, first)?;
            let indent = indent_of(document.text, dash)?;
            let newline = newline_near(document.text, dash);
            let mut text = String::new();
            for token in tokens {
                text.extend(["- ", token, newline, indent]);
            }
            Ok(vec![Splice {
                span: dash..dash,
                text,
            }])
        }
    }
}

/// Takes the first items of a list away. `key_end` is where the key of the list ends.
pub(crate) fn drop_front(
    document: &Document<'_>,
    list: &Node,
    key_end: usize,
    count: usize,
) -> Edits {
    let items = &list.list().ok_or(Unusual)?.items;
    if count == 0 || count > items.len() {
        return Err(Unusual);
    }
    match style(list) {
        Style::Brackets => Ok(drop_from_brackets(document, list, items, count)),
        Style::Lines if count == items.len() => {
            // A block has at least one item: an empty list is written behind the key.
            let start = dash_of(document, &items[0])?;
            let gap = &document.text[key_end..start];
            let (before, after) = gap.split_once(':').ok_or(Unusual)?;
            if !before.trim().is_empty() {
                return Err(Unusual);
            }
            let colon = key_end + before.len() + 1;
            let end = items[count - 1].span.end;
            if after.trim().is_empty() && !has_comments(document, start..end, items) {
                return Ok(vec![Splice {
                    span: colon..end,
                    text: " []".into(),
                }]);
            }
            let empty = Splice {
                span: colon..colon,
                text: " []".into(),
            };
            let lines = drop_lines(document, items);
            std::iter::once(Ok(empty)).chain(lines).collect()
        }
        Style::Lines => {
            let start = dash_of(document, &items[0])?;
            let end = dash_of(document, &items[count])?;
            if !has_comments(document, start..end, &items[..count]) {
                return Ok(vec![remove(start..end)]);
            }
            drop_lines(document, &items[..count]).collect()
        }
    }
}

/// Takes items of a block away with their lines; comments stay.
fn drop_lines(
    document: &Document<'_>,
    items: &[Node],
) -> impl Iterator<Item = Result<Splice, Unusual>> {
    items.iter().map(|item| {
        let dash = dash_of(document, item)?;
        let end = line_end(document.text, item.span.end);
        let rest = &document.text[item.span.end..end];
        Ok(if rest.trim().is_empty() {
            let next = after_newline(document.text, end);
            remove(line_start(document.text, dash)..next)
        } else {
            remove(dash..item.span.end)
        })
    })
}

fn drop_from_brackets(
    document: &Document<'_>,
    list: &Node,
    items: &[Node],
    count: usize,
) -> Vec<Splice> {
    // `prepend` puts no blank before its first word. If there is one, the client has written the list anew, and an empty one is `[]`.
    let within = list.span.start + 1..list.span.end - 1;
    let rewritten = within.start < items[0].span.start;
    let blank = |c: char| c.is_whitespace() || c == ',';
    if count == items.len() && rewritten && between(document, &within, items).chars().all(blank) {
        return vec![remove(within)];
    }
    let mut splices = Vec::new();
    for (place, item) in items[..count].iter().enumerate() {
        if let Some(next) = items.get(place + 1) {
            let gap = item.span.end..next.span.start;
            splices.extend(remove_with_comma(document, &item.span, gap));
        } else {
            splices.push(remove(item.span.clone()));
            let gap = item.span.end..list.span.end - 1;
            let comma = comma_in(document, gap).map(|at| remove(at..at + 1));
            splices.extend(comma);
        }
    }
    splices
}

/// A value and the comma behind it; blanks too, unless there are comments among them.
fn remove_with_comma(
    document: &Document<'_>,
    span: &Range<usize>,
    gap: Range<usize>,
) -> Vec<Splice> {
    if document.text[gap.clone()].trim() == "," {
        return vec![remove(span.start..gap.end)];
    }
    let comma = comma_in(document, gap).map(|at| remove(at..at + 1));
    std::iter::once(remove(span.clone())).chain(comma).collect()
}

/// Takes one item of a list between brackets away.
pub(crate) fn remove_item(document: &Document<'_>, list: &Node, place: usize) -> Edits {
    let items = &list.list().ok_or(Unusual)?.items;
    let item = items.get(place).ok_or(Unusual)?;
    let Some(before) = place.checked_sub(1).map(|place| &items[place]) else {
        return drop_front(document, list, list.span.start, 1);
    };
    let gap = before.span.end..item.span.start;
    let comma = comma_in(document, gap.clone()).ok_or(Unusual)?;
    Ok(if document.text[gap].trim() == "," {
        vec![remove(comma..item.span.end)]
    } else {
        vec![remove(comma..comma + 1), remove(item.span.clone())]
    })
}

/// Adds a member at the end of a JSON object.
pub(crate) fn insert_member(
    document: &Document<'_>,
    object: &Node,
    key: &str,
    value: &str,
) -> Edits {
    let table = object.table().ok_or(Unusual)?;
    let Some(last) = table.members.last() else {
        let at = object.span.start + 1;
        return Ok(vec![Splice {
            span: at..at,
            text: format!("{}: {value}", plain_key(document.format, key)),
        }]);
    };
    insert_text_after(document, table, last, key, value)
}

/// Takes a member of a JSON object away, which may be the only one.
pub(crate) fn remove_from(document: &Document<'_>, object: &Node, place: usize) -> Edits {
    let table = object.table().ok_or(Unusual)?;
    if table.members.len() > 1 {
        return remove_member(document, table, place);
    }
    let member = table.members.get(place).ok_or(Unusual)?;
    let whole = member.key_span.start..member.value.span.end;
    let gap = whole.end..object.span.end - 1;
    let comma = comma_in(document, gap).map(|at| remove(at..at + 1));
    Ok(std::iter::once(remove(whole)).chain(comma).collect())
}

/// Adds a member with a list behind another one.
pub(crate) fn insert_after(
    document: &Document<'_>,
    table: &Table,
    member: &Member,
    key: &str,
    tokens: &[String],
) -> Edits {
    let list = format!("[{}]", tokens.join(", "));
    insert_text_after(document, table, member, key, &list)
}

fn insert_text_after(
    document: &Document<'_>,
    table: &Table,
    member: &Member,
    key: &str,
    value: &str,
) -> Edits {
    let key = plain_key(document.format, key);
    match table.style {
        Style::Brackets => {
            let gap = blank_before(document.text, member.key_span.start);
            let between = gap.rfind('\n').map_or(Cow::Borrowed(" "), |newline| {
                let newline_start = newline - usize::from(gap[..newline].ends_with('\r'));
                Cow::Borrowed(&gap[newline_start..])
            });
            let colon = if document.format == Format::Toml {
                " = "
            } else {
                ": "
            };
            let at = member.value.span.end;
            Ok(vec![Splice {
                span: at..at,
                text: format!(",{between}{key}{colon}{value}"),
            }])
        }
        Style::Lines => {
            let start = line_start(document.text, member.key_span.start);
            let before = &document.text[start..member.key_span.start];
            let (before, colon) = match document.format {
                Format::Toml => (Cow::Borrowed(toml_prefix(before)?), " = "),
                Format::Yaml => (Cow::Owned(yaml_prefix(before)?), ": "),
                Format::Json | Format::JsonComments | Format::JsonLenient => return Err(Unusual),
            };
            let at = line_end(document.text, member.value.span.end);
            let newline = newline_near(document.text, at);
            Ok(vec![Splice {
                span: at..at,
                text: format!("{newline}{before}{key}{colon}{value}"),
            }])
        }
    }
}

/// Takes a member away.
pub(crate) fn remove_member(document: &Document<'_>, table: &Table, place: usize) -> Edits {
    let member = &table.members[place];
    let whole = member.key_span.start..member.value.span.end.max(member.key_span.end);
    match table.style {
        Style::Brackets => {
            // Members of a TOML table are sorted by key, so neighbours are found by place.
            let ends = table.members.iter().map(|other| other.value.span.end);
            let starts = table.members.iter().map(|other| other.key_span.start);
            let before = ends.filter(|end| *end <= whole.start).max();
            let after = starts.filter(|start| *start >= whole.end).min();
            Ok(match (before, after) {
                (Some(before), _) => {
                    let gap = before..whole.start;
                    let comma = comma_in(document, gap.clone()).ok_or(Unusual)?;
                    if document.text[gap].trim() == "," {
                        vec![remove(comma..whole.end)]
                    } else {
                        vec![remove(comma..comma + 1), remove(whole)]
                    }
                }
                (None, Some(after)) => remove_with_comma(document, &whole, whole.end..after),
                (None, None) => return Err(Unusual),
            })
        }
        Style::Lines => {
            let start = line_start(document.text, whole.start);
            let end = line_end(document.text, whole.end);
            let before = &document.text[start..whole.start];
            let rest = &document.text[whole.end..end];
            let dotted = document.format == Format::Toml;
            if !before.trim().is_empty() && !dotted {
                // The first key behind a dash: the next key takes its place.
                let starts = table.members.iter().map(|other| other.key_span.start);
                let next = starts.filter(|start| *start >= whole.end).min();
                let next = next.ok_or(Unusual)?;
                let blank = document.text[whole.end..next].trim().is_empty();
                yaml_prefix(before)?;
                // With a comment in between, the dash stays alone on its line.
                let end = if blank { next } else { whole.end };
                return Ok(vec![remove(whole.start..end)]);
            }
            if dotted {
                toml_prefix(before)?;
            }
            if !rest.trim().is_empty() {
                let from = start + before.len() - before.trim_start().len();
                return Ok(vec![remove(from..whole.end)]);
            }
            let newline = before_newline(document.text, start);
            Ok(vec![if newline < start {
                remove(newline..end)
            } else {
                remove(start..after_newline(document.text, end))
            }])
        }
    }
}

/// A key as these formats write it.
pub(crate) fn plain_key(format: Format, key: &str) -> String {
    if format.is_json() {
        quote(key)
    } else {
        key.to_owned()
    }
}

fn style(node: &Node) -> Style {
    node.list()
        .map_or(Style::Brackets, |list: &List| list.style)
}

/// Where the `-` of an item of a YAML block stands.
fn dash_of(document: &Document<'_>, item: &Node) -> Result<usize, Unusual> {
    if document.format != Format::Yaml {
        return Err(Unusual);
    }
    let before = &document.text[..item.span.start];
    let trimmed = before.trim_end_matches([' ', '\t']);
    let dash = trimmed.strip_suffix('-').ok_or(Unusual)?;
    Ok(dash.len())
}

/// The blanks before a place, if nothing else is before it on its line.
fn indent_of(text: &str, at: usize) -> Result<&str, Unusual> {
    let indent = &text[line_start(text, at)..at];
    if indent.chars().all(|c| c == ' ') {
        Ok(indent)
    } else {
        Err(Unusual)
    }
}

/// What stands before a key on its line, for the next line of the same table: blanks, or the front of a dotted key.
fn toml_prefix(before: &str) -> Result<&str, Unusual> {
    let dotted = before.trim_end().ends_with('.');
    let unknown = before.contains(['{', '}', '=', ',', '[', ']', '#']);
    if before.trim().is_empty() || dotted && !unknown {
        Ok(before)
    } else {
        Err(Unusual)
    }
}

fn yaml_prefix(before: &str) -> Result<String, Unusual> {
    if before.chars().all(|c| c == ' ' || c == '-') {
        Ok(" ".repeat(before.len()))
    } else {
        Err(Unusual)
    }
}

/// The blanks that end at a place.
fn blank_before(text: &str, at: usize) -> &str {
    let before = &text[..at];
    &before[before.trim_end().len()..]
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line of a place ends, before its newline.
fn line_end(text: &str, at: usize) -> usize {
    match text[at..].find('\n') {
        Some(length) => {
            let end = at + length;
            end - usize::from(text[at..end].ends_with('\r'))
        }
        None => text.len(),
    }
}

fn after_newline(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let newline = ["\r\n", "\n"].iter().find(|end| rest.starts_with(**end));
    at + newline.map_or(0, |newline| newline.len())
}

fn before_newline(text: &str, at: usize) -> usize {
    let before = &text[..at];
    let newline = ["\r\n", "\n"].iter().find(|end| before.ends_with(**end));
    at - newline.map_or(0, |newline| newline.len())
}

/// How the lines around a place end.
fn newline_near(text: &str, at: usize) -> &'static str {
    let end = text[at..].find('\n').map(|length| at + length);
    match end.or_else(|| text[..at].rfind('\n')) {
        Some(end) if text[..end].ends_with('\r') => "\r\n",
        Some(_) | None => "\n",
    }
}

/// The first comma in a gap that is not in a comment.
fn comma_in(document: &Document<'_>, gap: Range<usize>) -> Option<usize> {
    let mut at = gap.start;
    while at < gap.end {
        let rest = &document.text[at..gap.end];
        match comment_length(document.format, rest) {
            Some(length) => at += length,
            None if rest.starts_with(',') => return Some(at),
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    None
}

/// How long the comment is that a text begins with, if it begins with one.
pub(crate) fn comment_length(format: Format, text: &str) -> Option<usize> {
    let line = |text: &str| text.find('\n').unwrap_or(text.len());
    if !format.is_json() {
        return text.starts_with('#').then(|| line(text));
    }
    if text.starts_with("//") {
        return Some(line(text));
    }
    let block = text.strip_prefix("/*")?;
    Some(block.find("*/").map_or(text.len(), |end| end + 4))
}

/// Whether anything but dashes and blanks stands between these items.
fn has_comments(document: &Document<'_>, range: Range<usize>, items: &[Node]) -> bool {
    between(document, &range, items).contains('#')
}

/// The text of a range without its items.
fn between(document: &Document<'_>, range: &Range<usize>, items: &[Node]) -> String {
    let mut at = range.start;
    let mut between = String::new();
    for item in items {
        if item.span.start >= at && item.span.end <= range.end {
            between.push_str(&document.text[at..item.span.start]);
            at = item.span.end;
        }
    }
    between.push_str(&document.text[at..range.end]);
    between
}
