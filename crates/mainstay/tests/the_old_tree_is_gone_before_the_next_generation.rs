//! The next generation is not started before everybody of the last one is gone: children, those with sessions of their
//! own, daemons, and daemons without any environment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::ffi::OsString;
use std::fs;

use mainstay_testkit::stage::{Stage, run};
use scene::{Scene, mainstay};
use serde_json::json;

const KINDS: [&str; 5] = [
    "grandchild",
    "setsid",
    "daemon",
    "daemon_clean_env",
    "stopped",
];

#[test]
fn grandchildren_included() {
    let stage = Stage::new();
    let (pids, met) = (stage.path("pids"), stage.path("met"));
    // Each generation looks, before anything else, who of the last one is alive; a zombie is not.
    let script = format!(
        "for p in $(cat {}); do grep -q '^State:.[^ZX]' /proc/$p/status && echo $p >> {}; done 2>/dev/null; exec \"$@\"",
        pids.display(),
        met.display()
    );
    let mut server: Vec<OsString> = ["sh", "-c", &script, "sh"].iter().map(Into::into).collect();
    server.extend(stage.unruly(&["--ignore-term"]));
    let argv = run(
        mainstay(),
        &["--grace-eof", "100ms", "--grace-term", "100ms"],
        server,
    );
    let ours = |stage: &Stage| {
        let card = stage.card();
        let roles = [card.shim, card.guard, card.keeper];
        roles.map(Option::unwrap).to_vec()
    };
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    for generation in 1..=3 {
        for kind in KINDS {
            assert_eq!(
                scene.call("spawn", &json!({"kind": kind})),
                json!({"spawned": kind})
            );
        }
        let spared = ours(&scene.stage);
        let mut tree = scene.stage.census.living();
        tree.retain(|stat| !spared.contains(&stat.who()));
        assert!(
            tree.len() > KINDS.len(),
            "{}",
            scene.stage.census.describe(&tree)
        );
        let list: Vec<String> = tree.iter().map(|stat| stat.pid.to_string()).collect();
        fs::write(&pids, list.join("\n")).unwrap();
        scene.kill(generation);
        scene.replayed(generation + 1);
        // It serves, and what it met at its start is known by now.
        scene.call("pid", &json!({}));
        assert_eq!(fs::read_to_string(&met).unwrap_or_default(), "");
        for stat in &tree {
            assert!(!mainstay_os::identity::alive(stat.who()), "{stat:?}");
        }
    }
    let teardown = scene.stage.event("teardown");
    assert_eq!(teardown["left"], json!([]), "{teardown}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}
