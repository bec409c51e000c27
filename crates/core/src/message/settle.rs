//! The answers that we give ourselves when the server cannot: whole lines, ready to be written.
//!
//! Every request gets exactly one answer. Where the server's cannot come any more, the client is told what happened, what
//! it means for the request, and what to do next. `tools/call` is answered with an `isError` result, because that reaches
//! the model, which can decide to go on; everything else with a JSON-RPC error of code -32603 (codes below -32000 that
//! mean "connection closed" or "timed out" to some client are avoided). This module decides nothing about *whether* to
//! answer; it only words the answer.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::value::RawValue;

use super::envelope::SUBSCRIPTION_KEY;
use super::slot::Tracked;
use crate::event::{Renewing, Status};
use crate::limits::HELD_LINE_BYTES;

/// JSON-RPC's "internal error", the one code that no client reads anything into.
pub const CODE: i32 = -32603;

/// Lines of stderr that are quoted.
const QUOTED_LINES: usize = 5;
/// Characters of each line of stderr that are quoted.
const QUOTED_CHARS: usize = 300;

/// Why the server's own answer will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why<'a> {
    /// The command could not be started.
    StartFailed {
        /// The command.
        argv: &'a [String],
        /// What went wrong.
        problem: &'a str,
        /// How to mend it.
        hint: &'a str,
    },
    /// The server ended.
    ServerExit {
        /// The server's name.
        name: &'a str,
        /// How it ended.
        status: Status,
        /// Its last words.
        stderr_tail: &'a [String],
        /// Whether a new generation takes over.
        restarted: bool,
        /// Whether an earlier generation died of this very request, too.
        poisoned: bool,
        /// How often it was started before it was given up; 0 or 1 if that says nothing.
        tries: u32,
    },
    /// The server has died too often.
    Abandoned {
        /// The server's name.
        name: &'a str,
        /// Deaths within the window.
        deaths: u32,
        /// The window.
        window_ms: u64,
        /// How the last one came about.
        last: &'a str,
        /// Its last words.
        stderr_tail: &'a [String],
        /// The watched file whose change it does not start after, if it is that.
        changed: Option<&'a str>,
        /// After how long it is tried once more; 0: never.
        probe_ms: u64,
    },
    /// The generation had to give way before it had answered.
    Renewed {
        /// The server's name.
        name: &'a str,
        /// Why.
        why: &'a Renewing,
    },
    /// The user allows no more time.
    Deadline {
        /// The server's name.
        name: &'a str,
        /// How long it took.
        ms: u64,
    },
    /// The server cannot go on with the client's session.
    Differs {
        /// The server's name.
        name: &'a str,
        /// In what it differs.
        what: &'a str,
    },
    /// Our keeper was killed, and the server was ended with it.
    KeeperLost {
        /// The server's name.
        name: &'a str,
    },
    /// The server has not said anything since it was started; it is left running.
    OpeningSilent {
        /// The server's name.
        name: &'a str,
        /// How long it has been silent.
        ms: u64,
        /// The command.
        argv: &'a [String],
    },
    /// The server ended while the request was on its way to it.
    Lost {
        /// The server's name.
        name: &'a str,
    },
    /// The server's answer is longer than we can hold.
    TooLong {
        /// The server's name.
        name: &'a str,
    },
    /// Somebody ended the server with `mainstay stop`.
    Asked {
        /// The server's name.
        name: &'a str,
    },
    /// The lease of the server is over.
    LeaseEnded {
        /// The server's name.
        name: &'a str,
        /// Which lease, and why.
        what: &'a str,
    },
    /// The client is going, and the server is being stopped.
    ClientStopping {
        /// The server's name.
        name: &'a str,
    },
}

