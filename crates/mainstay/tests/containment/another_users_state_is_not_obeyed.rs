//! HOME belongs to another user (`sudo` without `-H`, a service with a borrowed HOME) or cannot be used. Nothing in it is obeyed
//! or changed, the server runs, and the events are stored elsewhere. Strange files in the state directory do not make us hang.
//! guards: Nothing in another user's state directory is read, obeyed or changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::census::MARK_VARIABLE;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

/// A user that owns nothing else.
const STRANGER: u32 = 65_534;

fn mainstay() -> PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

/// True without root: then the test can neither act as another user nor create files for one.
fn skipped() -> bool {
    !mainstay_testkit::skip::root_or_skip("only root can play two users")
}

/// The environment of a command: HOME, and where the state can be kept instead.
#[derive(Clone)]
struct Around {
    home: PathBuf,
    runtime: PathBuf,
    temp: PathBuf,
    uid: Option<u32>,
}

impl Around {
    /// With this HOME, no runtime directory, and a temporary directory for this test only.
    fn new(stage: &Stage, home: impl Into<PathBuf>) -> Self {
        let temp = stage.path("temp");
        fs::create_dir_all(&temp).unwrap();
        fs::set_permissions(&temp, fs::Permissions::from_mode(0o1777)).unwrap();
        Self {
            home: home.into(),
            runtime: "/nonexistent".into(),
            temp,
            uid: None,
        }
    }

