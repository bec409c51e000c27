//! The start of a server: its command, its pipes, its tree, and why it failed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use mainstay_os::spawn::{self, OOM_RAISE, SpawnError, Stage};
use mainstay_os::{clock, tier};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::tier::WhyNot;
use mainstay_report::Exit;
use mainstay_store::registry::entry::Entry;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Running;
use crate::container::Container;
use crate::container::note::Note;
use crate::container::running::RunningContainer;
use crate::plan::Plan;
use crate::port::{Direction, Port};
use crate::watched::Watched;

/// Why a server could not be started.
pub struct Failure {
    /// What was wrong.
    pub problem: String,
    /// What to do.
    pub hint: String,
    /// The exit code for it.
    pub code: Exit,
}

/// What is executed for one server.
pub struct Command {
    argv: Vec<OsString>,
    /// The container that it starts, if it is a container engine's command.
    container: Option<RunningContainer>,
}

impl Command {
    /// Whether it starts a container. Then [`Self::new`] needs the link's directory, because the container's id is written there.
    pub fn starts_container(plan: &Plan, generation: u32) -> bool {
        Container::of(&plan.command.argv, Path::new(""), generation).is_some()
    }

    /// The command of this generation. A container is noted on disk before it is started.
    pub fn new(plan: &Plan, generation: u32, entry: Option<&Entry>, keeper: Identity) -> Self {
        let contained = entry.and_then(|entry| {
            let place = entry.path();
            let (container, argv) = Container::of(&plan.command.argv, &place.path(), generation)?;
            let directory = plan.directory().into();
            let note = Note::write(
                place,
                generation,
                &container,
                keeper,
                directory,
                &plan.command.env,
            );
            Some(Self {
                argv,
                container: note.map(RunningContainer::new),
            })
        });
        contained.unwrap_or_else(|| Self {
            argv: plan.command.argv.clone(),
            container: None,
        })
    }
}

/// Starts a server. Its stderr is returned apart.
pub fn start(
    plan: &Plan,
    mut command: Command,
    keeper: Identity,
) -> Result<(Running, Port), Failure> {
    match launch(plan, &command.argv, keeper) {
        Ok((mut running, stderr)) => {
            running.container = command.container;
            Ok((running, stderr))
        }
        Err(failure) => {
            // No container was started either; its note is removed.
            drop(command.container.as_mut().and_then(RunningContainer::left));
            Err(failure)
        }
    }
}

fn launch(plan: &Plan, argv: &[OsString], keeper: Identity) -> Result<(Running, Port), Failure> {
    let tag = plan.tag(keeper);
    let choice = tier::choose(plan.wish, &tag).map_err(|why_not| no_tier(&why_not))?;
    let (stdin, stdout, stderr) = pipes().map_err(|error| no_pipes(&error))?;
    let (argv, env) = (plan.argv_c(argv), plan.env_c(&tag));
    let port = |fd: OwnedFd, way| Port::of_ours(fd, way).map_err(|error| no_pipes(&error));
    // Nothing may fail once the server runs, because no process would end it then.
    let (ours, theirs) = (
        (
            port(stdin.1, Direction::Out)?,
            port(stdout.0, Direction::In)?,
            port(stderr.0, Direction::In)?,
        ),
        (stdin.0, stdout.1, stderr.1),
    );
    let started = clock::wall();
    let spawned = spawn::spawn(spawn::Plan {
        argv: &argv,
        env: &env,
        cwd: plan.command.cwd.as_deref(),
        stdin: theirs.0.as_fd(),
        stdout: theirs.1.as_fd(),
        stderr: theirs.2.as_fd(),
        choice,
        oom_score_adj_raise: OOM_RAISE,
    })
    .map_err(|error| not_spawned(&error, plan))?;
    let oom_kills = (
        spawned.tree.oom_kills(),
        mainstay_os::measure::oom_kills_of_the_machine(),
    );
    let life = spawned.tree.pidfd().and_then(|fd| fd.try_clone().ok());
    let running = Running {
        who: spawned.who,
        started,
        life: life.and_then(|fd| Watched::new(fd).ok()),
        tree: spawned.tree,
        tier: spawned.tier,
        why_not: spawned.why_not,
        stdin: Some(ours.0),
        stdin_rest: None,
        stdout: Some(ours.1),
        exit: None,
        seen: BTreeSet::new(),
        oom_kills,
        container: None,
    };
    Ok((running, ours.2))
}

type Ends = (OwnedFd, OwnedFd);

/// Three pipes; our ends do not block, the server's do.
fn pipes() -> io::Result<(Ends, Ends, Ends)> {
    let pipe = |ours: fn(&Ends) -> &OwnedFd| -> io::Result<Ends> {
        let ends = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = fcntl_getfl(ours(&ends))?;
        fcntl_setfl(ours(&ends), flags | OFlags::NONBLOCK)?;
        Ok(ends)
    };
    let from_us = pipe(|ends| &ends.1)?;
    Ok((from_us, pipe(|ends| &ends.0)?, pipe(|ends| &ends.0)?))
}

