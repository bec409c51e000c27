//! One config file: its plan, its write, and what is shown of both.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use mainstay_clients::explain::{Explain as _, Explanation};
use mainstay_clients::place::FoundConfig;
use mainstay_clients::plan::{Action, EntryPlan, Plan, Reason};
use mainstay_clients::profile::Scope;
use mainstay_clients::refusal::Refusal;
use mainstay_clients::write::{self, WriteError};
use mainstay_report::Exit;
use mainstay_report::measure::count;
use serde::Serialize;

use super::scope::{Here, word};

/// One config file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct File {
    /// The client that it belongs to.
    pub client: String,
    /// Other clients that read it.
    pub also_read_by: Vec<String>,
    /// Where it is.
    pub path: String,
    /// `user` or `project`: files of a project may be shared with other people.
    pub scope: String,
    /// Whether it would change.
    pub changes: bool,
    /// Whether it was written.
    pub written: bool,
    /// Why it cannot be read or written, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What to do about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The file as it was before mainstay wrote it for the first time, once it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_backup: Option<String>,
    /// The file as it was before this write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<String>,
    /// Its servers.
    pub servers: Vec<Server>,
    /// The change as a unified diff, secrets masked; empty if there is none.
    pub diff: String,
    /// What to do in the client after the change.
    pub after_edit: String,
    /// The path for people.
    #[serde(skip)]
    pub shown: String,
}

/// One server of a config file.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// Its name: the key of its entry.
    pub name: String,
    /// The directory of the project that it belongs to, for entries that a client keeps for each project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its command line or URL as the file has it, secrets masked.
    pub command: String,
    /// `wrap`, `bridge`, `update`, `already`, `restore` or `leave`.
    pub action: String,
    /// Whether it changes.
    pub changes: bool,
    /// What will happen, or why not, as a sentence.
    pub what: String,
    /// What to do about it, if it is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

type Planner<'p> = Box<dyn Fn(&[u8]) -> Result<Plan, Refusal> + 'p>;

/// A config file with the way to plan it.
pub struct Edit<'p> {
    found: FoundConfig,
    planner: Planner<'p>,
    /// All names, also of servers that were not chosen.
    names: Vec<String>,
    /// The servers that were shown as changing.
    agreed: BTreeSet<Key>,
    /// Whether a write was tried: what was wrong before that is in the table.
    tried: bool,
    /// The backup for people.
    backup: String,
    pub file: File,
}

impl fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// A server within its file.
type Key = (Vec<String>, String);

impl<'p> Edit<'p> {
    /// Reads and plans a file.
    pub fn plan(
        found: FoundConfig,
        here: &Here,
        planner: impl Fn(&[u8]) -> Result<Plan, Refusal> + 'p,
    ) -> Self {
        let file = File {
            client: found.client.name.into(),
            also_read_by: found
                .also_read_by
                .iter()
                .map(|client| client.name.into())
                .collect(),
            path: found.path.display().to_string(),
            scope: match found.file.scope {
                Scope::User => "user",
                Scope::Project => "project",
                Scope::Machine => "machine",
            }
            .into(),
            after_edit: found.client.config.after_edit.into(),
            shown: here.show(&found.path),
            ..File::default()
        };
        let mut edit = Self {
            found,
            planner: Box::new(planner),
            names: Vec::new(),
            agreed: BTreeSet::new(),
            tried: false,
            backup: String::new(),
            file,
        };
        match edit.planned() {
            Ok(plan) => edit.show(&plan, here),
            Err(Failure::Never(why)) => edit.file.servers.push(left_alone(&why)),
            Err(Failure::Trouble(trouble)) => edit.fail(&trouble, here),
        }
        edit
    }

    fn planned(&self) -> Result<Plan, Failure> {
        let trouble = |error: &WriteError| Failure::Trouble(error.explain());
        if let Some(why) = self.found.file.never {
            return Err(Failure::Never(why.into()));
        }
        let bytes = write::read(&self.found.path).map_err(|error| trouble(&error))?;
        (self.planner)(&bytes).map_err(|refusal| {
            if let Refusal::Never { why } = refusal {
                return Failure::Never(why.into());
            }
            trouble(&WriteError::Refused {
                path: self.found.path.clone(),
                refusal,
            })
        })
    }

    fn show(&mut self, plan: &Plan, here: &Here) {
        self.names = plan
            .entries()
            .iter()
            .map(|entry| entry.name.clone())
            .collect();
        let chosen = plan.entries().iter().filter(|entry| match entry.action {
            Action::Leave(Reason::NotChosen) | Action::NotAdopted => false,
            Action::Wrap(_)
            | Action::Bridge(_)
            | Action::Update(_)
            | Action::Already
            | Action::Restore
            | Action::Leave(_) => true,
        });
        self.file.servers = chosen.map(|entry| server(entry, here)).collect();
        self.file.changes = plan.changes();
        self.agreed = changing(plan).collect();
        if plan.changes() {
            self.file.diff = plan.diff(&self.file.shown);
        }
    }

