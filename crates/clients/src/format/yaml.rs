//! YAML, through the events of `saphyr-parser`. Its places are counted in characters; here they become bytes.
//!
//! The reader keeps anchors, aliases and tags as marks, so that a plan can refuse them where they matter. It refuses a
//! second document, because a client reads only one of them.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{check_depth, syntax};
use crate::node::{Kind, List, Mark, Member, Node, Style, Table};
use crate::refusal::Refusal;

pub(super) fn read(text: &str) -> Result<Option<Node>, Refusal> {
    let mut reader = Reader {
        text,
        parser: Parser::new_from_str(text),
        bytes: Places::of(text),
    };
    let mut root = None;
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::DocumentStart(_) if root.is_some() => return Err(Refusal::SeveralDocuments),
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Nothing => {}
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => root = Some(reader.node(event, span, 0)?),
        }
    }
    Ok(root)
}

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    bytes: Places,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Range<usize>)>, Refusal> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                let span = self.range(span);
                Ok(Some((event, span)))
            }
            Some(Err(error)) => {
                let at = self.bytes.byte(error.marker().index());
                Err(syntax(self.text, at, error.info().to_owned()))
            }
        }
    }

    fn range(&self, span: Span) -> Range<usize> {
        let start = self.bytes.byte(span.start.index());
        start..self.bytes.byte(span.end.index()).max(start)
    }

    fn below(&mut self) -> Result<(Event<'t>, Range<usize>), Refusal> {
        match self.next()? {
            Some(event) => Ok(event),
            None => Err(syntax(
                self.text,
                self.text.len(),
                "the file ends too early",
            )),
        }
    }

    fn node(
        &mut self,
        event: Event<'t>,
        span: Range<usize>,
        level: usize,
    ) -> Result<Node, Refusal> {
        check_depth(level)?;
        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let mark = mark(anchor, tag.is_some());
                Ok(self.scalar(&value, style, span, mark))
            }
            Event::SequenceStart(anchor, tag) => {
                let style = self.style(&span);
                let mut items = Vec::new();
                let end = loop {
                    match self.below()? {
                        (Event::SequenceEnd, end) => break end,
                        (event, span) => items.push(self.node(event, span, level + 1)?),
                    }
                };
                let last = items.last().map(|item| item.span.end);
                Ok(Node {
                    span: whole(span, &end, last, style),
                    kind: Kind::List(List { items, style }),
                    mark: mark(anchor, tag.is_some()),
                })
            }
            Event::MappingStart(anchor, tag) => {
                let style = self.style(&span);
                let mut members = Vec::new();
                let end = loop {
                    let key = match self.below()? {
                        (Event::MappingEnd, end) => break end,
                        (event, span) => self.node(event, span, level + 1)?,
                    };
                    let (event, span) = self.below()?;
                    let value = self.node(event, span, level + 1)?;
                    let name = match (&key.kind, key.mark) {
                        (Kind::Text(text) | Kind::Other(text), None) => text.clone(),
                        // A list, a table or an alias as a key: no client looks for it.
                        _ => self.text[key.span.clone()].to_owned(),
                    };
                    members.push(Member {
                        key: name,
                        key_span: key.span,
                        value,
                    });
                };
                let last = members.last().map(|member| {
                    let value = &member.value.span;
                    value.end.max(member.key_span.end)
                });
                Ok(Node {
                    span: whole(span, &end, last, style),
                    kind: Kind::Table(Table { members, style }),
                    mark: mark(anchor, tag.is_some()),
                })
            }
            Event::Alias(_) => Ok(Node {
                kind: Kind::Other(self.text[span.clone()].to_owned()),
                span,
                mark: Some(Mark::Alias),
            }),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Err(syntax(self.text, span.start, "a value is missing")),
        }
    }

    fn scalar(
        &self,
        value: &str,
        style: ScalarStyle,
        span: Range<usize>,
        mark: Option<Mark>,
    ) -> Node {
        // The scanner counts blanks and a comment behind a closing quote to the token, and the comma behind an absent value.
        let raw = &self.text[span.clone()];
        let (kind, end) = match style {
            ScalarStyle::Plain if value.is_empty() => (Kind::Other(String::new()), span.start),
            ScalarStyle::Plain => {
                let end = span.start + raw.trim_end().len();
                if is_text(value) {
                    (Kind::Text(value.to_owned()), end)
                } else {
                    (Kind::Other(value.to_owned()), end)
                }
            }
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                let length = quoted_length(raw).unwrap_or(raw.trim_end().len());
                (Kind::Text(value.to_owned()), span.start + length)
            }
            ScalarStyle::Literal | ScalarStyle::Folded => (Kind::Text(value.to_owned()), span.end),
        };
        let several_lines = match style {
            ScalarStyle::Literal | ScalarStyle::Folded => true,
            ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                self.text[span.start..end].contains(['\n', '\r'])
            }
        };
        Node {
            span: span.start..end,
            kind,
            mark: mark.or(several_lines.then_some(Mark::Lines)),
        }
    }

    fn style(&self, span: &Range<usize>) -> Style {
        // The event of a block is empty. That of a bracket may include blanks and a comment behind it.
        let raw = &self.text[span.clone()];
        if raw.starts_with(['[', '{']) {
            Style::Brackets
        } else {
            Style::Lines
        }
    }
}

