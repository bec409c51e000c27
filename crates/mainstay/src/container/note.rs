//! What a link's directory says of a container: how its engine is called, and where its id will stand.
//!
//! A note is written before the container is started and goes when its engine has said that it runs no more. A directory
//! with a note in it is not taken away.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_core::ids::Identity;
use mainstay_core::limits::ENTRY_KEPT_DAYS;
use mainstay_os::clock;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};

use super::engine::{self, Fate, How};
use super::{Container, Engine, id_in};
use crate::ledger::time::DAY_MS;
use crate::state::{Directory, Location};

/// Notes begin with this; the generation follows.
const NAME: &str = "container-";
const ENDING: &str = ".json";
/// A note that is larger than this is none of ours.
const FILE_BYTES: u64 = 256 * 1024;
/// Where engines are, if our own PATH does not lead to them.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin";
/// The variables by which engines find their daemon. PATH is not among them: no file says which program we run.
const VARIABLES: [&str; 11] = [
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
    "XDG_RUNTIME_DIR",
];

/// One container that must be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The keeper that started it.
    pub owner: Identity,
    /// The engine.
    engine: Engine,
    /// Its global options.
    pub options: Vec<OsString>,
    /// The directory that it is called in.
    pub directory: OsString,
    /// Where it finds its daemon.
    env: Vec<(OsString, OsString)>,
    /// The file with the id.
    cidfile: OsString,
    /// Since when it could not be ended, by the wall clock.
    #[serde(default)]
    owed_since_ms: Option<u64>,
    /// The program as the user named it; a note that was read has none.
    #[serde(skip)]
    program: Option<OsString>,
    #[serde(skip)]
    place: Option<(Location, String)>,
}

impl Note {
    /// Notes a container that is about to be started in `directory`, with these variables beside ours. None for a cid file of the
    /// user's that is there already: whatever it names is not what we start.
    pub fn write(
        entry: &Location,
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
            let value = given.or_else(|| env::var_os(name))?;
            Some((OsString::from(name), value))
        };
        let note = Self {
            owner,
            engine: container.engine,
            options: container.options.clone(),
            directory: directory.into(),
            env: VARIABLES.iter().filter_map(named).collect(),
            cidfile: cidfile.into(),
            owed_since_ms: None,
            program: Some(container.program.clone()),
            place: Some((entry.clone(), format!("{NAME}{generation}{ENDING}"))),
        };
        // Without it the container is ended all the same, but not by others.
        note.save().ok();
        Some(note)
    }

    /// The container's id, once there is one.
    pub fn id(&self) -> Option<String> {
        id_in(Path::new(&self.cidfile))
    }

    /// The program to call: as the user named it if we have started it ourselves, else the engine's own, found by our PATH.
    pub fn program(&self) -> Option<OsString> {
        self.program.clone().or_else(|| find(self.engine.name()))
    }

    /// The variables to call it with, beside ours.
    pub fn env(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        let known = |(name, _): &&(OsString, OsString)| VARIABLES.iter().any(|known| name == known);
        self.env.iter().filter(known)
    }

    /// It runs no more, or never did.
    pub fn strike_out(&self) {
        let gone = |(entry, name): &(Location, String)| entry.open()?.remove(name);
        drop(self.place.as_ref().map(gone));
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
        let (entry, name) = self.place.as_ref().ok_or(io::ErrorKind::NotFound)?;
        entry.open()?.replace(name, &serde_json::to_vec(self)?)
    }
}

/// The containers that a link's directory says must be ended.
pub fn all(entry: &Location) -> Vec<Note> {
    let Ok(directory) = entry.open() else {
        return Vec::new();
    };
    let mut names = directory.names().unwrap_or_default();
    names.retain(|name| name.starts_with(NAME) && name.ends_with(ENDING));
    names.sort();
    names
        .into_iter()
        .filter_map(|name| read(&directory, entry, name))
        .collect()
}

fn read(directory: &Directory, entry: &Location, name: String) -> Option<Note> {
    let note: Note = serde_json::from_slice(&directory.read(&name, FILE_BYTES).ok()?).ok()?;
    Some(Note {
        place: Some((entry.clone(), name)),
        ..note
    })
}

/// A program, by our own PATH and by the usual one. What is not absolute in PATH leads somewhere else by now.
fn find(name: &str) -> Option<OsString> {
    let ours = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&ours)
        .chain(env::split_paths(USUAL_PATH))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|program| accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).is_ok())
        .map(PathBuf::into_os_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use mainstay_os::identity;
    use std::fs;

    const WITHIN_MS: u64 = 60_000;

    fn note(home: &Scratch, engine: &str) -> Note {
        let container = Container {
            engine: Engine::Docker,
            program: "sh".into(),
            options: ["-c", engine].map(OsString::from).into(),
            cidfile: "cid".into(),
        };
        let me = identity::me().unwrap();
        let directory = home.path().to_owned();
        let env = [("DOCKER_HOST".into(), "far".into())];
        let note = Note::write(&home.location(), 1, &container, me, directory, &env).unwrap();
        fs::write(home.path().join("cid"), "4f5e\n").unwrap();
        let read = Note {
            program: None,
            ..note.clone()
        };
        assert_eq!(all(&home.location()), [read]);
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
            let kept = all(&home.location());
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
        let mut again = all(&home.location()).remove(0);
        again.owed_since_ms = again.owed_since_ms.map(|ms| ms - 15 * DAY_MS);
        assert_eq!(settled(&mut again, WITHIN_MS), Some(Fate::Left));
        assert_eq!(all(&home.location()), []);
    }

    #[test]
    fn a_container_that_never_was_is_no_debt() {
        let home = Scratch::new();
        let mut note = note(&home, "exit 1");
        fs::remove_file(home.path().join("cid")).unwrap();
        assert_eq!(settled(&mut note, WITHIN_MS), None);
        assert_eq!(all(&home.location()), []);
    }

    #[test]
    fn what_a_cid_file_named_before_is_not_ours() {
        let home = Scratch::new();
        fs::write(home.path().join("cid"), "4f5e\n").unwrap();
        let container = Container {
            engine: Engine::Docker,
            program: "docker".into(),
            options: Vec::new(),
            cidfile: "cid".into(),
        };
        let me = identity::me().unwrap();
        let directory = home.path().to_owned();
        let note = Note::write(&home.location(), 1, &container, me, directory, &[]);
        assert_eq!((note, all(&home.location())), (None, Vec::new()));
    }

    #[test]
    fn no_note_can_name_a_program() {
        let home = Scratch::new();
        let written = note(&home, "exit 1");
        let text = serde_json::to_string(&written).unwrap();
        let entry = home.location();
        let directory = entry.open().unwrap();
        for engine in [r#"["/bin/sh","-c","id"]"#, r#""/bin/sh""#, r#""./docker""#] {
            let forged = text.replace(r#""docker""#, engine);
            assert_ne!(forged, text);
            directory
                .replace("container-1.json", forged.as_bytes())
                .unwrap();
            assert_eq!(all(&entry), [], "{engine}");
        }
        let forged = Note {
            env: vec![("LD_PRELOAD".into(), "/tmp/x.so".into())],
            ..written
        };
        forged.save().unwrap();
        let [read] = all(&entry).try_into().unwrap();
        assert_eq!((read.env().count(), read.program), (0, None));
    }
}