/// The answer to a request, as a line.
pub fn answer(id_token: &[u8], method: Tracked, modern: bool, why: &Why<'_>) -> Vec<u8> {
    let text = why.text(method);
    match method {
        Tracked::ToolsCall => tool_error(id_token, &text, modern),
        Tracked::Other
        | Tracked::Initialize
        | Tracked::Discover
        | Tracked::Ping
        | Tracked::List
        | Tracked::Read
        | Tracked::SetLevel
        | Tracked::Subscribe
        | Tracked::Listen
        | Tracked::Task => error(id_token, &text, &json(&why.data(method))),
    }
}

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
pub fn tool_error(id_token: &[u8], text: &str, modern: bool) -> Vec<u8> {
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

impl Why<'_> {
    /// What happened, what it means for the request, what to do next.
    pub fn text(&self, method: Tracked) -> String {
        let word = method.word();
        match *self {
            Self::StartFailed {
                argv,
                problem,
                hint,
            } => format!(
                "the MCP server could not be started: `{}`: {problem}; {hint}",
                command(argv)
            ),
            Self::ServerExit {
                name,
                status,
                stderr_tail,
                restarted,
                poisoned,
                tries,
            } => {
                let given_up = format!("it was started {tries} times and is not started again");
                let next = match (restarted, poisoned) {
                    (true, true) => {
                        "an earlier generation had died with the same request, so it is not sent a third time; the server is started \
                         again, what it held in memory is lost"
                    }
                    (true, false) => "it is started again, what it held in memory is lost",
                    (false, _) if tries > 1 => &given_up,
                    (false, _) => "it is not started again",
                };
                let effect = effect(method);
                let story = format!("`mainstay why {name}` tells the whole story");
                let quoted = quoted(stderr_tail);
                format!(
                    "MCP server '{name}' ended ({status}) while handling {word}; {next}; {effect}; {story}{quoted}"
                )
            }
            Self::KeeperLost { name } => format!(
                "the mainstay process that kept MCP server '{name}' was killed while the server was handling {word}; both were started \
                 again, what the server held in memory is lost; {}",
                effect(method)
            ),
            Self::OpeningSilent { name, ms, argv } => format!(
                "MCP server '{name}' has not answered {word} for {} and has written nothing; it is left running: if it is still \
                 downloading or building, connect again in a while; if not, run `{}` in a terminal to see what it waits for",
                time(ms),
                command(argv)
            ),
            Self::Abandoned {
                name,
                deaths,
                window_ms,
                last,
                stderr_tail,
                changed,
                probe_ms,
            } => {
                let again = match probe_ms {
                    0 => "it is not tried again by itself".to_string(),
                    ms => format!("it is tried again every {}", time(ms)),
                };
                let quoted = quoted(stderr_tail);
                if let Some(path) = changed {
                    return format!(
                        "MCP server '{name}' is not running: {path} has changed, and what is there now does not start ({last}); the \
                         version before it was ended, {word} was not sent to anybody; mend the file: it is started as soon as a watched \
                         file changes; besides, {again}{quoted}"
                    );
                }
                let times = match deaths {
                    1 => "once".to_string(),
                    deaths => format!("{deaths} times"),
                };
                format!(
                    "MCP server '{name}' is not running: it ended {times} within {}, last: {last}; {word} was not sent to it; \
                     {again}; mend it, then `mainstay restart {name}` starts it at once; `mainstay why {name}` tells the whole \
                     story{quoted}",
                    time(window_ms)
                )
            }
            Self::Renewed { name, why } => format!(
                "MCP server '{name}' was restarted ({why}) before it had answered {word}; what it held in memory is lost; {}",
                effect(method)
            ),
            Self::Deadline { name, ms } => format!(
                "MCP server '{name}' has not answered {word} within the call deadline ({}); it was told to cancel and goes on running; {}",
                time(ms),
                effect(method)
            ),
            Self::Lost { name } => format!(
                "MCP server '{name}' ended while {word} was on its way to it; it is started again; {}",
                effect(method)
            ),
            Self::TooLong { name } => format!(
                "MCP server '{name}' answered {word} with more than {} MiB, which is more than can be held; ask for less",
                HELD_LINE_BYTES >> 20
            ),
            Self::Differs { name, what } => {
                format!("MCP server '{name}' cannot go on with this session: {what}; connect again")
            }
            Self::Asked { name } => format!(
                "MCP server '{name}' was ended by `mainstay stop` and has not answered {word}; it was not started again: connect again if \
                 it is needed; {}",
                effect(method)
            ),
            Self::LeaseEnded { name, what } => format!(
                "MCP server '{name}' was ended because {what}; {word} was not answered; {}",
                effect(method)
            ),
            Self::ClientStopping { name } => format!(
                "MCP server '{name}' is being stopped because the client is closing; {word} was not answered; connect again to repeat it"
            ),
        }
    }

    fn data(&self, method: Tracked) -> Data<'_> {
        let base = Data {
            proxy: "mainstay",
            reason: "",
            exit: None,
            restarted: false,
            retried: false,
            safe_to_retry: method.is_repeatable(),
            stderr: &[],
        };
        match *self {
            // It never reached a server.
            Self::StartFailed { .. } => Data {
                reason: "start_failed",
                safe_to_retry: true,
                ..base
            },
            Self::ServerExit {
                status,
                stderr_tail,
                restarted,
                poisoned,
                ..
            } => Data {
                reason: "server_exit",
                exit: Some(match status {
                    Status::Code(code) => Exit::Code(code),
                    Status::Signal { number, .. } => Exit::Signal(number),
                }),
                restarted,
                retried: poisoned,
                stderr: last(stderr_tail),
                ..base
            },
            // It never reached a server.
            Self::Abandoned { stderr_tail, .. } => Data {
                reason: "abandoned",
                safe_to_retry: true,
                stderr: last(stderr_tail),
                ..base
            },
            Self::Renewed { .. } => Data {
                reason: "restarted",
                restarted: true,
                ..base
            },
            Self::Deadline { .. } => Data {
                reason: "call_deadline",
                ..base
            },
            Self::Lost { .. } => Data {
                reason: "server_exit",
                restarted: true,
                ..base
            },
            Self::TooLong { .. } => Data {
                reason: "answer_too_long",
                ..base
            },
            Self::Differs { .. } => Data {
                reason: "server_differs",
                restarted: true,
                ..base
            },
            Self::KeeperLost { .. } => Data {
                reason: "keeper_lost",
                restarted: true,
                ..base
            },
            Self::OpeningSilent { .. } => Data {
                reason: "opening_silent",
                ..base
            },
            Self::Asked { .. } => Data {
                reason: "stopped",
                ..base
            },
            Self::LeaseEnded { .. } => Data {
                reason: "lease_ended",
                ..base
            },
            Self::ClientStopping { .. } => Data {
                reason: "client_stopping",
                ..base
            },
        }
    }
}

