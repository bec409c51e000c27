//! If a client never reads stderr (Gemini, Qwen), lines are dropped, but the server never hangs.
//! guards: A client that never reads stderr cannot block its server.

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Launch, Stderr};
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

const FLOOD: u64 = 4 * 1024 * 1024;

#[test]
fn the_server_is_never_stuck_in_a_write_to_stderr() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let server = stage.unruly(&["--stderr-flood", "1000000"]);
    let mut client = Launch::new(&stage, &run(mainstay, &[], server))
        .stderr(Stderr::Deaf)
        .start();
    client
        .wire
        .initialize()
        .expect("the flood before the opening is drained");
    let said = client
        .wire
        .call("flood_stderr", &json!({"bytes": FLOOD}))
        .unwrap();
    assert_eq!(said["flooded"], FLOOD);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    let (status, _) = client.finish();
    assert!(status.success());
    // The pipe holds some of it. The rest was dropped and reported, once per power of ten.
    let dropped: u64 = stage
        .events("stderr_dropped")
        .iter()
        .filter_map(|event| event["bytes"].as_u64())
        .max()
        .unwrap_or(0);
    assert!(
        dropped > FLOOD / 10 && dropped <= FLOOD + 1_000_000,
        "{dropped}"
    );
    stage.census.assert_empty();
}

#[test]
fn a_client_that_reads_stderr_gets_every_byte() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut client = Launch::new(&stage, &run(mainstay, &[], stage.unruly::<&str>(&[]))).start();
    client.wire.initialize().unwrap();
    client
        .wire
        .call("flood_stderr", &json!({"bytes": 500_000}))
        .unwrap();
    assert!(client.finish().0.success());
    stage.census.assert_empty();
    assert_eq!(
        client.stderr_text().len(),
        500_000,
        "a file takes everything"
    );
}
