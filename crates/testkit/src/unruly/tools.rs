//! The tools of the unruly server.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, getpid, getppid, kill_process};
use rustix::stdio::stdout;
use serde_json::{Value, json};

use super::breed::{Breed, orphans};
use super::flood;
use super::serve::{self, Counted};
use crate::fork::leave;
use crate::unruly::Flags;
use crate::wait::{poll_for, span};

/// The outcome of a call.
pub enum Outcome {
    /// An answer at once.
    Now(Value),
    /// An answer later.
    After(Duration, Value),
    /// All delayed answers are sent now.
    Wake,
    /// This many numbered notifications, then an answer.
    Notify(u64),
    /// A text of that many bytes. The server dies after this many of them.
    Big(u64, Option<u64>),
    /// The same with the id last.
    BigIdLast(u64),
    /// The whole memory.
    Held,
    /// The last answer: none follows.
    Mute,
    /// An answer, then this end is closed and the server lives on.
    HangUp(String),
    /// A question to the client. The call's answer waits for the client's, or not.
    Ask {
        /// The method of the question.
        method: String,
        /// Whether the call waits.
        wait: bool,
    },
    /// A notification to all listening requests.
    News(String),
    /// This many steps of progress. The first generation dies after some of them.
    Steps {
        /// How many.
        count: u64,
        /// The step after which the first generation dies.
        die_after: Option<u64>,
    },
    /// There is no such tool.
    Unknown(String),
}

/// How long stdout must take nothing before [`push`] reports it as blocked.
const STALL: Duration = Duration::from_millis(300);

const TOOLS: [(&str, &str); 22] = [
    ("echo", "says what it was told"),
    ("pid", "who the server is"),
    ("sleep", "answers after {ms}"),
    ("wake", "has every call of sleep answered now"),
    (
        "big",
        "a text of {bytes}; dies after {die_after} of them; before its id if {id_last}",
    ),
    (
        "env",
        "arguments, environment, directory, umask, signals, descriptors",
    ),
    ("crash", "dies by {signal} or with {code}"),
    ("flood_stderr", "writes {bytes} to stderr"),
    ("orphans", "makes {n} orphans that exit at once"),
    ("spawn", "makes a process of a {kind}"),
    ("notify", "sends {n} numbered notifications"),
    (
        "counted",
        "how many numbered notifications came from the client",
    ),
    (
        "push",
        "sends notifications until {bytes} are out or stdout is blocked, and writes the outcome to the marker",
    ),
    ("held", "everything that this generation holds in memory"),
    (
        "ask",
        "asks the client {method}, and waits for it if {wait}",
    ),
    ("hang_up", "closes its {end}, stdin or stdout, and lives on"),
    ("mute", "goes on reading, and answers unruly/sync only"),
    ("news", "sends {method} to all listening requests"),
    (
        "steps",
        "{n} steps of progress; the first generation dies after {die_after}",
    ),
    ("look", "which generation this is; annotated as read-only"),
    ("put", "the same, annotated as idempotent"),
    ("add", "the same, not annotated"),
];

/// The result of `tools/list`.
pub fn list(flags: &Flags) -> Vec<Value> {
    let extra = flags.extra_tool.iter().map(|name| (name.as_str(), "extra"));
    let pad = "x".repeat(flags.big_list as usize);
    let big = (flags.big_list > 0).then_some(("long", pad.as_str()));
    TOOLS
        .iter()
        .copied()
        .chain(extra)
        .chain(big)
        .map(|(name, description)| {
            let mut tool = json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
            match name {
                // A client with an argument `at.region` must repeat it in a header.
                "echo" => {
                    let region = json!({"type": "string", "x-mcp-header": "Region"});
                    let at = json!({"type": "object", "properties": {"region": region}});
                    tool["inputSchema"]["properties"] = json!({"at": at});
                }
                "look" | "steps" | "ask" => tool["annotations"] = json!({"readOnlyHint": true}),
                "put" => tool["annotations"] = json!({"idempotentHint": true}),
                _ => {}
            }
            tool
        })
        .collect()
}

/// The result of `prompts/list`.
pub fn prompts(flags: &Flags) -> Vec<Value> {
    let extra = flags.extra_prompt.iter().map(String::as_str);
    ["greet"]
        .into_iter()
        .chain(extra)
        .map(|name| json!({"name": name}))
        .collect()
}

