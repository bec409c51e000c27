//! What a link's directory says of a container: how its engine is called, and where its id will stand.
//!
//! A note is written before the container is started and goes when its engine has said that it runs no more. A directory
//! with a note in it is not taken away.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_core::ids::Identity;
use mainstay_core::limits::ENTRY_KEPT_DAYS;
use mainstay_os::clock;
use serde::{Deserialize, Serialize};

use super::engine::{self, Fate, How};
use super::{Container, id_in};
use crate::ledger::time::DAY_MS;
use crate::paths::FILE_MODE;

/// Notes begin with this; the generation follows.
const NAME: &str = "container-";
/// The variables by which engines find their daemon, and by which they are found.
const VARIABLES: [&str; 12] = [
    "CONTAINERD_ADDRESS",
    "CONTAINERD_NAMESPACE",
    "CONTAINER_CONNECTION",
    "CONTAINER_HOST",
    "CONTAINER_SSHKEY",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "PATH",
    "XDG_RUNTIME_DIR",
];

/// One container that must be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The keeper that started it.
    pub owner: Identity,
    /// The engine with its global options.
    pub engine: Vec<OsString>,
    /// The directory that it is called in.
    pub directory: OsString,
    /// Where it finds its daemon.
    pub env: Vec<(OsString, OsString)>,
    /// The file with the id.
    cidfile: OsString,
    /// Since when it could not be ended, by the wall clock.
    #[serde(default)]
    owed_since_ms: Option<u64>,
    #[serde(skip)]
    path: PathBuf,
}

impl Note {
    /// Notes a container that is about to be started in `directory`, with these variables beside ours. None for a cid file of the
    /// user's that is there already: whatever it names is not what we start.
    pub fn write(
        entry: &Path,
        generation: u32,
        container: &Container,
        owner: Identity,
        directory: PathBuf,
        env: &[(String, String)],
    ) -> Option<Self> {
        let cidfile = directory.join(&container.cidfile);
        if id_in(&cidfile).is_some() {
            return None;
        }
        let named = |name: &&str| {
            let given = env.iter().find(|(other, _)| other == name);
            let given = given.map(|(_, value)| OsString::from(value));
            let value = given.or_else(|| std::env::var_os(name))?;
            Some((OsString::from(name), value))
        };
        let note = Self {
            owner,
            engine: container.engine.clone(),
            directory: directory.into(),
            env: VARIABLES.iter().filter_map(named).collect(),
            cidfile: cidfile.into(),
            owed_since_ms: None,
            path: entry.join(format!("{NAME}{generation}.json")),
        };
        // Without it the container is ended all the same, but not by others.
        note.save().ok();
        Some(note)
    }

    /// The container's id, once there is one.
    pub fn id(&self) -> Option<String> {
        id_in(Path::new(&self.cidfile))
    }

    /// It runs no more, or never did.
    pub fn strike_out(&self) {
        fs::remove_file(&self.path).ok();
    }

    /// Ends the container, for somebody who may wait; its id, unless there was none to be ended.
    pub fn settle(&mut self, within_ms: u64) -> Option<(String, Fate)> {
        let Some(id) = self.id() else {
            self.strike_out();
            return None;
        };
        let fate = engine::end(self, &id, How::Kill, within_ms);
        let now = clock::wall_ms();
        match (fate, self.owed_since_ms) {
            (Fate::Gone, _) => self.strike_out(),
            // Whoever cannot be reached for so long will not be.
            (Fate::Left, Some(since)) if now.saturating_sub(since) > ENTRY_KEPT_DAYS * DAY_MS => {
                self.strike_out();
            }
            (Fate::Left, Some(_)) => {}
            (Fate::Left, None) => {
                self.owed_since_ms = Some(now);
                self.save().ok();
            }
        }
        Some((id, fate))
    }

    fn save(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(new, &self.path)
    }
}

/// The containers that a link's directory says must be ended.
pub fn all(entry: &Path) -> Vec<Note> {
    let Ok(files) = fs::read_dir(entry) else {
        return Vec::new();
    };
    let mut notes: Vec<Note> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(NAME) && name.ends_with(".json")
        })
        .filter_map(|path| {
            let note: Note = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Some(Note { path, ..note })
        })
        .collect();
    notes.sort_by(|one, other| one.path.cmp(&other.path));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use mainstay_os::identity;

    const WITHIN_MS: u64 = 60_000;

    fn note(home: &Scratch, engine: &str) -> Note {
        let container = Container {
            engine: ["sh", "-c", engine].map(OsString::from).into(),
            cidfile: "cid".into(),
        };
        let me = identity::me().unwrap();
        let directory = home.path().to_owned();
        let env = [("DOCKER_HOST".into(), "far".into())];
        let note = Note::write(home.path(), 1, &container, me, directory, &env).unwrap();
        fs::write(home.path().join("cid"), "4f5e\n").unwrap();
        assert_eq!(all(home.path()), std::slice::from_ref(&note));
        note
    }

    fn settled(note: &mut Note, within_ms: u64) -> Option<Fate> {
        note.settle(within_ms).map(|(id, fate)| {
            assert_eq!(id, "4f5e");
            fate
        })
    }

    #[test]
    fn only_what_the_engine_says_is_an_end() {
        for (engine, fate) in [
            ("[ $DOCKER_HOST,$0,$1 = far,kill,4f5e ]", Fate::Gone),
            // There is none any more.
            ("[ $0 = ps ]", Fate::Gone),
            // It cannot be killed, or nobody can be asked.
            ("[ $0 = ps ] && echo 4f5e", Fate::Left),
            ("exit 1", Fate::Left),
        ] {
            let home = Scratch::with_children();
            let mut note = note(&home, engine);
            assert_eq!(settled(&mut note, WITHIN_MS), Some(fate), "{engine}");
            let kept = all(home.path());
            assert_eq!(kept.is_empty(), fate == Fate::Gone, "{engine}");
        }
    }

    #[test]
    fn an_engine_that_does_not_come_back_is_not_waited_for() {
        let home = Scratch::with_children();
        let mut note = note(&home, "exec sleep 1000");
        assert_eq!(settled(&mut note, 20), Some(Fate::Left));
    }

    #[test]
    fn after_days_in_vain_it_is_given_up() {
        let home = Scratch::with_children();
        let mut note = note(&home, "exit 1");
        assert_eq!(settled(&mut note, WITHIN_MS), Some(Fate::Left));
        let mut again = all(home.path()).remove(0);
        again.owed_since_ms = again.owed_since_ms.map(|ms| ms - 15 * DAY_MS);
        assert_eq!(settled(&mut again, WITHIN_MS), Some(Fate::Left));
        assert_eq!(all(home.path()), []);
    }

    #[test]
    fn a_container_that_never_was_is_no_debt() {
        let home = Scratch::new();
        let mut note = note(&home, "exit 1");
        fs::remove_file(home.path().join("cid")).unwrap();
        assert_eq!(settled(&mut note, WITHIN_MS), None);
        assert_eq!(all(home.path()), []);
    }

    #[test]
    fn what_a_cid_file_named_before_is_not_ours() {
        let home = Scratch::new();
        fs::write(home.path().join("cid"), "4f5e\n").unwrap();
        let container = Container {
            engine: vec!["docker".into()],
            cidfile: "cid".into(),
        };
        let me = identity::me().unwrap();
        let directory = home.path().to_owned();
        let note = Note::write(home.path(), 1, &container, me, directory, &[]);
        assert_eq!((note, all(home.path())), (None, Vec::new()));
    }
}
