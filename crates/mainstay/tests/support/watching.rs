//! Shared by the tests of `watch` and `trace-signals`: a command whose lines are read as they come.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::skip::skip;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;

/// Where the trace file system is usually mounted.
const TRACING: &str = "/sys/kernel/tracing";

/// A command that runs until it is told to end. It also ends by itself after a while, so that no wait hangs for ever.
pub struct Watching {
    pub who: Identity,
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
    pub seen: Vec<Value>,
}

pub fn mainstay() -> PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

/// Starts `mainstay watch` with these words.
pub fn watch(stage: &Stage, words: &[&str]) -> Watching {
    let mut command = stage.command(mainstay());
    command.args(["watch", "--json"]).args(words);
    if !words.contains(&"--once") {
        command.args(["--for", "5m"]);
    }
    Watching::start(stage, &mut command)
}

/// Starts `mainstay trace-signals` with these words. Returns none where signals cannot be traced, after the command has said why.
pub fn trace(stage: &Stage, words: &[&str]) -> Option<Watching> {
    let mut command = stage.command(mainstay());
    command
        .args(["trace-signals", "--json", "--for", "5m"])
        .args(words);
    begun(Watching::start(stage, &mut command))
}

/// Waits until a tracer reports that it traces.
pub fn begun(mut tracer: Watching) -> Option<Watching> {
    let first = tracer.talk();
    if first.starts_with("tracing ") {
        return Some(tracer);
    }
    assert!(
        first.starts_with("error: cannot trace signals: "),
        "it says why it cannot: {first:?}"
    );
    let hint = tracer.talk();
    assert!(hint.starts_with("hint: "), "{hint:?}");
    assert_eq!(tracer.wait().code(), Some(125));
    skip(first.trim_start_matches("error: "));
    None
}

impl Watching {
    pub fn start(stage: &Stage, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let who = identity::of(child.id() as i32).unwrap();
        stage.census.spare(who);
        Self {
            who,
            out: BufReader::new(child.stdout.take().unwrap()),
            err: BufReader::new(child.stderr.take().unwrap()),
            child,
            seen: Vec::new(),
        }
    }

    /// The next line on stdout, or none at its end.
    pub fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        let value: Value = serde_json::from_str(&line).unwrap();
        self.seen.push(value.clone());
        Some(value)
    }

    /// The next line that fulfils a condition.
    pub fn that(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Some(line) = self.line() else {
                panic!("it ended without {what}: {:#?}", self.seen)
            };
            if holds(&line) {
                return line;
            }
        }
    }

    /// The next line of this kind about this process.
    pub fn of(&mut self, what: &str, pid: i32) -> Value {
        self.that(&format!("{what} {pid}"), |line| {
            line["what"] == what && line["pid"] == pid
        })
    }

    /// The next line on stderr.
    pub fn talk(&mut self) -> String {
        let mut line = String::new();
        self.err.read_line(&mut line).unwrap();
        line
    }

    pub fn signal(&self, signal: Signal) {
        Handle::open(self.who).unwrap().signal(signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Interrupts it, asserts that it ends with success, and returns the rest of stdout.
    pub fn interrupt(mut self) -> Vec<Value> {
        self.signal(Signal::INT);
        while self.line().is_some() {}
        assert_eq!(self.wait().code(), Some(0));
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends a signal through a program of this name that exits at once, like a cleanup script.
pub fn send_by(stage: &Stage, name: &str, signal: &str, pid: i32) {
    let mut sender = stage
        .command("sh")
        .arg0(name)
        .args(["-c", &format!("kill -{signal} {pid}")])
        .spawn()
        .unwrap();
    assert!(sender.wait().unwrap().success());
}

pub fn words(all: &[&str]) -> Vec<OsString> {
    all.iter().map(Into::into).collect()
}

/// The trace file system as it is mounted on this machine. If it is not mounted, the view of a child of ours that has mounted it
/// for itself and ends with us.
#[expect(clippy::disallowed_methods, reason = "no server")]
pub fn tracing() -> PathBuf {
    static SEER: OnceLock<Child> = OnceLock::new();
    if Path::new(TRACING).join("events").exists() {
        return TRACING.into();
    }
    let seer = SEER.get_or_init(|| {
        let script = format!("mount -t tracefs none {TRACING} && echo mounted && read nothing");
        let mut seer = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = seer.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        assert_eq!(said, "mounted\n");
        seer
    });
    PathBuf::from(format!("/proc/{}/root{TRACING}", seer.id()))
}

/// The trace instance of a tracer.
pub fn instance(who: Identity) -> PathBuf {
    let end = format!("-{}-{}", who.pid, who.start);
    let instances = tracing().join("instances");
    let all = std::fs::read_dir(instances).unwrap().flatten();
    let mut ours = all.filter(|entry| entry.file_name().to_string_lossy().ends_with(&end));
    ours.next()
        .unwrap_or_else(|| panic!("no instance of {who}"))
        .path()
}

/// Waits until a path does not exist any more.
pub fn gone(path: &std::path::Path) {
    until(&format!("{} is gone", path.display()), || {
        (!path.exists()).then_some(())
    });
}
