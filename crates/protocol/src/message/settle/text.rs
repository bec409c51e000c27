//! The texts of the answers that we give ourselves.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Why, telling};
use crate::event::Losses;
use crate::limits::HELD_LINE_BYTES;
use crate::message::slot::Tracked;

/// Characters of each line of stderr that are quoted.
pub(super) const QUOTED_CHARS: usize = 300;

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
                listed,
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
                let effect = if restarted {
                    effect(method)
                } else {
                    effect_of_the_end(method)
                };
                let story = story(name, listed);
                let quoted = quoted(stderr_tail);
                format!(
                    "MCP server '{name}' ended ({status}) while handling {word}; {next}; {effect}{story}{quoted}"
                )
            }
            Self::KeeperLost { name } => format!(
                "the mainstay process that kept MCP server '{name}' was killed while the server was handling {word}; both were started \
                 again, what the server held in memory is lost; {}",
                effect(method)
            ),
            Self::OpeningSilent { name, ms, argv } => format!(
                "MCP server '{name}' has not answered {word} for {} and has written nothing in that time; it is left running: if it is still \
                 downloading or building, connect again in a while; if not, run `{}` in a terminal to see what it waits for",
                time(ms),
                command(argv)
            ),
            Self::Abandoned {
                name,
                losses,
                window_ms,
                last,
                stderr_tail,
                changed,
                probe_ms,
                sent,
                listed,
            } => {
                let again = match probe_ms {
                    0 => "it is not tried again by itself".to_string(),
                    ms if losses.failed_starts > 0 && changed.is_none() => {
                        format!("it is tried again after {}", time(ms))
                    }
                    ms => format!("it is tried again every {}", time(ms)),
                };
                let quoted = quoted(stderr_tail);
                let met = |receiver: &str| {
                    if sent {
                        let effect = effect(method);
                        format!("{word} was sent before that and not answered; {effect}")
                    } else {
                        format!("{word} was not sent to {receiver}")
                    }
                };
                if let Some(path) = changed {
                    return format!(
                        "MCP server '{name}' is not running: {path} has changed, and what is there now does not start ({last}); the \
                         version before it was ended, {}; fix the file: it is started as soon as a watched \
                         file changes; in addition, {again}{quoted}",
                        met("a server")
                    );
                }
                let fix = if listed {
                    format!("fix it, then `mainstay restart {name}` starts it at once")
                } else {
                    "fix it".into()
                };
                let story = story(name, listed);
                format!(
                    "MCP server '{name}' is not running: it {} within {}, last: {last}; {}; {again}; {fix}{story}{quoted}",
                    lost(losses),
                    time(window_ms),
                    met("it")
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
                "MCP server '{name}' was ended by `mainstay stop` and has not answered {word}; it was not started again; {}",
                effect_of_the_end(method)
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
}

/// Where the user finds out more, if the command finds the server.
fn story(name: &str, listed: bool) -> String {
    if listed {
        format!("; `mainstay why {name}` tells the whole story")
    } else {
        String::new()
    }
}

/// What it means for a request that a server may have begun with.
pub fn effect(method: Tracked) -> &'static str {
    if method.is_repeatable() {
        "the request can be repeated"
    } else {
        "the request may or may not have taken effect, so check before repeating it"
    }
}

/// The same where no server follows: only a new connection starts one.
fn effect_of_the_end(method: Tracked) -> &'static str {
    if method.is_repeatable() {
        "connect again to repeat the request"
    } else {
        "the request may or may not have taken effect, so check before you connect again and repeat it"
    }
}

fn quoted(stderr_tail: &[String]) -> String {
    let mut text = String::new();
    for line in telling(stderr_tail) {
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

/// How a server was lost again and again.
fn lost(
    Losses {
        deaths,
        failed_starts,
    }: Losses,
) -> String {
    let times = |count: u32| match count {
        1 => "once".to_string(),
        count => format!("{count} times"),
    };
    let ended = format!("ended {}", times(deaths));
    let not_started = format!("could not be started {}", times(failed_starts));
    match (deaths, failed_starts) {
        (_, 0) => ended,
        (0, _) => not_started,
        (_, _) => format!("{ended} and {not_started}"),
    }
}
