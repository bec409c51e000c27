//! What a command is about: which clients, which project, which files.

use std::path::{Path, PathBuf};

use mainstay_clients::place::{self, FoundConfig, Surroundings};
use mainstay_clients::plan;
use mainstay_clients::profile::{self, Client, Place, Scope};
use mainstay_clients::write;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::config::file::nearest;
use mainstay_store::paths::Paths;

use super::file::Edit;

/// The machine as config files are looked for.
#[derive(Debug)]
pub struct Here {
    pub around: Surroundings,
}

impl Here {
    /// That of this process.
    pub fn find(paths: &Paths, project: Option<&Path>) -> Result<Self, Report> {
        let Some(home) = paths.home() else {
            let report = Report::new(
                Exit::State,
                "there is no home directory to look for config files in",
            );
            return Err(report.hint("set HOME to your home directory"));
        };
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let mut around = Surroundings::new(home, variables.collect());
        if let Some(project) = project {
            let real = project.canonicalize().map_err(|error| {
                Report::new(
                    Exit::Usage,
                    format!("no project is at {}", project.display()),
                )
                .because(plain(&error))
                .hint("--project wants an existing directory")
            })?;
            around.project = Some(real);
        }
        Ok(Self { around })
    }

    pub fn home(&self) -> &Path {
        &self.around.home
    }

    /// The project's directory as clients write it.
    pub fn project_text(&self) -> Option<String> {
        let project = self.around.project.as_ref()?;
        Some(project.to_string_lossy().into_owned())
    }

    /// The config files of these clients that exist. Files of the machine's administrator are never edited, so they are not looked at.
    pub fn find_files(&self, clients: &[&'static Client]) -> Vec<FoundConfig> {
        let mut found = place::find(clients, &self.around);
        found.retain(|found| found.file.scope != Scope::Machine);
        found
    }

    /// Config files of projects that mainstay has written before, except those that are known.
    pub fn find_written_before(
        &self,
        clients: &[&'static Client],
        backups: &Path,
        known: &[FoundConfig],
    ) -> Vec<FoundConfig> {
        let is_known = |path: &PathBuf| known.iter().any(|known| known.path == *path);
        let paths = write::written_before(backups).into_iter();
        paths
            .filter(|path| !is_known(path))
            .flat_map(|path| place::find_at(&path, clients, &self.around))
            .filter(|found| found.file.scope == Scope::Project)
            .collect()
    }

    /// Sentences about files in the current directory whose servers are not adopted, because no project is named.
    pub fn left_in_project(&self, clients: &[&'static Client], paths: &Paths) -> Vec<String> {
        let project = std::env::current_dir().ok();
        let Some(Ok(there)) = project.map(|project| Self::find(paths, Some(&project))) else {
            return Vec::new();
        };
        // HOME may be a symbolic link, and the project is without links.
        let real = |found: &FoundConfig| found.path.canonicalize().ok();
        let known: Vec<_> = self.find_files(clients).iter().map(real).collect();
        let mut found = there.find_files(clients);
        found.retain(|found| {
            let bytes = write::read(&found.path).unwrap_or_default();
            let survey = plan::survey(&bytes, found.client, found.file);
            found.file.never.is_none()
                && !known.contains(&real(found))
                && survey.is_ok_and(|survey| survey.servers > survey.through)
        });
        let sentence = |found: FoundConfig| {
            let shown = self.show(&found.path);
            format!(
                "{shown} stays as it is, because others may share it: `mainstay adopt --project .` changes it"
            )
        };
        found.dedup_by(|one, other| one.path == other.path);
        found.into_iter().map(sentence).collect()
    }

    /// A path for people.
    pub fn show(&self, path: &Path) -> String {
        tilde(path, self.home())
    }
}

/// A path for people: below HOME it begins with `~`.
pub fn tilde(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if rest.as_os_str().is_empty() => "~".into(),
        Ok(rest) => format!("~/{}", rest.display()),
        Err(_) => path.display().to_string(),
    }
}

/// The clients that were named; all of them if none was.
pub fn clients(names: &[String]) -> Result<Vec<&'static Client>, Report> {
    let with_config = || {
        let all = profile::ALL.iter().copied();
        all.filter(|client| !client.config.files.is_empty())
    };
    if names.is_empty() {
        return Ok(with_config().collect());
    }
    let mut clients: Vec<&'static Client> = Vec::new();
    for name in names {
        let client = client(name)?;
        if !clients.iter().any(|known| known.name == client.name) {
            clients.push(client);
        }
    }
    Ok(clients)
}

/// The client of this name.
pub fn client(name: &str) -> Result<&'static Client, Report> {
    let known = profile::named(name).filter(|client| !client.config.files.is_empty());
    if let Some(client) = known {
        return Ok(client);
    }
    let report = Report::new(Exit::Usage, format!("no client called `{name}` is known"));
    let words: Vec<String> = profile::ALL
        .iter()
        .filter(|client| !client.config.files.is_empty())
        .map(|client| word(client))
        .collect();
    let lower = name.to_lowercase();
    Err(match nearest(&lower, &words) {
        Some(near) => report.hint(format!("did you mean `{near}`?")),
        None => report.hint(format!("known are {}", words.join(", "))),
    })
}

