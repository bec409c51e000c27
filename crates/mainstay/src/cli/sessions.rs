//! `mainstay sessions`: lists the HTTP sessions that are not closed yet, and closes them. `debts` and `debts pay` are its old names.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use mainstay_http::unclosed::close::{self, CloseMode, CloseSummary};
use mainstay_http::unclosed::{Keyring, ListedNote, list};
use mainstay_os::{clock, title};
use mainstay_protocol::limits;
use mainstay_report::measure::{count, span};
use mainstay_report::paint::Tone;
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::{Exit, Report, plain};
use mainstay_store::config::Config;
use mainstay_store::config::target::{self, Target};
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::run_options::header;
use mainstay_report::printer::Printer;

/// The options of `sessions`.
#[derive(Debug, Args)]
pub struct Options {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Without one, the sessions are listed.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// The commands below `sessions`.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Close each session whose mainstay process is dead
    Close(CloseOptions),
}

/// The options of `debts`, the old name of `sessions`.
#[derive(Debug, Args)]
pub struct DebtsOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Without one, the sessions are listed.
    #[command(subcommand)]
    pub action: Option<DebtsAction>,
}

/// The commands below `debts`.
#[derive(Debug, Subcommand)]
pub enum DebtsAction {
    /// The old name of `sessions close`
    Pay(CloseOptions),
}

/// The options of `sessions close`.
#[derive(Debug, Args)]
pub struct CloseOptions {
    /// Try again until every session is closed
    #[arg(long)]
    pub wait: bool,
    /// A header that was given on a command line, so that mainstay does not know its value; can be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// The server that the headers and the variables of this shell are for; with the secret part of its URL, if it has one
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    pub url: Option<Target>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// An HTTP session that is not closed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnclosedSession {
    /// The server's name; none if the file cannot be read.
    pub server: Option<String>,
    /// The server's URL, without secrets.
    pub url: Option<String>,
    /// When it was opened.
    pub since: Option<String>,
    /// How long it is open, in milliseconds.
    pub age_ms: u64,
    /// Whether the process that opened it lives; then it need not be closed.
    pub in_use: bool,
    /// Whether the answer of the server never arrived, so that the session may not exist.
    pub opening: bool,
    /// The process that opened it.
    pub owner: Option<i32>,
    /// Attempts to close it so far.
    pub attempts: u32,
    /// Why it is not closed yet.
    pub why: String,
    /// The file of its note.
    pub file: String,
}

/// What `sessions close` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ClosedSessions {
    /// How many sessions were closed.
    closed: u32,
    /// The same number, from the old command `debts pay` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    paid: Option<u32>,
    /// How many were given up, because they are so old that their server has dropped them.
    given_up: u32,
    /// Those that are not closed yet.
    left: Vec<UnclosedSession>,
}

/// Lists the sessions, or closes them.
pub fn sessions(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    match &options.action {
        Some(Action::Close(asked)) => close_all(&paths, asked, options.json || asked.json, false),
        None => show(&paths, options.json),
    }
}

/// `debts` and `debts pay`, as scripts of an earlier version call them.
pub fn debts(options: &DebtsOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    match &options.action {
        Some(DebtsAction::Pay(asked)) => close_all(&paths, asked, options.json || asked.json, true),
        None => show(&paths, options.json),
    }
}

fn show(paths: &Paths, json: bool) -> Result<Exit, Report> {
    let now = clock::wall_ms();
    let all: Vec<UnclosedSession> = list(paths).iter().map(|one| describe(one, now)).collect();
    let due = all.iter().any(|one| !one.in_use);
    let mut printer = Printer::new();
    if json {
        printer.json(&all)?;
    } else {
        printer.text(&render(&all, printer.columns(), printer.colour()))?;
    }
    Ok(if due { Exit::Unhealthy } else { Exit::Ok })
}

