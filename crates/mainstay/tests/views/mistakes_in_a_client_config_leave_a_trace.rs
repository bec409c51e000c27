//! A client starts mainstay with wrong arguments: the client's opening is answered with the reason, and `why` and `events` know it.
//! guards: Wrong arguments in a client's config are explained to the client and recorded as an event.

use std::ffi::OsString;
use std::io::Write;
use std::process::Stdio;

use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::stage::Stage;
use serde_json::json;

use crate::support::scene::mainstay;

fn argv(words: &[&str]) -> Vec<OsString> {
    let mut argv = vec![mainstay().into()];
    argv.extend(words.iter().map(OsString::from));
    argv
}

#[test]
fn the_clients_opening_is_answered_with_the_mistake() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        for (words, server, problem, hint) in [
            (
                &["run", "--nmae", "x", "--", "npx", "-y", "time-mcp"][..],
                "time-mcp",
                "unexpected argument '--nmae' found",
                "a similar argument exists: '--name'",
            ),
            (
                &["run", "--name", "files", "--grace-eof", "2", "--", "npx"],
                "files",
                "`2` is not a time",
                "mainstay run --help",
            ),
            (
                &["npx", "-y", "time-mcp"],
                "time-mcp",
                "`npx` is not a command of mainstay",
                "did you mean: mainstay run -- npx -y time-mcp",
            ),
            (
                &["no-such-program-anywhere"],
                "no-such-program-anywhere",
                "unrecognized subcommand 'no-such-program-anywhere'",
                "",
            ),
            (
                &["run"],
                "server",
                "no server command given",
                "write it after `--`",
            ),
        ] {
            let stage = Stage::new();
            let mut client = Launch::new(&stage, &argv(words)).carrier(carrier).start();
            let parameters = json!({"protocolVersion": "2025-11-25"});
            let answer = client.wire.request("initialize", &parameters).unwrap();
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                message.contains(problem) && message.contains(hint),
                "{answer}"
            );
            assert_eq!(answer["error"]["data"]["reason"], "start_failed");
            let event = stage.event("start_failed");
            assert_eq!(event["server"], server, "{event}");
            assert!(
                event["problem"].as_str().unwrap().contains(problem),
                "{event}"
            );
            let (status, rest) = client.finish();
            assert_eq!((status.code(), rest.as_slice()), (Some(2), &b""[..]));
            assert!(
                client.stderr_text().contains(problem),
                "{}",
                client.stderr_text()
            );
            assert_eq!(stage.events("start_failed").len(), 1);
            let why = stage
                .command(mainstay())
                .args(["why", server])
                .output()
                .unwrap();
            let why = String::from_utf8(why.stdout).unwrap();
            // A long line may be wrapped.
            assert!(why.contains(problem.split(' ').next().unwrap()), "{why}");
            stage.census.assert_empty();
        }
    }
}

#[test]
fn a_client_of_the_next_protocol_gets_the_reason_in_every_request() {
    let stage = Stage::new();
    let words = argv(&["run", "--nmae", "x", "--", "npx"]);
    let mut client = Launch::new(&stage, &words).start();
    for method in ["server/discover", "tools/list", "initialize"] {
        let answer = client.wire.request(method, &json!({})).unwrap();
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("--nmae"), "{answer}");
    }
    let call = json!({"name": "add", "arguments": {}});
    let answer = client.wire.request("tools/call", &call).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn it_ends_by_itself_after_an_answer_and_after_many() {
    let stage = Stage::new();
    let words = argv(&["run", "--nmae", "x", "--", "npx"]);
    let mut client = Launch::new(&stage, &words).start();
    client.wire.request("initialize", &json!({})).unwrap();
    // The client keeps its end open.
    assert_eq!(client.wait().code(), Some(2));
    let mut client = Launch::new(&stage, &words).start();
    let mut answered = 0;
    while client.wire.request("ping", &json!({})).is_ok() {
        answered += 1;
    }
    assert!((1..=16).contains(&answered), "{answered}");
    assert_eq!(client.wait().code(), Some(2));
}

#[test]
fn without_a_client_nothing_is_answered() {
    let stage = Stage::new();
    // A pipe of another program is no client.
    let mut child = stage
        .command(mainstay())
        .args(["npx", "-y", "foo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"hello\n{}\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.stdout.as_slice(), output.status.code()),
        (&b""[..], Some(2))
    );
    // A mistyped command is none of a server.
    let typo = stage
        .command(mainstay())
        .arg("pss")
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(typo.status.code(), Some(2));
    assert!(stage.events("start_failed").is_empty());
}
