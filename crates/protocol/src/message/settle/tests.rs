//! guards: Every answer that mainstay gives itself is valid JSON on one line and says what happened.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::text::QUOTED_CHARS;
use super::*;
use crate::event::Losses;
use crate::event::Status;

fn told(id: &str, method: Tracked, modern: bool, why: &Why<'_>) -> String {
    let line = answer(id.as_bytes(), method, modern, why);
    serde_json::from_slice::<serde_json::Value>(&line).expect("valid JSON");
    String::from_utf8(line).expect("text")
}

fn argv() -> Vec<String> {
    vec!["npx".into(), "-y".into(), "a b's".into()]
}

const KILLED: Status = Status::Signal {
    number: 9,
    core: false,
};

#[test]
fn a_tool_call_reaches_the_model() {
    let why = Why::ServerExit {
        name: "files",
        status: KILLED,
        stderr_tail: &[],
        restarted: true,
        poisoned: false,
        tries: 0,
        listed: true,
    };
    let text = "MCP server 'files' ended (SIGKILL) while handling tools/call; it is started again, what it held in memory is lost; \
                the request may or may not have taken effect, so check before repeating it; `mainstay why files` tells the whole story";
    assert_eq!(
        told("7", Tracked::ToolsCall, false, &why),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":true}}}}\n"
        )
    );
    assert_eq!(
        told("\"a\\u0062\"", Tracked::ToolsCall, true, &why),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"result\":{{\"resultType\":\"complete\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":true}}}}\n"
        )
    );
}

#[test]
fn a_server_that_no_command_finds_names_none() {
    let losses = Losses {
        deaths: 1,
        failed_starts: 0,
    };
    for (listed, count) in [(true, 2), (false, 0)] {
        let why = Why::Abandoned {
            name: "files",
            losses,
            window_ms: 60_000,
            last: "SIGKILL",
            stderr_tail: &[],
            changed: None,
            probe_ms: 0,
            sent: false,
            listed,
        };
        let text = why.text(Tracked::ToolsCall);
        assert_eq!(text.matches("`mainstay ").count(), count, "{text}");
        assert!(text.contains("; fix it"), "{text}");
    }
}

#[test]
fn anything_else_gets_an_error_with_data() {
    let tail: Vec<String> = (1..=7).map(|n| format!("line \"{n}\"")).collect();
    let why = Why::ServerExit {
        name: "files",
        status: Status::Code(1),
        stderr_tail: &tail,
        restarted: false,
        poisoned: false,
        tries: 0,
        listed: true,
    };
    assert_eq!(
        told("1.0", Tracked::List, false, &why),
        concat!(
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32603,"message":"MCP server 'files' ended (exit code 1) while handling a list request; "#,
            r"it is not started again; connect again to repeat the request; `mainstay why files` tells the whole story; its last words on stderr:\n",
            r#"line \"3\"\nline \"4\"\nline \"5\"\nline \"6\"\nline \"7\"","data":{"proxy":"mainstay","reason":"server_exit","exit":{"code":1},"#,
            r#""restarted":false,"retried":false,"safeToRetry":true,"stderr":["line \"3\"","line \"4\"","line \"5\"","line \"6\"","line \"7\""]}}}"#,
            "\n"
        )
    );
    let why = Why::ServerExit {
        name: "files",
        status: KILLED,
        stderr_tail: &[],
        restarted: true,
        poisoned: false,
        tries: 0,
        listed: true,
    };
    assert!(told("1", Tracked::Other, true, &why).ends_with(
        "\"data\":{\"proxy\":\"mainstay\",\"reason\":\"server_exit\",\"exit\":{\"signal\":9},\"restarted\":true,\"retried\":false,\"safeToRetry\":false}}}\n"
    ));
}

#[test]
fn a_command_that_cannot_start_says_how_to_repair_it() {
    let why = Why::StartFailed {
        argv: &argv(),
        problem: "no such file",
        hint: "is npx installed and in PATH?",
    };
    assert_eq!(
        told("0", Tracked::Initialize, false, &why),
        concat!(
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the MCP server could not be started: `npx -y 'a b'\\''s'`: no such file; "#,
            r#"is npx installed and in PATH?","data":{"proxy":"mainstay","reason":"start_failed","restarted":false,"retried":false,"safeToRetry":true}}}"#,
            "\n"
        )
    );
}

