//! `mainstay debts`: HTTP sessions that must still be closed.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use mainstay_core::limits;
use mainstay_os::{clock, title};
use serde::Serialize;

use super::run_options::header;
use crate::config::Config;
use crate::debts::pay::{self, Paid, Zeal};
use crate::debts::{Keyring, Standing, list};
use crate::exit::Exit;
use crate::http::target::{self, Target};
use crate::paths::Paths;
use crate::report::{Report, plain};
use crate::view::measure::{count, span};
use crate::view::paint::Tone;
use crate::view::printer::Printer;
use crate::view::table::{Cell, Column, Table};

/// What `debts` was told.
#[derive(Debug, Args)]
pub struct Options {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// What to do; else they are shown.
    #[command(subcommand)]
    pub act: Option<Act>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Act {
    /// Close every session whose owner is dead
    Pay(Pay),
}

/// What `debts pay` was told.
#[derive(Debug, Args)]
pub struct Pay {
    /// Try again until nothing is owed any more
    #[arg(long)]
    pub wait: bool,
    /// A header whose value came from a flag, and so is nowhere to be had; may be given several times
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// The server that the headers, and the variables of this shell, are for; with the secret part of its URL if it has one
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    pub url: Option<Target>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// One debt, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Debt {
    /// The server's name; none if the file cannot be read.
    pub server: Option<String>,
    /// To whom: the server's URL, without secrets.
    pub url: Option<String>,
    /// Since when.
    pub since: Option<String>,
    /// For how long, in milliseconds.
    pub age_ms: u64,
    /// Whether whoever opened it lives: then it is not due.
    pub in_use: bool,
    /// Whether it was only asked for, so that nobody knows whether there is a session.
    pub opening: bool,
    /// The process that opened it.
    pub owner: Option<i32>,
    /// Attempts to pay so far.
    pub attempts: u32,
    /// Why it is not paid yet.
    pub why: String,
    /// Its file.
    pub file: String,
}

/// What `pay` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Done {
    /// How many sessions were closed.
    paid: u32,
    /// How many are so old that their server has surely forgotten them.
    given_up: u32,
    /// What is left.
    left: Vec<Debt>,
}

/// Shows, or pays.
pub fn debts(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    match &options.act {
        Some(Act::Pay(asked)) => pay_them(&paths, asked, options.json || asked.json),
        None => show(&paths, options.json),
    }
}

fn show(paths: &Paths, json: bool) -> Result<Exit, Report> {
    let now = clock::wall_ms();
    let all: Vec<Debt> = list(paths).iter().map(|one| debt(one, now)).collect();
    let due = all.iter().any(|debt| !debt.in_use);
    let mut printer = Printer::new();
    if json {
        printer.json(&all)?;
    } else {
        printer.text(&render(&all, printer.columns(), printer.colour()))?;
    }
    Ok(if due { Exit::Unhealthy } else { Exit::Ok })
}

fn debt(standing: &Standing, now: u64) -> Debt {
    let note = standing.note.as_ref().ok();
    let age_ms = note.map_or(0, |note| now.saturating_sub(note.since_ms));
    let why = match &standing.note {
        Err(problem) => format!("cannot be read: {problem}"),
        Ok(_) if standing.held => "its owner lives and uses it".into(),
        Ok(note) if note.session.is_empty() => pay::UNNAMED.into(),
        Ok(_) if standing.tried.why.is_empty() => "no attempt to close it yet".into(),
        Ok(_) => standing.tried.why.clone(),
    };
    Debt {
        server: note.map(|note| note.server.clone()),
        url: note.map(|note| target::shown(&note.url)),
        since: note.map(|note| note.since.clone()),
        age_ms,
        in_use: standing.held,
        opening: note.is_some_and(|note| note.session.is_empty()),
        owner: note.map(|note| note.owner.pid),
        attempts: standing.tried.attempts,
        why,
        file: standing.path.to_string_lossy().into_owned(),
    }
}

