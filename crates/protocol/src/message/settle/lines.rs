//! Messages of our own, as lines.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::message::envelope::SUBSCRIPTION_KEY;

/// JSON-RPC's "internal error", the one code that no client reads anything into.
const CODE: i32 = -32603;

/// A JSON-RPC error, as a line. `data_json` is JSON already.
pub fn error(id_token: &[u8], message: &str, data_json: &str) -> Vec<u8> {
    let message = json(message);
    line(
        id_token,
        &format!(r#""error":{{"code":{CODE},"message":{message},"data":{data_json}}}"#),
    )
}

/// The answer of a server that does not know the method, given on its behalf, as a line.
pub fn method_not_found(id_token: &[u8], method: &str) -> Vec<u8> {
    let message = json(&format!("Method not found: {method}"));
    line(
        id_token,
        &format!(r#""error":{{"code":-32601,"message":{message}}}"#),
    )
}

/// An empty result, as a line: the answer to `ping`.
pub fn empty_result(id_token: &[u8]) -> Vec<u8> {
    line(id_token, r#""result":{}"#)
}

/// The graceful end of a listening request, as a line.
pub fn listening_ends(id_token: &[u8]) -> Vec<u8> {
    let id = String::from_utf8_lossy(id_token);
    line(
        id_token,
        &format!(r#""result":{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_KEY}":{id}}}}}"#),
    )
}

/// A notification that takes back a request of the server's, as a line.
pub fn cancel(id_token: &[u8], reason: &str) -> Vec<u8> {
    let mut line =
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#.to_vec();
    line.extend_from_slice(id_token);
    line.extend_from_slice(br#","reason":"#);
    line.extend_from_slice(json(reason).as_bytes());
    line.extend_from_slice(b"}}\n");
    line
}

/// A result of `tools/call` that says that it failed, as a line.
pub(super) fn tool_error(id_token: &[u8], text: &str, modern: bool) -> Vec<u8> {
    let text = json(text);
    let complete = if modern {
        r#""resultType":"complete","#
    } else {
        ""
    };
    line(
        id_token,
        &format!(
            r#""result":{{{complete}"content":[{{"type":"text","text":{text}}}],"isError":true}}"#
        ),
    )
}

/// JSON of what cannot fail to be JSON: texts and plain structs.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_string())
}

/// A line with this id. An id that is no JSON would spoil the line: it becomes `null`.
fn line(id_token: &[u8], rest: &str) -> Vec<u8> {
    let id = match serde_json::from_slice::<&RawValue>(id_token) {
        Ok(id) => id.get(),
        Err(_) => "null",
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}\n").into_bytes()
}