fn no_tier(why_not: &[WhyNot]) -> Failure {
    let reasons: Vec<String> = why_not
        .iter()
        .map(|why| format!("{}: {}", why.tier, why.reason))
        .collect();
    Failure {
        problem: format!("the required tier is not there ({})", reasons.join("; ")),
        hint: "ask for a weaker tier, or leave --tier and --require-tier out".into(),
        code: Exit::Failed,
    }
}

fn no_pipes(error: &io::Error) -> Failure {
    Failure {
        problem: format!("no pipes for the server: {error}"),
        hint: "raise the limit of open files (ulimit -n)".into(),
        code: Exit::Failed,
    }
}

fn not_spawned(error: &SpawnError, plan: &Plan) -> Failure {
    let code = match (error.stage, error.errno) {
        (Stage::Exec, libc::ENOENT) => Exit::NoSuchCommand,
        (Stage::Exec | Stage::Interpreter, _) => Exit::NotExecutable,
        (Stage::Clone | Stage::Place | Stage::Stdio | Stage::Cwd, _) => Exit::Failed,
    };
    Failure {
        problem: error.problem(),
        hint: hint(error, plan),
        code,
    }
}

fn hint(error: &SpawnError, plan: &Plan) -> String {
    let program = plan.command.argv.first().map(|word| word.to_string_lossy());
    let Some(program) =
        program.filter(|_| (error.stage, error.errno) == (Stage::Exec, libc::ENOENT))
    else {
        return error.hint().into();
    };
    let words: Vec<&str> = program.split_whitespace().collect();
    if let [first, rest @ ..] = words.as_slice()
        && !rest.is_empty()
    {
        let line = words.join(" ");
        return format!(
            "the command has spaces: write each word apart, `mainstay run -- {line}`, or in a config file \
             `command = \"{first}\"` and `args = {rest:?}`"
        );
    }
    if !program.contains('/') {
        return error.hint().into();
    }
    if Path::new(&*program).is_absolute() {
        return "correct the path, or install the server there".into();
    }
    format!(
        "it was looked for in {}, the directory that the server runs in: give its full path, or set `cwd` in the config file",
        plan.directory()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CommandLine, LinkOrigin};
    use mainstay_os::{census, identity};
    use mainstay_protocol::event::Detached;
    use mainstay_protocol::ids::LinkId;
    use mainstay_protocol::limits::Limits;
    use mainstay_protocol::policy::Policy;
    use mainstay_protocol::tier::Tier;
    use mainstay_store::paths::Paths;

    fn plan(argv: &[&str]) -> Plan {
        Plan {
            id: LinkId(7),
            name: "s".into(),
            command: CommandLine {
                argv: argv.iter().map(Into::into).collect(),
                env: Vec::new(),
                cwd: None,
            },
            limits: Limits::default(),
            policy: Policy::default(),
            watch: Vec::new(),
            cache: false,
            learns: false,
            lease: None,
            recording: None,
            notify: Vec::new(),
            wish: tier::Wish::Exactly(Tier::Subreaper),
            paths: Paths::nowhere(),
            origin: LinkOrigin {
                started_at: String::new(),
                realm: identity::realm().unwrap(),
                shim: identity::me().unwrap(),
                client: None,
                ancestors: Vec::new(),
                detached: Detached::Yes,
            },
            linger: None,
            close_sessions: |_| {},
            refused: None,
        }
    }

    #[test]
    fn a_command_that_is_not_found_has_a_hint_that_fits_it() {
        let hint = |program: &str| {
            let error = SpawnError {
                stage: Stage::Exec,
                errno: libc::ENOENT,
                path: program.into(),
                why_not: Vec::new(),
            };
            let mut plan = plan(&[program]);
            plan.command.cwd = Some("/srv".into());
            hint(&error, &plan)
        };
        assert_eq!(
            hint("npx -y foo"),
            "the command has spaces: write each word apart, `mainstay run -- npx -y foo`, or in a config file \
             `command = \"npx\"` and `args = [\"-y\", \"foo\"]`"
        );
        assert!(hint("./nope.sh").starts_with("it was looked for in /srv, "));
        assert!(hint("/nope.sh").starts_with("correct the path"));
        assert!(hint("nope").contains("PATH"));
    }

    #[test]
    fn without_ports_no_server_is_started() {
        let me = identity::me().unwrap();
        // No list of what is ready was begun in this thread, so a port to read from is refused.
        let word = format!("without-ports-{}", me.pid);
        let plan = plan(&["sh", "-c", "sleep 9; exit 0", &word]);
        let failure = start(&plan, Command::new(&plan, 1, None, me), me).err();
        let problem = failure.map(|failure| failure.problem).unwrap_or_default();
        assert!(problem.contains("no pipes for the server"), "{problem}");
        let children = census::children(me.pid).unwrap();
        let started = children
            .iter()
            .find(|&&pid| census::cmdline(pid).contains(&word));
        assert_eq!(started, None);
    }
}
