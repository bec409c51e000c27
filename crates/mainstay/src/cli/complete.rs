//! `mainstay complete`: the words that a shell offers after TAB. The completion files in `packaging/completions` call it.
//!
//! One word per line, then a tab and what the word means. It writes no file, starts no process and never fails, because a
//! shell has no place for an error message while a user types.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use clap::{Args, ValueEnum};
use mainstay_report::{Exit, printer};
use mainstay_store::ledger::backwards;
use mainstay_store::ledger::read::{Events, Filter};
use mainstay_store::paths::Paths;
use mainstay_store::registry::{self, Listed};
use serde::Deserialize;

/// Events that are read for the names of servers that have ended. Reading them takes a few milliseconds.
const EVENTS: usize = 5_000;

/// The options of `complete`.
#[derive(Debug, Args)]
pub struct Options {
    /// Which servers
    #[arg(value_enum)]
    pub which: Which,
}

/// Which servers a command can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Those that run.
    Running,
    /// Also those that ended lately.
    Known,
}

/// Prints the names and ids. What cannot be read is left out.
pub fn complete(options: &Options) -> Exit {
    if let Ok(paths) = Paths::find() {
        let listed = registry::list(&paths).unwrap_or_default();
        let ended = match options.which {
            Which::Running => Vec::new(),
            Which::Known => ended(&paths).unwrap_or_default(),
        };
        // A shell that has gone away needs no words.
        printer::print_text(&words(&listed, &ended)).ok();
    }
    Exit::Ok
}

/// First the names, then the ids of the servers that run, then the names of those that ended.
fn words(listed: &[Listed], ended: &[String]) -> String {
    let cards: Vec<_> = listed
        .iter()
        .filter(|one| one.alive)
        .filter_map(|one| one.card.as_ref())
        .filter(|card| is_a_word(&card.name))
        .collect();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for card in &cards {
        *names.entry(&card.name).or_default() += 1;
    }
    let mut text = String::new();
    for (name, count) in &names {
        let many = if *count == 1 { "server" } else { "servers" };
        text.extend([name, "\t", &count.to_string(), " ", many, "\n"]);
    }
    for card in cards {
        text.extend([&card.id.to_string(), "\t", &card.name, "\n"]);
    }
    for name in ended {
        if is_a_word(name) && !names.contains_key(name.as_str()) {
            text.extend([name, "\tended\n"]);
        }
    }
    text
}

/// True if a shell can read the name from a line and complete it.
fn is_a_word(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && !name.contains(char::is_control)
}

/// The names in the newest events, sorted.
fn ended(paths: &Paths) -> io::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Named {
        server: String,
    }
    let files = Events::open(paths, Filter::default()).files()?;
    let mut names = Vec::new();
    let mut read = 0;
    let flow = backwards::lines(&files, |_, line| {
        if let Ok(Named { server }) = serde_json::from_slice(line)
            && !names.contains(&server)
        {
            names.push(server);
        }
        read += 1;
        if read < EVENTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    // Whether older events exist does not matter here.
    let (ControlFlow::Continue(()) | ControlFlow::Break(())) = flow;
    names.sort_unstable();
    Ok(names)
}
