//! A client that comes back counts its ids from the beginning. It never gets the answer or the progress of a request that an
//! earlier client left unanswered under the same id, whether that answer comes late or never.
//! guards: Nothing of an earlier client's session reaches the next client.

use crate::support::scene::{self, Scene, argv, heard_messages};
use mainstay_os::identity::Handle;
use mainstay_testkit::client::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];
const AN_HOUR_MS: u64 = 3_600_000;

fn back(scene: &mut Scene) {
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.state("lingering");
    let words = argv(&scene.stage, &KEPT, &[]);
    scene.client = Client::open(&scene.stage, &words);
}

#[test]
fn a_late_answer_does_not_reach_the_next_client() {
    let mut scene = Scene::open(&KEPT, &[]);
    // The orphan stays unanswered until the next client has sent its request, however long that takes.
    let orphan = scene.ask_call("sleep", &json!({"ms": AN_HOUR_MS}));
    scene.taken();
    back(&mut scene);
    // The same id, while the server still works on the orphan.
    let id = scene.ask_call("pid", &json!({}));
    assert_eq!(id, orphan, "this proves nothing");
    let answer = scene.client.wire.answer(id).unwrap();
    assert_eq!(answer["id"], id);
    assert!(
        answer["result"]["structuredContent"]["pid"].is_number(),
        "{answer}"
    );
    let held = scene.held();
    let heard = heard_messages(&held);
    let pid = heard
        .iter()
        .find(|said| said["params"]["name"] == "pid")
        .unwrap();
    assert_eq!(pid["id"], 1_500_000_001, "it went under a label");
    // The server writes the orphan's answer along with this one, and the next call comes after it. No client gets it.
    assert_eq!(scene.call("wake", &json!({})), json!({"woken": 1}));
    assert_eq!(scene.call("sleep", &json!({"ms": 1})).get("error"), None);
    assert_eq!(scene.stage.event("lingering")["in_flight"], 1);
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn an_answer_without_a_client_is_dropped() {
    let mut scene = Scene::open(&KEPT, &[]);
    scene.ask_call("sleep", &json!({"ms": 400}));
    scene.taken();
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::KILL).unwrap();
    scene.client.wait();
    scene.state("lingering");
    let words = argv(&scene.stage, &KEPT, &[]);
    // A connected start that never sends a line does not block other clients.
    let silent = mainstay_testkit::client::Launch::new(&scene.stage, &words).start();
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(scene.call("sleep", &json!({"ms": 900})).get("error"), None);
    drop(silent);
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn an_unanswered_request_does_not_block_its_id_for_the_next_client() {
    let mut scene = Scene::open(&KEPT, &[]);
    let endless = json!({"ms": AN_HOUR_MS});
    let orphan = scene.ask_call("sleep", &endless);
    scene.taken();
    back(&mut scene);
    // At the server's death the present client gets its answers, and the orphan gets none.
    let ids = [(); 2].map(|()| scene.ask_call("sleep", &endless));
    let id = orphan;
    assert!(ids.contains(&id), "this proves nothing");
    scene.taken();
    scene.kill(1);
    let all = scene.read_answers(&ids);
    assert_eq!(
        scene::answers(&all, id).len(),
        1,
        "one answer for the one that is there: {all:?}"
    );
    scene.finish();
}