fn mark(anchor: usize, tag: bool) -> Option<Mark> {
    if anchor > 0 {
        Some(Mark::Anchor)
    } else {
        tag.then_some(Mark::Tag)
    }
}

/// From the first byte to behind the last one; a block ends with its last child.
fn whole(
    start: Range<usize>,
    end: &Range<usize>,
    last: Option<usize>,
    style: Style,
) -> Range<usize> {
    match style {
        // Its event, too, may include blanks and a comment behind the bracket.
        Style::Brackets => start.start..end.start + 1,
        Style::Lines => start.start..last.unwrap_or(start.end).max(start.start),
    }
}

/// How long the quoted scalar is that a text begins with.
fn quoted_length(text: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    let (_, quote) = characters.next().filter(|(_, c)| "'\"".contains(*c))?;
    while let Some((at, c)) = characters.next() {
        if c == '\\' && quote == '"' {
            characters.next();
        } else if c == quote {
            // In single quotes a quote is written twice.
            if quote == '"' || !text[at + 1..].starts_with('\'') {
                return Some(at + 1);
            }
            characters.next();
        }
    }
    None
}

/// Whether readers of YAML 1.1 and 1.2 alike take a plain scalar for a string.
fn is_text(plain: &str) -> bool {
    const WORDS: [&str; 11] = [
        "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<",
    ];
    let lower = plain.to_ascii_lowercase();
    let unsigned = lower.trim_start_matches(['+', '-', '.']);
    let number = unsigned.starts_with(|c: char| c.is_ascii_digit())
        && unsigned
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "xo_.+-:t z".contains(c));
    let special = ["inf", "nan"].contains(&unsigned);
    !(WORDS.contains(&lower.as_str()) || number || special)
}

/// From places in characters to places in bytes.
enum Places {
    /// Every character is one byte.
    Same(usize),
    /// The byte of each character, and the end.
    Table(Vec<u32>),
}

impl Places {
    fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self::Same(text.len());
        }
        let ends = std::iter::once(text.len());
        let places = text.char_indices().map(|(at, _)| at).chain(ends);
        Self::Table(places.map(|at| at as u32).collect())
    }

    fn byte(&self, character: usize) -> usize {
        match self {
            Self::Same(end) => character.min(*end),
            Self::Table(table) => {
                let place = table.get(character).or(table.last());
                place.map_or(0, |at| *at as usize)
            }
        }
    }
}
