//! A kept server is only for the same configuration of the same client, for one start, and only if that start opens a session.
//! guards: A warm server is handed over only to one start of the same user, client and configuration that opens a session.

use std::fs;
use std::os::fd::AsFd;

use crate::support::scene::{self, Scene, argv};
use mainstay_os::identity::Handle;
use mainstay_os::packet_socket::{PacketConnection, Received};
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// A scene whose server has answered one call and is kept.
fn kept(habits: &[&str]) -> Scene {
    let mut scene = Scene::open(&KEPT, habits);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    strike(&mut scene.client);
    scene.state("lingering");
    scene
}

fn strike(client: &mut Client) {
    let shim = Handle::open(client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
    client.wait();
}

fn calls(client: &mut Client) -> Value {
    client.wire.call("pid", &json!({})).unwrap()["calls"].clone()
}

#[test]
fn another_configuration_gets_no_kept_server() {
    let mut scene = kept(&[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    for other in [
        argv(&scene.stage, &["--linger", "59s"], &[]),
        argv(&scene.stage, &KEPT, &["--stderr", "x"]),
    ] {
        let mut client = Client::open(&scene.stage, &other);
        assert_eq!(calls(&mut client), 1, "a server of its own");
        client.finish();
    }
    let mut client = Launch::new(&scene.stage, &words)
        .with(|command| command.env("TOKEN", "another"))
        .start();
    client.wire.initialize().unwrap();
    assert_eq!(calls(&mut client), 1, "a server of its own");
    client.finish();
    // Variables that do not matter are ignored.
    scene.client = Launch::new(&scene.stage, &words)
        .with(|command| command.env("CLAUDE_CODE_SESSION_ID", "another"))
        .start();
    scene.client.wire.initialize().unwrap();
    assert_eq!(calls(&mut scene.client), 2);
    scene.finish();
}

#[test]
fn another_client_gets_no_kept_server() {
    let mut scene = kept(&[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    let mut puppet = Puppet::start(&scene.stage, Plan::default(), &words);
    assert!(puppet.call_pids()[0].is_some());
    until("a server of its own is told", || {
        (scene.stage.events("start").len() == 2).then_some(())
    });
    puppet.kill();
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(calls(&mut scene.client), 2);
    scene.finish();
}

#[test]
fn only_one_of_two_starts_gets_the_kept_server() {
    let mut scene = kept(&[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    let mut pair = [
        Launch::new(&scene.stage, &words).start(),
        Launch::new(&scene.stage, &words).start(),
    ];
    for client in &mut pair {
        client.wire.initialize().unwrap();
    }
    let mut counts: Vec<i64> = pair
        .iter_mut()
        .map(|c| calls(c).as_i64().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2], "one has the warm server, the other its own");
    let [one, mut other] = pair;
    other.finish();
    scene.client = one;
    scene.finish();
}

/// Two servers of one configuration under one client: both are kept, each for one start.
#[test]
fn two_starts_get_two_kept_servers() {
    let mut scene = Scene::open(&KEPT, &[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    let mut other = Client::open(&scene.stage, &words);
    for client in [&mut scene.client, &mut other] {
        assert_eq!(calls(client), 1);
    }
    strike(&mut scene.client);
    strike(&mut other);
    until("both are kept", || {
        (scene.stage.events("lingering").len() == 2).then_some(())
    });
    scene.client = Client::open(&scene.stage, &words);
    other = Client::open(&scene.stage, &words);
    for client in [&mut scene.client, &mut other] {
        assert_eq!(calls(client), 2);
    }
    until("a server of its own is told", || {
        (scene.stage.events("start").len() == 2).then_some(())
    });
    other.finish();
    scene.finish();
}

/// The throw-away sibling of the TypeScript SDK only sends `server/discover`, then closes and signals. The process that follows
/// opens the session. Other clients send both in one process.
#[test]
fn a_probe_does_not_take_the_kept_server_from_the_session_after_it() {
    let mut scene = kept(&[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    let discover = json!({"jsonrpc": "2.0", "id": "server-discover-probe-1", "method": "server/discover",
        "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    for in_place in [false, true] {
        let mut probe = Launch::new(&scene.stage, &words).start();
        probe.wire.send(&discover).unwrap();
        let answer: Value = serde_json::from_slice(&probe.wire.line().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], "server-discover-probe-1");
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        if in_place {
            probe.wire.initialize().unwrap();
            assert_eq!(calls(&mut probe), 2);
            scene.client = probe;
            break;
        }
        let (status, rest) = probe.finish();
        assert_eq!((status.code(), rest.as_slice()), (Some(0), &b""[..]));
        scene.state("lingering");
    }
    assert_eq!(scene.stage.events("start").len(), 1);
    scene.finish();
}

/// Lines that the start read before it knew that it would not get the warm server go to the server that is started then.
#[test]
fn bytes_read_before_a_failed_hand_over_are_not_lost() {
    let scene = kept(&[]);
    let words = argv(&scene.stage, &KEPT, &[]);
    let mut client = Launch::new(&scene.stage, &words).start();
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}});
    client
        .wire
        .send_bytes(
            format!(
                "\n{list}\n{}\n",
                json!({"jsonrpc": "2.0", "id": 8, "method": "ping"})
            )
            .as_bytes(),
        )
        .unwrap();
    for id in [7, 8] {
        let answer = client.wire.answer(id).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    client.finish();
    scene.state("lingering");
    let Scene { client, stage } = scene;
    drop(client);
    let stopped = stage
        .command(scene::mainstay())
        .args(["stop", "unruly"])
        .output()
        .unwrap();
    assert!(stopped.status.success());
    stage.census.assert_empty();
}

/// A connection that sends nonsense is closed, and the server is still kept.
#[test]
fn a_peer_that_sends_nonsense_gets_no_kept_server() {
    let mut scene = kept(&[]);
    let warm = scene.stage.home().join(".local/state/mainstay/warm");
    let name = fs::read_dir(&warm).unwrap().next().unwrap().unwrap();
    let name = name.file_name().into_string().unwrap();
    let directory = fs::File::open(&warm).unwrap();
    let (mut guests, long) = (Vec::new(), vec![b'P'; 70_000]);
    for words in [
        &b"junk"[..],
        b"T",
        b"T{\"id\":1,\"method\":\"initialize\"}\n",
        b"P",
        &long,
    ] {
        let guest = PacketConnection::connect(directory.as_fd(), &name).unwrap();
        guest.send(words, &[]).unwrap();
        guests.push(guest);
    }
    let (null, silent) = (
        fs::File::open("/dev/null").unwrap(),
        PacketConnection::connect(directory.as_fd(), &name).unwrap(),
    );
    let take = b"T{\"id\":1,\"method\":\"initialize\"}\n";
    let half = PacketConnection::connect(directory.as_fd(), &name).unwrap();
    half.send(take, &[null.as_fd(), null.as_fd()]).unwrap();
    guests.push(half);
    for guest in &guests {
        until("it is answered or sent away", || {
            let mut packet = [0; 512];
            let mut lent = Vec::new();
            loop {
                match guest.receive(&mut packet, &mut lent) {
                    Received::Bytes(len) if packet[0] == b'H' && len > 0 => {}
                    Received::Bytes(_) | Received::Gone => return Some(()),
                    Received::Nothing => return None,
                }
            }
        });
    }
    let words = argv(&scene.stage, &KEPT, &[]);
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(calls(&mut scene.client), 2);
    drop(silent);
    scene.finish();
}

/// A launcher between the client and us, which ends with the shim, is not the client.
#[test]
fn a_client_behind_a_launcher_gets_its_kept_server() {
    let stage = mainstay_testkit::stage::Stage::new();
    let mut words: Vec<std::ffi::OsString> =
        ["sh", "-c", "\"$@\"; exit 7", "sh"].map(Into::into).into();
    words.extend(argv(&stage, &KEPT, &[]));
    let client = Client::open(&stage, &words);
    let mut scene = Scene { client, stage };
    assert_eq!(calls(&mut scene.client), 1);
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.state("lingering");
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(calls(&mut scene.client), 2);
    scene.finish();
}

/// A warm server of the modern era goes to a client that speaks that era, and not to a legacy client.
#[test]
fn a_client_of_the_other_era_gets_no_kept_server() {
    let modern = |name: &str| {
        json!({"name": name, "arguments": {},
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}})
    };
    let mut scene = Scene::start(&KEPT, &["--modern"]);
    let pid = |client: &mut Client| {
        let answer = client.wire.request("tools/call", &modern("pid")).unwrap();
        answer["result"]["structuredContent"].clone()
    };
    let first = pid(&mut scene.client);
    strike(&mut scene.client);
    scene.state("lingering");
    let words = argv(&scene.stage, &KEPT, &["--modern"]);
    let mut legacy = Launch::new(&scene.stage, &words).start();
    legacy
        .wire
        .ask(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
        )
        .unwrap();
    legacy.wire.line().unwrap();
    until("a server of its own is told", || {
        (scene.stage.events("start").len() == 2).then_some(())
    });
    legacy.finish();
    scene.client = Launch::new(&scene.stage, &words).start();
    let second = pid(&mut scene.client);
    assert_eq!(second["pid"], first["pid"]);
    assert_eq!(second["calls"], 2);
    scene.finish();
}
