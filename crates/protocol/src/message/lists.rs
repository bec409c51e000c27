//! What the client last saw of the server's tools, prompts and resources.
//!
//! After a respawn the lists of the new generation are walked and compared with this, so that the client is told of a
//! change and of nothing else. Only the elements count: not cursors, lifetimes or `_meta` beside them, not their order
//! (a server may list in the order of a hash table), not the way they are written. A list is remembered as the sum of
//! its elements' fingerprints, 64 bits and a count, which is plenty against accidents; of tools,
//! their hints are remembered too. This module sends nothing: it writes the question and judges the answer.
//!
//! Invariants:
//! - The memory is that of the client: what it was not shown, or was told to forget, is not compared.
//! - Unsure means "differs": a needless `list_changed` harms no client, a missing one does.
//! - The walk ends: after as many elements as the client knows, or [`PAGES_MAX`] pages.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::digest::{digest, mix};
use super::envelope::Members;

/// Pages of one list that we ask for.
pub const PAGES_MAX: usize = 1_000;
/// Tools whose hints are remembered.
pub const TOOLS_MAX: usize = 4_096;
/// The size of [`Lists::digest`].
pub const DIGEST_BYTES: usize = 16;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The list that a method asks for.
    pub fn of(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|which| which.method() == method)
    }

    /// The list that a request asks for from its beginning; none for a further page.
    pub fn asked(line: &[u8]) -> Option<Self> {
        let message = Members::of_line(line)?;
        message.get("id")?;
        let which = Self::of(&message.text("method")?)?;
        (!has_cursor(line)).then_some(which)
    }

    /// The lists that a notification makes stale.
    pub fn changed_by(notification: &str) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |which| which.changed() == notification)
    }

    /// The method that asks for it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The member of the result that holds the elements.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The notification that tells of a change. Templates have none of their own.
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }
}

/// What a page of the next generation's list says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The list is the one that the client knows.
    Same,
    /// It is another one, or cannot be read.
    Differs,
    /// The next page is needed.
    More {
        /// The JSON token to ask with.
        cursor: Vec<u8>,
    },
}

/// What a tool says of itself. Hints, not promises: both are false unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// To call it twice does no more than to call it once.
    pub idempotent: bool,
}

/// What the client knows of each list.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    known: [Option<Known>; 4],
    /// What our own walk has found so far.
    walks: [Option<Sum>; 4],
    tools: BTreeMap<String, Hints>,
}

/// The elements of some pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    fold: u64,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    sum: Sum,
    pages: u32,
    /// The client has read to the end.
    whole: bool,
}

impl Lists {
    /// Nothing was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A whole response line goes to the client, in answer to a request [with](has_cursor) or without a cursor. One that
    /// cannot be read ends the memory of its list; an error changes nothing.
    pub fn client_saw(&mut self, which: Which, with_cursor: bool, line: &[u8]) {
        let page = Page::of(which, line);
        if matches!(page, Page::Error) {
            return;
        }
        let known = &mut self.known[which as usize];
        let before = match (with_cursor, *known) {
            // The pages before this one were not seen, or all were and this one is read again.
            (true, None) => return,
            (true, Some(known)) if known.whole => return,
            (true, Some(known)) => known,
            (false, _) => {
                // The client has asked this generation: there is nothing left to be checked.
                self.walks[which as usize] = None;
                if which == Which::Tools {
                    self.tools.clear();
                }
                Known {
                    sum: Sum::default(),
                    pages: 0,
                    whole: false,
                }
            }
        };
        let Some((elements, next)) = page.read(before.sum) else {
            self.adopt(which);
            return;
        };
        debug_assert!(!before.whole, "a list has no page behind its last one");
        *known = Some(Known {
            sum: elements,
            pages: before.pages.saturating_add(1),
            whole: next.is_none(),
        });
        if which == Which::Tools {
            self.remember_tools(&page);
        }
    }

    /// The lists that the client knows.
    pub fn to_check(&self) -> Vec<Which> {
        let known = |which: &Which| self.known[*which as usize].is_some();
        Which::ALL.into_iter().filter(known).collect()
    }

    /// The answer to our own [`request`] for this page (from 0) of the next generation's list. Where the client has not
    /// read to the end, neither do we.
    pub fn check(&mut self, which: Which, page: usize, line: &[u8]) -> Check {
        let Some(known) = self.known[which as usize] else {
            return Check::Same;
        };
        let walk = &mut self.walks[which as usize];
        if page == 0 {
            *walk = Some(Sum::default());
        }
        let Some(before) = *walk else {
            return Check::Same;
        };
        let Some((sum, next)) = Page::of(which, line).read(before) else {
            *walk = None;
            return Check::Differs;
        };
        debug_assert!(page < PAGES_MAX, "the walk ends");
        let wanted = known.whole || page + 1 < known.pages as usize;
        let verdict = match next {
            Some(cursor) if wanted && sum.count <= known.sum.count && page + 1 < PAGES_MAX => {
                *walk = Some(sum);
                return Check::More {
                    cursor: cursor.get().into(),
                };
            }
            Some(_) if wanted => Check::Differs,
            Some(_) | None if sum == known.sum => Check::Same,
            Some(_) | None => Check::Differs,
        };
        *walk = None;
        verdict
    }

