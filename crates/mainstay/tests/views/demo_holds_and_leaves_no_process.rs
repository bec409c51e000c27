//! `mainstay demo` on a fresh machine: every claim holds, the output fits, and the demo leaves nothing.
//! guards: The demo leaves no process and no file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use serde_json::Value;

#[test]
fn every_scene_of_the_demo_is_printed_as_json() {
    let stage = Stage::new();
    let output = finish(&mut demo(&stage, &["--json"]));
    let scenes = scenes(&output);
    let names: Vec<&str> = scenes
        .iter()
        .map(|scene| scene["scene"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "client_killed",
            "server_killed",
            "keeper_killed",
            "lease_closed",
            "cannot_start",
            "unasked_signal",
            "http_session",
            "config_adopted",
            "orphan_reaped",
            "nothing_left"
        ]
    );
    for scene in &scenes {
        assert_eq!(scene["held"], true, "{scene}");
        assert_eq!(scene["left"], Value::Array(Vec::new()), "{scene}");
    }
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );

    // Without mainstay, the four helpers of each server stay, and so does the one server that ignores EOF.
    let killed = &scenes[0]["facts"];
    assert_eq!(
        (&killed["bare_left"], &killed["kept_left"]),
        (&13.into(), &0.into())
    );
    // A death in the middle of a call: the second generation knows the state of the first.
    let (bare, kept) = (&scenes[1]["facts"]["bare"], &scenes[1]["facts"]["kept"]);
    assert_eq!(
        (&bare["answers_in_flight"], &bare["left"]),
        (&0.into(), &4.into())
    );
    assert_eq!(
        (&kept["answers_in_flight"], &kept["left"]),
        (&1.into(), &0.into())
    );
    for key in ["level", "subscriptions"] {
        assert_eq!(kept["after"][key], kept["before"][key], "{kept}");
    }
    assert_eq!(kept["after"]["level"], "warning");
    assert_eq!(kept["after"]["subscriptions"].as_array().unwrap().len(), 2);
    // A session ends while its host lives on.
    let lease = &scenes[3]["facts"];
    assert_eq!(
        (&lease["bare"]["left"], &lease["kept"]["left"]),
        (&5.into(), &0.into())
    );
    // A command that does not exist is not tried again. A server that dies in its opening is.
    let starts: Vec<_> = scenes[4]["facts"]["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["starts"].clone())
        .collect();
    assert_eq!(starts, [0, 3]);
    let mut processes = Vec::new();
    identities(&scenes[0], &mut processes);
    identities(&scenes[1], &mut processes);
    identities(&scenes[2], &mut processes);
    identities(&scenes[3], &mut processes);
    let living: Vec<&Identity> = processes
        .iter()
        .filter(|who| identity::alive(**who))
        .collect();
    assert!(
        processes.len() >= 2 * 15 + 2 * 5 + 5 + 2 + 2 * 5,
        "{}",
        processes.len()
    );
    assert!(living.is_empty(), "{living:?}");
    assert_untouched(&stage);
}

