//! Secrets of a config file, for the preview: which bytes are shown as something else.
//!
//! Hidden are all values of environments and headers, values under a key that speaks of a secret, words of lists and strings that
//! look like one, and such words in comments. It hides rather too much than too little.

use std::ops::Range;

use mainstay_protocol::redact::{self, HIDDEN};

use crate::format::{Document, comment_length, quote};
use crate::node::{Kind, Node};

/// Tables whose values are all hidden.
const SECRET_TABLES: [&str; 8] = [
    "env",
    "envs",
    "environment",
    "headers",
    "http_headers",
    "env_http_headers",
    "requestOptions",
    "customHeaders",
];

/// Bytes of a text that are shown as something else, sorted by place.
pub(crate) type Masks = Vec<(Range<usize>, String)>;

pub(super) fn masks(document: &Document<'_>) -> Masks {
    let mut masks = Masks::new();
    let mut tokens: Vec<Range<usize>> = Vec::new();
    if let Some(root) = &document.root {
        walk(root, false, &mut masks, &mut tokens);
    }
    tokens.sort_by_key(|token| token.start);
    let mut at = 0;
    for token in &tokens {
        if token.start >= at {
            comments(document, at..token.start, &mut masks);
            at = token.end;
        }
    }
    comments(document, at..document.text.len(), &mut masks);
    masks.sort_by_key(|(span, _)| span.start);
    masks
}

fn walk(node: &Node, secret: bool, masks: &mut Masks, tokens: &mut Vec<Range<usize>>) {
    match &node.kind {
        Kind::Text(text) => {
            tokens.push(node.span.clone());
            let shown = if secret && !text.is_empty() {
                HIDDEN.to_owned()
            } else {
                redact::words(std::slice::from_ref(text)).concat()
            };
            if shown != *text {
                masks.push((node.span.clone(), quote(&shown)));
            }
        }
        Kind::Other(text) => {
            tokens.push(node.span.clone());
            let plain = ["", "~", "null", "true", "false"].contains(&text.as_str());
            if secret && !plain {
                masks.push((node.span.clone(), quote(HIDDEN)));
            }
        }
        Kind::List(list) => {
            let text = |item: &Node| item.text().unwrap_or_default().to_owned();
            let words: Vec<String> = list.items.iter().map(text).collect();
            let shown = redact::words(&words);
            for ((item, word), shown) in list.items.iter().zip(&words).zip(&shown) {
                if item.text().is_some() && !secret {
                    tokens.push(item.span.clone());
                    if shown != word {
                        masks.push((item.span.clone(), quote(shown)));
                    }
                } else {
                    walk(item, secret, masks, tokens);
                }
            }
        }
        Kind::Table(table) => {
            for member in &table.members {
                tokens.push(member.key_span.clone());
                let key = member.key.as_str();
                let hides = secret || redact::speaks(key) || SECRET_TABLES.contains(&key);
                walk(&member.value, hides, masks, tokens);
            }
        }
    }
}

/// Words of comments that look like secrets.
fn comments(document: &Document<'_>, gap: Range<usize>, masks: &mut Masks) {
    let mut at = gap.start;
    while at < gap.end {
        let rest = &document.text[at..gap.end];
        let Some(length) = comment_length(document.format, rest) else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let comment = &rest[..length];
        let separates = |c: char| c.is_whitespace() || "\"',=:[]{}".contains(c);
        let mut hides_next = false;
        let mut start = 0;
        for word in comment.split(separates) {
            let place = at + start..at + start + word.len();
            start += word.len()
                + comment[start + word.len()..]
                    .chars()
                    .next()
                    .map_or(0, char::len_utf8);
            if word.is_empty() {
                continue;
            }
            let looks = redact::words(&[word.to_owned()]).concat() != word;
            if hides_next || looks {
                masks.push((place, HIDDEN.to_owned()));
            }
            hides_next = redact::speaks(word);
        }
        at += length;
    }
}
