//! A server that cannot be started, dies at once or never answers is explained to the client in an MCP error, on stderr, in an
//! event and by the exit code.
//! guards: A server that cannot be started is explained to the client, on stderr, in an event and by the exit code.

use std::ffi::OsString;
use std::fs;
use std::process::ExitStatus;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Source, Stage, run};
use serde_json::{Value, json};

fn start(stage: &Stage, options: &[&str], server: Vec<OsString>) -> Client {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    Launch::new(stage, &run(mainstay, options, server)).start()
}

/// Sends `initialize`, then closes stdin. Returns the answer, the exit status and stderr.
fn told(stage: &Stage, options: &[&str], server: Vec<OsString>) -> (Value, ExitStatus, String) {
    let mut client = start(stage, options, server);
    let answer = client
        .wire
        .request("initialize", &json!({"protocolVersion": "2025-11-25"}));
    let answer = answer.expect("the opening is answered, if only with an error");
    let (status, rest) = client.finish();
    assert_eq!(rest, b"", "one answer, not more");
    stage.census.assert_empty();
    (answer, status, client.stderr_text())
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn a_missing_command_is_explained() {
    let stage = Stage::new();
    let (answer, status, stderr) = told(
        &stage,
        &[],
        vec!["no-such-server-anywhere".into(), "--flag".into()],
    );
    assert_eq!(status.code(), Some(127));
    let (problem, hint) = ("no-such-server-anywhere", "give its full path");
    explained(&stage, &answer, &stderr, problem, hint);
    let event = stage.event("start_failed");
    assert_eq!(event["argv"][0], "no-such-server-anywhere");
}

/// Asserts that nothing was started, and that the client, stderr and the event name the problem and the hint.
fn explained(stage: &Stage, answer: &Value, stderr: &str, problem: &str, hint: &str) {
    let event = stage.event("start_failed");
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    let written = format!("{} {}", field("problem"), field("hint"));
    for text in [message(answer), stderr, &written] {
        assert!(text.contains(problem) && text.contains(hint), "{text}");
    }
    assert_eq!(answer["error"]["data"]["reason"], "start_failed");
    assert!(stage.events("start").is_empty());
}

/// Like `explained`, and asserts the exit code.
fn refused(stage: &Stage, options: &[&str], code: i32, problem: &str, hint: &str) {
    let server = stage.unruly::<&str>(&[]);
    let (answer, status, stderr) = told(stage, options, server);
    explained(stage, &answer, &stderr, problem, hint);
    assert_eq!(status.code(), Some(code));
}

#[test]
fn an_unavailable_required_tier_is_explained() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let doctor = stage
        .command(mainstay)
        .args(["doctor", "--json"])
        .output()
        .expect("doctor can be asked");
    let found: Value = serde_json::from_slice(&doctor.stdout).expect("doctor speaks JSON");
    let Some(missing) = found["containment"]["why_not"].get(0) else {
        skip::skip("every tier is there, so none can be missing");
        return;
    };
    let (tier, reason) = (&missing["tier"], &missing["reason"]);
    let [Some(tier), Some(reason)] = [tier, reason].map(Value::as_str) else {
        panic!("no tier and reason: {missing}");
    };
    let options = ["--require-tier", tier];
    let problem = format!("the required tier is not there ({tier}: {reason}");
    refused(&stage, &options, 125, &problem, "ask for a weaker tier");
}

#[test]
fn a_missing_directory_in_the_config_is_explained() {
    let stage = Stage::new();
    let directory = stage.path("not-there");
    let table = format!("[server.here]\ncwd = '{}'\n", directory.display());
    config(&stage, table.as_bytes());
    let problem = format!("no such directory: {}", directory.display());
    let options = ["--name", "here"];
    refused(&stage, &options, 125, &problem, "correct `cwd`");
}

fn config(stage: &Stage, text: &[u8]) {
    let directory = stage.home().join(".config/mainstay");
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("config.toml"), text).expect("a config file");
}

#[test]
fn a_mistake_in_the_config_is_explained() {
    for (text, problem, hint) in [
        (
            &b"[server.unruly]\ngrace_trem = '1s'\n"[..],
            "config.toml:2: unknown key `grace_trem`",
            "did you mean `grace_term`?",
        ),
        (
            b"[defaults\n",
            "not valid TOML",
            "a table begins with a line like",
        ),
        (
            b"\xff\n",
            "cannot read the config file",
            "save it as UTF-8 text",
        ),
        (
            b"[server.unruly]\ngrace_eof = '2'\n",
            "config.toml:2: `grace_eof`: `2` is not a time",
            "leave `grace_eof` out for the built-in value, 2s",
        ),
    ] {
        let stage = Stage::new();
        config(&stage, text);
        refused(&stage, &[], 125, problem, hint);
    }
}

