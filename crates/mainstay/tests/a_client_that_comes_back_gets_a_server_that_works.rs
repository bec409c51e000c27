//! A user who reconnects because the server hangs, or because its code was edited, gets what the client gives without mainstay:
//! a fresh server. A server that answers and is what would be started now is handed over with all that it has in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::ffi::OsString;
use std::fs;

use mainstay_os::identity::{self, Handle};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use scene::{Scene, argv, freeze, mainstay};
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// The client kills its shim and starts the same server again.
fn reconnect(scene: &mut Scene, words: &[OsString]) {
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.state("lingering");
    scene.client = Client::open(&scene.stage, words);
}

/// What hangs the server; the client that comes back must have another one.
fn hangs(habits: &[&str], hang: impl FnOnce(&mut Scene)) {
    let mut scene = Scene::open(&KEPT, habits);
    let words = argv(&scene.stage, &KEPT, habits);
    let old = scene.server(1);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    hang(&mut scene);
    reconnect(&mut scene, &words);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1, "a new process");
    let told = scene.stage.event("reattached");
    assert_eq!(told["replaced"]["silent"]["ms"], 1_000, "{told}");
    assert!(!identity::alive(old), "the old one is gone");
    let said = ["initialize", "notifications/initialized", "tools/call"];
    assert_eq!(scene.heard()[..3], said, "what this client said");
    // It does not read, so that it is sent no EOF first.
    assert_eq!(scene.stage.event("teardown")["rungs"][0], "term");
    assert_eq!(scene.stage.card().json["generation"], 2);
    scene.finish();
}

#[test]
fn after_a_server_that_was_stopped() {
    hangs(&[], |scene| freeze(scene.server(1)));
}

/// What the client that is gone had sent is not for the next server: neither what the old one left in its pipe nor what did not
/// fit into that.
#[test]
fn after_a_server_that_left_something_unread() {
    // A wide pipe holds 128 KiB.
    for lines in [1, 130] {
        hangs(&[], |scene| {
            scene.freeze(1);
            let method = "notifications/of_the_former_client";
            let params = json!({"pad": "x".repeat(1_000)});
            let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
            let notes = format!("{note}\n").repeat(lines);
            scene.client.wire.send_bytes(notes.as_bytes()).unwrap();
            scene.taken();
            let (sent, unread) = (notes.len() as u64, scene.unread(1));
            assert_eq!(unread < sent, lines > 1, "{unread} of {sent} bytes");
        });
    }
}

/// It reads on, and answers nothing.
#[test]
fn after_a_server_that_is_stuck_in_a_tool() {
    hangs(&[], |scene| {
        scene.mute();
        scene.ask_call("pid", &json!({}));
    });
}

/// In the modern era the first request opens the session, and is answered by the next generation.
#[test]
fn after_a_server_that_hangs_in_the_modern_era() {
    let habits = ["--modern"];
    let mut scene = Scene::start(&KEPT, &habits);
    let words = argv(&scene.stage, &KEPT, &habits);
    let ask = |scene: &mut Scene| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let params = json!({"name": "pid", "arguments": {}, "_meta": meta});
        let answer = scene.client.wire.request("tools/call", &params).unwrap();
        scene::content(&answer)["calls"].clone()
    };
    assert_eq!(ask(&mut scene), 1);
    freeze(scene.server(1));
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.state("lingering");
    scene.client = mainstay_testkit::client::Launch::new(&scene.stage, &words).start();
    assert_eq!(ask(&mut scene), 1, "a new process");
    assert!(scene.stage.event("reattached")["replaced"]["silent"].is_object());
    scene.finish();
}

/// A server of two files, which says how both were written when it was started.
const SERVER: &str = r#"
import json, os, sys
import helper
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "edited", "version": "1"}}
    if asked["method"] == "tools/call":
        result = {"content": [], "structuredContent": {"pid": os.getpid(), "says": ["one", helper.SAYS]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

fn edit(stage: &Stage, name: &str, text: &str) {
    let path = stage.path("app").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Waits until a file that is written now is newer than what runs: files are stamped by the kernel's tick.
fn tick(stage: &Stage) {
    let stamp = |name: &str| {
        let path = stage.path(name);
        fs::write(&path, "x").unwrap();
        fs::metadata(&path).unwrap().modified().unwrap()
    };
    let before = stamp("tick");
    until("the next tick", || (stamp("tock") > before).then_some(()));
}

/// What is written between two sessions, and what the second one then hears.
fn after_an_edit(edits: &[(&str, &str)], says: &Value, fresh: bool) {
    let stage = Stage::new();
    edit(&stage, "server.py", SERVER);
    edit(&stage, "helper.py", "SAYS = 'one'\n");
    tick(&stage);
    let script = stage.path("app").join("server.py");
    let server = vec!["python3".into(), "-B".into(), script.into()];
    let words = run(
        mainstay(),
        &[&["--name", "edited"], &KEPT[..]].concat(),
        server,
    );
    let client = Client::open(&stage, &words);
    let mut scene = Scene { client, stage };
    let before = scene.call("say", &json!({}));
    assert_eq!(before["says"], json!(["one", "one"]));
    tick(&scene.stage);
    for (name, text) in edits {
        edit(&scene.stage, name, text);
    }
    reconnect(&mut scene, &words);
    let after = scene.call("say", &json!({}));
    assert_eq!(after["says"], *says);
    assert_eq!(after["pid"] != before["pid"], fresh, "{before} {after}");
    let told = scene.stage.event("reattached");
    assert_eq!(told["replaced"]["changed"].is_object(), fresh, "{told}");
    scene.finish();
}

#[test]
fn after_an_edit_of_the_script() {
    let edited = SERVER.replace("\"one\", helper", "\"two\", helper");
    after_an_edit(&[("server.py", &edited)], &json!(["two", "one"]), true);
}

#[test]
fn after_an_edit_of_an_imported_module() {
    after_an_edit(
        &[("helper.py", "SAYS = 'two'\n")],
        &json!(["one", "two"]),
        true,
    );
}

#[test]
fn what_the_server_writes_is_no_edit() {
    let written = [
        ("server.log", "x"),
        ("state.db", "x"),
        ("__pycache__/x.pyc", "x"),
    ];
    after_an_edit(&written, &json!(["one", "one"]), false);
}