#[test]
fn the_demo_is_plain_text_in_a_pipe() {
    let stage = Stage::new();
    let output = finish(&mut demo(&stage, &[]));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "4 of 5 left alive",
        "5 of 5 left alive",
        "0 left after ",
        "never answered",
        "by generation 2 after ",
        "back: warning",
        "back: 2 of 2",
        "ended (SIGKILL) while handling tools/call; it is started",
        "`mainstay why",
        "generation 2 answered",
        "never started, exit code 127",
        "started 3 times, exit code 1",
        "found: weather-mcp; install it",
        "WEATHER_API_KEY is not set",
        "after the session     5 of 5 left alive       0 left",
        "`mainstay lease close job-17` returned after ",
        "the same process answered, ",
        "went on with the same server",
        "its session was closed by a DELETE",
        "it stays open, noted on disk",
        "the file has its old bytes",
        "all 9 held in ",
    ] {
        assert!(text.contains(words), "`{words}` is missing:\n{text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_untouched(&stage);
}

#[test]
fn the_demo_changes_no_config_of_the_user() {
    let stage = Stage::new();
    let real = stage.path("real");
    fs::create_dir(&real).unwrap();
    let adopted = format!(
        r#"{{"mcpServers": {{"notes": {{"command": "{}", "args": ["run", "--name", "notes", "--", "true"]}}}}}}"#,
        program().display()
    );
    let bare = r#"{"mcpServers": {"notes": {"command": "true", "args": []}}}"#;
    let files = [
        (".claude.json", bare),
        ("mcp-config.json", &adopted),
        (
            "Code/User/mcp.json",
            &adopted.replace("mcpServers", "servers"),
        ),
        (
            "config.toml",
            "[mcp_servers.notes]\ncommand = \"true\"\nargs = []\n",
        ),
    ];
    for (name, text) in &files {
        fs::create_dir_all(real.join(name).parent().unwrap()).unwrap();
        fs::write(real.join(name), text).unwrap();
    }
    let mut command = stage.command(program());
    command.arg("demo");
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "COPILOT_HOME",
        "CLINE_DATA_DIR",
        "OPENCODE_CONFIG_DIR",
        "HERMES_HOME",
    ] {
        command.env(variable, &real);
    }
    let output = finish(with_own_temp(&stage, &mut command));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for (name, before) in &files {
        let after = fs::read_to_string(real.join(name)).unwrap();
        assert_eq!(after, *before, "{name}");
    }
    assert_eq!(list(&real).len(), files.len());
}

#[test]
fn a_scene_of_the_demo_that_cannot_run_has_not_held() {
    let stage = Stage::new();
    let mut shell = stage.command("sh");
    let script = "ulimit -n 10; exec \"$0\" demo --json";
    shell.args(["-c", script]).arg(program());
    let output = finish(with_own_temp(&stage, &mut shell));
    let scenes = scenes(&output);
    assert_eq!(scenes[0]["held"], false);
    assert!(scenes[0]["problem"].is_string(), "{}", scenes[0]);
    assert_eq!(scenes.last().unwrap()["held"], true, "{scenes:?}");
    assert_eq!(output.status.code(), Some(1));
    assert_untouched(&stage);
}

#[test]
fn the_demo_reports_an_unusable_temporary_directory() {
    let stage = Stage::new();
    let mut command = demo(&stage, &[]);
    let output = finish(command.env("TMPDIR", stage.path("gone")));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.starts_with("error: cannot make a directory in "),
        "{told}"
    );
    assert!(told.contains("\nhint: set TMPDIR to "), "{told}");
    assert_eq!(output.status.code(), Some(1));
}

fn program() -> std::path::PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

fn demo(stage: &Stage, options: &[&str]) -> Command {
    let mut command = stage.command(program());
    command.arg("demo").args(options);
    with_own_temp(stage, &mut command);
    command
}

/// Sets a temporary directory of our own, so that the test sees what the demo leaves there.
fn with_own_temp<'c>(stage: &Stage, command: &'c mut Command) -> &'c mut Command {
    let temp = stage.path("tmp");
    fs::create_dir(&temp).unwrap();
    command.env("TMPDIR", temp)
}

fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn scenes(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Collects all processes that the facts name.
fn identities(value: &Value, found: &mut Vec<Identity>) {
    match value {
        Value::Object(map) => {
            if let Ok(who) = serde_json::from_value(value.clone()) {
                found.push(who);
            }
            map.values().for_each(|value| identities(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| identities(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Asserts that the caller's HOME has only the temporary directory and that it is empty.
fn assert_untouched(stage: &Stage) {
    let names: Vec<_> = list(stage.home());
    assert_eq!(names, ["tmp"]);
    assert!(list(&stage.path("tmp")).is_empty());
}

fn list(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
