//! `mainstay adopt`: sends the servers of clients' config files through mainstay, after it has shown what it will change.
//!
//! Invariants: nothing is written before the user has agreed, by `--yes` or at the terminal; what is written is what was shown, or less.

mod ask;
mod by_hand;
mod file;
mod program;
mod scope;
mod table;

use clap::{Args, ValueEnum};
use mainstay_clients::place;
use mainstay_clients::plan::{self, Adopt, RemoteEntries};
use mainstay_clients::policy::Policy;
use mainstay_report::measure::count;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::quantity::{self, QuantityError};
use mainstay_store::paths::Paths;
use serde::Serialize;

use mainstay_report::printer::Printer;

pub(super) use ask::{Consent, agreed};
pub(super) use file::{Edit, File};
pub(super) use scope::{Here, check_servers, nothing_found};
pub(crate) use scope::{clients, word};
pub(super) use table::wrapped;

use program::Program;

/// How long a thrifty server may be idle, unless the user says it.
const IDLE: &str = "10m";

/// What `adopt` was told.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(after_help = "Examples:
  mainstay adopt                      every client on this machine: table, diff, question
  mainstay adopt --dry-run            table and diff, and nothing else
  mainstay adopt claude codex --yes   two clients, without a question
  mainstay adopt --server playwright  one server, in every client that has it
  mainstay adopt --project .          also the files of this project, which others may share
  mainstay adopt --thrifty            start servers when they are needed, stop idle ones
  mainstay adopt --print zed          the words to write by hand

`mainstay release --all` takes everything back, byte for byte.

Exit code: 0 done, or nothing to do; 1 a file could not be changed, nothing was found, or you did not agree
(without a terminal, --yes is needed).")]
pub struct Options {
    /// Only these clients [default: all that have a config file here]
    #[arg(value_name = "CLIENT")]
    pub clients: Vec<String>,
    /// Change the files without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Only this server; may be given several times
    #[arg(long, value_name = "NAME")]
    pub server: Vec<String>,
    /// Also the config files in this project's directory, which other people may share
    #[arg(long, value_name = "DIR")]
    pub project: Option<std::path::PathBuf>,
    /// Start servers when they are needed and stop them after this idle time (10m if no time is given), except browsers, REPLs and
    /// debuggers. Servers that were adopted before are changed, too
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = IDLE, value_parser = idle)]
    pub thrifty: Option<String>,
    /// Servers behind a URL, where the client leaves HTTP sessions open: safe (those with credentials, or on this machine), all, or none
    #[arg(long, value_enum, default_value_t = Remote::Safe)]
    pub remote: Remote,
    /// Also give servers that were adopted before the present path, and the flags of --thrifty or none; flags that you added stay
    #[arg(long)]
    pub update: bool,
    /// Let configs name this program, instead of a copy in your bin directory
    #[arg(long, value_name = "PATH")]
    pub program: Option<std::path::PathBuf>,
    /// Show what to write into the config of this client by hand
    #[arg(long, value_name = "CLIENT", conflicts_with_all = ["clients", "yes", "dry_run", "json"])]
    pub print: Option<String>,
    /// As JSON; it asks nothing
    #[arg(long)]
    pub json: bool,
}

/// Which servers behind a URL are adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Remote {
    /// Those with credentials, or on this machine.
    Safe,
    /// Also those for which the client might have to log in.
    All,
    /// None.
    None,
}

/// What becomes of the config files.
#[derive(Debug, Serialize)]
pub struct View {
    /// Whether anything would change, or has changed.
    pub changes: bool,
    /// Whether the files were written.
    pub written: bool,
    /// The program that the configs name; none for `release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// What is done to that program first, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// The config files.
    pub files: Vec<File>,
}

fn idle(text: &str) -> Result<String, QuantityError> {
    quantity::some_time(text).map(|_| text.to_owned())
}

