//! The answers that the bridge gives itself: what was wrong, why, what it means for the request, what to do.
//!
//! Invariant: no text of the server's goes in but a status and a content type, and no header and no query of ours: an
//! answer is read by a model, and kept in a transcript.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::settle;
use mainstay_protocol::message::slot::Tracked;

/// The longest content type that is quoted.
const QUOTED_CHARS: usize = 60;

/// Why the server's own answer will not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It could not be reached.
    Unreachable {
        /// What went wrong.
        why: String,
    },
    /// The connection broke before the answer was complete.
    Broke {
        /// What went wrong.
        why: String,
        /// It had been sent a second time, too.
        again: bool,
    },
    /// It refused.
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// It answered, but not in a way that could be an answer.
    NotMcp {
        /// The content type.
        content: String,
    },
    /// Its answer ended without an answer to this request.
    Silent,
    /// Its answer, or the request, is longer than we hold.
    TooLong {
        /// It is the request.
        request: bool,
    },
    /// The session was lost, and no new one could be opened.
    NoSession {
        /// What went wrong.
        why: String,
    },
    /// The session was lost twice with this request.
    LostTwice,
    /// It could not be written down that a session was opened.
    NotNoted {
        /// What went wrong.
        why: String,
    },
    /// Too many requests wait.
    Busy,
}

/// The answer to a request, as a line.
pub fn answer(
    id_token: &[u8],
    method: Tracked,
    modern: bool,
    name: &str,
    place: &str,
    why: &Why,
) -> Vec<u8> {
    let text = text(method, name, place, why);
    settle::failure(id_token, method, modern, &text, &data(method, why))
}

