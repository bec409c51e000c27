//! Shared by the tests with real processes: a process of its own for each test, and small servers.
//!
//! A tree is every process below this one. So each test runs in its own copy of the test program, which is a
//! subreaper. At its end no process below it may be alive.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; each program uses its part"
)]

#[path = "../../../../testkit/src/afford.rs"]
mod afford;
pub mod keeper;
#[path = "../../../../testkit/src/skip.rs"]
pub mod skip;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mainstay_os::spawn::{OOM_RAISE, Plan, SpawnError, Spawned, spawn};
use mainstay_os::tier::{Choice, Wish, choose};
use mainstay_os::{census, identity};
use mainstay_protocol::ids::{LinkId, TAG_VARIABLE, Tag};
use mainstay_protocol::tier::Tier;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The full name of a test of the calling module, its crate first.
macro_rules! this_test {
    ($name:literal) => {
        concat!(module_path!(), "::", $name)
    };
}

/// A full name as `--exact` wants it: without the crate.
pub fn exact(name: &str) -> &str {
    name.split_once("::").map_or(name, |(_, within)| within)
}

/// Names the test that a copy of the test program runs.
pub const INNER: &str = "MAINSTAY_TEST_INNER";

/// A user without any rights, which need not exist.
const UNPRIVILEGED_UID: &str = "41007";

/// The program with which root becomes that user.
const SETPRIV: &str = "setpriv";

/// Runs the test in a process of its own; if we are root, a second time as a user without any rights. `name` is the
/// test's full name, as `this_test!` gives it.
pub fn alone(name: &str, body: impl FnOnce()) {
    if inner(name) {
        isolated(body);
        return;
    }
    let copied = Copied::new(name);
    for prefix in users() {
        passed(&copy(&[&prefix, &[copied.exe.clone()][..]].concat(), name));
    }
}

/// The same in a pid namespace of its own, if there may be one: the tested code looks at every process, and other
/// sweeps on this machine would look at ours.
#[expect(
    clippy::disallowed_methods,
    reason = "the test program starts a copy of itself, no server"
)]
pub fn secluded(name: &str, body: impl FnOnce()) {
    if inner(name) {
        isolated(body);
        return;
    }
    let copied = Copied::new(name);
    for prefix in users() {
        let mut unshare: Vec<PathBuf> =
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
                .map(PathBuf::from)
                .to_vec();
        if !prefix.is_empty() || !rustix::process::geteuid().is_root() {
            unshare.extend(["--user", "--map-current-user"].map(PathBuf::from));
        }
        let words = [&prefix[..], &unshare].concat();
        let able = Command::new(&words[0])
            .args(&words[1..])
            .arg("true")
            .output()
            .is_ok_and(|out| out.status.success());
        let words = if able { words } else { prefix };
        passed(&copy(&[&words, &[copied.exe.clone()][..]].concat(), name));
    }
}

/// What to put before a command: nothing for ourselves, and if we are root, also the words that change the user.
fn users() -> Vec<Vec<PathBuf>> {
    let mut users = vec![Vec::new()];
    if rustix::process::geteuid().is_root() {
        let words = [
            SETPRIV,
            "--reuid",
            UNPRIVILEGED_UID,
            "--regid",
            UNPRIVILEGED_UID,
            "--clear-groups",
        ];
        users.push(words.map(PathBuf::from).to_vec());
    }
    users
}

/// Runs one test of a copy of this program.
#[expect(
    clippy::disallowed_methods,
    reason = "the test program starts a copy of itself, no server"
)]
pub fn copy(words: &[PathBuf], name: &str) -> Output {
    Command::new(&words[0])
        .args(&words[1..])
        .args(["--exact", exact(name), "--nocapture", "--test-threads=1"])
        .env(INNER, name)
        .env(skip::LIST, skips_of(&words[0]))
        .current_dir("/")
        .output()
        .unwrap()
}

/// Where the copy records what it does not test. What only a user without rights cannot test, we test ourselves.
fn skips_of(program: &Path) -> PathBuf {
    let ours = || skip::list().filter(|_| program != Path::new(SETPRIV));
    ours().unwrap_or_else(|| "/dev/null".into())
}

/// A copy of this program that every user may execute, wherever the build is.
pub struct Copied {
    dir: PathBuf,
    pub exe: PathBuf,
}

