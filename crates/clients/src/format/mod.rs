//! The formats of config files: text in, a tree with places out; and the few edits that adopting needs, as splices.
//!
//! A reader refuses what it cannot place exactly. It never repairs anything.

mod edit;
mod json;
mod toml;
mod yaml;

pub use edit::{Splice, apply};
pub(crate) use edit::{
    comment_length, drop_front, in_order, insert_after, insert_member, plain_key, prepend, quote,
    remove_from, remove_item, remove_member, replace,
};

use std::borrow::Cow;
use std::ops::Range;

use crate::limits::{DEPTH_LEVELS_MAX, FILE_BYTES_MAX};
use crate::node::Node;
use crate::refusal::Refusal;

/// How a config file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Strict JSON.
    Json,
    /// JSON with comments.
    JsonComments,
    /// JSON with comments and trailing commas.
    JsonLenient,
    /// TOML.
    Toml,
    /// YAML, one document.
    Yaml,
}

impl Format {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::JsonComments | Self::JsonLenient => "JSON with comments",
            Self::Toml => "TOML",
            Self::Yaml => "YAML",
        }
    }

    pub(crate) fn is_json(self) -> bool {
        match self {
            Self::Json | Self::JsonComments | Self::JsonLenient => true,
            Self::Toml | Self::Yaml => false,
        }
    }
}

/// A config file that was read.
#[derive(Clone, Debug)]
pub struct Document<'b> {
    /// All of its text, without the byte order mark.
    pub text: &'b str,
    /// How many bytes stand before the text: 3 for a byte order mark, else 0.
    pub skipped: usize,
    /// How it is written.
    pub format: Format,
    /// Its value; none if the file is empty or has only comments.
    pub root: Option<Node>,
}

const BYTE_ORDER_MARK: &str = "\u{feff}";

impl<'b> Document<'b> {
    /// Reads a file's bytes.
    pub fn read(bytes: &'b [u8], format: Format) -> Result<Self, Refusal> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Refusal::TooLarge { bytes: bytes.len() });
        }
        if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            return Err(Refusal::NulByte { at });
        }
        let all = str::from_utf8(bytes).map_err(|error| Refusal::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        let text = all.strip_prefix(BYTE_ORDER_MARK).unwrap_or(all);
        let root = if text.trim().is_empty() {
            None
        } else {
            match format {
                Format::Json | Format::JsonComments | Format::JsonLenient => {
                    json::read(text, format)?
                }
                Format::Toml => Some(self::toml::read(text)?),
                Format::Yaml => yaml::read(text)?,
            }
        };
        Ok(Self {
            text,
            skipped: all.len() - text.len(),
            format,
            root,
        })
    }

    /// What stands at a place.
    pub fn raw(&self, span: &Range<usize>) -> &'b str {
        &self.text[span.clone()]
    }
}

/// Where in a text a mistake is, for people: line and column from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

fn syntax(text: &str, at: usize, problem: impl Into<Cow<'static, str>>) -> Refusal {
    let (line, column) = line_and_column(text, at);
    Refusal::Syntax {
        line,
        column,
        problem: problem.into().into_owned(),
    }
}

fn check_depth(level: usize) -> Result<(), Refusal> {
    if level > DEPTH_LEVELS_MAX {
        return Err(Refusal::TooDeep);
    }
    Ok(())
}