fn render(all: &[Debt], columns: usize, colour: bool) -> String {
    if all.is_empty() {
        return "Nothing is owed: every HTTP session that was opened is closed.\n".into();
    }
    let mut table = Table::new(&[
        Column::Name("SERVER"),
        Column::Text("URL"),
        Column::Number("OPEN FOR"),
        Column::Number("TRIED"),
        Column::Text("STATE"),
    ]);
    for debt in all {
        let tone = if debt.in_use { Tone::Plain } else { Tone::Warn };
        table.row(vec![
            Cell::from(debt.server.as_deref().unwrap_or("?")),
            Cell::from(debt.url.as_deref().unwrap_or(&debt.file)),
            Cell::from(span(debt.age_ms)),
            Cell::from(debt.attempts.to_string()),
            Cell::new(state(debt), tone),
        ]);
        if !debt.in_use {
            table.below(&format!("  {}", debt.why));
        }
    }
    let mut text = table.render(columns, colour);
    let due = all.iter().filter(|debt| !debt.in_use).count();
    if due > 0 {
        text.push('\n');
        text.push_str(&due.to_string());
        text.push_str(" due: `mainstay debts pay` closes them.\n");
    }
    text
}

fn state(debt: &Debt) -> &'static str {
    match (debt.opening, debt.in_use) {
        (true, true) => "opening",
        (true, false) => "unknown",
        (false, true) => "in use",
        (false, false) => "due",
    }
}

/// One value for servers of several hosts: it is some other host's secret for all but one of them.
fn refuse_ambiguous(paths: &Paths, asked: &Pay) -> Result<(), Report> {
    if asked.url.is_some() {
        return Ok(());
    }
    for (name, _) in &asked.header {
        let mut wanting: Vec<String> = list(paths)
            .into_iter()
            .filter(|standing| !standing.held)
            .filter_map(|standing| standing.note.ok())
            .filter(|note| {
                let mut named = note.headers.iter();
                named.any(|one| one.name.eq_ignore_ascii_case(name) && one.from.is_given())
            })
            .map(|note| note.url)
            .collect();
        wanting.sort_unstable();
        wanting.dedup();
        if wanting.len() > 1 {
            return Err(Report::new(
                Exit::Usage,
                format!("several servers want a header `{name}`, and one value cannot be for all"),
            )
            .because(
                wanting
                    .iter()
                    .map(|url| target::shown(url))
                    .collect::<Vec<_>>()
                    .join(", "),
            )
            .hint("say whom it is for: `mainstay debts pay --url URL --header …`"));
        }
    }
    Ok(())
}

fn pay_them(paths: &Paths, asked: &Pay, json: bool) -> Result<Exit, Report> {
    let words: Vec<&str> = asked
        .header
        .iter()
        .map(|(_, value)| value.as_str())
        .chain(asked.url.iter().flat_map(Target::secrets))
        .collect();
    title::hide(&words);
    refuse_ambiguous(paths, asked)?;
    let config = Config::load(paths)?;
    let given: BTreeMap<String, String> = asked
        .header
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    let keyring = Keyring {
        config,
        given,
        url: asked.url.clone(),
        of: None,
    };
    let runtime = runtime()?;
    let mut total = Paid::default();
    let mut rest = Duration::from_millis(limits::DEBT_RETRY_MS);
    loop {
        let done = runtime.block_on(pay::pay(paths, &keyring, Zeal::Asked));
        total.paid += done.paid;
        total.given_up += done.given_up;
        if !asked.wait || done.left == 0 {
            break;
        }
        runtime.block_on(tokio::time::sleep(rest));
        rest = (rest * 2).min(Duration::from_millis(limits::HTTP_RETRY_MOST_MS));
    }
    let now = clock::wall_ms();
    let left: Vec<Debt> = list(paths)
        .iter()
        .map(|one| debt(one, now))
        .filter(|debt| !debt.in_use)
        .collect();
    let mut printer = Printer::new();
    let due = !left.is_empty();
    if json {
        printer.json(&Done {
            paid: total.paid,
            given_up: total.given_up,
            left,
        })?;
    } else {
        let mut text = format!("{} closed", count(total.paid, "session"));
        if total.given_up > 0 {
            text.push_str(", ");
            text.push_str(&count(total.given_up, "session"));
            text.push_str(" given up");
        }
        text += ".\n";
        if due {
            text += "\n";
            text += &render(&left, printer.columns(), printer.colour());
        }
        printer.text(&text)?;
    }
    Ok(if due { Exit::Unhealthy } else { Exit::Ok })
}

fn runtime() -> Result<tokio::runtime::Runtime, Report> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Report::new(Exit::Failed, "no debt can be paid").because(plain(&error)))
}
