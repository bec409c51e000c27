//! `mainstay cache`: lists the cache of handshakes and lists, and clears it. `forget` is the old name of `cache clear`.

use std::io;

use clap::{Args, Subcommand};
use mainstay_os::clock;
use mainstay_report::measure::{count, memory, span};
use mainstay_report::table::{Cell, Column, Table};
use mainstay_report::{Exit, Report, plain};
use mainstay_store::cache::{self, CacheContents, CacheListing};
use mainstay_store::config::file::nearest;
use mainstay_store::paths::Paths;
use mainstay_store::state::Location;
use serde::Serialize;

use mainstay_report::printer::Printer;

/// The commands below `cache`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List what is in the cache
    #[command(after_help = "Examples:
  mainstay cache list
  mainstay cache list --json")]
    List(ListOptions),
    /// Remove servers from the cache; without a name, all of them
    #[command(after_help = "Examples:
  mainstay cache clear playwright
  mainstay cache clear --json

The next start of such a server is as slow as its first one, and fills the cache again. Servers that run now are not touched.")]
    Clear(ClearOptions),
}

/// The options of `cache list`.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `cache clear`.
#[derive(Debug, Args)]
pub struct ClearOptions {
    /// Names of servers; without one, the whole cache is cleared
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `forget`, the old name of `cache clear`.
#[derive(Debug, Args)]
pub struct ForgetOptions {
    /// The name of a server
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// All servers
    #[arg(long)]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// A file of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheEntry {
    /// The server's name; none if the file cannot be read.
    pub server: Option<String>,
    /// The command line, with its secrets hidden; none if an earlier version wrote the file.
    pub command: Option<String>,
    /// Time since the last use, in milliseconds.
    pub unused_ms: u64,
    /// Its size.
    pub bytes: u64,
    /// What it is: `answers` of a server, or `variables` (those of a command that change from session to session).
    pub kind: &'static str,
    /// How much is in it; none if it cannot be read or is not `answers`.
    pub contents: Option<CacheContents>,
    /// The file.
    pub file: String,
}

/// What was removed from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClearedCache {
    /// How many configurations; a server has one for each directory, environment and version that it was started with.
    pub configurations: usize,
    /// The same number, from the old command `forget` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<usize>,
    /// The bytes of all removed files.
    pub bytes: u64,
}

/// Runs `cache list` or `cache clear`.
pub fn cache(verb: &Verb) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    match verb {
        Verb::List(options) => list(&paths, options.json),
        Verb::Clear(options) => {
            let cleared = clear(&paths, &options.names)?;
            print_cleared(cleared, options.json)
        }
    }
}

/// `forget`, as scripts of an earlier version call it.
pub fn forget(options: &ForgetOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let mut cleared = clear(&paths, options.name.as_slice())?;
    cleared.records = Some(cleared.configurations);
    print_cleared(cleared, options.json)
}

fn list(paths: &Paths, json: bool) -> Result<Exit, Report> {
    let (place, now) = (paths.cache(), clock::wall_ms());
    let entries: Vec<CacheEntry> = read(&place)?
        .into_iter()
        .map(|listed| CacheEntry {
            file: place.path().join(&listed.name).display().to_string(),
            server: listed.server,
            command: listed.command,
            unused_ms: now.saturating_sub(listed.used_ms),
            bytes: listed.bytes,
            kind: if listed.is_openings {
                "variables"
            } else {
                "answers"
            },
            contents: listed.contents,
        })
        .collect();
    let mut printer = Printer::new();
    if json {
        printer.json(&entries)?;
    } else {
        printer.text(&render(&entries, printer.columns(), printer.colour()))?;
    }
    Ok(Exit::Ok)
}

