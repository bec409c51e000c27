//! Headers from options, variables and the config file reach their server and appear nowhere else.
//! guards: No secret of a header or a URL appears in an argument, a file, an event, a recording or an answer.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::support::bridged::{argv, mainstay};
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Launch;
use mainstay_testkit::httpd::{Fault, Httpd};
use mainstay_testkit::stage::Stage;
use serde_json::json;

const SECRET: &str = "hunter2-hunter2";

/// The text of all files below a directory.
fn everything(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            text += &everything(&entry.path());
        } else if let Ok(bytes) = fs::read(entry.path()) {
            text += &String::from_utf8_lossy(&bytes);
        }
    }
    text
}

#[test]
fn headers_reach_their_server_and_appear_nowhere_else() {
    let stage = Stage::new();
    let http = Httpd::start();
    let config = stage.home().join(".config/mainstay");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("config.toml"),
        format!("[server.web]\nheaders = {{ X-Config = \"{SECRET}-c\" }}\nheader_env = {{ X-Table = \"TABLE\" }}\n"),
    )
    .unwrap();
    let url = http
        .url()
        .replace("http://", &format!("http://user:{SECRET}@"))
        + &format!("?key={SECRET}");
    let flag = format!("X-Flag: {SECRET}-f");
    let mut words: Vec<OsString> = argv(
        &http,
        &[
            "--header",
            &flag,
            "--header-env",
            "X-Env=VARIABLE",
            "--record",
            "frames.jsonl",
        ],
    );
    let at = words
        .iter()
        .position(|word| word == http.url().as_str())
        .unwrap();
    words[at] = url.into();
    let launch = Launch::new(&stage, &words).with(|command| {
        command
            .current_dir(stage.home())
            .env("VARIABLE", format!("{SECRET}-v"))
            .env("TABLE", format!("{SECRET}-t"))
    });
    let mut client = launch.start();
    client.wire.initialize().unwrap();
    http.next("tools/call", Fault::Status(401, SECRET));
    let refused = client
        .wire
        .request("tools/call", &json!({"name": "write"}))
        .unwrap();
    assert!(!refused.to_string().contains("hunter2"), "{refused}");
    let sent = http.sent();
    let first = &sent[0];
    for (name, value) in [
        ("x-flag", "-f"),
        ("x-env", "-v"),
        ("x-config", "-c"),
        ("x-table", "-t"),
    ] {
        assert_eq!(first.headers[name], format!("{SECRET}{value}"), "{name}");
    }
    assert_eq!(first.path, format!("/mcp?key={SECRET}"));
    assert!(first.headers["authorization"].starts_with("Basic "));
    // A user who can read command lines sees none of it.
    for stat in stage.census.living() {
        let cmdline = fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
        assert!(!cmdline.contains("hunter2"), "{cmdline}");
    }
    for view in [
        &["ps", "--json"][..],
        &["events", "--json"],
        &["sessions", "--json"],
        &["doctor", "--json"],
    ] {
        let shown = mainstay(&stage, view);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned()
            + &String::from_utf8_lossy(&shown.stderr);
        assert!(!text.contains("hunter2"), "{view:?}: {text}");
    }
    assert!(!everything(&state_dir(stage.home())).contains("hunter2"));
    let (status, _) = client.finish();
    assert!(status.success());
    assert!(!client.stderr_text().contains("hunter2"));
    assert_eq!(http.open(), 0, "and the session is closed with them");
    let frames = fs::read_to_string(stage.home().join("frames.jsonl")).unwrap();
    assert!(
        frames.contains("tools/call") && !frames.contains("hunter2"),
        "{frames}"
    );
    let delete = http
        .sent()
        .into_iter()
        .find(|one| one.verb == "DELETE")
        .unwrap();
    assert_eq!(delete.headers["x-flag"], format!("{SECRET}-f"));
    assert!(!everything(&state_dir(stage.home())).contains("hunter2"));
}