impl Copied {
    #[expect(clippy::disallowed_methods, reason = "no server")]
    pub fn new(name: &str) -> Self {
        let name = exact(name).replace("::", "-");
        let dir = std::env::temp_dir().join(format!("mainstay-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        // By another process: a copy that we wrote ourselves is busy as long as a child of a parallel test, forked
        // meanwhile, has not executed yet.
        let ours = std::env::current_exe().unwrap();
        let exe = dir.join(ours.file_name().unwrap());
        let copied = Command::new("cp").arg(ours).arg(&exe).status().unwrap();
        assert!(copied.success());
        Self { dir, exe }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// Whether this process was started for that test.
pub fn inner(name: &str) -> bool {
    std::env::var(INNER).as_deref() == Ok(name)
}

/// Runs the test's own part as a subreaper, and then looks for processes that are left.
pub fn isolated(body: impl FnOnce()) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let kill_all = KillAllBelow;
    body();
    let left = alive_below();
    drop(kill_all);
    assert!(left.is_empty(), "processes were left behind: {left:?}");
}

fn alive_below() -> Vec<census::Stat> {
    let mut below = census::descendants(std::process::id() as i32);
    below.retain(|stat| !stat.dead());
    below
}

/// Kills all processes below us, so that a failed test leaves none either.
struct KillAllBelow;

impl Drop for KillAllBelow {
    fn drop(&mut self) {
        loop {
            let left = alive_below();
            if left.is_empty() {
                return;
            }
            for stat in left {
                if let Ok(handle) = identity::Handle::open(stat.who()) {
                    drop(handle.signal(rustix::process::Signal::KILL));
                }
            }
        }
    }
}

/// Asserts that a copy of the test program ran one test successfully.
pub fn passed(out: &Output) {
    let said = [&out.stdout[..], &out.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("1 passed"), "no test of that name: {said}");
}

/// While `body` runs, this process can open no descriptor with that number or above. Open descriptors stay open.
pub fn few_descriptors<T>(most: u64, body: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(most),
        ..before
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let done = body();
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

/// From now on this system call answers ENOSYS, as in many containers.
pub fn refuse(call: libc::c_long) {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ),
        op(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid while it is read, and applies to this thread and its children only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

/// The tag of a tree that this process owns.
pub fn tag() -> Tag {
    Tag {
        realm: identity::realm().unwrap(),
        owner: identity::me().unwrap(),
        link: LinkId(std::process::id()),
    }
}

/// The tiers that work on this machine (scopes have tests of their own). A missing tier is reported, and may be
/// missing only if the machine cannot provide it.
pub fn tiers() -> Vec<Tier> {
    [Tier::Subreaper, Tier::Cgroup, Tier::Pidns]
        .into_iter()
        .filter(|&tier| {
            let why_not = match choose(Wish::Exactly(tier), &tag()) {
                Err(why_not) => why_not,
                Ok(choice) => match Server::new(&["/bin/true"]).start_in(choice) {
                    Ok(mut running) => {
                        running.spawned.tree.kill(5_000, &mut |_, _, _| ());
                        return true;
                    }
                    Err(error) => error.why_not,
                },
            };
            match afford::affords(tier) {
                Ok(()) => panic!("tier {tier} is available here, but: {why_not:?}"),
                Err(why) => skip::skip(&format!("tier {tier}: {why}; {why_not:?}")),
            }
            false
        })
        .collect()
}

/// A server with its output.
pub struct Running {
    pub spawned: Spawned,
    pub stdin: OwnedFd,
    pub stdout: File,
}

impl Running {
    /// Reads until every process has closed the server's stdout.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until the server process has ended.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(
            self.spawned.tree.pidfd().unwrap(),
            PollFlags::IN,
        )];
        assert_eq!(poll(&mut fds, None), Ok(1));
    }

    /// Reads one line, byte by byte, so that nothing after it is taken.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0u8];
        while self.stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}

/// What to start.
pub struct Server {
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: Option<PathBuf>,
    pub tier: Tier,
}

impl Server {
    pub fn new(argv: &[&str]) -> Self {
        Self {
            argv: argv.iter().map(|arg| CString::new(*arg).unwrap()).collect(),
            env: vec![
                c"PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
                CString::new(format!("{TAG_VARIABLE}={}", tag())).unwrap(),
            ],
            cwd: None,
            tier: Tier::Subreaper,
        }
    }

    pub fn sh(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    pub fn python(script: &str) -> Self {
        Self::new(&["/usr/bin/env", "python3", "-c", script])
    }

    pub fn on(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    pub fn start(&self) -> Result<Running, SpawnError> {
        self.start_in(choose(Wish::Exactly(self.tier), &tag()).unwrap())
    }

    pub fn start_in(&self, choice: Choice) -> Result<Running, SpawnError> {
        let (server_in, stdin) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (stdout, server_out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let spawned = spawn(Plan {
            argv: &self.argv,
            env: &self.env,
            cwd: self.cwd.as_deref(),
            stdin: server_in.as_fd(),
            stdout: server_out.as_fd(),
            stderr: std::io::stderr().as_fd(),
            choice,
            oom_score_adj_raise: OOM_RAISE,
        })?;
        Ok(Running {
            spawned,
            stdin,
            stdout: stdout.into(),
        })
    }
}

/// A tree of `n` processes besides the server: a third plain, a third with sessions of their own, a third daemons.
/// All ignore SIGTERM and SIGHUP. Prints "ready" when all are there.
pub const SHAPES: &str = "
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
n = int(sys.argv[1])
r, w = os.pipe()
def rest():
    os.write(w, b'.')
    while True: signal.pause()
for i in range(n):
    if i % 3 == 2:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: rest()
            os._exit(0)
        os.wait()
    elif os.fork() == 0:
        if i % 3 == 1: os.setsid()
        rest()
got = 0
while got < n: got += len(os.read(r, 4096))
print('ready', flush=True)
while True: signal.pause()
";
