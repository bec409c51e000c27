//! A launcher between client and mainstay (`sh -c`, npx) may exit early: the client behind it still holds the pipes, and
//! its server lives on until that client closes them.

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

#[test]
fn the_server_answers_after_its_launcher_is_gone() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    // A background job of a shell has /dev/null as stdin unless it is given another one.
    let script = r#"exec 3<&0; "$@" <&3 3<&- & exit 0"#;
    let mut argv = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
    argv.extend(run(
        mainstay,
        &["--grace-eof", "300ms"],
        stage.unruly(&["--daemon"]),
    ));
    let mut client = Launch::new(&stage, &argv).start();
    assert!(client.wait().success(), "the launcher is gone");
    client.wire.initialize().expect("the opening is answered");
    let first = client.wire.call("pid", &json!({})).unwrap();
    let second = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(first["pid"], second["pid"]);
    client.wire.close_write();
    assert_eq!(client.wire.rest().unwrap(), b"");
    stage.census.assert_empty();
}
