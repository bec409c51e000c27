//! Where config files are on this machine. It looks whether files exist, and reads policy files; it reads no config.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::{FOLDER_FILES_MAX, PARENT_DIRECTORIES_MAX, PROJECT_DEPTH_MAX};
use crate::policy::{Policy, PolicyText};
use crate::profile::{ALL, Client, ConfigFile, Place};
use crate::write;

/// What places depend on.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// HOME.
    pub home: PathBuf,
    /// The environment, of which only a few variables are looked at.
    pub variables: BTreeMap<String, OsString>,
    /// The project's directory, for project and local files.
    pub project: Option<PathBuf>,
    /// Which system's places count.
    pub system: System,
    /// What absolute places are below: `/` but in tests.
    pub root: Option<PathBuf>,
}

/// A system with places of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum System {
    /// Linux.
    #[default]
    Linux,
    /// macOS.
    MacOs,
}

/// A config file that exists.
#[derive(Clone, Debug)]
pub struct FoundConfig {
    /// Whose it is.
    pub client: &'static Client,
    /// Which of its files.
    pub file: &'static ConfigFile,
    /// Its place; it may be a symbolic link.
    pub path: PathBuf,
    /// Other clients that read it, too.
    pub also_read_by: Vec<&'static Client>,
}

/// The config files of these clients that exist, or of which it cannot be told because a directory may not be searched. A file that several of them read is given once for each way into it of the first.
pub fn find(clients: &[&'static Client], around: &Surroundings) -> Vec<FoundConfig> {
    let mut found: Vec<FoundConfig> = Vec::new();
    for client in clients {
        for file in client.config.files {
            for path in around.places(file.place) {
                let other =
                    |known: &FoundConfig| known.path == path && known.client.name != client.name;
                if is_missing(&path) || found.iter().any(other) {
                    continue;
                }
                let same =
                    |known: &FoundConfig| known.path == path && known.file.tables == file.tables;
                if found.iter().any(same) {
                    continue;
                }
                found.push(FoundConfig {
                    client,
                    file,
                    also_read_by: readers(&path, client, around),
                    path,
                });
            }
        }
    }
    found
}

/// The same for one path whose project is not known: the project is one of the directories above it.
pub fn find_at(
    path: &Path,
    clients: &[&'static Client],
    around: &Surroundings,
) -> Vec<FoundConfig> {
    let above = path.ancestors().skip(1).take(PROJECT_DEPTH_MAX);
    let mut each = above.map(|project| {
        let around = Surroundings {
            project: Some(project.into()),
            ..around.clone()
        };
        let mut found = find(clients, &around);
        found.retain(|found| found.path == path);
        found
    });
    each.find(|found| !found.is_empty()).unwrap_or_default()
}

fn readers(path: &Path, of: &Client, around: &Surroundings) -> Vec<&'static Client> {
    let reads = |client: &&Client| {
        let mut places = client.config.files.iter().map(|file| file.place);
        client.name != of.name
            && places.any(|place| around.places(place).iter().any(|other| other == path))
    };
    ALL.iter().copied().filter(reads).collect()
}

/// What the policy files of all readers of a file say.
pub fn policy(found: &FoundConfig, around: &Surroundings) -> Policy {
    let clients = std::iter::once(&found.client).chain(&found.also_read_by);
    let mut texts = Vec::new();
    for of in clients.flat_map(|client| client.config.policies) {
        for path in around.places(of.place) {
            let bytes = match write::read(&path) {
                Ok(bytes) => Some(bytes),
                Err(_) if is_missing(&path) => continue,
                Err(_) => None,
            };
            texts.push(PolicyText { of, path, bytes });
        }
    }
    Policy::read(&texts)
}

fn is_missing(path: &Path) -> bool {
    let error = fs::symlink_metadata(path).err();
    error.is_some_and(|error| {
        [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
    })
}

impl Surroundings {
    /// Those of a process: its HOME and its environment.
    pub fn new(home: impl Into<PathBuf>, variables: BTreeMap<String, OsString>) -> Self {
        let system = if cfg!(target_os = "macos") {
            System::MacOs
        } else {
            System::Linux
        };
        Self {
            home: home.into(),
            variables,
            project: None,
            system,
            root: None,
        }
    }

    /// Every path that a place stands for. A file at the path need not exist, unless the place is a folder of files.
    pub fn places(&self, place: Place) -> Vec<PathBuf> {
        match place {
            Place::Home(path) => vec![self.home.join(path)],
            Place::Own {
                variable,
                home,
                file,
            } => {
                let own = self.directory(variable);
                vec![own.unwrap_or_else(|| self.home.join(home)).join(file)]
            }
            Place::Variable(variable) => self.directory(variable).into_iter().collect(),
            Place::Config(path) => vec![self.config().join(path)],
            Place::Data(path) => {
                let data = self.directory("XDG_DATA_HOME");
                vec![
                    data.unwrap_or_else(|| self.home.join(".local/share"))
                        .join(path),
                ]
            }
            Place::Application(path) => vec![self.application().join(path)],
            Place::ApplicationEach(folder, file) => {
                let folders = list(&self.application().join(folder));
                folders
                    .into_iter()
                    .map(|folder| folder.join(file))
                    .collect()
            }
            Place::HomeFolder(folder, endings) => files(&self.home.join(folder), endings),
            Place::Project(path) => self
                .project
                .iter()
                .map(|project| project.join(path))
                .collect(),
            Place::ProjectUpward(path) => self.upward(path).into_iter().collect(),
            Place::ProjectFolder(folder, endings) => {
                let project = self.project.iter();
                project
                    .flat_map(|project| files(&project.join(folder), endings))
                    .collect()
            }
            Place::Machine(path) => match &self.root {
                Some(root) => vec![root.join(path.trim_start_matches('/'))],
                None => vec![PathBuf::from(path)],
            },
        }
    }

    /// The absolute path that a variable names.
    fn directory(&self, variable: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variables.get(variable)?);
        path.is_absolute().then_some(path)
    }

    fn config(&self) -> PathBuf {
        let config = self.directory("XDG_CONFIG_HOME");
        config.unwrap_or_else(|| self.home.join(".config"))
    }

    fn application(&self) -> PathBuf {
        match self.system {
            System::Linux => self.config(),
            System::MacOs => self.home.join("Library/Application Support"),
        }
    }

    /// The nearest file of this name from the project up to the root of its repository.
    fn upward(&self, path: &str) -> Option<PathBuf> {
        let project = self.project.as_ref()?;
        for directory in project.ancestors().take(PARENT_DIRECTORIES_MAX) {
            let here = directory.join(path);
            if fs::symlink_metadata(&here).is_ok() {
                return Some(here);
            }
            if fs::symlink_metadata(directory.join(".git")).is_ok() || directory == self.home {
                break;
            }
        }
        Some(project.join(path))
    }
}

/// What is in a directory, sorted.
fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let entries = entries.take(FOLDER_FILES_MAX).filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let wanted = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| endings.contains(&ending))
    };
    list(folder).into_iter().filter(wanted).collect()
}