fn data(method: Tracked, why: &Why) -> String {
    let (reason, status) = match why {
        Why::Unreachable { .. } => ("http_unreachable", None),
        Why::Broke { .. } => ("http_broke", None),
        Why::Status { status } => ("http_status", Some(*status)),
        Why::NotMcp { .. } => ("http_not_mcp", None),
        Why::Silent => ("http_silent", None),
        Why::TooLong { .. } => ("too_long", None),
        Why::NoSession { .. } | Why::LostTwice => ("http_session_lost", None),
        Why::NotNoted { .. } => ("journal", None),
        Why::Busy => ("busy", None),
    };
    let status = status.map_or_else(String::new, |status| format!(r#""status":{status},"#));
    let safe = method.is_repeatable() || unseen(why);
    format!(r#"{{"proxy":"mainstay","reason":"{reason}",{status}"safeToRetry":{safe}}}"#)
}

/// Whether the server has not acted on the request.
fn unseen(why: &Why) -> bool {
    match why {
        Why::Unreachable { .. }
        | Why::TooLong { request: true }
        | Why::NoSession { .. }
        | Why::LostTwice
        | Why::NotNoted { .. }
        | Why::Busy => true,
        Why::Status { status } => matches!(
            status,
            301 | 302 | 307 | 308 | 401 | 403 | 404 | 405 | 406 | 407 | 413 | 415 | 429
        ),
        Why::Broke { .. } | Why::NotMcp { .. } | Why::Silent | Why::TooLong { request: false } => {
            false
        }
    }
}

fn text(method: Tracked, name: &str, place: &str, why: &Why) -> String {
    let word = method.word();
    let server = format!("MCP server '{name}' at {place}");
    let effect = if unseen(why) {
        "it was not acted upon"
    } else {
        settle::effect(method)
    };
    match why {
        Why::Unreachable { why } => format!(
            "{server} cannot be reached: {why}; {word} was not sent; start the server or correct the URL, then repeat it"
        ),
        Why::Broke { why, again } => {
            let again = if *again {
                ", also when it was sent a second time"
            } else {
                ""
            };
            format!(
                "{server} did not finish its answer to {word}{again}: {why}; {effect}; look at the server's own log"
            )
        }
        Why::Status { status } => {
            let (meaning, advice) = meaning(*status);
            format!("{server} refused {word} with HTTP {status} ({meaning}); {effect}; {advice}")
        }
        Why::NotMcp { content } => {
            let content: String = content
                .chars()
                .filter(|c| !c.is_control())
                .take(QUOTED_CHARS)
                .collect();
            let content = if content.is_empty() {
                "no content type".to_string()
            } else {
                format!("`{content}`")
            };
            format!(
                "{server} answered {word} with {content} where JSON or an event stream belongs; {effect}; correct the URL: it must be the MCP endpoint, often ending in /mcp"
            )
        }
        Why::Silent => format!(
            "{server} ended its answer to {word} without an answer in it; {effect}; look at the server's own log"
        ),
        Why::TooLong { request: true } => format!(
            "{word} for {server} is longer than {} MiB, which is more than can be held; it was not sent; ask for less",
            HELD_LINE_BYTES >> 20
        ),
        Why::TooLong { request: false } => format!(
            "{server} answered {word} with more than {} MiB, which is more than can be held; {effect}; ask for less",
            HELD_LINE_BYTES >> 20
        ),
        Why::NoSession { why } => format!(
            "{server} has ended the session, and a new one could not be opened: {why}; {word} was not acted upon; it is tried again with the next request"
        ),
        Why::LostTwice => format!(
            "{server} has ended the session twice in a row when it was sent {word}; {effect}; look at the server's own log"
        ),
        Why::NotNoted { why } => format!(
            "a session with {server} was opened and closed again, because it could not be written down that it must be closed: {why}; make room in the state directory (`mainstay doctor` looks at it), then connect again"
        ),
        Why::Busy => format!(
            "too many requests wait for {server}; {word} was not sent; repeat it when others are answered"
        ),
    }
}

fn meaning(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => (
            "bad request",
            "the server does not speak this version of MCP, or the URL is not its endpoint",
        ),
        401 => (
            "unauthorized",
            "it wants credentials: give them with --header-env Authorization=VARIABLE, or with `header_env` in the config file, and see that they have not expired",
        ),
        403 => (
            "forbidden",
            "these credentials, or this origin, are not allowed there",
        ),
        404 => (
            "not found",
            "correct the URL: it must be the MCP endpoint, often ending in /mcp",
        ),
        405 => (
            "method not allowed",
            "correct the URL: it must be the MCP endpoint, often ending in /mcp",
        ),
        406 => (
            "not acceptable",
            "the server answers neither with JSON nor with an event stream",
        ),
        407 => (
            "proxy authentication required",
            "write its user into the variable that names the proxy, as in http://user:password@proxy:3128",
        ),
        413 => ("too large", "ask for less"),
        415 => (
            "unsupported media type",
            "the URL is not that of an MCP endpoint",
        ),
        429 => ("too many requests", "wait a while, then repeat it"),
        301 | 302 | 303 | 307 | 308 => (
            "moved elsewhere",
            "the address has changed: correct the URL; a redirect to another host is not followed, because our headers must not go there",
        ),
        500..=599 => (
            "server error",
            "the server, or what stands before it, is not well: look at its log",
        ),
        _ => (
            "unexpected",
            "correct the URL: it must be the MCP endpoint, often ending in /mcp",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_says_what_why_and_what_to_do() {
        let place = "https://h/mcp";
        for (why, words) in [
            (
                Why::Unreachable {
                    why: "h:1: connection refused".into(),
                },
                "cannot be reached: h:1: connection refused; tools/call was not sent; start the server",
            ),
            (
                Why::Broke {
                    why: "x".into(),
                    again: false,
                },
                "may or may not have taken effect",
            ),
            (
                Why::Status { status: 401 },
                "with HTTP 401 (unauthorized); it was not acted upon; it wants credentials: give them with --header-env",
            ),
            (
                Why::Status { status: 503 },
                "may or may not have taken effect",
            ),
            (
                Why::NotMcp {
                    content: "text/html\u{7}".into(),
                },
                "answered tools/call with `text/html` where JSON",
            ),
            (Why::TooLong { request: false }, "more than 16 MiB"),
            (
                Why::NotNoted {
                    why: "no space left on device".into(),
                },
                "no space left on device; make room",
            ),
        ] {
            let line = answer(b"7", Tracked::ToolsCall, false, "x", place, &why);
            let line = String::from_utf8(line).unwrap();
            assert!(line.contains(words), "{line}");
            assert!(line.contains("isError"), "{line}");
        }
        let line = answer(
            b"7",
            Tracked::List,
            false,
            "x",
            place,
            &Why::Status { status: 503 },
        );
        let line = String::from_utf8(line).unwrap();
        assert!(line.contains(r#""data":{"proxy":"mainstay","reason":"http_status","status":503,"safeToRetry":true}"#), "{line}");
    }
}