#[test]
fn a_mistake_in_the_defaults_is_recorded_and_does_not_stop_the_server() {
    for (line, problem, hint) in [
        (
            "grace_trem = '1s'",
            "unknown key `grace_trem` in [defaults]",
            "did you mean `grace_term`?",
        ),
        ("grace_term = 'soon'", "`soon` is not a time", ""),
    ] {
        let stage = Stage::new();
        config(&stage, format!("[defaults]\n{line}\n").as_bytes());
        let (answer, status, stderr) = told(&stage, &[], stage.unruly::<&str>(&[]));
        assert!(answer.get("result").is_some(), "{answer}");
        assert_eq!(status.code(), Some(0));
        let event = stage.event("config_mistake");
        let written = format!("{} {}", event["problem"], event["hint"]);
        for text in [&stderr, &written] {
            assert!(text.contains(problem) && text.contains(hint), "{text}");
        }
        assert_eq!(event["id"], stage.event("start")["id"]);
    }
}

#[test]
fn a_tier_that_the_defaults_require_and_that_does_not_exist_stops_the_server() {
    let stage = Stage::new();
    config(&stage, b"[defaults]\nrequire_tier = 'cgruop'\n");
    refused(&stage, &[], 125, "unknown tier `cgruop`", "");
}

#[test]
fn a_path_that_cannot_be_watched_is_explained() {
    let stage = Stage::new();
    let problem = "cannot watch src: no such file or directory";
    let hint = "a relative path begins in";
    refused(&stage, &["--watch", "src"], 2, problem, hint);
    // A default that does not fit one server does not stop it.
    let stage = Stage::new();
    config(&stage, b"[defaults]\nwatch = ['src']\n");
    let (answer, ..) = told(&stage, &[], stage.unruly::<&str>(&[]));
    assert!(answer.get("result").is_some(), "{answer}");
    let mistake = stage.event("config_mistake");
    assert!(
        mistake["problem"].as_str().unwrap().contains(problem),
        "{mistake}"
    );
}

#[test]
fn a_mistake_elsewhere_in_the_config_does_not_stop_the_server() {
    let stage = Stage::new();
    config(&stage, b"[serve]\nsesion_ttl = '1m'\n");
    let (answer, status, stderr) = told(&stage, &[], stage.unruly::<&str>(&[]));
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(stderr.contains("warning: "), "{stderr}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn an_unwritable_recording_is_explained() {
    let stage = Stage::new();
    let path = stage.path("no/such/x");
    let options = ["--record", path.to_str().unwrap()];
    refused(&stage, &options, 125, "cannot record in", "--record FILE");
}

#[test]
fn a_header_without_its_variable_is_explained() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let words = "run --url http://127.0.0.1:9/mcp?key=hidden --header-env A=NOT_SET";
    let mut argv = vec![OsString::from(mainstay)];
    argv.extend(words.split(' ').map(OsString::from));
    let mut client = Launch::new(&stage, &argv).start();
    let answer = client.wire.request("initialize", &json!({})).unwrap();
    let (status, _) = client.finish();
    assert_eq!(status.code(), Some(2));
    let stderr = client.stderr_text();
    let hint = "set it in the client's configuration";
    explained(&stage, &answer, &stderr, "NOT_SET", hint);
    let event = stage.event("start_failed");
    assert!(!event.to_string().contains("hidden"), "{event}");
    stage.census.assert_empty();
}

#[test]
fn a_file_that_is_not_executable_is_explained() {
    let stage = Stage::new();
    let file = stage.path("server.js");
    fs::write(&file, "console.log('no')\n").unwrap();
    let (answer, status, stderr) = told(&stage, &[], vec![file.clone().into()]);
    assert_eq!(status.code(), Some(126));
    explained(&stage, &answer, &stderr, "server.js", "chmod +x");
}

#[test]
fn a_script_without_its_interpreter_is_explained() {
    let stage = Stage::new();
    let script = stage.path("server");
    stage.program(&script, Source::Text("#!/no/such/interpreter\n"));
    let (answer, status, stderr) = told(&stage, &[], vec![script.into()]);
    assert_eq!(status.code(), Some(126));
    let (problem, hint) = (
        "the interpreter that it names is not",
        "correct its first line",
    );
    explained(&stage, &answer, &stderr, problem, hint);
}