fn describe(listed: &ListedNote, now: u64) -> UnclosedSession {
    let note = listed.note.as_ref().ok();
    let age_ms = note.map_or(0, |note| now.saturating_sub(note.since_ms));
    let why = match &listed.note {
        Err(error) => format!("cannot be read: {}", plain(error)),
        Ok(_) if listed.locked => "the process that opened it lives and uses it".into(),
        Ok(note) if note.session.is_empty() => close::UNNAMED.into(),
        Ok(_) if listed.attempts.why.is_empty() => "no attempt to close it yet".into(),
        Ok(_) => listed.attempts.why.clone(),
    };
    UnclosedSession {
        server: note.map(|note| note.server.clone()),
        url: note.map(|note| target::shown(&note.url)),
        since: note.map(|note| note.since.clone()),
        age_ms,
        in_use: listed.locked,
        opening: note.is_some_and(|note| note.session.is_empty()),
        owner: note.map(|note| note.owner.pid),
        attempts: listed.attempts.count,
        why,
        file: listed.path.to_string_lossy().into_owned(),
    }
}

fn render(all: &[UnclosedSession], columns: usize, colour: bool) -> String {
    if all.is_empty() {
        return "No unclosed session: each HTTP session that mainstay opened is closed.\n".into();
    }
    let mut table = Table::new(&[
        Column::Name("SERVER"),
        Column::Text("URL"),
        Column::Number("OPEN FOR"),
        Column::Number("TRIED"),
        Column::Text("STATE"),
    ]);
    for one in all {
        let tone = if one.in_use { Tone::Plain } else { Tone::Warn };
        table.row(vec![
            Cell::from(one.server.as_deref().unwrap_or("?")),
            Cell::from(one.url.as_deref().unwrap_or(&one.file)),
            Cell::from(span(one.age_ms)),
            Cell::from(one.attempts.to_string()),
            Cell::new(state(one), tone),
        ]);
        if !one.in_use {
            table.below(&format!("  {}", one.why));
        }
    }
    let mut text = table.render(columns, colour);
    let due = all.iter().filter(|one| !one.in_use).count();
    if due > 0 {
        text.push('\n');
        text.push_str(&due.to_string());
        text.push_str(" due: `mainstay sessions close` closes them.\n");
    }
    text
}

fn state(one: &UnclosedSession) -> &'static str {
    match (one.opening, one.in_use) {
        (true, true) => "opening",
        (true, false) => "unknown",
        (false, true) => "in use",
        (false, false) => "due",
    }
}

/// Refuses one header value for servers of several hosts, because it is a secret of only one of them.
fn refuse_ambiguous(paths: &Paths, asked: &CloseOptions) -> Result<(), Report> {
    if asked.url.is_some() {
        return Ok(());
    }
    for (name, _) in &asked.header {
        let mut wanting: Vec<String> = list(paths)
            .into_iter()
            .filter(|listed| !listed.locked)
            .filter_map(|listed| listed.note.ok())
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
                format!("several servers need a header `{name}`, and one value cannot be for all"),
            )
            .because(
                wanting
                    .iter()
                    .map(|url| target::shown(url))
                    .collect::<Vec<_>>()
                    .join(", "),
            )
            .hint("name the server: `mainstay sessions close --url URL --header …`"));
        }
    }
    Ok(())
}

/// `as_debts`: print the JSON of the old command `debts pay`.
fn close_all(
    paths: &Paths,
    asked: &CloseOptions,
    json: bool,
    as_debts: bool,
) -> Result<Exit, Report> {
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
    let mut total = CloseSummary::default();
    let mut wait = Duration::from_millis(limits::CLOSE_RETRY_MS);
    loop {
        let done = runtime.block_on(close::close_all(paths, &keyring, CloseMode::All));
        total.closed += done.closed;
        total.given_up += done.given_up;
        if !asked.wait || done.left == 0 {
            break;
        }
        runtime.block_on(tokio::time::sleep(wait));
        wait = (wait * 2).min(Duration::from_millis(limits::HTTP_RETRY_MOST_MS));
    }
    let now = clock::wall_ms();
    let left: Vec<UnclosedSession> = list(paths)
        .iter()
        .map(|one| describe(one, now))
        .filter(|one| !one.in_use)
        .collect();
    let mut printer = Printer::new();
    let due = !left.is_empty();
    if json {
        printer.json(&ClosedSessions {
            closed: total.closed,
            paid: as_debts.then_some(total.closed),
            given_up: total.given_up,
            left,
        })?;
    } else {
        let mut text = format!("{} closed", count(total.closed, "session"));
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
        .map_err(|error| {
            Report::new(Exit::Failed, "no session can be closed").because(plain(&error))
        })
}
