//! A cache file as JSON. It has the results as the server wrote them, so that people can read it.

use std::borrow::Cow;
use std::io;

use mainstay_protocol::message::lists::Which;
use mainstay_protocol::message::remembered::Remembered;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version that is written, and the only one that is read. A file of another version costs one slow start.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileFormat<'a> {
    version: u32,
    #[serde(borrow)]
    server: Cow<'a, str>,
    /// Missing in a file of an earlier version.
    #[serde(borrow, default)]
    command: Option<Cow<'a, str>>,
    legacy: bool,
    #[serde(borrow)]
    discover: Option<&'a RawValue>,
    /// The error object that answered `server/discover`.
    #[serde(borrow, default)]
    refused: Option<&'a RawValue>,
    #[serde(borrow)]
    openings: Vec<StoredOpening<'a>>,
    #[serde(borrow)]
    modern: ListResults<'a>,
    /// The error objects that answered requests for lists.
    #[serde(borrow, default)]
    modern_refused: ListResults<'a>,
}

#[derive(Serialize, Deserialize)]
struct StoredOpening<'a> {
    /// In hex, because many JSON readers cannot hold a number of 64 bits.
    params: String,
    #[serde(borrow)]
    initialize: &'a RawValue,
    #[serde(borrow)]
    lists: ListResults<'a>,
    #[serde(borrow, default)]
    refused: ListResults<'a>,
}

#[derive(Default, Serialize, Deserialize)]
struct ListResults<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    prompts: Option<&'a RawValue>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    templates: Option<&'a RawValue>,
}

impl ListResults<'_> {
    fn each(&self) -> impl Iterator<Item = (Which, &[u8])> {
        let places = [self.tools, self.prompts, self.resources, self.templates];
        Which::ALL
            .into_iter()
            .zip(places)
            .filter_map(|(list, place)| Some((list, place?.get().as_bytes())))
    }
}

pub fn serialize(server: &str, command: &str, remembered: &Remembered) -> io::Result<Vec<u8>> {
    let openings = remembered.openings().iter().map(|opening| {
        Ok(StoredOpening {
            params: format!("{:016x}", opening.params_digest),
            initialize: serde_json::from_slice(&opening.result)?,
            lists: list_results(|list| opening.lists[list as usize].as_deref())?,
            refused: list_results(|list| opening.refusals[list as usize].as_deref())?,
        })
    });
    let file = FileFormat {
        version: VERSION,
        server: server.into(),
        command: Some(command.into()),
        legacy: remembered.is_legacy(),
        discover: raw(remembered.discover())?,
        refused: raw(remembered.refusal())?,
        openings: openings.collect::<io::Result<_>>()?,
        modern: list_results(|list| remembered.list(None, list))?,
        modern_refused: list_results(|list| remembered.list_refusal(None, list))?,
    };
    let mut bytes = serde_json::to_vec(&file)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn list_results<'a>(of: impl Fn(Which) -> Option<&'a [u8]>) -> io::Result<ListResults<'a>> {
    Ok(ListResults {
        tools: raw(of(Which::Tools))?,
        prompts: raw(of(Which::Prompts))?,
        resources: raw(of(Which::Resources))?,
        templates: raw(of(Which::Templates))?,
    })
}

fn raw(bytes: Option<&[u8]>) -> io::Result<Option<&RawValue>> {
    Ok(bytes.map(serde_json::from_slice).transpose()?)
}

/// The server's name and the answers in a file. They go through the same checks as answers of a server.
pub fn parse(bytes: &[u8]) -> Option<(String, Remembered)> {
    let file: FileFormat<'_> = serde_json::from_slice(bytes).ok()?;
    if file.version != VERSION {
        return None;
    }
    let mut remembered = Remembered::default();
    if file.legacy {
        remembered.learn_legacy();
    } else if let Some(discover) = file.discover {
        remembered.learn_discover(discover.get().as_bytes());
    } else if let Some(error) = file.refused {
        remembered.learn_refusal(error.get().as_bytes());
    }
    for (list, result) in file.modern.each() {
        remembered.learn_list(None, list, result);
    }
    for (list, error) in file.modern_refused.each() {
        remembered.learn_list_refusal(None, list, error);
    }
    for opening in &file.openings {
        let digest = u64::from_str_radix(&opening.params, 16).ok()?;
        remembered.learn_opening(digest, opening.initialize.get().as_bytes());
        for (list, result) in opening.lists.each() {
            remembered.learn_list(Some(digest), list, result);
        }
        for (list, error) in opening.refused.each() {
            remembered.learn_list_refusal(Some(digest), list, error);
        }
    }
    Some((file.server.into_owned(), remembered.from_disk()))
}

/// What both kinds of cache files begin with.
#[derive(Default, Deserialize)]
pub struct Head {
    version: u32,
    pub server: Option<String>,
    #[serde(default)]
    pub command: Option<String>,
}

pub fn head(bytes: &[u8]) -> Option<Head> {
    let head: Head = serde_json::from_slice(bytes).ok()?;
    (head.version == VERSION).then_some(head)
}

/// What is in a cache file, for lists. A list is none if the server was not asked for it or has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheContents {
    /// Answers to `initialize`, one for each different client, and to `server/discover`.
    pub handshakes: usize,
    /// Tools in the latest list.
    pub tools: Option<usize>,
    /// Prompts in the latest list.
    pub prompts: Option<usize>,
    /// Resources in the latest list.
    pub resources: Option<usize>,
    /// Resource templates in the latest list.
    pub templates: Option<usize>,
}

pub fn contents(bytes: &[u8]) -> Option<CacheContents> {
    let (_, remembered) = parse(bytes)?;
    let list = |which: Which| {
        let mut latest = remembered.openings().iter().rev();
        let legacy = latest.find_map(|opening| opening.lists[which as usize].as_deref());
        count_items(legacy.or_else(|| remembered.list(None, which))?)
    };
    Some(CacheContents {
        handshakes: remembered.openings().len() + usize::from(remembered.discover().is_some()),
        tools: list(Which::Tools),
        prompts: list(Which::Prompts),
        resources: list(Which::Resources),
        templates: list(Which::Templates),
    })
}

/// The length of the one array in the result of a list request.
fn count_items(result: &[u8]) -> Option<usize> {
    let result: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(result).ok()?;
    result
        .values()
        .find_map(|value| Some(value.as_array()?.len()))
}