/// Many servers have a token in the path of their URL. Only the note of an open session contains it: no other user can read the
/// note, and the DELETE needs the path.
#[test]
fn a_token_in_the_path_is_shown_nowhere() {
    const TOKEN: &str = "Zk3xT9qLmB7vR2pWc1Yd";
    let stage = Stage::new();
    let http = Httpd::start();
    let url = http.url().replace("/mcp", &format!("/s/{TOKEN}/mcp"));
    let mut words = argv(&http, &[]);
    let at = words.iter().position(|word| *word == http.url().as_str());
    words[at.unwrap()] = url.clone().into();
    let mut client = Launch::new(&stage, &words).start();
    client.wire.initialize().unwrap();
    http.next("tools/call", Fault::Status(401, "no"));
    let refused = client
        .wire
        .request("tools/call", &json!({"name": "write"}))
        .unwrap();
    assert!(!refused.to_string().contains(TOKEN), "{refused}");
    for stat in stage.census.living() {
        let cmdline = fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
        assert!(!cmdline.contains(TOKEN), "{cmdline}");
    }
    // The session cannot be closed, and its note stays.
    http.always("DELETE", Fault::Status(503, "busy"));
    let (status, _) = client.finish();
    assert!(status.success());
    let said = client.stderr_text();
    assert!(
        said.contains("mainstay sessions") && !said.contains(TOKEN),
        "{said}"
    );
    // The bridge may live a moment longer than the process that the client started.
    stage.census.assert_empty();
    let listed = mainstay(&stage, &["sessions", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed[0]["why"], "the server answered with HTTP 503");
    // The sweep that `sessions` starts in the background may have tried once more.
    let attempts = listed[0]["attempts"].as_u64().unwrap();
    assert!((1..=2).contains(&attempts), "{attempts}");
    let shown = http.url().replace("/mcp", "/s/…/mcp");
    assert_eq!(listed[0]["url"], shown.as_str());
    for view in [
        &["ps", "--json"][..],
        &["events", "--json"],
        &["events"],
        &["why"],
        &["why", "--full"],
        &["sessions"],
        &["doctor", "--json"],
    ] {
        let told = mainstay(&stage, view);
        let text = String::from_utf8_lossy(&told.stdout).into_owned()
            + &String::from_utf8_lossy(&told.stderr);
        assert!(!text.contains(TOKEN), "{view:?}: {text}");
    }
    let state = state_dir(stage.home());
    assert!(!everything(&state.join("events")).contains(TOKEN));
    assert!(everything(&state.join("sessions")).contains(&url));
    http.mend();
    let closed = mainstay(&stage, &["sessions", "close"]);
    assert!(closed.status.success(), "{closed:?}");
    assert_eq!(http.open(), 0);
    assert!(!everything(&state).contains(TOKEN));
    stage.census.assert_empty();
}

#[test]
fn an_unset_variable_is_reported_at_once() {
    let stage = Stage::new();
    let http = Httpd::start();
    let url = http.url();
    let told = mainstay(
        &stage,
        &[
            "run",
            "--url",
            &url,
            "--header-env",
            "Authorization=NOT_SET",
        ],
    );
    assert_eq!(told.status.code(), Some(2), "{told:?}");
    let text = String::from_utf8_lossy(&told.stderr);
    assert!(
        text.contains(
            "the variable NOT_SET, from which the header `Authorization` is taken, is not set"
        ),
        "{text}"
    );
}

#[test]
fn headers_that_only_mainstay_may_set_are_refused_at_once() {
    let stage = Stage::new();
    for name in [
        "Host",
        "Content-Length",
        "Mcp-Session-Id",
        "mcp-param-x",
        "Proxy-Authorization",
    ] {
        let told = mainstay(
            &stage,
            &[
                "run",
                "--url",
                "http://127.0.0.1:9/mcp",
                "--header",
                &format!("{name}: x"),
            ],
        );
        assert_eq!(told.status.code(), Some(2), "{told:?}");
        let text = String::from_utf8_lossy(&told.stderr);
        assert!(text.contains("cannot be set"), "{text}");
    }
}