/// The word that people type for a client.
pub fn word(client: &Client) -> String {
    let plain = client.name.to_lowercase().replace(' ', "-");
    let short = client
        .aliases
        .first()
        .filter(|alias| alias.len() < plain.len());
    short.map_or(plain, |short| (*short).to_owned())
}

/// No client has a config file here.
pub fn nothing_found(clients: &[&'static Client], here: &Here, named: bool) -> Report {
    let mut places: Vec<PathBuf> = Vec::new();
    for client in clients {
        for file in client.config.files {
            let folder = matches!(file.place, Place::HomeFolder(..) | Place::ProjectFolder(..));
            if file.scope == Scope::User && !folder {
                places.extend(here.around.places(file.place).into_iter().take(1));
            }
        }
    }
    let shown: Vec<String> = places.iter().map(|path| here.show(path)).collect();
    let names: Vec<&str> = clients.iter().map(|client| client.name).collect();
    if named {
        Report::new(
            Exit::NotFound,
            format!("{} has no config file here", names.join(", ")),
        )
        .because(format!("looked for {}", shown.join(", ")))
        .hint("add a server in the client first; for files of a project: --project DIR")
    } else {
        Report::new(Exit::NotFound, "no client has a config file here")
            .because(format!(
                "looked for the files of {} clients in {}",
                names.len(),
                here.show(here.home())
            ))
            .hint("add a server in your client first, or name the project: --project DIR")
    }
}

/// Every server that was named must be in a file.
pub fn check_servers(wanted: &[String], edits: &[Edit<'_>]) -> Result<(), Report> {
    let mut known: Vec<&str> = edits.iter().flat_map(Edit::names).collect();
    known.sort_unstable();
    known.dedup();
    for name in wanted {
        if known.contains(&name.as_str()) {
            continue;
        }
        let report = Report::new(
            Exit::NotFound,
            format!("no config has a server called `{name}`"),
        );
        return Err(match (nearest(name, &known), known.as_slice()) {
            (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
            (None, []) => report.hint("no config that can be read has any server"),
            (None, known) => report.hint(format!("there are {}", known.join(", "))),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_found_by_what_people_type() {
        let all = clients(&[]).unwrap();
        assert!(all.len() >= 22);
        for client in all {
            assert_eq!(self::client(&word(client)).unwrap().name, client.name);
        }
        let twice = clients(&["claude".into(), "claude-code".into()]).unwrap();
        assert_eq!(twice.len(), 1);
        let unknown = client("clade").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "error: no client called `clade` is known\nhint: did you mean `claude`?"
        );
        let unknown = client("emacs").unwrap_err().to_string();
        assert!(
            unknown.contains("\nhint: known are amp, claude, "),
            "{unknown}"
        );
    }

    #[test]
    fn a_path_below_home_begins_with_a_tilde() {
        let home = Path::new("/home/ann");
        assert_eq!(tilde(Path::new("/home/ann/.x"), home), "~/.x");
        assert_eq!(tilde(Path::new("/home/anna/.x"), home), "/home/anna/.x");
    }
}
