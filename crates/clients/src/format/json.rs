//! JSON in three dialects, through `jsonc-parser`, whose ranges are bytes.

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Format, check_depth, syntax};
use crate::node::{Kind, List, Member, Node, Style, Table};
use crate::refusal::Refusal;

pub(super) fn read(text: &str, format: Format) -> Result<Option<Node>, Refusal> {
    let comments = format != Format::Json;
    let options = ParseOptions {
        allow_comments: comments,
        allow_loose_object_property_names: false,
        allow_trailing_commas: format == Format::JsonLenient,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let read = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| {
        if matches!(error.kind(), ParseErrorKind::NestingDepthExceeded) {
            return Refusal::TooDeep;
        }
        syntax(text, error.range().start, error.kind().to_string())
    })?;
    read.value.map(|value| node(&value, 0)).transpose()
}

fn node(value: &Value<'_>, level: usize) -> Result<Node, Refusal> {
    check_depth(level)?;
    let range = value.range();
    let kind = match value {
        Value::StringLit(text) => Kind::Text(text.value.clone().into_owned()),
        Value::NumberLit(number) => Kind::Other(number.value.to_owned()),
        Value::BooleanLit(truth) => Kind::Other(truth.value.to_string()),
        Value::NullKeyword(_) => Kind::Other("null".to_owned()),
        Value::Array(array) => {
            let items = array.elements.iter().map(|item| node(item, level + 1));
            Kind::List(List {
                items: items.collect::<Result<_, _>>()?,
                style: Style::Brackets,
            })
        }
        Value::Object(object) => {
            let members = object.properties.iter().map(|property| {
                let key = match &property.name {
                    ObjectPropName::String(text) => text.value.clone().into_owned(),
                    ObjectPropName::Word(word) => word.value.to_owned(),
                };
                let range = property.name.range();
                Ok(Member {
                    key,
                    key_span: range.start..range.end,
                    value: node(&property.value, level + 1)?,
                })
            });
            Kind::Table(Table {
                members: members.collect::<Result<_, Refusal>>()?,
                style: Style::Brackets,
            })
        }
    };
    Ok(Node {
        span: range.start..range.end,
        kind,
        mark: None,
    })
}
