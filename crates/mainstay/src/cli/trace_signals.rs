//! `mainstay trace-signals`: who sends which signal to whom, as it happens.

use clap::Args;
use mainstay_core::event::signal_word;

use crate::config::quantity;
use crate::exit::Exit;
use crate::report::Report;
use crate::trace::{self, Wanted};

/// What ends a process, or is meant to.
const USUAL: &str = "HUP,INT,QUIT,ABRT,KILL,TERM";

/// What `trace-signals` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo mainstay trace-signals                       every signal that may end somebody
  sudo mainstay trace-signals --to playwright       only those to this server and its link
  sudo mainstay trace-signals --to 1480584 --signal TERM,KILL
  sudo mainstay trace-signals --json | jq 'select(.signal == \"SIGKILL\") | .sender'

It needs root, and uses a trace instance of its own, which is removed when it ends, however it ends.
Signals to your servers are written to your events, with your rights: while it runs, `mainstay why`
names the sender where it could only name suspects, and `mainstay watch` tells it too.")]
pub struct Options {
    /// Only to this one: a pid, a server's name, a link's id or a process's short name
    #[arg(long, value_name = "WHOM")]
    pub to: Option<String>,
    /// Only these signals, by name or number, with commas between
    #[arg(long, value_name = "LIST", default_value = USUAL, value_delimiter = ',', value_parser = number)]
    pub signal: Vec<i32>,
    /// End after this time, as in `30s`, `10m`
    #[arg(long = "for", value_name = "TIME", value_parser = quantity::time)]
    pub for_ms: Option<u64>,
    /// One signal per line, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Traces.
pub fn trace_signals(options: &Options) -> Result<Exit, Report> {
    trace::trace(&Wanted {
        to: options.to.clone(),
        signals: options.signal.clone(),
        for_ms: options.for_ms,
        json: options.json,
    })
}

/// `TERM`, `SIGTERM`, `sigterm` or `15`.
fn number(text: &str) -> Result<i32, String> {
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
        .ok_or_else(|| format!("`{text}` is no signal (write it like `TERM` or `15`)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (text, wanted) in [("TERM", 15), ("SIGKILL", 9), ("sigint", 2), ("34", 34)] {
            assert_eq!(number(text), Ok(wanted));
        }
        for text in ["", "NOPE", "0", "65", "-9"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