/// Adopts.
pub fn adopt(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let here = Here::find(&paths, options.project.as_deref())?;
    let program = Program::choose(&here, options.program.as_deref())?;
    let wish = Adopt {
        program: program.path().to_string_lossy().into_owned(),
        thrifty: options.thrifty.clone(),
        servers: (!options.server.is_empty()).then(|| options.server.iter().cloned().collect()),
        project: here.project_text(),
        remote: match options.remote {
            Remote::Safe => RemoteEntries::Safe,
            Remote::All => RemoteEntries::WithoutCredentials,
            Remote::None => RemoteEntries::Leave,
        },
        update: options.update || options.thrifty.is_some(),
        policy: Policy::default(),
    };
    if let Some(name) = &options.print {
        let client = scope::client(name)?;
        let mut printer = Printer::new();
        return by_hand::print(&mut printer, client, &here, &wish).map(|()| Exit::Ok);
    }
    let clients = clients(&options.clients)?;
    let found = here.find_files(&clients);
    if found.is_empty() {
        return Err(nothing_found(&clients, &here, !options.clients.is_empty()));
    }
    let mut edits: Vec<Edit<'_>> = found
        .into_iter()
        .map(|found| {
            let policy = place::policy(&found, &here.around);
            let wish = Adopt {
                policy,
                ..wish.clone()
            };
            let (client, config) = (found.client, found.file);
            Edit::plan(found, &here, move |bytes| {
                plan::adopt(bytes, client, config, &wish)
            })
        })
        .collect();
    check_servers(&options.server, &edits)?;
    let mut notes = file::shared(&edits);
    if options.project.is_none() {
        notes.extend(here.left_in_project(&clients, &paths));
    }
    let change = Change {
        paths: &paths,
        here: &here,
        program: Some(&program),
        consent: Consent::of(options.yes, options.dry_run, options.json),
        verb: "adopt",
        notes,
    };
    let exit = change.perform(&mut edits)?;
    // A file that could not be changed is named by then, and does not concern the servers of the others.
    if edits.iter().any(|edit| edit.file.written) {
        offer_to_learn(options)?;
    }
    Ok(exit)
}

/// One change of several files: what `adopt` and `release` have in common once every file is planned.
pub(super) struct Change<'c> {
    pub paths: &'c Paths,
    pub here: &'c Here,
    pub program: Option<&'c Program>,
    pub consent: Consent,
    pub verb: &'static str,
    /// Sentences that the user must know before the question.
    pub notes: Vec<String>,
}

