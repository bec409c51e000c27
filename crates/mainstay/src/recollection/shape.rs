//! A record as JSON: results stand in it as the server wrote them, so that people can read it.

use std::borrow::Cow;
use std::io;

use mainstay_core::message::lists::Which;
use mainstay_core::message::remembered::Remembered;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version that is written, and the only one that is read: an unknown one costs no more than one slow start.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Shape<'a> {
    version: u32,
    #[serde(borrow)]
    server: Cow<'a, str>,
    legacy: bool,
    #[serde(borrow)]
    discover: Option<&'a RawValue>,
    /// The error object that answered it.
    #[serde(borrow, default)]
    refused: Option<&'a RawValue>,
    #[serde(borrow)]
    openings: Vec<Opening<'a>>,
    #[serde(borrow)]
    modern: Named<'a>,
    /// The error objects that answered requests for lists.
    #[serde(borrow, default)]
    modern_refused: Named<'a>,
}

#[derive(Serialize, Deserialize)]
struct Opening<'a> {
    /// In hex: a number of 64 bits is not safe in everybody's JSON.
    params: String,
    #[serde(borrow)]
    initialize: &'a RawValue,
    #[serde(borrow)]
    lists: Named<'a>,
    #[serde(borrow, default)]
    refused: Named<'a>,
}

#[derive(Default, Serialize, Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    prompts: Option<&'a RawValue>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    templates: Option<&'a RawValue>,
}

impl Named<'_> {
    fn each(&self) -> impl Iterator<Item = (Which, &[u8])> {
        let places = [self.tools, self.prompts, self.resources, self.templates];
        Which::ALL
            .into_iter()
            .zip(places)
            .filter_map(|(list, place)| Some((list, place?.get().as_bytes())))
    }
}

/// The bytes of a file.
pub fn written(server: &str, remembered: &Remembered) -> io::Result<Vec<u8>> {
    let openings = remembered.openings().iter().map(|opening| {
        Ok(Opening {
            params: format!("{:016x}", opening.params_digest),
            initialize: serde_json::from_slice(&opening.result)?,
            lists: named(|list| opening.lists[list as usize].as_deref())?,
            refused: named(|list| opening.refusals[list as usize].as_deref())?,
        })
    });
    let shape = Shape {
        version: VERSION,
        server: server.into(),
        legacy: remembered.is_legacy(),
        discover: raw(remembered.discover())?,
        refused: raw(remembered.refusal())?,
        openings: openings.collect::<io::Result<_>>()?,
        modern: named(|list| remembered.list(None, list))?,
        modern_refused: named(|list| remembered.list_refusal(None, list))?,
    };
    let mut bytes = serde_json::to_vec(&shape)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn named<'a>(of: impl Fn(Which) -> Option<&'a [u8]>) -> io::Result<Named<'a>> {
    Ok(Named {
        tools: raw(of(Which::Tools))?,
        prompts: raw(of(Which::Prompts))?,
        resources: raw(of(Which::Resources))?,
        templates: raw(of(Which::Templates))?,
    })
}

fn raw(bytes: Option<&[u8]>) -> io::Result<Option<&RawValue>> {
    Ok(bytes.map(serde_json::from_slice).transpose()?)
}

/// The server's name and what is remembered. It is learned anew, so that everything that holds for what a server says
/// holds for a file too.
pub fn understand(bytes: &[u8]) -> Option<(String, Remembered)> {
    let shape: Shape<'_> = serde_json::from_slice(bytes).ok()?;
    if shape.version != VERSION {
        return None;
    }
    let mut remembered = Remembered::default();
    if shape.legacy {
        remembered.learn_legacy();
    } else if let Some(discover) = shape.discover {
        remembered.learn_discover(discover.get().as_bytes());
    } else if let Some(error) = shape.refused {
        remembered.learn_refusal(error.get().as_bytes());
    }
    for (list, result) in shape.modern.each() {
        remembered.learn_list(None, list, result);
    }
    for (list, error) in shape.modern_refused.each() {
        remembered.learn_list_refusal(None, list, error);
    }
    for opening in &shape.openings {
        let digest = u64::from_str_radix(&opening.params, 16).ok()?;
        remembered.learn_opening(digest, opening.initialize.get().as_bytes());
        for (list, result) in opening.lists.each() {
            remembered.learn_list(Some(digest), list, result);
        }
        for (list, error) in opening.refused.each() {
            remembered.learn_list_refusal(Some(digest), list, error);
        }
    }
    Some((shape.server.into_owned(), remembered.from_disk()))
}

/// The server's name alone.
pub fn server(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
        server: String,
    }
    let head: Head = serde_json::from_slice(bytes).ok()?;
    (head.version == VERSION).then_some(head.server)
}
