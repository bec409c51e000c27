//! The answers that we give ourselves when the server cannot: whole lines, ready to be written.
//!
//! Every request gets exactly one answer. Where the server's cannot come any more, the client is told what happened, what
//! it means for the request, and what to do next. `tools/call` is answered with an `isError` result, because that reaches
//! the model, which can decide to go on; everything else with a JSON-RPC error of code -32603 (codes below -32000 that
//! mean "connection closed" or "timed out" to some client are avoided). This module decides nothing about *whether* to
//! answer; it only words the answer.

use alloc::string::String;
use alloc::vec::Vec;

use super::slot::Tracked;

mod data;
mod lines;
mod text;
mod why;
pub use lines::{cancel, empty_result, error, listening_ends, method_not_found};
pub use text::effect;
pub use why::Why;

/// Lines of stderr that are quoted.
const QUOTED_LINES: usize = 5;
/// How many of them may stand before a usage text.
const QUOTED_CAUSE_LINES: usize = 3;
/// How a usage text begins.
const USAGE: &[u8] = b"usage";

/// The answer to a request, as a line.
pub fn answer(id_token: &[u8], method: Tracked, modern: bool, why: &Why<'_>) -> Vec<u8> {
    let data = lines::json(&why.data(method));
    failure(id_token, method, modern, &why.text(method), &data)
}

/// That a request has failed, as a line. `data_json` is JSON already.
pub fn failure(
    id_token: &[u8],
    method: Tracked,
    modern: bool,
    text: &str,
    data_json: &str,
) -> Vec<u8> {
    if method == Tracked::ToolsCall {
        lines::tool_error(id_token, text, modern)
    } else {
        error(id_token, text, data_json)
    }
}

/// The lines of stderr that tell most: the last ones. Where a usage text fills them, the lines before it, because a program
/// that is started with wrong arguments says what is wrong before it prints how it is used.
pub fn telling(stderr_tail: &[String]) -> Vec<&str> {
    let last = stderr_tail.len().saturating_sub(QUOTED_LINES);
    let is_usage = |line: &String| {
        let word = line.trim_start().as_bytes().get(..USAGE.len());
        word.is_some_and(|word| word.eq_ignore_ascii_case(USAGE))
    };
    let usage = stderr_tail.iter().position(is_usage);
    let Some(usage) = usage.filter(|&at| at <= last && last > 0) else {
        return stderr_tail[last..].iter().map(String::as_str).collect();
    };
    let (before, after) = stderr_tail.split_at(usage);
    let mut cause: Vec<&str> = before
        .iter()
        .rev()
        .map(String::as_str)
        .filter(|line| !line.trim().is_empty())
        .take(QUOTED_CAUSE_LINES)
        .collect();
    cause.reverse();
    let rest = QUOTED_LINES - cause.len();
    let skipped = after.len().saturating_sub(rest);
    cause.extend(after[skipped..].iter().map(String::as_str));
    cause
}

#[cfg(test)]
mod tests;
