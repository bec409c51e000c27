//! A call that is sent again starts its progress anew. The client sees only rising values, and one answer.
//! guards: Progress values of a call that is sent again never fall.

use crate::support::scene::{Scene, answers, content};
use serde_json::{Value, json};

#[test]
fn no_progress_value_comes_twice_after_a_death() {
    let mut scene = Scene::open(&["--retry", "annotated"], &[]);
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    for token in [json!("up"), json!(7)] {
        let params = json!({
            "name": "steps",
            "arguments": {"n": 6, "die_after": 4},
            "_meta": {"progressToken": token},
        });
        let id = scene.client.wire.ask("tools/call", &params).unwrap();
        let all = scene.read_answers(&[id]);
        let values: Vec<&Value> = all
            .iter()
            .filter(|message| message["method"] == "notifications/progress")
            .map(|message| {
                assert_eq!(message["params"]["progressToken"], token);
                &message["params"]["progress"]
            })
            .collect();
        assert_eq!(values, [1, 2, 3, 4, 5, 6].map(|n| json!(n)).each_ref());
        assert_eq!(content(answers(&all, id)[0]), &json!({"steps": 6}));
        assert_eq!(all.len(), 7);
    }
    assert_eq!(
        scene.stage.events("exit").len(),
        1,
        "only the first one died"
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}
