//! TypeScript 2.x starts a throw-away sibling for its probe: `server/discover`, then EOF and SIGTERM at once. The sibling leaves
//! nothing, and the real session beside it is not touched.
//! guards: A client that only probes leaves no process and does not disturb the real session.

use crate::support::scene::argv;
use mainstay_os::identity::Handle;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use serde_json::{Value, json};

fn leave(mut client: Client) {
    client.wire.close_write();
    if let Ok(handle) = Handle::open(client.who) {
        handle.signal(Signal::TERM).ok();
    }
    client.wait();
}

fn probe() -> Value {
    json!({"jsonrpc": "2.0", "id": "server-discover-probe-1", "method": "server/discover", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }}})
}

#[test]
fn probes_beside_a_real_session_leave_no_process() {
    for habits in [
        &["--modern"][..],
        &["--grandchild", "--daemon"],
        &["--dies-of", "server/discover"],
    ] {
        let stage = Stage::new();
        let argv = argv(&stage, &[], habits);
        let mut real = None;
        for answered in [true, false, true, false] {
            let sibling = Launch::new(&stage, &argv).start();
            sibling.wire.send(&probe()).unwrap();
            let mut sibling = sibling;
            if answered {
                let line = sibling.wire.line().unwrap().expect("the probe is answered");
                let answer: Value = serde_json::from_slice(&line).unwrap();
                assert_eq!(answer["id"], "server-discover-probe-1");
            }
            leave(sibling);
            // The real session starts while the first sibling is ending.
            real.get_or_insert_with(|| Launch::new(&stage, &argv).start());
        }
        let mut real = real.unwrap();
        let modern = habits.contains(&"--modern");
        if modern {
            let mut params = probe()["params"].clone();
            params["name"] = json!("pid");
            let answer = real.wire.request("tools/call", &params).unwrap();
            assert!(answer.get("result").is_some(), "{answer}");
        } else {
            real.wire.initialize().unwrap();
            real.wire.call("pid", &json!({})).unwrap();
        }
        let (_, rest) = real.finish();
        assert_eq!(rest, b"");
        stage.census.assert_empty();
        assert_eq!(stage.cards().len(), 0);
    }
}

#[test]
fn a_probe_of_a_server_that_never_reads_leaves_no_process() {
    let stage = Stage::new();
    let never = stage.path("never");
    let argv = argv(&stage, &[], &["--start-when", never.to_str().unwrap()]);
    for _ in 0..5 {
        let sibling = Launch::new(&stage, &argv).start();
        sibling.wire.send(&probe()).unwrap();
        leave(sibling);
    }
    stage.census.assert_empty();
}
