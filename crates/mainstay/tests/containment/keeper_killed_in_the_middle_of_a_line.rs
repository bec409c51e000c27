//! SIGKILL to the keeper in the middle of a line, in either direction: half read, half forwarded, waiting because the server does
//! not read, or half written because the client does not read. Each request has its answer, no request reaches a server twice,
//! and no two lines are glued together.
//! guards: A keeper that is killed in the middle of a line neither loses, repeats nor merges lines.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::thread;

use mainstay_os::census;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::message::frame::TAIL_BYTES;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;

use crate::support::scene::{self, Scene, answers, content, mainstay, messages};
use serde_json::{Value, json};

/// Longer than a line that is held whole, shorter than the buffer.
const LONG: usize = 150_000;
/// A pipe with more bytes than this takes no further page. (A write that is no multiple of a page leaves part of a page unused.)
const FULL: u64 = 65_536 - 4_096;

impl Scene {
    /// Kills the keeper once it has read and processed all that the client wrote, and sleeps.
    fn kill_keeper_that_has_read_all(&self) -> Identity {
        self.taken();
        self.kill_waiting_keeper()
    }

    /// Kills the keeper when it sleeps.
    fn kill_waiting_keeper(&self) -> Identity {
        kill_waiting_keeper(&self.stage)
    }

    /// Waits until a successor of this keeper runs. Returns the `keeper_lost` event.
    fn taken_over(&self, keeper: Identity) -> Value {
        let lost = self
            .stage
            .event_that("keeper_lost", |event| event["pid"] == keeper.pid);
        self.stage
            .card_that("names another keeper", |card| card.keeper != Some(keeper));
        lost
    }
}

fn kill_waiting_keeper(stage: &Stage) -> Identity {
    let keeper = stage.card().keeper.unwrap();
    until("the keeper waits", || {
        (census::stat(keeper.pid).ok()?.state == b'S').then_some(())
    });
    killers::at_once(&[keeper]);
    keeper
}

