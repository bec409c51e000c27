//! The next generation is not started before every process of the last one is gone: children, children with their own sessions,
//! daemons, and daemons without any environment.
//! guards: At most one generation of a server lives: the next one starts only when the whole old tree is gone.

use std::ffi::OsString;
use std::fs;

use crate::support::scene::{Scene, mainstay};
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

const KINDS: [&str; 5] = [
    "grandchild",
    "setsid",
    "daemon",
    "daemon_clean_env",
    "stopped",
];

#[test]
fn all_old_processes_are_gone_before_the_next_generation() {
    let stage = Stage::new();
    let (pids, met) = (stage.path("pids"), stage.path("met"));
    // Each generation first looks which processes of the last one are alive. A zombie does not count.
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
        // The server answers, so it has written down by now what it found at its start.
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