/// The `data` of an error, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    proxy: &'static str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<Exit>,
    restarted: bool,
    retried: bool,
    safe_to_retry: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stderr: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Exit {
    Code(i32),
    Signal(i32),
}

fn effect(method: Tracked) -> &'static str {
    if method.is_repeatable() {
        "the request can be repeated"
    } else {
        "the request may or may not have taken effect, so check before repeating it"
    }
}

fn last(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(QUOTED_LINES)..]
}

fn quoted(stderr_tail: &[String]) -> String {
    let mut text = String::new();
    for line in last(stderr_tail) {
        text.push_str(if text.is_empty() {
            "; its last words on stderr:\n"
        } else {
            "\n"
        });
        text.extend(line.chars().take(QUOTED_CHARS));
    }
    text
}

/// A command as one would type it.
fn command(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    let words: Vec<String> = argv
        .iter()
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect();
    words.join(" ")
}

fn time(ms: u64) -> String {
    if ms >= 1_000 {
        format!("{} s", ms / 1_000)
    } else {
        format!("{ms} ms")
    }
}

/// JSON of what cannot fail to be JSON: texts and plain structs.
fn json<T: Serialize + ?Sized>(value: &T) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn told(id: &str, method: Tracked, modern: bool, why: &Why<'_>) -> String {
        let line = answer(id.as_bytes(), method, modern, why);
        serde_json::from_slice::<serde_json::Value>(&line).expect("valid JSON");
        String::from_utf8(line).expect("text")
    }

    fn argv() -> Vec<String> {
        vec!["npx".into(), "-y".into(), "a b's".into()]
    }

    const KILLED: Status = Status::Signal {
        number: 9,
        core: false,
    };

    #[test]
    fn a_tool_call_reaches_the_model() {
        let why = Why::ServerExit {
            name: "files",
            status: KILLED,
            stderr_tail: &[],
            restarted: true,
            poisoned: false,
            tries: 0,
        };
        let text = "MCP server 'files' ended (SIGKILL) while handling tools/call; it is started again, what it held in memory is lost; \
                    the request may or may not have taken effect, so check before repeating it; `mainstay why files` tells the whole story";
        assert_eq!(
            told("7", Tracked::ToolsCall, false, &why),
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":true}}}}\n"
            )
        );
        assert_eq!(
            told("\"a\\u0062\"", Tracked::ToolsCall, true, &why),
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"result\":{{\"resultType\":\"complete\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":true}}}}\n"
            )
        );
    }

    #[test]
    fn anything_else_gets_an_error_with_data() {
        let tail: Vec<String> = (1..=7).map(|n| format!("line \"{n}\"")).collect();
        let why = Why::ServerExit {
            name: "files",
            status: Status::Code(1),
            stderr_tail: &tail,
            restarted: false,
            poisoned: false,
            tries: 0,
        };
        assert_eq!(
            told("1.0", Tracked::List, false, &why),
            concat!(
                r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32603,"message":"MCP server 'files' ended (exit code 1) while handling a list request; "#,
                r"it is not started again; the request can be repeated; `mainstay why files` tells the whole story; its last words on stderr:\n",
                r#"line \"3\"\nline \"4\"\nline \"5\"\nline \"6\"\nline \"7\"","data":{"proxy":"mainstay","reason":"server_exit","exit":{"code":1},"#,
                r#""restarted":false,"retried":false,"safeToRetry":true,"stderr":["line \"3\"","line \"4\"","line \"5\"","line \"6\"","line \"7\""]}}}"#,
                "\n"
            )
        );
        let why = Why::ServerExit {
            name: "files",
            status: KILLED,
            stderr_tail: &[],
            restarted: true,
            poisoned: false,
            tries: 0,
        };
        assert!(told("1", Tracked::Other, true, &why).ends_with(
            "\"data\":{\"proxy\":\"mainstay\",\"reason\":\"server_exit\",\"exit\":{\"signal\":9},\"restarted\":true,\"retried\":false,\"safeToRetry\":false}}}\n"
        ));
    }

    #[test]
    fn a_command_that_cannot_start_says_how_to_mend_it() {
        let why = Why::StartFailed {
            argv: &argv(),
            problem: "no such file",
            hint: "is npx installed and in PATH?",
        };
        assert_eq!(
            told("0", Tracked::Initialize, false, &why),
            concat!(
                r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the MCP server could not be started: `npx -y 'a b'\\''s'`: no such file; "#,
                r#"is npx installed and in PATH?","data":{"proxy":"mainstay","reason":"start_failed","restarted":false,"retried":false,"safeToRetry":true}}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_silent_server_is_left_running() {
        let why = Why::OpeningSilent {
            name: "x",
            ms: 55_000,
            argv: &argv(),
        };
        assert_eq!(
            told("0", Tracked::Initialize, false, &why),
            concat!(
                r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"MCP server 'x' has not answered initialize for 55 s and has written nothing; "#,
                r"it is left running: if it is still downloading or building, connect again in a while; if not, run `npx -y 'a b'\\''s'` in a terminal to see ",
                r#"what it waits for","data":{"proxy":"mainstay","reason":"opening_silent","restarted":false,"retried":false,"safeToRetry":true}}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn our_own_death_is_told() {
        assert_eq!(
            told("5", Tracked::Read, false, &Why::KeeperLost { name: "x" }),
            concat!(
                r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"the mainstay process that kept MCP server 'x' was killed while the server was "#,
                r#"handling a read request; both were started again, what the server held in memory is lost; the request can be repeated","#,
                r#""data":{"proxy":"mainstay","reason":"keeper_lost","restarted":true,"retried":false,"safeToRetry":true}}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_stopping_client_is_told_too() {
        assert_eq!(
            told("5", Tracked::Ping, true, &Why::ClientStopping { name: "x" }),
            concat!(
                r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"MCP server 'x' is being stopped because the client is closing; ping was not "#,
                r#"answered; connect again to repeat it","data":{"proxy":"mainstay","reason":"client_stopping","restarted":false,"retried":false,"safeToRetry":true}}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn an_id_that_is_no_json_does_not_spoil_the_line() {
        for id in ["nope", "", "1,\"x\":2", "\"", "1}\n{"] {
            let line = told(id, Tracked::Ping, false, &Why::ClientStopping { name: "x" });
            assert!(
                line.starts_with(r#"{"jsonrpc":"2.0","id":null,"error""#),
                "{line}"
            );
        }
    }

    #[test]
    fn names_and_last_words_are_quoted_safely_and_in_measure() {
        let tail = vec!["\u{1b}[31m\"\\\u{0}".to_string(), "é".repeat(10_000)];
        let why = Why::ServerExit {
            name: "a\"\nb",
            status: KILLED,
            stderr_tail: &tail,
            restarted: true,
            poisoned: false,
            tries: 0,
        };
        let line = told("1", Tracked::ToolsCall, false, &why);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(line.matches('é').count(), QUOTED_CHARS);
    }
}
