//! `metrics` counts each answer once: on the fast path, on the slow path, and if mainstay answered itself.
//! guards: `metrics` counts each answered request exactly once, with restarts and memory of its server.

use std::fs;

use crate::support::scene::Scene;
use serde_json::{Value, json};

fn figures(scene: &Scene) -> Value {
    let output = scene.mainstay(&["metrics", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    rows[0].clone()
}

#[test]
fn each_answer_is_counted_once() {
    let mut scene = Scene::open(&[], &[]);
    for _ in 0..5 {
        scene.call("pid", &json!({}));
    }
    scene.client.wire.request("ping", &json!({})).unwrap();
    // An error of the server.
    scene.sync();
    scene.server(1);
    let row = figures(&scene);
    assert_eq!(row["server"], "unruly");
    assert_eq!(row["restarts"], 0);
    assert!(row["rss_kib"].as_u64().unwrap() > 0, "{row}");
    let traffic = &row["traffic"];
    assert_eq!(traffic["calls"]["count"], 5, "{traffic}");
    // The opening, the ping and the error.
    assert_eq!(traffic["others"]["count"], 3, "{traffic}");
    assert_eq!(traffic["errors"], 1, "{traffic}");
    assert_eq!(traffic["answered_by_mainstay"], 0, "{traffic}");

    // The call that a server dies of is answered by mainstay.
    let call = scene.ask_call("crash", &json!({"code": 1}));
    scene.read_answers(&[call]);
    scene.server(2);
    let row = figures(&scene);
    assert_eq!(row["restarts"], 1);
    assert_eq!(row["traffic"]["answered_by_mainstay"], 1, "{row}");
    assert_eq!(row["traffic"]["calls"]["count"], 5, "{row}");

    let file = scene.stage.path("mainstay.prom");
    fs::write(&file, "old").unwrap();
    let output = scene.mainstay(&["metrics", "--output", file.to_str().unwrap()]);
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let page = fs::read_to_string(&file).unwrap();
    assert!(page.contains("mcp_server_operation_duration_seconds_count{server=\"unruly\","));
    assert!(
        page.contains("mcp_method_name=\"tools/call\"} 5\n"),
        "{page}"
    );
    scene.finish();
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let scene = Scene::open(&[], &[]);
    let output = scene.mainstay(&["metrics", "--output", "/nonexistent/mainstay.prom"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("cannot write /nonexistent/mainstay.prom"),
        "{said}"
    );
    scene.finish();
}