fn render(entries: &[CacheEntry], columns: usize, colour: bool) -> String {
    if entries.is_empty() {
        return "The cache is empty.\n".into();
    }
    let mut table = Table::new(&[
        Column::Name("SERVER"),
        Column::Text("COMMAND"),
        Column::Number("UNUSED FOR"),
        Column::Number("SIZE"),
        Column::Text("CONTENTS"),
    ]);
    for entry in entries {
        table.row(vec![
            Cell::from(entry.server.as_deref().unwrap_or("?")),
            Cell::from(entry.command.as_deref().unwrap_or("-")),
            Cell::from(span(entry.unused_ms)),
            Cell::from(memory(entry.bytes.div_ceil(1024))),
            Cell::from(described(entry)),
        ]);
    }
    table.render(columns, colour)
}

fn described(entry: &CacheEntry) -> String {
    let Some(contents) = entry.contents else {
        return if entry.kind == "variables" {
            "changing variables".into()
        } else {
            "damaged".into()
        };
    };
    let lists = [
        (Some(contents.handshakes), "handshake"),
        (contents.tools, "tool"),
        (contents.prompts, "prompt"),
        (contents.resources, "resource"),
        (contents.templates, "template"),
    ];
    let told = lists
        .iter()
        .filter_map(|(number, what)| Some(count(u32::try_from((*number)?).ok()?, what)));
    told.collect::<Vec<_>>().join(", ")
}

fn read(place: &Location) -> Result<Vec<CacheListing>, Report> {
    cache::all(place).map_err(|error| {
        Report::new(Exit::State, format!("cannot read {}", place.display()))
            .because(plain(&error))
            .hint("`mainstay doctor` looks for the reason")
    })
}

/// Removes the files of these servers; without names, all files, also those that a process of an earlier version left.
fn clear(paths: &Paths, names: &[String]) -> Result<ClearedCache, Report> {
    let all = read(&paths.cache())?;
    let mut cleared = ClearedCache::default();
    if names.is_empty() {
        remove(&paths.cache(), &all, &mut cleared)?;
        remove(&paths.old_cache(), &read(&paths.old_cache())?, &mut cleared)?;
        paths.old_cache().remove_empty().ok();
        return Ok(cleared);
    }
    for name in names {
        check_known(name, &all)?;
    }
    let is_named = |listed: &CacheListing| {
        let server = listed.server.as_ref();
        server.is_some_and(|server| names.contains(server))
    };
    let chosen: Vec<CacheListing> = all.into_iter().filter(is_named).collect();
    remove(&paths.cache(), &chosen, &mut cleared)?;
    Ok(cleared)
}

fn check_known(name: &str, all: &[CacheListing]) -> Result<(), Report> {
    let mut names: Vec<&str> = all
        .iter()
        .filter_map(|listed| listed.server.as_deref())
        .collect();
    names.dedup();
    if names.contains(&name) {
        return Ok(());
    }
    let report = Report::new(
        Exit::NotFound,
        format!("the cache has nothing of a server called `{name}`"),
    );
    Err(match (nearest(name, &names), names.as_slice()) {
        (_, []) => report.hint("the cache is empty"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("it has: {}", names.join(", "))),
    })
}

fn remove(
    place: &Location,
    chosen: &[CacheListing],
    cleared: &mut ClearedCache,
) -> Result<(), Report> {
    for listed in chosen {
        match place.open().and_then(|cache| cache.remove(&listed.name)) {
            // Another process removed it in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(Report::new(
                    Exit::State,
                    format!("cannot remove {} in {}", listed.name, place.display()),
                )
                .because(plain(&error))
                .hint("make its directory writable"));
            }
            Ok(()) => {}
        }
        cleared.configurations += usize::from(!listed.is_openings);
        cleared.bytes += listed.bytes;
    }
    Ok(())
}

fn print_cleared(cleared: ClearedCache, json: bool) -> Result<Exit, Report> {
    let mut printer = Printer::new();
    if json {
        printer.json(&cleared)?;
    } else {
        let size = memory(cleared.bytes.div_ceil(1024));
        printer.text(&match (cleared.configurations, cleared.bytes) {
            (0, 0) => "the cache was empty\n".into(),
            (1, _) => format!("removed 1 configuration with {size}\n"),
            (number, _) => format!("removed {number} configurations with {size}\n"),
        })?;
    }
    Ok(Exit::Ok)
}
