//! A user reconnects because the server hangs or because its code was edited. As without mainstay, the client gets a fresh
//! server. A server that answers and whose code is unchanged is handed over with all its memory.
//! guards: A reconnecting client gets the warm server only if that server answers and its code is unchanged.

use std::ffi::OsString;
use std::fs;

use crate::support::scene::{self, Scene, argv, freeze, mainstay};
use mainstay_os::identity::{self, Handle};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// Kills the client's shim and starts the same server again.
fn reconnect(scene: &mut Scene, words: &[OsString]) {
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.state("lingering");
    scene.client = Client::open(&scene.stage, words);
}

/// Makes the server hang and asserts that the client that comes back gets another server.
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
    // The server does not read, so the ladder skips EOF.
    assert_eq!(scene.stage.event("teardown")["rungs"][0], "term");
    assert_eq!(scene.stage.card().json["generation"], 2);
    scene.finish();
}

#[test]
fn a_stopped_server_is_replaced_on_reconnect() {
    hangs(&[], |scene| freeze(scene.server(1)));
}

/// Lines that the earlier client sent must not reach the next server: neither those left in the old server's pipe nor those that
/// did not fit into it.
#[test]
fn a_server_that_stopped_reading_is_replaced_on_reconnect() {
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

/// The server reads on, but answers nothing.
#[test]
fn a_server_stuck_in_a_tool_is_replaced_on_reconnect() {
    hangs(&[], |scene| {
        scene.mute();
        scene.ask_call("pid", &json!({}));
    });
}

/// In the modern era the first request opens the session, and the next generation answers it.
#[test]
fn a_hanging_modern_server_is_replaced_on_reconnect() {
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

/// A server of two files. It reports the text of both as they were when it started.
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

/// Waits until a file written now gets a newer timestamp than the running code, because the kernel stamps files by its tick.
fn tick(stage: &Stage) {
    let stamp = |name: &str| {
        let path = stage.path(name);
        fs::write(&path, "x").unwrap();
        fs::metadata(&path).unwrap().modified().unwrap()
    };
    let before = stamp("tick");
    until("the next tick", || (stamp("tock") > before).then_some(()));
}

/// Makes the edits between two sessions and asserts what the second session gets.
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
fn an_edited_script_gives_a_new_server_on_reconnect() {
    let edited = SERVER.replace("\"one\", helper", "\"two\", helper");
    after_an_edit(&[("server.py", &edited)], &json!(["two", "one"]), true);
}

#[test]
fn an_edited_module_gives_a_new_server_on_reconnect() {
    after_an_edit(
        &[("helper.py", "SAYS = 'two'\n")],
        &json!(["one", "two"]),
        true,
    );
}

#[test]
fn files_that_the_server_writes_do_not_count_as_an_edit() {
    let written = [
        ("server.log", "x"),
        ("state.db", "x"),
        ("__pycache__/x.pyc", "x"),
    ];
    after_an_edit(&written, &json!(["one", "one"]), false);
}