impl Change<'_> {
    /// Shows the plan, asks, writes, and says what was done.
    pub fn perform(&self, edits: &mut Vec<Edit<'_>>) -> Result<Exit, Report> {
        let changes = edits.iter().any(|edit| edit.file.changes);
        let mut printer = Printer::new();
        let program = self.program.filter(|_| changes);
        if self.consent != Consent::Json && self.consent != Consent::JsonYes {
            let files: Vec<&File> = edits.iter().map(|edit| &edit.file).collect();
            let mut text = table::render(&files, printer.columns(), printer.colour());
            for file in &files {
                if !file.diff.is_empty() {
                    text.push('\n');
                    text.push_str(&table::coloured(&file.diff, printer.colour()));
                }
            }
            if let Some(install) = program.and_then(|program| program.sentence(self.here)) {
                text.push('\n');
                text.push_str(&wrapped(&install, printer.columns().min(100)));
            }
            for note in &self.notes {
                text.push('\n');
                text.push_str(&wrapped(note, printer.columns().min(100)));
            }
            printer.text(&text)?;
        }
        let mut exit = Exit::worst(edits.iter().map(Edit::exit));
        let mut written = false;
        if changes && self.may_write(edits)? {
            if let Some(program) = program {
                program.install(self.here)?;
            }
            self.paths.make_one(&self.paths.state())?;
            let backups = self.paths.backups();
            self.paths.make_one(&backups)?;
            for edit in edits.iter_mut().filter(|edit| edit.file.changes) {
                edit.write(&backups.path(), self.here);
            }
            written = edits.iter().any(|edit| edit.file.written);
            exit = Exit::worst(edits.iter().map(Edit::exit));
        } else if changes && self.consent != Consent::DryRun {
            exit = Exit::worst([exit, Exit::Unhealthy].into_iter());
        }
        if self.consent == Consent::Json || self.consent == Consent::JsonYes {
            let shown = |program: &Program| program.path().display().to_string();
            printer.json(&View {
                changes,
                written,
                program: self.program.map(shown),
                install: program.and_then(|program| program.sentence(self.here)),
                files: edits.drain(..).map(|edit| edit.file).collect(),
            })?;
        } else {
            self.tell(edits, changes, written, &mut printer)?;
        }
        Ok(exit)
    }

    fn may_write(&self, edits: &[Edit<'_>]) -> Result<bool, Report> {
        match self.consent {
            Consent::Yes | Consent::JsonYes => Ok(true),
            Consent::DryRun | Consent::Json => Ok(false),
            Consent::Ask => {
                let changing = edits.iter().filter(|edit| edit.file.changes);
                let servers: usize = changing.clone().map(|edit| edit.file.changing()).sum();
                let (files, servers) = (changing.count(), count(servers, "server"));
                agreed(&format!("\nChange {servers} in {}?", count(files, "file")))
            }
            Consent::CannotAsk => {
                talk(&format!(
                    "nothing was changed: there is no terminal to ask at; `mainstay {} --yes` changes the files without a question\n",
                    self.verb
                ));
                Ok(false)
            }
        }
    }

    fn tell(
        &self,
        edits: &[Edit<'_>],
        changes: bool,
        written: bool,
        printer: &mut Printer,
    ) -> Result<(), Report> {
        let failed = || edits.iter().map(Edit::failure).collect::<String>();
        if !changes {
            talk(&match (failed().as_str(), self.verb) {
                ("", _) => "nothing to do\n".into(),
                (failed, "release") => format!(
                    "nothing is left to release, except perhaps in what cannot be read:\n{failed}"
                ),
                (failed, _) => format!("nothing was changed\n{failed}"),
            });
            return Ok(());
        }
        let mut text = String::new();
        if written {
            for edit in edits {
                text.push_str(&edit.outcome());
            }
            for line in file::next_steps(edits) {
                text.push_str(&line);
            }
        }
        if self.consent != Consent::CannotAsk {
            text.push_str(&failed());
        }
        if written && self.verb == "adopt" {
            text.push_str(
                "`mainstay ps` shows servers that run; `mainstay release --all` undoes this\n",
            );
        }
        printer.text(&text)?;
        if self.consent == Consent::DryRun {
            talk("nothing was written\n");
        } else if !written && self.consent == Consent::Ask {
            talk("nothing was changed\n");
        }
        Ok(())
    }
}

/// It fits 80 columns with `[y/N]`, because a terminal swallows the blank at the end of a full line.
const LEARN: &str = "Open each server once now, so that the first session has its tools?";
const _: () = assert!(LEARN.len() + " [y/N] ".len() < 80);

/// The first short session of a client does not wait for a slow server; one that was opened before is answered from the cache.
fn offer_to_learn(options: &Options) -> Result<(), Report> {
    if options.json {
        return Ok(());
    }
    if options.yes || !ask::can_ask() {
        talk(
            "`mainstay learn` opens each server once, so that the first session has its tools at once\n",
        );
        return Ok(());
    }
    if agreed(LEARN)? {
        let learn = super::learn::Options {
            project: options.project.clone(),
            ..super::learn::Options::default()
        };
        // What fails is a server's own trouble, which it tells; the configs are changed.
        super::learn::learn(&learn)?;
    }
    Ok(())
}
