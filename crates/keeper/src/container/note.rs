//! The note of a container in the directory of a link: how its engine is called, and which file has its id.
//!
//! A note is written before the container is started, and removed when its engine has confirmed that the container does not
//! run. A directory with a note in it is not removed.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_os::clock;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::ENTRY_KEPT_DAYS;
use mainstay_protocol::time::DAY_MS;
use mainstay_store::state::{Directory, Location};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};

use super::engine::{self, Fate, How};
use super::{Container, Engine, id_in};

/// Notes begin with this; the generation follows.
const NAME: &str = "container-";
const ENDING: &str = ".json";
/// A file that is larger than this is not a note.
const FILE_BYTES: u64 = 256 * 1024;
/// Where engines are searched if PATH has none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin";
/// The variables with which engines find their daemon. Not PATH, because no file may decide which program we run.
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
    /// The working directory of the calls.
    pub directory: OsString,
    /// The variables with which it finds its daemon.
    env: Vec<(OsString, OsString)>,
    /// The file with the id.
    cidfile: OsString,
    /// When the first attempt to end it failed, in milliseconds since 1970.
    #[serde(default)]
    owed_since_ms: Option<u64>,
    /// The program as the user named it; none in a note that was read from disk.
    #[serde(skip)]
    program: Option<OsString>,
    #[serde(skip)]
    place: Option<(Location, String)>,
}

impl Note {
    /// Writes the note of a container that is about to be started in `directory`, with these variables in addition to ours. None if
    /// the cid file of the user exists already, because it names another container.
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
        // Without the file this keeper still ends the container, but no other process can.
        note.save().ok();
        Some(note)
    }

    /// The container's id, once there is one.
    pub fn id(&self) -> Option<String> {
        id_in(Path::new(&self.cidfile))
    }

    /// The program to call: as the user named it if we started it, else the engine by its name, found with our PATH.
    pub fn program(&self) -> Option<OsString> {
        self.program.clone().or_else(|| find(self.engine.name()))
    }

    /// The variables for the call, in addition to ours.
    pub fn env(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        let known = |(name, _): &&(OsString, OsString)| VARIABLES.iter().any(|known| name == known);
        self.env.iter().filter(known)
    }

    /// Removes the note: the container does not run.
    pub fn remove(&self) {
        let gone = |(entry, name): &(Location, String)| entry.open()?.remove(name);
        drop(self.place.as_ref().map(gone));
    }

    /// Ends the container and waits for it. Returns its id, unless it has none.
    pub fn settle(&mut self, within_ms: u64) -> Option<(String, Fate)> {
        let Some(id) = self.id() else {
            self.remove();
            return None;
        };
        let fate = engine::end(self, &id, How::Kill, within_ms);
        let now = clock::wall_ms();
        match (fate, self.owed_since_ms) {
            (Fate::Gone, _) => self.remove(),
            // An engine that was not reachable for this long is gone for good.
            (Fate::Left, Some(since)) if now.saturating_sub(since) > ENTRY_KEPT_DAYS * DAY_MS => {
                self.remove();
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

/// The notes in the directory of a link.
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

/// Finds a program with our PATH, then in the usual directories. Relative entries of PATH are skipped, because our working
/// directory is another one now.
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
    //! guards: No file in the state directory can name a program that we run.

    use super::*;
    use mainstay_os::identity;
    use mainstay_store::scratch::Scratch;
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
    fn only_the_word_of_the_engine_confirms_an_end() {
        for (engine, fate) in [
            ("[ $DOCKER_HOST,$0,$1 = far,kill,4f5e ]", Fate::Gone),
            // The container is gone.
            ("[ $0 = ps ]", Fate::Gone),
            // It cannot be killed, or the engine does not answer.
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
    fn an_engine_that_hangs_is_not_waited_for() {
        let home = Scratch::with_children();
        let mut note = note(&home, "exec sleep 1000");
        assert_eq!(settled(&mut note, 20), Some(Fate::Left));
    }

    #[test]
    fn a_container_is_given_up_after_days_of_failures() {
        let home = Scratch::with_children();
        let mut note = note(&home, "exit 1");
        assert_eq!(settled(&mut note, WITHIN_MS), Some(Fate::Left));
        let mut again = all(&home.location()).remove(0);
        again.owed_since_ms = again.owed_since_ms.map(|ms| ms - 15 * DAY_MS);
        assert_eq!(settled(&mut again, WITHIN_MS), Some(Fate::Left));
        assert_eq!(all(&home.location()), []);
    }

    #[test]
    fn a_container_without_an_id_needs_no_end() {
        let home = Scratch::new();
        let mut note = note(&home, "exit 1");
        fs::remove_file(home.path().join("cid")).unwrap();
        assert_eq!(settled(&mut note, WITHIN_MS), None);
        assert_eq!(all(&home.location()), []);
    }

    #[test]
    fn a_cid_file_that_existed_before_is_not_used() {
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