#[test]
fn a_server_that_ends_at_once_is_explained() {
    let stage = Stage::new();
    let server = stage.unruly(&[
        "--stderr",
        "fatal: no API key in FOO_KEY",
        "--exit-after-start",
        "--exit-code",
        "3",
    ]);
    let (answer, status, stderr) = told(&stage, &[], server);
    assert!(
        answer.to_string().contains("no API key in FOO_KEY"),
        "its last words: {answer}"
    );
    assert!(answer.to_string().contains('3'), "its exit code: {answer}");
    assert!(stderr.contains("no API key in FOO_KEY"), "{stderr}");
    assert_eq!(status.code(), Some(3));
    let exit = stage.event("exit");
    assert_eq!(exit["stderr_tail"], json!(["fatal: no API key in FOO_KEY"]));
}

#[test]
fn a_deleted_working_directory_is_no_worse_than_without_mainstay() {
    let stage = Stage::new();
    let gone = stage.path("gone");
    fs::create_dir(&gone).unwrap();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut argv: Vec<OsString> = ["sh", "-c", "rmdir \"$PWD\"; exec \"$@\"", "sh"]
        .iter()
        .map(Into::into)
        .collect();
    argv.extend(run(mainstay, &[], stage.unruly::<&str>(&[])));
    let mut client = Launch::new(&stage, &argv)
        .with(|command| command.current_dir(&gone))
        .start();
    let answer = client
        .wire
        .request("initialize", &json!({"protocolVersion": "2025-11-25"}))
        .unwrap();
    // A server without mainstay starts there. So with mainstay it must start too, or the error must name the directory.
    assert!(
        answer.get("result").is_some() || message(&answer).contains("directory"),
        "{answer}"
    );
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn a_proc_mount_of_another_pid_namespace_is_explained() {
    if !skip::root_or_skip("a PID namespace of its own needs root") {
        return;
    }
    let stage = Stage::new();
    // The shell is PID 1 in the namespace, as in a sandbox.
    let sandbox = ["unshare", "--pid", "--fork", "--kill-child"];
    let shell = ["sh", "-c", "\"$@\"; exit $?", "sh"];
    let mut argv: Vec<OsString> = [&sandbox[..], &shell]
        .concat()
        .iter()
        .map(Into::into)
        .collect();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let doctor = [&argv[..], &[mainstay.clone().into(), "doctor".into()]].concat();
    argv.extend(run(mainstay, &[], stage.unruly::<&str>(&[])));
    let mut client = Launch::new(&stage, &argv).start();
    let answer = client
        .wire
        .request("initialize", &json!({"protocolVersion": "2025-11-25"}))
        .unwrap();
    let words = ["/proc shows another PID namespace", "--mount-proc"];
    for word in words {
        assert!(message(&answer).contains(word), "{answer}");
    }
    let (status, _) = client.finish();
    assert_eq!(status.code(), Some(125), "{}", client.stderr_text());
    let event = stage.event("start_failed");
    assert!(
        event["problem"].as_str().unwrap().contains(words[0]),
        "{event}"
    );
    assert!(stage.events("start").is_empty());
    stage.census.assert_empty();

    let told = stage
        .command(&doctor[0])
        .args(&doctor[1..])
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
}

#[test]
fn a_server_that_prints_plain_text_and_then_hangs_is_explained() {
    let stage = Stage::new();
    let options = ["--opening", "200ms", "--grace-eof", "200ms"];
    let server = ["sh", "-c", "echo hello; printf part; exec sleep 1000"];
    let mut client = start(&stage, &options, server.map(OsString::from).into());
    stage.event("junk");
    let id = client.wire.ask("initialize", &json!({})).unwrap();
    let answer = loop {
        let line = client.wire.line().unwrap().expect("an answer");
        match serde_json::from_slice::<Value>(&line) {
            Ok(answer) if answer["id"] == id => break answer,
            Ok(_) | Err(_) => {}
        }
    };
    assert_eq!(answer["error"]["data"]["reason"], "opening_silent");
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn a_silent_server_is_explained_and_left_running() {
    let stage = Stage::new();
    let options = ["--opening", "200ms", "--grace-eof", "200ms"];
    let mut client = start(&stage, &options, stage.unruly(&["--silent"]));
    let answer = client
        .wire
        .request("initialize", &json!({"protocolVersion": "2025-11-25"}))
        .unwrap();
    assert!(!message(&answer).is_empty());
    assert!(
        stage.event("opening_silent")["ms"]
            .as_u64()
            .is_some_and(|ms| ms >= 200)
    );
    let server = stage.card().server.expect("there is a server");
    assert!(mainstay_os::identity::alive(server), "it may only be slow");
    client.finish();
    stage.census.assert_empty();
}
