//! A stand-in for a container engine. Its `run` writes the cid file and becomes the server. Its container is a file, and it logs
//! every call. Other files mean that its daemon is `lost`, that the container ignores a stop (`deaf`), or that a kill is `slow`.
//! The files of `docker` are in the HOME, those of another engine in a folder of their own.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::{Source, Stage, run};

pub const ID: &str = "4f5e6d7c8b9a";

/// `docker run` for an unruly server with these options.
pub fn docker(stage: &Stage, habits: &[&str]) -> Vec<OsString> {
    engine_in(stage, stage.home(), "docker", habits)
}

/// The `run` of the engine with this name, whose files are in this folder.
pub fn engine_in(stage: &Stage, folder: &Path, name: &str, habits: &[&str]) -> Vec<OsString> {
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
        folder.display(),
        server.join(" ")
    );
    fs::create_dir_all(stage.path("bin")).unwrap();
    let engine = stage.path("bin").join(name);
    stage.program(&engine, Source::Text(&script));
    vec![
        engine.into(),
        "run".into(),
        "-i".into(),
        "--rm".into(),
        "mcp/time".into(),
    ]
}

/// `mainstay run` with these options for that command.
pub fn wrapped(stage: &Stage, options: &[&str], habits: &[&str]) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    run(mainstay, options, docker(stage, habits))
}

/// All calls of the engine, in order.
pub fn calls(stage: &Stage) -> Vec<String> {
    calls_in(stage.home())
}

/// All calls of the engine whose files are in this folder, in order.
pub fn calls_in(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// The calls except `run`, each with the container's id.
pub fn engine_calls(stage: &Stage) -> Vec<String> {
    let told = calls(stage);
    let others = told.into_iter().filter(|call| !call.starts_with("run "));
    others.collect()
}

/// The command that asks whether the container runs.
pub fn question() -> String {
    format!("ps -q --no-trunc --filter id={ID}")
}

/// Makes the daemon unreachable, or reachable again.
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

/// The container as it is named among the ended or left processes.
pub fn named() -> serde_json::Value {
    serde_json::json!({"pid": 0, "start": 0, "comm": format!("container {ID}")})
}