fn line(id: i64, tool: &str, arguments: &Value) -> Vec<u8> {
    let params = json!({"name": tool, "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    format!("{call}\n").into_bytes()
}

#[test]
fn half_a_client_line_is_joined_to_its_rest() {
    let mut scene = Scene::open(&[], &[]);
    let text = "half \u{e4} line";
    let half = |id: i64| line(id, "echo", &json!({"text": text, "id": id}));
    // One byte, up to the middle of a character, and all but the newline.
    let within = half(1000).iter().position(|&b| b == 0xc3).unwrap() + 1;
    let all = half(1000).len() - 1;
    for (round, cut) in [1, within, all].into_iter().enumerate() {
        let id = 1000 + 10 * round as i64;
        let (torn, after) = (id + 1, id + 2);
        let torn_line = half(torn);
        let (first, rest) = torn_line.split_at(cut);
        let before = line(id, "echo", &json!({"n": id}));
        let both = [&before, first].concat();
        scene.client.wire.send_bytes(&both).unwrap();
        assert_eq!(content(&scene.message()), &json!({"n": id}));
        let keeper = scene.kill_keeper_that_has_read_all();
        if round > 0 {
            // In the first round the rest is written before the successor runs, in the others after.
            assert_eq!(scene.taken_over(keeper)["settled"], 0);
        }
        let rest = [rest, &line(after, "echo", &json!({"n": after}))].concat();
        scene.client.wire.send_bytes(&rest).unwrap();
        let said = [json!({"text": text, "id": torn}), json!({"n": after})];
        for (id, said) in [torn, after].into_iter().zip(said) {
            let answer = scene.message();
            assert_eq!((&answer["id"], content(&answer)), (&json!(id), &said));
        }
        scene.taken_over(keeper);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// Sends the first 150 KB of a line to the server and kills the keeper. Then sends the rest of the line and another request.
fn long_line(first: &[u8], rest: &[u8]) {
    let stage = Stage::new();
    let record = stage.path("heard");
    let argv = scene::argv(&stage, &[], &["--record", record.to_str().unwrap()]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.client.wire.send_bytes(first).unwrap();
    // The server or its pipe has all of it.
    let keeper = scene.kill_keeper_that_has_read_all();
    scene.taken_over(keeper);
    let rest = [rest, &line(78, "look", &json!({}))].concat();
    scene.client.wire.send_bytes(&rest).unwrap();
    let all = scene.read_answers(&[77, 78]);
    let ours = answers(&all, 77);
    assert!(trouble(ours[0]).contains("may or may not have"), "{all:?}");
    assert_eq!(content(answers(&all, 78)[0])["generation"], 2);
    assert_eq!(all.len(), 2, "{all:?}");
    // The next server got only whole lines: `messages` fails on any other.
    scene.sync();
    let heard = messages(&fs::read(record).unwrap());
    assert!(heard.iter().all(|message| message["id"] != 77), "{heard:?}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn the_rest_of_a_long_line_with_its_id_first_is_dropped() {
    let pad = "x".repeat(LONG);
    let first = format!(
        r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"add","arguments":{{"pad":"{pad}"#
    );
    long_line(first.as_bytes(), b"yyy\"}}}\n");
}

#[test]
fn the_rest_of_a_long_line_with_its_id_last_gives_the_id() {
    let pad = "x".repeat(LONG);
    let first = format!(r#"{{"params":{{"name":"add","arguments":{{"pad":"{pad}"#);
    let rest = b"yyy\"}},\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"id\":77}\n";
    long_line(first.as_bytes(), rest);
}

#[test]
fn requests_that_wait_for_a_server_that_does_not_read_are_sent_once() {
    let stage = Stage::new();
    let record = stage.path("heard");
    let argv = scene::argv(&stage, &[], &["--record", record.to_str().unwrap()]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.sync();
    scene.freeze(1);
    // More than all buffers in between hold: one line is torn in the server's pipe, others wait in the keeper and in the client's
    // pipe.
    let pad = "x".repeat(1_000);
    let ids: Vec<i64> = (1_000..1_300).collect();
    let lines = ids
        .iter()
        .flat_map(|&id| line(id, "add", &json!({"pad": pad})));
    let lines: Vec<u8> = lines.collect();
    let mut to = fs::File::from(scene.client.wire.writer().unwrap().try_clone().unwrap());
    let (keeper, all) = thread::scope(|scope| {
        scope.spawn(move || to.write_all(&lines).unwrap());
        until("both pipes are full", || {
            let unread = rustix::io::ioctl_fionread(scene.client.wire.writer().unwrap()).unwrap();
            (scene.unread(1) > FULL && unread > FULL).then_some(())
        });
        (scene.kill_waiting_keeper(), scene.read_answers(&ids))
    });
    assert_eq!(all.len(), ids.len(), "each is answered once");
    scene.taken_over(keeper);
    scene.call("add", &json!({}));
    scene.sync();
    let mut asked: BTreeMap<i64, usize> = BTreeMap::new();
    for message in messages(&fs::read(record).unwrap()) {
        if message["params"]["name"] == "add" {
            *asked.entry(message["id"].as_i64().unwrap()).or_default() += 1;
        }
    }
    for (id, count) in &asked {
        assert_eq!(*count, 1, "{id} was asked {count} times");
    }
    for answer in &all {
        if asked.contains_key(&answer["id"].as_i64().unwrap()) {
            assert_eq!(content(answer)["generation"], 2, "{answer}");
        } else {
            assert!(trouble(answer).contains("may or may not have"), "{answer}");
        }
    }
    assert!(asked.contains_key(&1_299), "the last one waited");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// Answers the opening, and answers a call with its generation. The first generation writes half an answer to a call, creates a
/// file, and stops there.
const HALF: &str = r#"
id() { printf '%s' "$1" | sed 's/.*"id":\([^,}]*\).*/\1/'; }
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
first=; [ -e before ] || { first=yes; : > before; }
while read -r line; do
    case $line in
    *'"initialize"'*)
        answer "$(id "$line")" '{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/call"'*)
        call=$(id "$line")
        if [ -n "$first" ]; then
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"text":"' "$call"
            head -c "$1" /dev/zero | tr '\0' a
            : > said
            while :; do sleep 1; done
        fi
        answer "$call" '{"content":[],"generation":2}' ;;
    esac
done
"#;

/// A client of such a server that waits for an answer of that many bytes.
fn half_answered(stage: &Stage, bytes: usize) -> (Client, i64) {
    let server = ["sh", "-c", HALF, "sh", &bytes.to_string()].map(OsString::from);
    let argv = run(mainstay(), &["--name", "half"], server.into());
    let mut client = mainstay_testkit::client::Launch::new(stage, &argv).start();
    client.wire.initialize().unwrap();
    let call = json!({"name": "x"});
    let id = client.wire.ask("tools/call", &call).unwrap();
    (client, id)
}

/// Asserts that the torn line was the only line that is no message: the call is answered once after it, and so is the next call.
fn answered_after_all(stage: &Stage, mut client: Client, id: i64) {
    let answer = client.wire.line().unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["id"], id);
    assert!(trouble(&answer).contains("may or may not have"), "{answer}");
    let next = client.wire.request("tools/call", &json!({"name": "x"}));
    assert_eq!(next.unwrap()["result"]["generation"], 2);
    let (_, rest) = client.finish();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    stage.census.assert_empty();
}

#[test]
fn half_a_short_answer_never_reaches_the_client() {
    let stage = Stage::new();
    let (client, id) = half_answered(&stage, 1_000);
    let server = stage.card().server.unwrap();
    let stdout = format!("/proc/{}/fd/1", server.pid);
    until("half of it is with the keeper", || {
        let unread = rustix::io::ioctl_fionread(fs::File::open(&stdout).unwrap()).unwrap();
        (stage.path("said").exists() && unread == 0).then_some(())
    });
    kill_waiting_keeper(&stage);
    answered_after_all(&stage, client, id);
}

#[test]
fn half_of_a_long_answer_is_ended_before_the_next_line() {
    let stage = Stage::new();
    let (client, id) = half_answered(&stage, LONG);
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"text":""#);
    // The relay keeps the last bytes of a long line until the line ends.
    let passed = head.len() + LONG - TAIL_BYTES;
    let mut half = Vec::new();
    while half.len() < passed {
        let mut chunk = vec![0; passed - half.len()];
        let len = rustix::io::read(client.wire.reader(), &mut chunk).unwrap();
        assert!(len > 0, "the client's pipe stays open");
        half.extend_from_slice(&chunk[..len]);
    }
    kill_waiting_keeper(&stage);
    let mut client = client;
    let end = client.wire.line().unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&end), "");
    answered_after_all(&stage, client, id);
}

#[test]
fn half_of_a_long_answer_that_is_not_read_is_ended_before_the_next_line() {
    let stage = Stage::new();
    let (mut client, id) = half_answered(&stage, LONG);
    let here = || rustix::io::ioctl_fionread(client.wire.reader()).unwrap();
    until("all of it is on its way", || {
        (stage.path("said").exists() && here() > FULL).then_some(())
    });
    kill_waiting_keeper(&stage);
    stage.event("keeper_lost");
    let torn = client.wire.line().unwrap().unwrap();
    assert!(torn.len() < LONG, "{}", torn.len());
    answered_after_all(&stage, client, id);
}

#[test]
fn our_own_waiting_answers_survive_a_killed_keeper() {
    let mut scene = Scene::open(&[], &[]);
    scene.mute();
    let ids: Vec<i64> = (0..1_000)
        .map(|n| scene.ask_call("add", &json!({"n": n})))
        .collect();
    scene.sync();
    // We answer each of them, with more bytes than the client's pipe holds.
    scene.kill(1);
    until("the client's pipe is full", || {
        (rustix::io::ioctl_fionread(scene.client.wire.reader()).unwrap() > FULL).then_some(())
    });
    let keeper = scene.kill_waiting_keeper();
    scene.taken_over(keeper);
    let mut open = ids.clone();
    let mut torn = 0;
    while !open.is_empty() {
        let line = scene.client.wire.line().unwrap().unwrap();
        let Ok(answer) = serde_json::from_slice::<Value>(&line) else {
            torn += 1;
            continue;
        };
        assert!(trouble(&answer).contains("may or may not have"), "{answer}");
        open.retain(|id| answer["id"] != *id);
    }
    assert!(torn <= 1, "{torn} lines are no messages");
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    scene.finish();
}