/// Calls a tool.
pub fn call(flags: &Flags, params: &Value, calls: u64, counted: Counted) -> io::Result<Outcome> {
    let none = json!({});
    let arguments = params.get("arguments").unwrap_or(&none);
    let number = |name: &str| arguments.get(name).and_then(Value::as_u64).unwrap_or(0);
    let word = |name: &str| {
        let word = arguments.get(name).and_then(Value::as_str);
        word.unwrap_or_default().to_owned()
    };
    Ok(
        match params
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "echo" => {
                let pad = "x".repeat(flags.big_result as usize);
                let mut said = arguments.clone();
                if let (Some(said), true) = (said.as_object_mut(), !pad.is_empty()) {
                    said.insert("pad".into(), pad.into());
                }
                Outcome::Now(said)
            }
            "pid" => Outcome::Now(json!({
                "pid": getpid().as_raw_nonzero(),
                "ppid": getppid().map(rustix::process::Pid::as_raw_nonzero),
                "calls": calls,
            })),
            "sleep" => Outcome::After(
                Duration::from_millis(number("ms")),
                json!({"slept": number("ms")}),
            ),
            "wake" => Outcome::Wake,
            "big" if arguments.get("id_last").is_some() => Outcome::BigIdLast(number("bytes")),
            "big" => Outcome::Big(
                number("bytes"),
                arguments.get("die_after").and_then(Value::as_u64),
            ),
            "env" => Outcome::Now(surroundings()?),
            "crash" => crash(
                arguments.get("signal").and_then(Value::as_i64),
                number("code"),
            ),
            "flood_stderr" => {
                flood(number("bytes"))?;
                Outcome::Now(json!({"flooded": number("bytes")}))
            }
            "orphans" => {
                orphans(number("n") as u32)?;
                Outcome::Now(json!({"orphans": number("n")}))
            }
            "spawn" => {
                let kind = arguments
                    .get("kind")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                match Breed::of(flags).make(kind) {
                    Ok(()) => Outcome::Now(json!({"spawned": kind})),
                    Err(error) => Outcome::Unknown(error.to_string()),
                }
            }
            "notify" => Outcome::Notify(number("n")),
            "counted" => Outcome::Now(json!({
                "count": counted.count,
                "out_of_order": counted.out_of_order,
            })),
            "push" => Outcome::Now(push(flags, number("bytes"))?),
            "held" => Outcome::Held,
            "mute" => Outcome::Mute,
            "hang_up" => Outcome::HangUp(word("end")),
            "ask" => Outcome::Ask {
                method: word("method"),
                wait: arguments.get("wait") == Some(&json!(true)),
            },
            "news" => Outcome::News(word("method")),
            "steps" => Outcome::Steps {
                count: number("n"),
                die_after: arguments.get("die_after").and_then(Value::as_u64),
            },
            "look" | "put" | "add" => Outcome::Now(json!({"generation": flags.generation})),
            unknown => Outcome::Unknown(format!("no tool is called {unknown}")),
        },
    )
}

/// The open descriptors, with what they are.
pub fn open_fds() -> BTreeMap<i32, String> {
    let mut fds = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return fds;
    };
    let ours = format!("/proc/{}/fd", getpid().as_raw_nonzero());
    for entry in entries.flatten() {
        let (Ok(target), Some(number)) = (
            fs::read_link(entry.path()),
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok()),
        ) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        // The listing itself holds one.
        if target != ours {
            fds.insert(number, target);
        }
    }
    fds
}

fn surroundings() -> io::Result<Value> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|value| value.trim().to_owned())
    };
    let stat = mainstay_os::census::stat(getpid().as_raw_nonzero().get())?;
    Ok(json!({
        "pid": stat.pid,
        "session": stat.session,
        "pgrp": stat.pgrp,
        "argv": env::args().collect::<Vec<_>>(),
        "env": env::vars().collect::<BTreeMap<_, _>>(),
        "cwd": env::current_dir()?,
        "umask": field("Umask"),
        "blocked": field("SigBlk"),
        "ignored": field("SigIgn"),
        "fds": open_fds().into_iter().map(|(fd, what)| json!([fd, what])).collect::<Vec<_>>(),
        "policy": policy(stat.pid),
        // Our witness is between us and the keeper.
        "policy_of_the_keeper": policy(mainstay_os::census::stat(stat.ppid)?.ppid),
        "oom_score_adj": fs::read_to_string("/proc/self/oom_score_adj")?.trim(),
    }))
}

/// The number of a process's scheduling policy.
fn policy(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 41st field. The second is the name, which may contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38)?.parse().ok()
}

fn crash(signal: Option<i64>, code: u64) -> ! {
    let Some(signal) = signal.and_then(|number| Signal::from_named_raw(number as i32)) else {
        leave(code as i32)
    };
    // The first SIGSEGV only removes the runtime's own handler.
    loop {
        kill_process(getpid(), signal).ok();
    }
}

const BEFORE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"#;
const AFTER: &str = "}}";

/// A numbered notification, with its newline. Each side sends and checks a million of these, so without a parser.
pub fn notification(number: u64) -> String {
    format!("{BEFORE}{number}{AFTER}\n")
}

/// The number of such a line, without its newline.
pub fn numbered(line: &[u8]) -> Option<u64> {
    let number = line
        .strip_prefix(BEFORE.as_bytes())?
        .strip_suffix(AFTER.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Writes until `bytes` are out or stdout is blocked. The marker file then holds `stalled N` or `done N`. After a stall it goes
/// on to the end, for the reader that comes back.
fn push(flags: &Flags, bytes: u64) -> io::Result<Value> {
    let tell = |word: &str, sent: u64| match &flags.marker {
        Some(file) => {
            let fresh = file.with_extension("new");
            fs::write(&fresh, format!("{word} {sent}"))?;
            fs::rename(fresh, file)
        }
        None => Ok(()),
    };
    let out = stdout();
    let mut stalled = false;
    let (mut sent, mut number) = (0, 0);
    while sent < bytes {
        let mut fds = [PollFd::new(&out, PollFlags::OUT)];
        if !stalled && poll_for(&mut fds, span(STALL)) == 0 {
            stalled = true;
            tell("stalled", sent)?;
        }
        let line = notification(number);
        serve::write(line.as_bytes())?;
        sent += line.len() as u64;
        number += 1;
    }
    if !stalled {
        tell("done", sent)?;
    }
    Ok(json!({"sent": sent, "messages": number}))
}
