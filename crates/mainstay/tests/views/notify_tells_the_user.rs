//! The command of `notify` is run when a server is given up and when `reap` reports orphans. It gets a text and three variables.
//! guards: The command of `notify` is run once with the reason when a server is given up or an orphan is found, and leaves no process.

use std::fs;
use std::process::Stdio;

use mainstay_os::identity::Handle;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Source, Stage};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::json;

use crate::support::scene::{Scene, argv, mainstay};

/// A stage whose `notify` appends what it gets to a file, and prints something that must not be seen.
fn stage() -> Stage {
    let stage = Stage::new();
    let (program, notes) = (stage.path("notify.sh"), stage.path("notes"));
    let script = format!(
        "#!/bin/sh\necho noise; echo noise >&2\necho \"$1|$2|$MAINSTAY_EVENT|$MAINSTAY_SERVER|$MAINSTAY_TEXT\" >> {}\n",
        notes.display()
    );
    stage.program(&program, Source::Text(&script));
    let config = stage.home().join(".config/mainstay");
    fs::create_dir_all(&config).unwrap();
    let line = format!(
        "[defaults]\nnotify = ['{}', 'mainstay']\n",
        program.display()
    );
    fs::write(config.join("config.toml"), line).unwrap();
    stage
}

fn notes(stage: &Stage) -> String {
    fs::read_to_string(stage.path("notes")).unwrap_or_default()
}

fn wait_for_note(stage: &Stage) -> String {
    until("a note", || {
        let notes = notes(stage);
        notes.ends_with('\n').then_some(notes)
    })
}

#[test]
fn a_server_that_was_given_up_is_notified_once() {
    let stage = stage();
    let words = argv(
        &stage,
        &["--restart-budget", "2"],
        &["--exit-code", "7", "--dies-of", "add"],
    );
    let mut scene = Scene::on(stage, &words);
    scene.client.wire.initialize().unwrap();
    scene.call("add", &json!({}));
    scene.replayed(2);
    scene.call("add", &json!({}));
    let text = "server unruly was given up, because it ended 2 times in 1m00s: mainstay why unruly";
    let line = format!("mainstay|{text}|given_up|unruly|{text}\n");
    assert_eq!(wait_for_note(&scene.stage), line);
    // It has left no process, dead or alive; the keeper still runs.
    let keeper = until("the keeper", || scene.stage.cards().first()?.keeper);
    until("the helper is reaped", || {
        let children = mainstay_os::census::children(keeper.pid).ok()?;
        let helper =
            |pid: &i32| mainstay_os::census::stat(*pid).is_ok_and(|stat| stat.comm == "mcp-helper");
        (!children.iter().any(helper)).then_some(())
    });
    // The server is restarted by hand and given up again, soon after.
    let restarted = scene.mainstay(&["restart", "unruly"]);
    assert!(restarted.status.success(), "{restarted:?}");
    scene.call("add", &json!({}));
    scene.call("add", &json!({}));
    until("it is given up again", || {
        (scene.stage.events("abandoned").len() == 2).then_some(())
    });
    let stderr = scene.client.stderr_text();
    assert!(!stderr.contains("noise"), "{stderr}");
    let Scene { mut client, stage } = scene;
    client.finish();
    stage.census.assert_empty();
    assert_eq!(notes(&stage), line);
}

#[test]
fn orphans_are_notified_by_a_report_without_a_terminal() {
    let stage = stage();
    let server = stage.unruly(&["--ignore-eof"]);
    let client = Puppet::start(&stage, Plan::default(), &server);
    let orphan = client.shims[0];
    client.kill();
    let reap = || {
        let pid = orphan.pid.to_string();
        let mut command = stage.command(mainstay());
        command.args(["reap", "--min-age", "0s", &pid]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    reap();
    let text = "1 MCP server runs without a client: mainstay reap";
    let line = format!("mainstay|{text}|orphans||{text}\n");
    assert_eq!(notes(&stage), line, "it is waited for");
    reap();
    assert_eq!(notes(&stage), line, "not twice in a short time");
    Handle::open(orphan).unwrap().signal(Signal::KILL).unwrap();
}
