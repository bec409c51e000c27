//! Servers in containers. `docker run …` only controls a container; the daemon of the engine is the parent of its processes,
//! so ending our tree does not end them.
//!
//! The command gets a `--cidfile`, so that we know the id of the container, and the stop ladder ends the container by its id.
//! A note beside the cid file says how the engine is called. The note is removed when the engine has confirmed that the
//! container does not run. Containers are stopped, never removed: whether one is kept is the choice of the user (`--rm`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use mainstay_store::state;
use serde::{Deserialize, Serialize};

pub mod engine;
pub mod note;
pub mod running;
pub mod words;

/// A cid file that is larger than this has no id.
const CID_FILE_BYTES: u64 = 256;

/// Programs whose `run` starts a container. A note can name only one of these, so that no file can make us run any other
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// nerdctl, the command line of containerd.
    Nerdctl,
}

impl Engine {
    /// None if the program is no engine.
    fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?;
        [Self::Docker, Self::Podman, Self::Nerdctl]
            .into_iter()
            .find(|engine| name == engine.name())
    }

    /// The name of its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Nerdctl => "nerdctl",
        }
    }
}

/// A command that runs a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    engine: Engine,
    /// The program as the user named it.
    program: OsString,
    /// Its global options, up to the sub-command.
    options: Vec<OsString>,
    /// The file for the id of the container, relative to the directory of the command.
    cidfile: PathBuf,
}

impl Container {
    /// Recognises the command. Returns the container, and the command with a cid file below `directory`.
    pub fn of(
        argv: &[OsString],
        directory: &Path,
        generation: u32,
    ) -> Option<(Self, Vec<OsString>)> {
        let program = argv.first()?.clone();
        let engine = Engine::of(&program)?;
        let verb = sub_command(argv)?;
        let options = argv.get(1..verb)?.to_vec();
        let run = match argv.get(verb)?.to_str()? {
            "run" => verb,
            "container" if argv.get(verb + 1)? == "run" => verb + 1,
            _ => return None,
        };
        if let Some(theirs) = words::read(argv.get(run + 1..)?).cidfile {
            return Some((
                Self {
                    engine,
                    program,
                    options,
                    cidfile: theirs,
                },
                argv.to_vec(),
            ));
        }
        let cidfile = directory.join(format!("cid-{generation}"));
        let mut rewritten = argv.to_vec();
        let words = ["--cidfile".into(), cidfile.clone().into_os_string()];
        for (place, word) in words.into_iter().enumerate() {
            rewritten.insert(run + 1 + place, word);
        }
        Some((
            Self {
                engine,
                program,
                options,
                cidfile,
            },
            rewritten,
        ))
    }
}

/// The id of the container; none until the engine has written it.
fn id_in(cidfile: &Path) -> Option<String> {
    let id = state::read_named(cidfile, CID_FILE_BYTES).ok()?;
    let id = std::str::from_utf8(&id).ok()?.trim();
    let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| id.to_owned())
}

/// The position of the sub-command. Engines have many global options, and some take a value: a word after an option is such
/// a value unless it is the sub-command.
fn sub_command(argv: &[OsString]) -> Option<usize> {
    let mut after_option = false;
    for (at, word) in argv.iter().enumerate().skip(1) {
        let word = word.to_str()?;
        if matches!(word, "run" | "container") {
            return Some(at);
        }
        if !word.starts_with('-') && !after_option {
            return None;
        }
        after_option = word.starts_with('-') && !word.contains('=');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn argv(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn rewritten(line: &str) -> Option<String> {
        let (_, argv) = Container::of(&argv(line), Path::new("/run/x"), 1)?;
        Some(
            argv.iter()
                .map(|word| word.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
        )
    }

    #[test]
    fn a_container_gets_a_cid_file_and_everything_else_stays() {
        let table = [
            (
                "docker run -i --rm mcp/time",
                "docker run --cidfile /run/x/cid-1 -i --rm mcp/time",
            ),
            (
                "/usr/bin/podman run -i img",
                "/usr/bin/podman run --cidfile /run/x/cid-1 -i img",
            ),
            (
                "docker --context far -D container run -i img run",
                "docker --context far -D container run --cidfile /run/x/cid-1 -i img run",
            ),
            (
                "docker run --cidfile /mine -i img",
                "docker run --cidfile /mine -i img",
            ),
            (
                "docker run --cidfile=/mine -i img",
                "docker run --cidfile=/mine -i img",
            ),
            // Arguments of the server in the container.
            (
                "docker run -i img tool --cidfile x",
                "docker run --cidfile /run/x/cid-1 -i img tool --cidfile x",
            ),
        ];
        for (given, expected) in table {
            assert_eq!(rewritten(given).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_commands_are_none() {
        for line in [
            "npx -y run",
            "docker exec -i c run",
            "docker compose run x",
            "docker",
            "docker -D",
            "run docker",
        ] {
            assert_eq!(rewritten(line), None, "{line}");
        }
    }

    #[test]
    fn an_id_is_a_plain_word() {
        let home = mainstay_store::scratch::Scratch::new();
        let file = home.path().join("cid-2");
        assert_eq!(id_in(&file), None);
        for (text, id) in [("4f5e\n", Some("4f5e")), ("", None), ("--all", None)] {
            fs::write(&file, text).unwrap();
            assert_eq!(id_in(&file).as_deref(), id);
        }
    }
}
