//! A message as its reader understands it.

use mainstay_protocol::message::frame::{Id, Kind, Scanner};
use serde_json::Value;

use super::LINK;

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Its id as written.
    pub token: Option<String>,
    /// Its method.
    pub method: String,
    /// All of it.
    pub value: Value,
}

impl Message {
    /// Reads a line. The members of a batch come one by one. Returns none if a JSON reader finds no message.
    pub fn read(line: &[u8]) -> Option<Vec<Self>> {
        match serde_json::from_slice(line).ok()? {
            Value::Array(members) => members
                .into_iter()
                .map(|member| Self::one(member.to_string().as_bytes(), member))
                .collect(),
            value @ Value::Object(_) => Some(vec![Self::one(line, value)?]),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn one(line: &[u8], value: Value) -> Option<Self> {
        let mut scanner = Scanner::new();
        scanner.feed(line.trim_ascii_end());
        let frame = scanner.finish()?;
        let token = match frame.id {
            Id::Token(id) => Some(String::from_utf8_lossy(id).into_owned()),
            Id::Absent | Id::Null | Id::TooLong => None,
        };
        Some(Self {
            kind: frame.kind,
            token,
            method: frame.method.unwrap_or_default().into_owned(),
            value,
        })
    }

    /// The id in one form, however it was written.
    pub fn key(&self) -> String {
        key(&self.value["id"])
    }

    /// Whether it is the link's own by its id. An id of the client may look alike.
    pub fn is_the_links_own(&self) -> bool {
        let token = self.token.as_deref();
        token.is_some_and(|token| LINK.own_number(token.as_bytes()).is_some())
    }

    /// Whether it is an answer with a result.
    pub fn is_success(&self) -> bool {
        self.kind == Kind::Response && self.value["result"]["isError"] != Value::Bool(true)
    }

    /// The mark of the client's request that it belongs to.
    pub fn mark(&self) -> Option<&str> {
        let mark = match self.kind {
            Kind::Error => &self.value["error"]["data"]["w"],
            Kind::Response => &self.value["result"]["_meta"]["w"],
            Kind::Request | Kind::Notification | Kind::Batch | Kind::Blank | Kind::Junk => {
                &self.value["params"]["w"]
            }
        };
        mark.as_str()
    }

    /// The generation that the message names as its writer.
    pub fn by(&self) -> Option<u32> {
        let by = match self.kind {
            Kind::Error => &self.value["error"]["data"]["by"],
            Kind::Response => &self.value["result"]["_meta"]["by"],
            Kind::Request | Kind::Notification | Kind::Batch | Kind::Blank | Kind::Junk => {
                &self.value["params"]["by"]
            }
        };
        by.as_u64().map(|by| by as u32)
    }
}

/// An id in one form, however it was written.
pub fn key(id: &Value) -> String {
    match id.as_f64() {
        Some(number) => format!("{number}"),
        None => id.to_string(),
    }
}

/// The same for a token.
pub fn key_of(token: &str) -> String {
    serde_json::from_str(token).map_or_else(|_| token.into(), |value| key(&value))
}
