//! A server that used to answer probes is replaced if it is idle and silent, uses no processor time, and leaves every probe
//! unanswered. The next generation answers the next request.
//! guards: An idle server that no longer answers probes is replaced before the client needs it.

use crate::support::play::{
    self, MODERN, answers_probes, end, freeze, gone, modern, noted, open, pid, probing, start,
};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use serde_json::json;

#[test]
fn a_server_stopped_while_idle_is_replaced() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let first = answers_probes(&stage, &mut client);
    freeze(first);
    let restarting_event = play::restarting_event(&stage, "unresponsive");
    assert_eq!(
        (
            &restarting_event["generation"],
            &restarting_event["in_flight"]
        ),
        (&json!(1), &json!(0)),
        "{restarting_event}"
    );
    assert!(
        restarting_event["why"]["unresponsive"]["lost"].as_u64() >= Some(2),
        "{restarting_event}"
    );
    gone(first);
    let second = pid(&mut client);
    assert_ne!(first, second);
    assert_eq!(stage.event("ready")["generation"], 2);
    // The server did not see the end of its stdin.
    let teardown = stage.event("teardown");
    assert!(
        teardown["rungs"].as_array().unwrap().len() > 1,
        "{teardown}"
    );
    assert_eq!(teardown["left"], json!([]));
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_modern_server_is_probed_with_a_modern_method() {
    let stage = Stage::new();
    let mut client = start(&stage, &probing(&[]), &[]);
    let call = modern(json!({"name": "pid"}));
    let served_by = |client: &mut Client| {
        let answer = client.wire.request("tools/call", &call).unwrap();
        answer["result"]["structuredContent"]["pid"]
            .as_i64()
            .unwrap()
    };
    let first = served_by(&mut client);
    let probe = |note: &serde_json::Value| note["heard"]["method"] == "server/discover";
    let asked = noted(&stage, "a probe", probe);
    let meta = &asked["heard"]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], MODERN);
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
    noted(&stage, "another one, so the first was answered", |note| {
        probe(note) && note != &asked
    });
    freeze(first);
    play::restarting_event(&stage, "unresponsive");
    assert_ne!(served_by(&mut client), first);
    assert!(!play::methods(&stage).contains(&"ping".into()));
    end(client);
    stage.census.assert_empty();
}
