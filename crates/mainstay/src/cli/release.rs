//! `mainstay release`: gives the servers of clients' config files their own commands back.
//!
//! The files themselves hold everything that this needs, so it works without the state directory's contents and with any version.

use std::path::PathBuf;

use clap::Args;
use mainstay_clients::plan::{self, Release};
use mainstay_report::{Exit, Report};
use mainstay_store::paths::Paths;

use super::adopt::{Change, Consent, Edit, Here, check_servers, clients, nothing_found};

/// What `release` was told.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(after_help = "Examples:
  mainstay release --all              every server of every client and project, before mainstay is removed
  mainstay release claude             the servers of one client
  mainstay release --server tracker   one server, in every client that has it
  mainstay release --all --dry-run    show the change, and change nothing

Entries get their old bytes back. What you or the client changed elsewhere in the file stays.

Exit code: 0 done, or nothing to do; 1 a file could not be changed, nothing was found, or you did not agree
(without a terminal, --yes is needed).")]
pub struct Options {
    /// Only these clients
    #[arg(value_name = "CLIENT", conflicts_with = "all")]
    pub clients: Vec<String>,
    /// Every client on this machine, and every project that adopt has changed
    #[arg(long)]
    pub all: bool,
    /// Only this server; may be given several times
    #[arg(long, value_name = "NAME")]
    pub server: Vec<String>,
    /// The project whose files are looked at, too [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Change the files without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// As JSON; it asks nothing
    #[arg(long)]
    pub json: bool,
}

/// Releases.
pub fn release(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let here_directory = std::env::current_dir().ok();
    let project = options.project.clone().or(here_directory);
    let here = Here::find(&paths, project.as_deref())?;
    let wish = Release {
        servers: (!options.server.is_empty()).then(|| options.server.iter().cloned().collect()),
        // Entries of all projects, unless one is named.
        project: options.project.as_ref().and_then(|_| here.project_text()),
    };
    let clients = clients(&options.clients)?;
    let mut found = here.find_files(&clients);
    let unnamed = !options.all && options.clients.is_empty() && options.server.is_empty();
    if (options.all || unnamed) && options.project.is_none() {
        let backups = paths.backups().path();
        found.extend(here.find_written_before(&clients, &backups, &found));
    }
    if found.is_empty() && !unnamed {
        if options.all {
            mainstay_report::talk("nothing to do: no client has a config file here\n");
            return Ok(Exit::Ok);
        }
        return Err(nothing_found(&clients, &here, !options.clients.is_empty()));
    }
    let mut edits: Vec<Edit<'_>> = found
        .into_iter()
        .map(|found| {
            let (client, file, wish) = (found.client, found.file, wish.clone());
            Edit::plan(found, &here, move |bytes| {
                plan::release(bytes, client, file, &wish)
            })
        })
        .collect();
    if unnamed {
        return Err(nothing_named(&edits));
    }
    check_servers(&options.server, &edits)?;
    let change = Change {
        paths: &paths,
        here: &here,
        program: None,
        consent: Consent::of(options.yes, options.dry_run, options.json),
        verb: "release",
        notes: Vec::new(),
    };
    change.perform(&mut edits)
}

/// The command was given without a client, a server or `--all`.
fn nothing_named(edits: &[Edit<'_>]) -> Report {
    let report = Report::new(Exit::Usage, "no client and no server to release is named");
    let mut words: Vec<String> = edits
        .iter()
        .filter(|edit| edit.file.changes)
        .map(Edit::client)
        .collect();
    words.sort_unstable();
    words.dedup();
    report.hint(match words.as_slice() {
        [] => "there is nothing to release: no server goes through mainstay".into(),
        words => format!(
            "`mainstay release --all` releases every server; these clients have some that go through mainstay: {}",
            words.join(", ")
        ),
    })
}
