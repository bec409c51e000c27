//! `mainstay learn`: opens each adopted server once, as its client would, and remembers what it says.
//!
//! A client's first turn waits a second or two for its servers; a server that `npx` has to fetch takes longer, and its tools are missing.
//! After `learn`, mainstay answers from the cache in every client and directory, until the server itself does.
//!
//! It starts servers with `mainstay run` only, so each of them is contained; it waits for each of them at most as long as the user says.

mod session;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use mainstay_clients::behaviour::{Opens, Passes};
use mainstay_clients::place::FoundConfig;
use mainstay_clients::plan::{self, Started};
use mainstay_clients::write;
use mainstay_report::measure::fine;
use mainstay_report::paint::Tone;
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::file::nearest;
use mainstay_store::config::quantity;
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::adopt::{Here, clients};
use mainstay_report::printer::Printer;
use session::{Learned, Opening};

/// What `learn` was told.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  mainstay learn                      every adopted server of every client
  mainstay learn playwright           the servers of this name
  mainstay learn --timeout 2m         for servers that must be downloaded first
  mainstay learn --json

Run it again when a server has a new version. `mainstay forget NAME` removes what was learned.

Exit code: 0 every server was opened, 1 one was not, or there is no adopted server.")]
pub struct Options {
    /// Only the servers of these names
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Also servers in the config files of this project
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// How long one server may take to open and to list its tools [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time)]
    pub timeout: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

const TIMEOUT_MS: u64 = 60_000;

/// One server that was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub server: String,
    /// The clients that have it in their configs.
    pub clients: Vec<String>,
    /// Whether it was opened and has said what it can do.
    pub ok: bool,
    /// How long it took from its start to its answer to the opening.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_ms: Option<u64>,
    /// How many tools it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// `legacy` (`initialize`) or `modern` (`server/discover`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
    /// The protocol version that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Why it was not opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A server to open, for one or more clients that start it in the same way.
#[derive(Debug)]
struct Task {
    name: String,
    clients: Vec<String>,
    /// What only the client can fill in.
    asks: Option<String>,
    opening: Opening,
}

/// Opens each adopted server once.
pub fn learn(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let here = Here::find(&paths, options.project.as_deref())?;
    let mut tasks = tasks(&here);
    if tasks.is_empty() {
        return Err(Report::new(
            Exit::NotFound,
            "no server in your clients' configs goes through mainstay",
        )
        .hint("`mainstay adopt` sends them through it"));
    }
    choose(&options.names, &mut tasks)?;
    let limit_ms = options.timeout.unwrap_or(TIMEOUT_MS);
    let mut rows = Vec::new();
    for (at, task) in tasks.iter().enumerate() {
        talk(&format!(
            "{} of {}: opening {} …\n",
            at + 1,
            tasks.len(),
            task.name
        ));
        let learned = if let Some(asks) = &task.asks {
            let client = task.clients.join(", ");
            Err(format!("skipped: only {client} can fill in {asks}"))
        } else {
            session::learn(&task.opening, limit_ms).map_err(|error| error.to_string())
        };
        let row = row(task, learned);
        if let Some(error) = &row.error {
            talk(&format!("{}: {error}\n", row.server));
        }
        rows.push(row);
    }
    let mut printer = Printer::new();
    if options.json {
        printer.json(&rows)?;
    } else {
        let text = render(&rows, printer.columns(), printer.colour());
        printer.text(&text)?;
    }
    Ok(if rows.iter().all(|row| row.ok) {
        Exit::Ok
    } else {
        Exit::Unhealthy
    })
}

/// All adopted servers. Those that clients start in the same way are opened once.
fn tasks(here: &Here) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let Ok(clients) = clients(&[]) else {
        return tasks;
    };
    for found in here.find_files(&clients) {
        let readers = std::iter::once(&found.client).chain(&found.also_read_by);
        for client in readers {
            let behaviour = client.behaviour.as_ref();
            let passes = behaviour.map_or(Passes::All, |behaviour| behaviour.passes);
            let opens = behaviour.map_or_else(Opens::default, |behaviour| behaviour.opens);
            for started in entries(&found, here) {
                let (name, asks) = (started.name.clone(), started.asks.clone());
                let opening = opening(started, here, passes, opens);
                let known = tasks.iter_mut().find(|task| task.opening == opening);
                match known {
                    Some(task) if task.clients.iter().any(|name| name == client.name) => {}
                    Some(task) => task.clients.push(client.name.into()),
                    None => tasks.push(Task {
                        name,
                        clients: vec![client.name.into()],
                        asks,
                        opening,
                    }),
                }
            }
        }
    }
    tasks
}