    fn change<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("TMPDIR", &self.temp);
        match self.uid {
            Some(uid) => command.uid(uid).gid(uid),
            None => command,
        }
    }

    fn client(&self, stage: &Stage, habits: &[&str]) -> Client {
        let argv = run(mainstay(), &["--name", "demo"], stage.unruly(habits));
        let launch = Launch::new(stage, &argv).with(|command| self.change(command));
        let mut client = launch.start();
        client.wire.initialize().unwrap();
        client
    }

    fn mainstay(&self, stage: &Stage, words: &[&str]) -> Output {
        let mut command = stage.command(mainstay());
        self.change(command.args(words)).output().unwrap()
    }

    /// The events that `mainstay events` shows with this environment.
    fn events(&self, stage: &Stage) -> Vec<Value> {
        let output = self.mainstay(stage, &["events", "--json"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Runs a whole session and asserts that its events are stored in this place. Returns stderr.
fn session(stage: &Stage, around: &Around, place: &Path) -> String {
    let mut client = around.client(stage, &[]);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    assert!(client.finish().0.success());
    stage.census.assert_empty();
    let told = around.events(stage);
    let start = told.iter().any(|event| event["event"] == "start");
    assert!(start, "{told:?}");
    let owner = around.uid.unwrap_or(rustix::process::geteuid().as_raw());
    let found = fs::symlink_metadata(place).unwrap();
    assert!(found.is_dir());
    assert_eq!((found.uid(), found.mode() & 0o777), (owner, 0o700));
    client.stderr_text()
}

/// Every file below a directory, with owner and mode.
fn inventory(directory: &Path) -> Vec<(PathBuf, u32, u32)> {
    let mut found = Vec::new();
    let mut rest = vec![directory.to_path_buf()];
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            rest.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found.push((path, meta.uid(), meta.mode()));
    }
    found.sort();
    found
}

fn give_away(directory: &Path, uid: u32) {
    for (path, ..) in inventory(directory) {
        std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    }
}

/// Makes a state directory with a dead link. Its notes name commands to run, and its members name a process to kill.
fn trap(home: &Path, fired: &Path, victim: Identity) {
    let me = identity::me().unwrap();
    let link = state_dir(home).join("run/00000007");
    fs::create_dir_all(&link).unwrap();
    let realm = identity::realm().unwrap();
    let seen = json!({"pid": 999_999, "start": 1, "comm": "x"});
    let card = json!({
        "v": 1, "id": "00000007", "name": "x", "argv": ["x"], "cwd": "/", "state": "ready", "generation": 1,
        "started_at": "2026-11-15T22:31:10.000Z", "realm": realm, "shim": seen, "guard": seen, "keeper": seen,
        "server": {"pid": victim.pid, "start": victim.start, "comm": "x"}, "client": null, "tier": null,
        "why_not": [], "leaf": null, "detached": "yes",
    });
    let members = json!([{"pid": victim.pid, "start": victim.start}]);
    fs::write(link.join("card.json"), card.to_string()).unwrap();
    fs::write(link.join("members.json"), members.to_string()).unwrap();
    fs::write(link.join("lock"), "").unwrap();
    fs::write(link.join("cid"), "4f5e\n").unwrap();
    let script = format!("echo \"$@\" >> '{}'", fired.display());
    let words = ["/bin/sh", "-c", &script].map(|word| json!({"Unix": word.as_bytes()}));
    let engines = [json!(words), json!("/bin/sh"), json!("docker")];
    for (number, engine) in (1..).zip(engines) {
        let note = json!({
            "owner": me, "engine": engine, "options": [], "directory": {"Unix": b"/"}, "env": [],
            "cidfile": {"Unix": link.join("cid").to_str().unwrap().as_bytes()},
        });
        fs::write(
            link.join(format!("container-{number}.json")),
            note.to_string(),
        )
        .unwrap();
    }
}

#[test]
fn root_obeys_nothing_in_the_home_of_another_user() {
    if skipped() {
        return;
    }
    let stage = Stage::new();
    let (home, fired) = (stage.path("theirs"), stage.path("fired"));
    fs::create_dir(&home).unwrap();
    let mut victim = Launch::new(&stage, &["sleep".into(), "1000".into()])
        .with(|command| command.env_remove(MARK_VARIABLE))
        .start();
    trap(&home, &fired, victim.who);
    let config = home.join(".config/mainstay/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[server.demo]\nenv = { THEIRS = \"1\" }\n").unwrap();
    give_away(&home, STRANGER);
    let before = inventory(&home);

    let around = Around::new(&stage, &home);
    let place = around.temp.join("mainstay-0");
    let mut client = around.client(&stage, &[]);
    let theirs = client.wire.call("env", &json!({})).unwrap();
    assert!(!theirs.to_string().contains("THEIRS"), "{theirs}");
    assert!(client.finish().0.success());
    let told = client.stderr_text();
    let home_told = format!(
        "HOME is {}, which belongs to uid {STRANGER}, but this is uid 0",
        home.display()
    );
    assert!(told.contains(&home_told), "{told}");
    assert!(told.contains(place.to_str().unwrap()), "{told}");
    session(&stage, &around, &place);
    for words in [
        &["ps"][..],
        &["stop", "--all"],
        &["sessions", "close"],
        &["lease", "list"],
    ] {
        let output = around.mainstay(&stage, words);
        assert!(
            output.status.code().is_some_and(|code| code <= 100),
            "{output:?}"
        );
    }

    assert!(!fired.exists(), "{:?}", fs::read_to_string(&fired));
    assert!(victim.runs(), "a member of their link was killed");
    assert_eq!(inventory(&home), before);
    killers::at_once(&[victim.who]);
    victim.wait();
    stage.census.assert_empty();
}

#[test]
fn our_own_trap_ends_the_process_but_runs_no_command() {
    let stage = Stage::new();
    let fired = stage.path("fired");
    let mut victim = Launch::new(&stage, &["sleep".into(), "1000".into()]).start();
    trap(stage.home(), &fired, victim.who);
    let link = state_dir(stage.home()).join("run/00000007");
    // An engine that is not installed cannot confirm that its container is gone, so that note would stay.
    fs::remove_file(link.join("container-3.json")).unwrap();
    let mut client = Client::open(&stage, &run(mainstay(), &[], stage.unruly::<&str>(&[])));
    // The control: in our own state directory, a link whose owners are dead is swept.
    victim.wait();
    until("the dead link's directory is swept", || {
        (!link.exists()).then_some(())
    });
    assert!(client.finish().0.success());
    assert!(!fired.exists(), "{:?}", fs::read_to_string(&fired));
    stage.census.assert_empty();
}

#[test]
fn a_symlink_in_place_of_the_state_directory_is_not_followed() {
    let stage = Stage::new();
    let target = stage.path("target");
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
    let home = stage.path("ours");
    fs::create_dir_all(state_dir(&home).parent().unwrap()).unwrap();
    symlink(&target, state_dir(&home)).unwrap();
    let before = inventory(&target);
    let around = Around::new(&stage, &home);
    let uid = rustix::process::geteuid().as_raw();
    let told = session(
        &stage,
        &around,
        &around.temp.join(format!("mainstay-{uid}")),
    );
    assert!(told.contains("is not a directory"), "{told}");
    assert_eq!(inventory(&target), before);
}

#[test]
fn with_a_home_that_is_no_directory_events_go_to_the_temporary_directory() {
    let stage = Stage::new();
    let around = Around::new(&stage, "/dev/null");
    let uid = rustix::process::geteuid().as_raw();
    let place = around.temp.join(format!("mainstay-{uid}"));
    let told = session(&stage, &around, &place);
    let line = format!(
        "warning: events and links are kept in {}: HOME is /dev/null, which is not a directory\n",
        place.display()
    );
    assert!(told.contains(&line), "{told}");
    let doctor = around.mainstay(&stage, &["doctor"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("HOME is /dev/null"), "{doctor}");
}

#[test]
fn with_a_read_only_home_events_go_to_the_runtime_directory() {
    if skipped() {
        return;
    }
    let stage = Stage::new();
    let home = stage.path("roots");
    fs::create_dir(&home).unwrap();
    let runtime = stage.path("runtime");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(STRANGER), None).unwrap();
    let mut around = Around {
        runtime: runtime.clone(),
        uid: Some(STRANGER),
        ..Around::new(&stage, &home)
    };
    // Other users can read this directory, so it is not used.
    let told = session(
        &stage,
        &around,
        &around.temp.join(format!("mainstay-{STRANGER}")),
    );
    assert!(
        told.contains("cannot be written to: permission denied"),
        "{told}"
    );
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
    session(&stage, &around, &runtime.join("mainstay"));
    // A directory that another user made in the temporary directory is not used.
    around.runtime = "/nonexistent".into();
    around.temp = stage.path("other-temp");
    fs::create_dir_all(around.temp.join(format!("mainstay-{STRANGER}"))).unwrap();
    fs::set_permissions(&around.temp, fs::Permissions::from_mode(0o1777)).unwrap();
    let before = inventory(&around.temp);
    let mut client = around.client(&stage, &[]);
    assert!(client.finish().0.success());
    assert_eq!(inventory(&around.temp), before);
    assert_eq!(inventory(&home).len(), 1);
    stage.census.assert_empty();
}

#[test]
fn strange_files_in_the_state_directory_hang_nothing() {
    const STRANGE: [&str; 13] = [
        "run/00000007/card.json",
        "run/00000008/lock",
        "run/00000009/members.json",
        "run/0000000a/container-1.json",
        "run/0000000b",
        "lease/job/term.json",
        "lease/late/ended.json",
        "sessions/0000000000000001.json",
        "sessions/0000000000000002.opening",
        "sessions/0000000000000001.tried",
        "debts/0000000000000001.json",
        "events/2026-11-15.jsonl",
        "traced/1-1",
    ];
    let stage = Stage::new();
    let state = state_dir(stage.home());
    for name in STRANGE {
        let path = state.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    }
    let around = Around::new(&stage, stage.home());
    session(&stage, &around, &state);
    for words in [
        &["ps"][..],
        &["ps", "--json"],
        &["stop", "--all"],
        &["restart", "--all"],
        &["events"],
        &["logs", "unruly"],
        &["why"],
        &["sessions"],
        &["sessions", "close"],
        &["lease", "list"],
        &["lease", "close", "job"],
        &["doctor"],
        &["cache", "list"],
        &["cache", "clear"],
    ] {
        let output = around.mainstay(&stage, words);
        assert!(output.status.code().is_some(), "{words:?}: {output:?}");
    }
    stage.census.assert_empty();
}

#[test]
fn files_that_are_too_large_are_not_read() {
    let stage = Stage::new();
    let state = state_dir(stage.home());
    for name in [
        "run/00000007/card.json",
        "run/00000007/members.json",
        "sessions/0000000000000001.json",
    ] {
        let path = state.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Sparse: larger than the memory of most machines.
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    }
    let around = Around::new(&stage, stage.home());
    session(&stage, &around, &state);
    let sessions = around.mainstay(&stage, &["sessions"]);
    let text = String::from_utf8(sessions.stdout).unwrap();
    assert!(text.contains("larger than"), "{text}");
}
