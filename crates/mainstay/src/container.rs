//! Servers in containers: `docker run …` is only the remote control of a container that somebody else owns.
//!
//! The command gets a `--cidfile`, so that the container has a name that we know, and the ladder stops the container by
//! it. Containers are stopped, never removed: whether one is kept is the user's choice (`--rm`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay_os::{signals, turn};

/// Programs whose `run` starts a container.
const ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];
/// A command that runs a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The engine with its global options, up to the sub-command.
    engine: Vec<OsString>,
    /// The file that will hold the container's id.
    cidfile: PathBuf,
}

impl Container {
    /// Recognises the command; the container, and the command with a cid file below `directory`.
    pub fn of(
        argv: &[OsString],
        directory: &Path,
        generation: u32,
    ) -> Option<(Self, Vec<OsString>)> {
        let program = Path::new(argv.first()?).file_name()?.to_str()?;
        if !ENGINES.contains(&program) {
            return None;
        }
        let verb = sub_command(argv)?;
        let engine = argv.get(..verb)?.to_vec();
        let run = match argv.get(verb)?.to_str()? {
            "run" => verb,
            "container" if argv.get(verb + 1)? == "run" => verb + 1,
            _ => return None,
        };
        if let Some(theirs) = given_cidfile(argv.get(run + 1..)?) {
            return Some((
                Self {
                    engine,
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
        Some((Self { engine, cidfile }, rewritten))
    }

    /// The command that asks the container to end within so many seconds.
    pub fn stop(&self, seconds: u64) -> Option<Vec<OsString>> {
        self.command(&["stop", "-t", &seconds.to_string()])
    }

    /// The command that kills it.
    pub fn kill(&self) -> Option<Vec<OsString>> {
        self.command(&["kill"])
    }

    fn command(&self, words: &[&str]) -> Option<Vec<OsString>> {
        let id = fs::read_to_string(&self.cidfile).ok()?;
        let id = id.trim();
        let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then(|| {
            let mut argv = self.engine.clone();
            argv.extend(words.iter().map(OsString::from));
            argv.push(id.into());
            argv
        })
    }
}

/// Starts an engine's command in the background, silent; its pid. Whoever reaps our children reaps it.
#[expect(
    clippy::disallowed_methods,
    reason = "a short errand of ours, not a server: it needs no containment"
)]
pub fn start(argv: &[OsString]) -> Option<i32> {
    let (program, arguments) = argv.split_first()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    turn::as_usual_in(&mut command);
    signals::default_file_size_in(&mut command);
    let child = command.spawn().ok()?;
    Some(child.id() as i32)
}

/// Where the sub-command stands. Engines have many global options, and some take a value: a word behind an option is
/// such a value unless it is what we look for.
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

/// A cid file that the user asked for; only options of `run` are looked at, that is what stands before the image.
fn given_cidfile(options: &[OsString]) -> Option<PathBuf> {
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if let Some(path) = text.strip_prefix("--cidfile=") {
            return Some(path.into());
        }
        if text == "--cidfile" {
            return words.next().map(|path| PathBuf::from(OsStr::new(path)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_ladder_names_the_container_by_its_id_and_nothing_else() {
        let home = crate::scratch::Scratch::new();
        let line = argv("docker --context far run -i img");
        let (container, _) = Container::of(&line, home.path(), 2).unwrap();
        assert_eq!(container.stop(2), None);
        fs::write(home.path().join("cid-2"), "4f5e\n").unwrap();
        assert_eq!(
            container.stop(2),
            Some(argv("docker --context far stop -t 2 4f5e"))
        );
        assert_eq!(
            container.kill(),
            Some(argv("docker --context far kill 4f5e"))
        );
        fs::write(home.path().join("cid-2"), "--all").unwrap();
        assert_eq!(container.kill(), None);
    }
}
