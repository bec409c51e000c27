//! `learn` opens each adopted server once. The first session of the client, in another directory, is then answered before the server is up.
//! guards: After `learn`, the first session of a client gets its tools before its server has started.

use std::ffi::OsString;
use std::fs;
use std::process::Output;

use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

use crate::support::configs::put;
use crate::support::play::{end, plain, touch};
use crate::support::scene::mainstay;

fn command(stage: &Stage, words: &[&str]) -> Output {
    let mut command = stage.command(mainstay());
    command.args(words).output().unwrap()
}

/// Adopts a server that waits for the file `gate`, in the config of this client.
fn adopt(stage: &Stage, client: &str, flags: &[&str]) {
    let gate = stage.path("gate");
    let words = plain(
        stage,
        &[&["--gate", gate.to_str().unwrap()], flags].concat(),
    );
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let entry =
        json!({ "command": words[0], "args": words[1..], "env": { "STAGE": "${NO_SUCH}" } });
    let config = json!({ "mcpServers": { "gated": entry } });
    put(stage.home(), client, config.to_string().as_bytes());
    let program = mainstay();
    let done = command(
        stage,
        &["adopt", "--yes", "--program", program.to_str().unwrap()],
    );
    assert!(done.status.success(), "{done:?}");
}

/// Starts the adopted server as the client does, in a directory of its own.
fn session(stage: &Stage, config: &str) -> Client {
    let config: Value = serde_json::from_slice(&fs::read(stage.path(config)).unwrap()).unwrap();
    let entry = &config["mcpServers"]["gated"];
    let args = entry["args"].as_array().unwrap().iter();
    let words = std::iter::once(&entry["command"]).chain(args);
    let words: Vec<OsString> = words.map(|word| word.as_str().unwrap().into()).collect();
    let project = stage.path("project");
    fs::create_dir_all(&project).unwrap();
    let env = [
        ("STAGE", "${NO_SUCH}"),
        ("CLAUDECODE", "1"),
        ("LANG", "C.UTF-8"),
    ];
    let start = Launch::new(stage, &words);
    start
        .with(|command| command.current_dir(&project).envs(env))
        .start()
}

fn open(client: &mut Client, version: &str) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": { "roots": {} },
        "clientInfo": { "name": "claude-code", "version": "2.1.325" },
    });
    client.wire.request("initialize", &params).unwrap()
}

fn initialized(client: &Client) {
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.wire.send(&line).unwrap();
}

/// VS Code asks the user for such a value. A server that is started with the text itself would learn or do the wrong thing.
#[test]
fn a_server_with_a_value_that_only_its_client_knows_is_not_started() {
    let stage = Stage::new();
    let started = stage.path("started");
    let entry = json!({ "command": "touch", "args": [&started], "env": { "TOKEN": "${input:notes-token}" } });
    let config = json!({ "servers": { "notes": entry } });
    put(stage.home(), "VS Code", config.to_string().as_bytes());
    let program = mainstay();
    let program = program.to_str().unwrap();
    let done = command(&stage, &["adopt", "--yes", "--program", program]);
    assert!(done.status.success(), "{done:?}");
    let learned = command(&stage, &["learn", "--json"]);
    assert_eq!(learned.status.code(), Some(1), "{learned:?}");
    let rows: Value = serde_json::from_slice(&learned.stdout).unwrap();
    assert_eq!(
        rows[0]["error"],
        "skipped: only VS Code can fill in ${input:notes-token}"
    );
    assert!(!started.exists());
}

#[test]
fn the_first_session_does_not_wait() {
    let stage = Stage::new();
    touch(&stage, "gate");
    adopt(&stage, "Claude Code", &["--legacy"]);
    let learned = command(&stage, &["learn", "--json"]);
    assert!(learned.status.success(), "{learned:?}");
    let rows: Value = serde_json::from_slice(&learned.stdout).unwrap();
    assert_eq!(rows[0]["server"], "gated");
    assert_eq!(rows[0]["clients"], json!(["Claude Code"]));
    assert_eq!(
        (&rows[0]["ok"], &rows[0]["era"]),
        (&json!(true), &json!("legacy"))
    );
    assert!(rows[0]["tools"].as_u64().unwrap() > 0, "{rows}");
    assert!(rows[0]["opened_ms"].is_u64(), "{rows}");
    fs::remove_file(stage.path("gate")).unwrap();

    let mut client = session(&stage, ".claude.json");
    let opened = open(&mut client, "2025-11-25");
    assert_eq!(opened["result"]["serverInfo"]["name"], "plain", "{opened}");
    initialized(&client);
    let tools = client.wire.request("tools/list", &json!({})).unwrap();
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert_eq!(rows[0]["tools"], tools.len());
    let call = client
        .wire
        .ask("tools/call", &json!({ "name": "pid" }))
        .unwrap();
    // Only now the server may start.
    touch(&stage, "gate");
    let answer = client.wire.answer(call).unwrap();
    assert!(
        answer["result"]["structuredContent"]["pid"].is_i64(),
        "{answer}"
    );
    end(client);
    stage.census.assert_empty();
}

/// Another protocol version may have another answer, so it is not answered from what was learned.
#[test]
fn another_protocol_version_waits_for_the_server() {
    let stage = Stage::new();
    touch(&stage, "gate");
    adopt(&stage, "Claude Code", &["--legacy"]);
    assert!(command(&stage, &["learn"]).status.success());
    let mut client = session(&stage, ".claude.json");
    let opened = open(&mut client, "2024-11-05");
    assert!(opened["result"].is_object(), "{opened}");
    assert!(stage.events("from_cache").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn the_modern_era_is_learned_too() {
    let stage = Stage::new();
    touch(&stage, "gate");
    adopt(&stage, "Claude Code", &[]);
    let learned = command(&stage, &["learn", "--json"]);
    let rows: Value = serde_json::from_slice(&learned.stdout).unwrap();
    assert_eq!(rows[0]["era"], "modern", "{learned:?}");
    stage.census.assert_empty();
}

#[test]
fn a_server_that_fails_is_named_with_the_reason() {
    let stage = Stage::new();
    adopt(&stage, "Cursor", &[]);
    let late = command(&stage, &["learn", "--timeout", "1s"]);
    assert_eq!(late.status.code(), Some(1));
    let said = String::from_utf8(late.stderr).unwrap();
    assert!(said.contains("1 of 1: opening gated …\n"), "{said}");
    assert!(said.contains("gated: no answer within 1s"), "{said}");
    stage.census.assert_empty();

    let config = json!({ "mcpServers": { "gone": { "command": "no-such-program", "args": [] } } });
    put(stage.home(), "Cursor", config.to_string().as_bytes());
    let program = mainstay();
    command(
        &stage,
        &["adopt", "--yes", "--program", program.to_str().unwrap()],
    );
    let failed = command(&stage, &["learn", "--json"]);
    assert_eq!(failed.status.code(), Some(1));
    let rows: Value = serde_json::from_slice(&failed.stdout).unwrap();
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.contains("no-such-program"), "{rows}");
    let unknown = command(&stage, &["learn", "gon"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(said.contains("did you mean `gone`?"), "{said}");
    stage.census.assert_empty();
}

#[test]
fn without_adopted_servers_there_is_nothing_to_learn() {
    let stage = Stage::new();
    let none = command(&stage, &["learn"]);
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(
        said.contains("hint: `mainstay adopt` sends them through it"),
        "{said}"
    );
}
