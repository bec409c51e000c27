//! A request that a dead server never read cannot have taken effect: the next generation gets it, whatever it asks.

mod scene;

use scene::{Scene, answers, content};
use serde_json::json;

#[test]
fn calls_in_the_pipe_of_a_stopped_server() {
    // Not even a user who wants nothing repeated minds: nothing is.
    let mut scene = Scene::open(&["--retry", "never"], &[]);
    scene.freeze(1);
    let ids: Vec<i64> = (0..20).map(|_| scene.ask_call("add", &json!({}))).collect();
    scene.taken();
    scene.kill(1);
    let all = scene.read_answers(&ids);
    assert_eq!(all.len(), ids.len());
    for id in ids {
        let [answer] = answers(&all, id)[..] else {
            panic!("{id}: not one answer")
        };
        assert_eq!(content(answer)["generation"], 2, "{answer}");
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}
