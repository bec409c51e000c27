//! The last lines before the client's end or the server's end reach the other side, also if a client reads them late. The keeper
//! handles one replaced line per turn, so many replaced lines take many turns.
//! guards: The last lines before either end reach the other side.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;

use crate::support::scene::mainstay;
use mainstay_os::identity;
use mainstay_testkit::client::{Carrier, Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::terminal::Terminal;
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::Wire;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};

/// Answers the opening. A call ends the first generation. The next one answers it by running `$1`.
const SERVER: &str = r#"
id() { printf '%s' "$1" | sed 's/.*"id":\([^,}]*\).*/\1/'; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
first=; [ -e before ] || { first=yes; : > before; }
while read -r line; do
    case $line in
    *'"initialize"'*)
        answer "$(id "$line")" '{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/call"'*)
        [ -n "$first" ] && exit 3
        call=$(id "$line")
        eval "$1" ;;
    esac
done
"#;

fn opened(stage: &Stage, options: &[&str], then: &str) -> Client {
    let server = ["sh", "-c", SERVER, "sh", then].map(OsString::from);
    let argv = run(mainstay(), options, server.into());
    let launch = Launch::new(stage, &argv).carrier(Carrier::Pipes);
    let mut client = launch
        .with(|command| command.current_dir(stage.home()))
        .start();
    client.wire.initialize().unwrap();
    client
}

