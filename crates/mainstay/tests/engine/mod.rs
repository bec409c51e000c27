//! A stand-in for a container engine: its `run` writes the cid file and becomes the server, its container is a file, and what it is
//! told it writes down. Other files say that its daemon is `lost`, that the container is `deaf` to a stop, or that a kill is `slow`.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::{Source, Stage, run};

/// The container's id.
pub const ID: &str = "4f5e6d7c8b9a";

/// `docker run` for an unruly server with these habits.
pub fn docker(stage: &Stage, habits: &[&str]) -> Vec<OsString> {
    let server: Vec<String> = stage
        .unruly(habits)
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "#!/bin/sh\ncd '{}' || exit 9\necho \"$@\" >> log\ncut -d' ' -f41 /proc/self/stat >> policies\ncase \"$1\" in\n\
         run) [ \"$2\" = --cidfile ] || exit 9\n echo {ID} > \"$3\"\n touch up\n exec {} ;;\n\
         stop) [ ! -e lost ] && [ ! -e deaf ] && [ -e up ] && rm up ;;\n\
         kill) while [ -e slow ]; do sleep 0.01; done\n [ ! -e lost ] && [ -e up ] && rm up ;;\n\
         ps) [ ! -e lost ] || exit 1\n [ ! -e up ] || echo {ID} ;;\n*) exit 9 ;;\nesac\n",
        stage.home().display(),
        server.join(" ")
    );
    fs::create_dir_all(stage.path("bin")).unwrap();
    let docker = stage.path("bin/docker");
    stage.program(&docker, Source::Text(&script));
    vec![
        docker.into(),
        "run".into(),
        "-i".into(),
        "--rm".into(),
        "mcp/time".into(),
    ]
}

/// `mainstay run` with these options for that.
pub fn wrapped(stage: &Stage, options: &[&str], habits: &[&str]) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    run(mainstay, options, docker(stage, habits))
}

/// What the engine was told, in order.
pub fn calls(stage: &Stage) -> Vec<String> {
    let text = fs::read_to_string(stage.path("log")).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// What it was told but `run`, each with the container's id.
pub fn errands(stage: &Stage) -> Vec<String> {
    let told = calls(stage);
    let others = told.into_iter().filter(|call| !call.starts_with("run "));
    others.collect()
}

/// The words with which it is asked whether the container runs.
pub fn question() -> String {
    format!("ps -q --no-trunc --filter id={ID}")
}

/// Its daemon is lost, or there again.
pub fn lose(stage: &Stage, lost: bool) {
    if lost {
        fs::write(stage.path("lost"), "").unwrap();
    } else {
        fs::remove_file(stage.path("lost")).unwrap();
    }
}

/// Whether the container runs.
pub fn is_up(stage: &Stage) -> bool {
    stage.path("up").exists()
}

/// The container among those who were ended or are left.
pub fn named() -> serde_json::Value {
    serde_json::json!({"pid": 0, "start": 0, "comm": format!("container {ID}")})
}
