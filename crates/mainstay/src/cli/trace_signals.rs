//! `mainstay trace-signals`: shows which process sends which signal to which process.

use std::error::Error;
use std::fmt;

use clap::Args;
use mainstay_protocol::event::signal_word;
use mainstay_report::{Exit, Report};
use mainstay_store::config::quantity;

use mainstay_observe::trace::{self, Wanted};

/// Signals that end a process.
const USUAL: &str = "HUP,INT,QUIT,ABRT,KILL,TERM";

/// The options of `trace-signals`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo mainstay trace-signals                       signals to and from MCP servers that may end a process
  sudo mainstay trace-signals --all                 signals between all processes
  sudo mainstay trace-signals --to playwright       only signals to this server and its mainstay processes
  sudo mainstay trace-signals --to 1480584 --signal TERM,KILL
  sudo mainstay trace-signals --json | jq 'select(.signal == \"SIGKILL\") | .sender'

MCP servers are those under mainstay and other processes that speak MCP over a pipe. It needs root. It uses its own trace instance, which is removed when it ends, also if it is killed.
Signals to your servers are written to your events, with your rights. While it runs, `mainstay why`
and `mainstay watch` name the sender of a signal; without it, `why` can only name suspects.")]
pub struct Options {
    /// Only signals to this process: a pid, a server's name, a link's id or a process's short name
    #[arg(long, value_name = "PROCESS")]
    pub to: Option<String>,
    /// Also signals between processes that are no MCP servers
    #[arg(long, conflicts_with = "to")]
    pub all: bool,
    /// Only these signals, by name or number, separated by commas
    #[arg(long, value_name = "LIST", default_value = USUAL, value_delimiter = ',', value_parser = number)]
    pub signal: Vec<i32>,
    /// End after this time, as in `30s`, `10m`
    #[arg(long = "for", value_name = "TIME", value_parser = quantity::time)]
    pub for_ms: Option<u64>,
    /// Print one JSON object per signal
    #[arg(long)]
    pub json: bool,
}

/// Runs `mainstay trace-signals`.
pub fn trace_signals(options: &Options) -> Result<Exit, Report> {
    trace::trace(&Wanted {
        to: options.to.clone(),
        all: options.all,
        signals: options.signal.clone(),
        for_ms: options.for_ms,
        json: options.json,
    })
}

/// Parses `TERM`, `SIGTERM`, `sigterm` or `15`.
fn number(text: &str) -> Result<i32, NotASignal> {
    let word = text.trim().to_ascii_uppercase();
    let word = word.strip_prefix("SIG").unwrap_or(&word);
    let numbered = word.parse().ok().filter(|number| (1..=64).contains(number));
    let named = || {
        (1..=31).find(|&number| {
            let known = signal_word(number).and_then(|known| known.strip_prefix("SIG"));
            known == Some(word)
        })
    };
    numbered
        .or_else(named)
        .ok_or_else(|| NotASignal(text.into()))
}

/// A text that is neither the name nor the number of a signal.
#[derive(Debug, PartialEq, Eq)]
struct NotASignal(String);

impl fmt::Display for NotASignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a signal (write it like `TERM` or `15`)",
            self.0
        )
    }
}

impl Error for NotASignal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_by_name_and_number() {
        for (text, wanted) in [("TERM", 15), ("SIGKILL", 9), ("sigint", 2), ("34", 34)] {
            assert_eq!(number(text), Ok(wanted));
        }
        for text in ["", "NOPE", "0", "65", "-9"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