/// The adopted servers of one file. One that cannot be read is told by `adopt` and `doctor`.
fn entries(found: &FoundConfig, here: &Here) -> Vec<Started> {
    let lookup = |name: &str| here.around.variables.get(name).cloned();
    let read = write::read(&found.path).ok();
    let started =
        read.and_then(|bytes| plan::started(&bytes, found.client, found.file, &lookup).ok());
    started.unwrap_or_default()
}

fn opening(started: Started, here: &Here, passes: Passes, opens: Opens) -> Opening {
    let all = here.around.variables.iter();
    let passed = all.filter(|(name, _)| passes.passes(name));
    let mut env: BTreeMap<String, OsString> = passed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.extend(
        started
            .env
            .into_iter()
            .map(|(name, value)| (name, value.into())),
    );
    let project = started.project.or_else(|| here.project_text());
    let cwd = started.cwd.or(project).map(PathBuf::from);
    Opening {
        words: started.words,
        env,
        // A directory that is gone is no reason to learn nothing.
        cwd: cwd.filter(|cwd| cwd.is_dir()),
        opens,
    }
}

fn choose(names: &[String], tasks: &mut Vec<Task>) -> Result<(), Report> {
    for name in names {
        if tasks.iter().any(|task| task.name == *name) {
            continue;
        }
        let mut known: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        let report = Report::new(
            Exit::NotFound,
            format!("no server called `{name}` goes through mainstay"),
        );
        return Err(match nearest(name, &known) {
            Some(near) => report.hint(format!("did you mean `{near}`?")),
            None => report.hint(format!("those that do: {}", known.join(", "))),
        });
    }
    if !names.is_empty() {
        tasks.retain(|task| names.contains(&task.name));
    }
    Ok(())
}

fn row(task: &Task, learned: Result<Learned, String>) -> Row {
    let mut row = Row {
        server: task.name.clone(),
        clients: task.clients.clone(),
        ok: false,
        opened_ms: None,
        tools: None,
        era: None,
        protocol: None,
        error: None,
    };
    match learned {
        Ok(learned) => {
            row.ok = true;
            row.opened_ms = Some(learned.opened_ms);
            row.tools = learned.tools;
            row.era = Some(if learned.modern { "modern" } else { "legacy" }.into());
            row.protocol = learned.protocol;
        }
        Err(error) => row.error = Some(error),
    }
    row
}

fn render(rows: &[Row], columns: usize, colour: bool) -> String {
    let mut table = Table::new(&[
        Column::Name("SERVER"),
        Column::Number("OPENED"),
        Column::Number("TOOLS"),
        Column::Text("ERA"),
        Column::Text("PROTOCOL"),
        Column::Text("CLIENTS"),
    ]);
    let or_none = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
    for row in rows {
        let era = match &row.era {
            Some(era) => Cell::from(era.as_str()),
            None => Cell::new("not opened", Tone::Bad),
        };
        table.row(vec![
            row.server.as_str().into(),
            or_none(row.opened_ms.map(fine)),
            or_none(row.tools.map(|tools| tools.to_string())),
            era,
            or_none(row.protocol.clone()),
            row.clients.join(", ").into(),
        ]);
    }
    table.render(columns, colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_eighty_columns() {
        let row = |server: &str, ok: bool| Row {
            server: server.into(),
            clients: vec![
                "Claude Code".into(),
                "Copilot CLI".into(),
                "Qwen Code".into(),
            ],
            ok,
            opened_ms: ok.then_some(6_210),
            tools: ok.then_some(23),
            era: ok.then(|| "legacy".into()),
            protocol: ok.then(|| "2025-11-25".into()),
            error: (!ok).then(|| "no answer within 1m".into()),
        };
        let text = render(
            &[row("playwright", true), row("a-broken-one", false)],
            80,
            false,
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("not opened"), "{text}");
    }
}
