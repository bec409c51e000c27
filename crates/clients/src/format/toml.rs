//! TOML, through the spans of the `toml` crate. It refuses duplicate keys itself, as the standard says.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{check_depth, syntax};
use crate::node::{Kind, List, Member, Node, Style, Table};
use crate::refusal::Refusal;

pub(super) fn read(text: &str) -> Result<Node, Refusal> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        if error.message().contains("recursion") {
            return Refusal::TooDeep;
        }
        syntax(text, at, error.message().to_owned())
    })?;
    Ok(Node {
        span: 0..text.len(),
        kind: Kind::Table(self::table(table.get_ref(), text, Style::Lines, 0)?),
        mark: None,
    })
}

fn table(table: &DeTable<'_>, text: &str, style: Style, level: usize) -> Result<Table, Refusal> {
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        Ok(Member {
            key: name.clone().into_owned(),
            key_span: key.span(),
            value: node(value, text, level + 1)?,
        })
    };
    Ok(Table {
        members: table.iter().map(member).collect::<Result<_, Refusal>>()?,
        style,
    })
}

fn node(value: &Spanned<DeValue<'_>>, text: &str, level: usize) -> Result<Node, Refusal> {
    check_depth(level)?;
    let span = value.span();
    let raw = text.get(span.clone()).unwrap_or_default();
    let kind = match value.get_ref() {
        DeValue::String(text) => Kind::Text(text.clone().into_owned()),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
            Kind::Other(raw.to_owned())
        }
        DeValue::Array(array) => {
            let items = array.iter().map(|item| node(item, text, level + 1));
            let items: Vec<Node> = items.collect::<Result<_, _>>()?;
            // `[[name]]`: a table in it is written in lines.
            let in_lines = |item: &Node| item.table().is_some_and(|of| of.style == Style::Lines);
            let style = if items.iter().any(in_lines) {
                Style::Lines
            } else {
                Style::Brackets
            };
            Kind::List(List { items, style })
        }
        DeValue::Table(inner) => {
            let style = if raw.starts_with('{') {
                Style::Brackets
            } else {
                Style::Lines
            };
            Kind::Table(table(inner, text, style, level)?)
        }
    };
    Ok(Node {
        span,
        kind,
        mark: None,
    })
}