    fn fail(&mut self, trouble: &Explanation, here: &Here) {
        let home = here.home().display().to_string();
        let short = |text: &str| text.replace(&format!("{home}/"), "~/");
        self.file.error = Some(short(&trouble.to_string()));
        self.file.hint = Some(short(&trouble.hint));
        self.file.changes = false;
    }

    /// Writes what was shown. The client may have changed the file since then; if more would change now, nothing is written.
    pub fn write(&mut self, backups: &Path, here: &Here) {
        self.tried = true;
        let (planner, agreed) = (&self.planner, &self.agreed);
        let mut plan = |bytes: &[u8]| {
            let plan = planner(bytes)?;
            if changing(&plan).all(|key| agreed.contains(&key)) {
                Ok(plan)
            } else {
                Err(Refusal::Drifted)
            }
        };
        match write::write(&self.found.path, backups, &mut plan) {
            Ok(written) => {
                self.file.written = written.changed;
                let backup = written.last_backup.as_deref();
                self.backup = backup.map(|path| here.show(path)).unwrap_or_default();
                let path =
                    |path: Option<std::path::PathBuf>| path.map(|path| path.display().to_string());
                self.file.first_backup = path(written.first_backup);
                self.file.last_backup = path(written.last_backup);
            }
            Err(error) => self.fail(&error.explain(), here),
        }
    }

    /// The word that people type for its client.
    pub fn client(&self) -> String {
        word(self.found.client)
    }

    /// The names of all servers in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub fn exit(&self) -> Exit {
        if self.file.error.is_some() {
            Exit::Unhealthy
        } else {
            Exit::Ok
        }
    }

    /// What was done to the file, as lines; nothing if it was not written.
    pub fn outcome(&self) -> String {
        if !self.file.written {
            return String::new();
        }
        let File { shown, .. } = &self.file;
        let servers = count(self.file.changing(), "server");
        let backup = &self.backup;
        format!("changed {shown}: {servers}\n  as it was: {backup}\n")
    }

    /// Why the file could not be changed, as lines; nothing if it could. The hint is in the table, unless a write was tried.
    pub fn failure(&self) -> String {
        let Some(error) = &self.file.error else {
            return String::new();
        };
        let hint = self.file.hint.as_ref().filter(|_| self.tried);
        let hint = hint.map(|hint| format!("  hint: {hint}\n"));
        format!("not changed: {error}\n{}", hint.unwrap_or_default())
    }
}

impl File {
    /// How many of its servers change.
    pub fn changing(&self) -> usize {
        self.servers.iter().filter(|server| server.changes).count()
    }
}

/// Why there is no plan.
enum Failure {
    /// The file is never edited.
    Never(String),
    /// It cannot be read, or not be planned.
    Trouble(Explanation),
}

fn changing(plan: &Plan) -> impl Iterator<Item = Key> {
    let changing = plan.entries().iter().filter(|entry| entry.action.changes());
    changing.map(|entry| (entry.table.clone(), entry.name.clone()))
}

fn server(entry: &EntryPlan, here: &Here) -> Server {
    let word = match &entry.action {
        Action::Wrap(_) => "wrap",
        Action::Bridge(_) => "bridge",
        Action::Update(_) => "update",
        Action::Already => "already",
        Action::Restore => "restore",
        Action::NotAdopted => "not_adopted",
        Action::Leave(_) => "leave",
    };
    let hint = match &entry.action {
        Action::Leave(reason) => Some(reason.explain().hint),
        Action::Wrap(_)
        | Action::Bridge(_)
        | Action::Update(_)
        | Action::Already
        | Action::Restore
        | Action::NotAdopted => None,
    };
    Server {
        name: entry.name.clone(),
        project: (entry.table.len() > 1).then(|| here.show(Path::new(&entry.table[1]))),
        command: entry.shown.clone(),
        action: word.into(),
        changes: entry.action.changes(),
        what: entry.action.to_string(),
        hint,
    }
}

/// The row of a file that is never edited.
fn left_alone(why: &str) -> Server {
    Server {
        name: "(all)".into(),
        project: None,
        command: String::new(),
        action: "leave".into(),
        changes: false,
        what: format!("left alone: {why}"),
        hint: Some("edit it by hand".into()),
    }
}

/// What changes for other people if these files are changed.
pub fn shared(edits: &[Edit<'_>]) -> Vec<String> {
    let changing = edits
        .iter()
        .map(|edit| &edit.file)
        .filter(|file| file.changes);
    changing
        .filter(|file| file.scope == "project")
        .map(|file| {
            let shown = &file.shown;
            format!("others who share {shown} need mainstay at the same path")
        })
        .collect()
}

/// What to do in each client whose files have changed.
pub fn next_steps(edits: &[Edit<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for edit in edits.iter().filter(|edit| edit.file.written) {
        let line = format!("next, in {}: {}\n", edit.file.client, edit.file.after_edit);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