#[test]
fn a_silent_server_is_left_running() {
    let why = Why::OpeningSilent {
        name: "x",
        ms: 55_000,
        argv: &argv(),
    };
    assert_eq!(
        told("0", Tracked::Initialize, false, &why),
        concat!(
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"MCP server 'x' has not answered initialize for 55 s and has written nothing in that time; "#,
            r"it is left running: if it is still downloading or building, connect again in a while; if not, run `npx -y 'a b'\\''s'` in a terminal to see ",
            r#"what it waits for","data":{"proxy":"mainstay","reason":"opening_silent","restarted":false,"retried":false,"safeToRetry":true}}}"#,
            "\n"
        )
    );
}

#[test]
fn a_killed_keeper_is_reported() {
    assert_eq!(
        told("5", Tracked::Read, false, &Why::KeeperLost { name: "x" }),
        concat!(
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"the mainstay process that kept MCP server 'x' was killed while the server was "#,
            r#"handling a read request; both were started again, what the server held in memory is lost; the request can be repeated","#,
            r#""data":{"proxy":"mainstay","reason":"keeper_lost","restarted":true,"retried":false,"safeToRetry":true}}}"#,
            "\n"
        )
    );
}

#[test]
fn requests_of_a_stopping_client_get_the_reason() {
    assert_eq!(
        told("5", Tracked::Ping, true, &Why::ClientStopping { name: "x" }),
        concat!(
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"MCP server 'x' is being stopped because the client is closing; ping was not "#,
            r#"answered; connect again to repeat it","data":{"proxy":"mainstay","reason":"client_stopping","restarted":false,"retried":false,"safeToRetry":true}}}"#,
            "\n"
        )
    );
}

#[test]
fn an_id_that_is_no_json_does_not_spoil_the_line() {
    for id in ["nope", "", "1,\"x\":2", "\"", "1}\n{"] {
        let line = told(id, Tracked::Ping, false, &Why::ClientStopping { name: "x" });
        assert!(
            line.starts_with(r#"{"jsonrpc":"2.0","id":null,"error""#),
            "{line}"
        );
    }
}

#[test]
fn names_and_last_words_are_quoted_safely_and_in_measure() {
    let tail = vec!["\u{1b}[31m\"\\\u{0}".to_string(), "é".repeat(10_000)];
    let why = Why::ServerExit {
        name: "a\"\nb",
        status: KILLED,
        stderr_tail: &tail,
        restarted: true,
        poisoned: false,
        tries: 0,
        listed: true,
    };
    let line = told("1", Tracked::ToolsCall, false, &why);
    assert_eq!(line.matches('\n').count(), 1);
    assert_eq!(line.matches('é').count(), QUOTED_CHARS);
}

#[test]
fn the_cause_before_a_usage_text_is_quoted() {
    let lines = |text: &str| text.lines().map(String::from).collect::<Vec<String>>();
    let said = lines(
        "starting\nflag provided but not defined: -x\n\nUsage of server:\n  -a\n  -b\n  -c\n  -d\n  -e",
    );
    assert_eq!(
        telling(&said),
        [
            "starting",
            "flag provided but not defined: -x",
            "  -c",
            "  -d",
            "  -e"
        ]
    );
    // Here the usage text just fills the lines that are quoted.
    let said = lines("error: no key\nUSAGE: server\n1\n2\n3\n4");
    assert_eq!(telling(&said), ["error: no key", "1", "2", "3", "4"]);
    // The usage text comes first: the cause is at the end.
    let said = lines("usage: server [-h]\n1\n2\n3\n4\nserver: error: no key");
    assert_eq!(
        telling(&said),
        ["1", "2", "3", "4", "server: error: no key"]
    );
    // All of it fits.
    let said = lines("error: no key\nusage: server");
    assert_eq!(telling(&said), ["error: no key", "usage: server"]);
    assert!(telling(&[]).is_empty());
}
