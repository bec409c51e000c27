//! A server writes one line and exits at once. The client gets the line and the status. The events tell the start before the end,
//! although our own bookkeeping for a new link comes after the server's first line.
//! guards: The output, the status and the start event of a server that exits at once are not lost.

use mainstay_testkit::afford::afforded;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card;
use mainstay_testkit::client::Launch;
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

const LINE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
/// Each server exits at another moment of the bookkeeping.
const TIMES: usize = 20;

#[test]
fn a_short_life_is_recorded_completely_on_each_tier() {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    for tier in afforded() {
        let server = ["sh", "-c", "printf '%s\\n' \"$0\"; exit 7", LINE];
        let server = server.iter().map(Into::into).collect();
        let argv = run(mainstay.clone(), &["--tier", tier.word()], server);
        for _ in 0..TIMES {
            let stage = Stage::new();
            let mut client = Launch::new(&stage, &argv).start();
            let (status, rest) = client.finish();
            assert_eq!(status.code(), Some(7), "{tier}: {}", client.stderr_text());
            assert_eq!(String::from_utf8_lossy(&rest).trim_end(), LINE, "{tier}");
            stage.census.assert_empty();
            let told: Vec<Value> = card::events(stage.home());
            let told: Vec<&str> = told.iter().filter_map(|it| it["event"].as_str()).collect();
            assert_eq!(told.first(), Some(&"start"), "{tier}: {told:?}");
            assert_eq!(told.iter().filter(|&&it| it == "start").count(), 1);
            // The client closes its pipe when it wants, also between the teardown and the end of the keeper.
            let of_the_server = told.iter().rev().find(|&&it| it != "pipe_end");
            assert_eq!(of_the_server, Some(&"teardown"), "{tier}: {told:?}");
            assert_eq!(stage.event("exit")["status"], json!({"code": 7}), "{tier}");
        }
    }
}
