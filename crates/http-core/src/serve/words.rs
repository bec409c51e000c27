//! The answers that the front gives itself.

use alloc::format;
use alloc::vec::Vec;

use mainstay_protocol::message::settle;

/// The codes of such answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It is not JSON.
    Parse,
    /// It is no message, or not in its place.
    Request,
    /// There is no such method.
    Method,
    /// The parameters lack something.
    Params,
    /// It could not be done.
    Internal,
    /// A header says something else than the body.
    HeaderMismatch,
    /// The server does not speak that version.
    Version,
}

impl Code {
    /// As it is written.
    pub fn number(self) -> i32 {
        match self {
            Self::Parse => -32_700,
            Self::Request => -32_600,
            Self::Method => -32_601,
            Self::Params => -32_602,
            Self::Internal => -32_603,
            Self::HeaderMismatch => -32_020,
            Self::Version => -32_022,
        }
    }
}

/// An error answer; without an id where none could be read.
pub fn error(id: Option<&[u8]>, code: Code, message: &str, data: Option<&[u8]>) -> Vec<u8> {
    let message = serde_json::to_vec(message).unwrap_or_default();
    let head = format!(r#","error":{{"code":{},"message":"#, code.number());
    let mut answer = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    answer.extend_from_slice(id.unwrap_or(b"null"));
    answer.extend_from_slice(head.as_bytes());
    answer.extend_from_slice(&message);
    if let Some(data) = data {
        answer.extend_from_slice(br#","data":"#);
        answer.extend_from_slice(data);
    }
    answer.extend_from_slice(b"}}");
    answer
}

/// An answer with this result.
pub fn answer(id: &[u8], result: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 5] = [
        br#"{"jsonrpc":"2.0","id":"#,
        id,
        br#","result":"#,
        result,
        b"}",
    ];
    parts.concat()
}

/// The answer to a listening request that ends without an error.
pub fn listened(id: &[u8]) -> Vec<u8> {
    settle::listening_ends(id).trim_ascii_end().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::message::envelope::SUBSCRIPTION_KEY;
    use serde_json::{Value, json};

    #[test]
    fn every_answer_is_json_and_has_its_id() {
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(
            read(&error(
                Some(br#""a""#),
                Code::Version,
                "a \"b\"",
                Some(b"{\"x\":1}")
            )),
            json!({"jsonrpc": "2.0", "id": "a", "error": {"code": -32022, "message": "a \"b\"", "data": {"x": 1}}})
        );
        assert_eq!(
            read(&error(None, Code::Parse, "no", None))["id"],
            Value::Null
        );
        assert_eq!(
            read(&listened(b"7"))["result"]["_meta"][SUBSCRIPTION_KEY],
            7
        );
        assert_eq!(
            read(&answer(b"7", b"{}")),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}})
        );
    }
}