    /// The client was told that the list has changed: what it saw before is out of date.
    pub fn adopt(&mut self, which: Which) {
        self.known[which as usize] = None;
        self.walks[which as usize] = None;
        if which == Which::Tools {
            self.tools.clear();
        }
    }

    /// The memory of one list, for the record. Hints are not in it.
    pub fn digest(&self, which: Which) -> Option<[u8; DIGEST_BYTES]> {
        let Known { sum, pages, whole } = self.known[which as usize]?;
        let pages = pages.min(u32::MAX >> 1) << 1 | u32::from(whole);
        let word = u128::from(sum.fold) | u128::from(sum.count) << 64 | u128::from(pages) << 96;
        Some(word.to_le_bytes())
    }

    /// Takes over what [`digest`](Self::digest) gave. Other bytes are ignored.
    pub fn restore(&mut self, which: Which, bytes: &[u8]) {
        let Ok(bytes) = <[u8; DIGEST_BYTES]>::try_from(bytes) else {
            return;
        };
        let word = u128::from_le_bytes(bytes);
        let pages = (word >> 96) as u32;
        self.known[which as usize] = Some(Known {
            sum: Sum {
                fold: word as u64,
                count: (word >> 64) as u32,
            },
            pages: pages >> 1,
            whole: pages & 1 == 1,
        });
    }

    /// What a tool said of itself when the client last saw it.
    pub fn tool(&self, name: &str) -> Option<Hints> {
        self.tools.get(name).copied()
    }

    fn remember_tools(&mut self, page: &Page) {
        let Page::Result { elements, .. } = page else {
            return;
        };
        let tools = elements.iter().filter_map(|tool| {
            let tool: Members = serde_json::from_str(tool.get()).ok()?;
            let notes = tool.object("annotations");
            let says = |key| {
                let hint = notes.as_ref().and_then(|notes| notes.get(key));
                hint.is_some_and(|hint| hint.get() == "true")
            };
            let hints = Hints {
                read_only: says("readOnlyHint"),
                idempotent: says("idempotentHint"),
            };
            Some((tool.text("name")?.into_owned(), hints))
        });
        for (name, hints) in tools {
            if self.tools.len() < TOOLS_MAX || self.tools.contains_key(&name) {
                self.tools.insert(name, hints);
            }
        }
    }
}

/// The line that asks for a page. `id`, `cursor` and `meta` are JSON as it is to be sent.
pub fn request(which: Which, id: &[u8], cursor: Option<&[u8]>, meta: Option<&[u8]>) -> Vec<u8> {
    let mut line = [br#"{"jsonrpc":"2.0","id":"#, id, br#","method":""#].concat();
    line.extend_from_slice(which.method().as_bytes());
    line.push(b'"');
    let mut before: &[u8] = br#","params":{"#;
    for (key, value) in [(&b"\"cursor\":"[..], cursor), (b"\"_meta\":", meta)] {
        if let Some(value) = value {
            line.extend([before, key, value].concat());
            before = b",";
        }
    }
    if cursor.or(meta).is_some() {
        line.push(b'}');
    }
    line.extend_from_slice(b"}\n");
    line
}

/// Whether a request asks for another page than the first.
pub fn has_cursor(line: &[u8]) -> bool {
    let params = Members::of_line(line).and_then(|message| message.object("params"));
    params.is_some_and(|params| cursor(&params, "cursor").is_some())
}

/// The JSON token with which the page after this response can be asked for.
pub fn next_cursor(line: &[u8]) -> Option<&[u8]> {
    let result = Members::of_line(line)?.object("result")?;
    Some(cursor(&result, "nextCursor")?.get().as_bytes())
}

/// A cursor is a text; clients take an empty one for none, and so a server that writes one at the end ends there.
fn cursor<'a>(members: &Members<'a>, key: &str) -> Option<&'a RawValue> {
    let text = members.text(key)?;
    if text.is_empty() {
        return None;
    }
    members.get(key)
}

/// A response to a list request.
enum Page<'a> {
    Result {
        elements: Vec<&'a RawValue>,
        next: Option<&'a RawValue>,
    },
    Error,
    Unreadable,
}

impl<'a> Page<'a> {
    fn of(which: Which, line: &'a [u8]) -> Self {
        let Some(message) = Members::of_line(line) else {
            return Self::Unreadable;
        };
        let Some(result) = message.object("result") else {
            return match message.get("error") {
                Some(_) => Self::Error,
                None => Self::Unreadable,
            };
        };
        let elements = result.get(which.key()).map(RawValue::get);
        match elements.and_then(|array| serde_json::from_str(array).ok()) {
            Some(elements) => Self::Result {
                elements,
                next: cursor(&result, "nextCursor"),
            },
            None => Self::Unreadable,
        }
    }

    /// The sum with the elements of this page, and the cursor of the next.
    fn read(&self, mut sum: Sum) -> Option<(Sum, Option<&'a RawValue>)> {
        let Self::Result { elements, next } = self else {
            return None;
        };
        for element in elements {
            // A sum does not know the order of what was added. Mixed once more, so that it is not that of an object.
            let term = mix(u64::MAX, digest(element.get())?);
            sum.fold = sum.fold.wrapping_add(term);
            sum.count = sum.count.saturating_add(1);
        }
        Some((sum, *next))
    }
}

#[cfg(test)]
mod tests;
