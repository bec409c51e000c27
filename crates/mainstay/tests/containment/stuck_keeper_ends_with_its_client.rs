//! A keeper that is stopped or hangs cannot act on the end of its client. Its guard sees that end too: it continues the keeper,
//! and replaces it if that does not help. A stopped keeper whose client lives is left alone.
//! guards: A stuck keeper does not keep a server alive after its client's end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use mainstay_protocol::ids::Identity;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::Stage;

use crate::support::scene::{self, Scene, argv, freeze, thaw};
use serde_json::json;

/// Starts a client with one server that ignores EOF. Returns the client and the server's keeper.
fn session(stage: &Stage, options: &[&str], plan: Plan) -> (Puppet, Identity) {
    let options = [&["--grace-eof", "300ms", "--grace-term", "300ms"], options].concat();
    let habits = ["--ignore-eof", "--setsid-child"];
    let puppet = Puppet::start(stage, plan, &argv(stage, &options, &habits));
    (puppet, stage.card().keeper.unwrap())
}

#[test]
fn a_stopped_keeper_is_continued() {
    let stage = Stage::new();
    let (puppet, keeper) = session(&stage, &[], Plan::default());
    freeze(keeper);
    puppet.kill();
    stage.census.assert_empty();
    // The keeper ended its server itself.
    assert_eq!(stage.events("teardown").len(), 1);
    assert_eq!(stage.events("keeper_lost").len(), 0);
}

/// The pipe does not hang up, because another process holds its other end.
#[test]
fn a_stopped_keeper_is_continued_also_if_the_pipe_has_leaked() {
    let stage = Stage::new();
    let plan = Plan {
        leak: Leak::Sibling,
        ..Plan::default()
    };
    let (puppet, keeper) = session(&stage, &[], plan);
    freeze(keeper);
    let sibling = puppet.sibling.unwrap();
    puppet.kill();
    stage.census.assert_empty();
    assert!(!mainstay_os::identity::alive(sibling));
}

#[test]
fn a_stopped_keeper_is_continued_by_a_side_guard_too() {
    let stage = Stage::new();
    let (puppet, keeper) = session(&stage, &[], Plan::default());
    killers::at_once(&[stage.card().guard.unwrap()]);
    stage.event("guard_lost");
    freeze(keeper);
    puppet.kill();
    stage.census.assert_empty();
    assert_eq!(stage.events("keeper_lost").len(), 0);
}

#[test]
fn a_stopped_keeper_is_continued_while_the_server_is_kept_warm() {
    let stage = Stage::new();
    let (puppet, keeper) = session(&stage, &["--linger", "60s"], Plan::default());
    killers::claude(puppet.shims[0]);
    stage.event("lingering");
    freeze(keeper);
    puppet.kill();
    stage.census.assert_empty();
    assert_eq!(stage.event("linger_ended")["why"], "client_gone");
}

/// A keeper held by a debugger does not run even after SIGCONT.
const DEBUGGER: &str = r#"
import ctypes, os, sys
pid, attach, wall = int(sys.argv[1]), 16, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(attach, pid, None, None) != 0:
    print(os.strerror(ctypes.get_errno()), flush=True)
    sys.exit()
os.waitpid(pid, wall)
print("held", flush=True)
while not os.WIFSIGNALED(os.waitpid(pid, wall)[1]):
    pass
"#;

#[expect(clippy::print_stderr, reason = "why it is not run")]
fn not_run(why: &str) {
    eprintln!("not run here: no debugger may attach ({why})");
}

#[test]
fn a_keeper_that_hangs_is_replaced() {
    let stage = Stage::new();
    let (puppet, keeper) = session(&stage, &["--kill-confirm", "1s"], Plan::default());
    let mut command = stage.command("python3");
    command.args(["-c", DEBUGGER, &keeper.pid.to_string()]);
    let mut debugger = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let stdout = debugger.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    if said.trim() == "held" {
        puppet.kill();
        // The debugger exits when the keeper was killed.
        debugger.wait().unwrap();
        let lost = stage.event("keeper_lost");
        assert_eq!(lost["pid"], keeper.pid, "{lost}");
    } else {
        not_run(said.trim());
        debugger.wait().unwrap();
        puppet.kill();
    }
    stage.census.assert_empty();
}

#[test]
fn a_stopped_keeper_whose_client_lives_loses_nothing() {
    let mut scene = Scene::open(&[], &[]);
    let server = scene.server(1);
    let keeper = scene.stage.card().keeper.unwrap();
    freeze(keeper);
    let id = scene.ask_call("pid", &json!({}));
    thaw(keeper);
    let answers = scene.read_answers(&[id]);
    let answer = scene::content(&answers[0]);
    assert_eq!(answer["pid"], server.pid);
    scene.finish();
}
