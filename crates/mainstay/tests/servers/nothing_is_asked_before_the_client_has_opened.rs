//! A server gets no line of ours before the client's opening is answered, because the first message fixes its era.
//! guards: A server gets no probe before the client's opening is answered.

use crate::support::play::{self, answers_probes, end, noted, open, pid, probing, start, touch};
use mainstay_testkit::stage::Stage;
use serde_json::json;

#[test]
fn no_probe_before_or_during_the_opening() {
    let stage = Stage::new();
    let mut client = start(&stage, &probing(&["--name", "shy"]), &["--gate", "gate"]);
    let server = noted(&stage, "it runs", |note| !note["started"].is_null())["pid"].clone();
    // As long as it takes to probe another server a few times.
    let watch = |name: &str| {
        let mut other = open(&stage, &probing(&["--name", name]), &[]);
        answers_probes(&stage, &mut other);
        end(other);
    };
    watch("before");
    let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opening = client.wire.ask("initialize", &opening).unwrap();
    watch("during");
    touch(&stage, "gate");
    client.wire.answer(opening).unwrap();
    assert_eq!(pid(&mut client), server.as_i64().unwrap());
    let heard: Vec<_> = play::notes(&stage)
        .into_iter()
        .filter(|note| note["pid"] == server)
        .filter_map(|note| note["heard"]["method"].as_str().map(str::to_owned))
        .filter(|method| method != "ping")
        .collect();
    assert_eq!(heard, ["initialize", "tools/call"]);
    let all = play::notes(&stage);
    let first = all
        .iter()
        .find(|note| note["pid"] == server && !note["heard"].is_null());
    assert_eq!(first.unwrap()["heard"]["method"], "initialize");
    end(client);
    stage.census.assert_empty();
}