fn call(id: i64) -> String {
    let params = json!({"name": "x", "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// All lines until the end.
fn rest(client: &mut Client) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(line) = client.wire.line().unwrap() {
        all.push(serde_json::from_slice(&line).unwrap());
    }
    all
}

#[test]
fn lines_before_the_clients_end_are_delivered() {
    let stage = Stage::new();
    let mut client = opened(&stage, &["--restart-budget", "1"], ":");
    client.wire.call("x", &json!({})).unwrap();
    stage.event("abandoned");
    let calls: String = (10..40).map(|id| call(id) + "\n").collect();
    client.wire.send_bytes(calls.as_bytes()).unwrap();
    client.wire.close_write();
    let ids: Vec<i64> = rest(&mut client)
        .iter()
        .filter_map(|answer| answer["id"].as_i64())
        .collect();
    assert_eq!(ids, (10..40).collect::<Vec<_>>());
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn lines_before_the_servers_end_are_delivered() {
    let stage = Stage::new();
    // The questions of a second generation get our ids, so each of them is a replaced line.
    let ask = r#"
        n=0
        while [ $n -lt 100 ]; do n=$((n+1)); printf '{"jsonrpc":"2.0","id":%s,"method":"roots/list"}\n' $n; done
        answer "$call" '{"content":[],"whole":true}'
        exit 0"#;
    let mut client = opened(&stage, &[], ask);
    client.wire.call("x", &json!({})).unwrap();
    stage.event_that("ready", |event| event["generation"] == 2);
    let id = client
        .wire
        .ask("tools/call", &json!({"name": "x"}))
        .unwrap();
    let mut questions = 0;
    loop {
        let line = client.wire.line().unwrap().expect("an answer");
        let message: Value = serde_json::from_slice(&line).unwrap();
        if message["id"] == id {
            assert_eq!(message["result"]["whole"], true, "{message}");
            break;
        }
        questions += i32::from(message["method"] == "roots/list");
    }
    assert_eq!(questions, 100);
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn lines_reach_a_client_that_reads_later() {
    let stage = Stage::new();
    // More than the two pipes hold, so part of the line is in the keeper. Not more than the pipes and the keeper hold if the
    // keeper reads it in small parts: then it widens no pipe.
    let say = r#"
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"text":"' "$call"
        head -c 150000 /dev/zero | tr '\0' a
        printf '"}}\n'
        exit 0"#;
    // With this grace, the time for the rest is over as soon as the server has ended.
    let mut client = opened(&stage, &["--grace-term", "1ms"], say);
    client.wire.call("x", &json!({})).unwrap();
    stage.event_that("ready", |event| event["generation"] == 2);
    let card = stage.card();
    let (keeper, server) = (card.keeper.unwrap(), card.server.unwrap());
    let id = client
        .wire
        .ask("tools/call", &json!({"name": "x"}))
        .unwrap();
    until("it has said it and ended", || {
        let said = !identity::alive(server) || mainstay_os::census::stat(server.pid).ok()?.dead();
        said.then_some(())
    });
    // The keeper has slept, woken and slept again since.
    for _ in 0..2 {
        let mut ps = stage.command(mainstay());
        assert!(
            ps.arg("ps")
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
    }
    until("the keeper waits", || {
        (mainstay_os::census::stat(keeper.pid).ok()?.state == b'S').then_some(())
    });
    let answer = client.wire.answer(id).unwrap();
    let text = answer["result"]["text"].as_str().unwrap();
    assert_eq!(text.len(), 150_000);
    client.finish();
    stage.census.assert_empty();
}

/// True if a writer of this pipe would have to wait. How many bytes that takes depends on how the writes fit its pages.
fn full(reader: impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", reader.as_fd().as_raw_fd());
    let writer = OpenOptions::new().write(true).open(path).unwrap();
    let mut asked = [PollFd::new(&writer, PollFlags::OUT)];
    rustix::event::poll(&mut asked, Some(&Timespec::default())).unwrap() == 0
}

/// The keeper is killed when the client's pipe is full with part of a line, and the rest is still in the keeper.
#[test]
fn the_next_generations_answer_after_half_a_line_is_a_whole_line() {
    let stage = Stage::new();
    let say = r#"
        head=$(printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"text":"' "$call")
        printf '%s' "$head"
        head -c $((65536 - ${#head})) /dev/zero | tr '\0' a
        until [ -e go ]; do sleep 0.01; done
        head -c 1000 /dev/zero | tr '\0' b
        printf '"}}\n'
        : > said
        while :; do sleep 1; done"#;
    let mut client = opened(&stage, &[], say);
    client.wire.call("x", &json!({})).unwrap();
    stage.event_that("ready", |event| event["generation"] == 2);
    let keeper = stage.card().keeper.unwrap();
    let id = client
        .wire
        .ask("tools/call", &json!({"name": "x"}))
        .unwrap();
    until("the client's pipe is full", || {
        full(client.wire.reader()).then_some(())
    });
    std::fs::write(stage.home().join("go"), "").unwrap();
    until("the rest is on its way", || {
        stage.home().join("said").exists().then_some(())
    });
    until("the keeper has read it and waits", || {
        (mainstay_os::census::stat(keeper.pid).ok()?.state == b'S').then_some(())
    });
    let written = rustix::io::ioctl_fionread(client.wire.reader()).unwrap();
    assert!((1..=65_536).contains(&written), "{written}");
    killers::at_once(&[keeper]);
    stage.event("keeper_lost");
    let torn = client.wire.line().unwrap().expect("half a line");
    assert_eq!(torn.len() as u64, written);
    let answer = client.wire.answer(id).unwrap();
    assert_eq!(answer["id"], id);
    client.finish();
    stage.census.assert_empty();
}

/// A terminal passes on one line at a time, however many were pasted.
#[test]
fn lines_pasted_into_a_terminal_are_answered() {
    let stage = Stage::new();
    let terminal = Terminal::open().unwrap();
    let slave = terminal.slave().unwrap();
    let stty = stage
        .command("stty")
        .arg("-echo")
        .stdin(slave.try_clone().unwrap())
        .status();
    assert!(stty.unwrap().success());
    let argv = run(mainstay(), &[], stage.unruly::<&str>(&[]));
    let (answers, stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut shim = stage
        .command(&argv[0])
        .args(&argv[1..])
        .stdin(slave)
        .stdout(stdout)
        .spawn()
        .unwrap();
    let mut wire = Wire::new(terminal.keyboard().unwrap(), answers);
    let client = json!({"name": "t", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let mut pasted = format!("{opening}\n");
    for id in 2..12 {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        pasted.extend([ping.to_string().as_str(), "\n"]);
    }
    wire.send_bytes(pasted.as_bytes()).unwrap();
    for id in 1..12 {
        assert_eq!(wire.answer(id).unwrap()["id"], id);
    }
    drop(wire);
    terminal.hang_up();
    shim.wait().unwrap();
    stage.census.assert_empty();
}
