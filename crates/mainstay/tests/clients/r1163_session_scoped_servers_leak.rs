//! copilot-sdk #1163: "MCP server leaking over long running clients with multiple sessions". A long-lived host creates a session
//! with a stdio server, works, deletes the session, and goes on; the server stays until the host itself ends.
//!
//! The test repeats the report's steps with a host that never closes a server's pipes. Without a lease the servers leak. With a
//! lease, 0 processes are left after each delete.
//! guards: After `lease close` no process of a deleted session is left, even if the host never closes a pipe.

use std::ffi::OsString;

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};

use crate::support::leased::{
    all_processes, assert_gone, lease, left_on_disk, mainstay, until_nothing_on_disk,
};
use serde_json::{Value, json};

/// In the report, the worker had three servers of three deleted sessions.
const SESSIONS: usize = 3;

/// The long-lived client. It knows its sessions and holds the pipes of every server that it ever started.
struct Host<'s> {
    stage: &'s Stage,
    servers: Vec<Client>,
}

impl Host<'_> {
    /// `client.createSession({mcpServers: {atai: …}})`, then a prompt, so that the server is really started.
    fn create_session(&mut self, argv: &[OsString], id: &str) -> Identity {
        let mut server = Launch::new(self.stage, argv)
            .with(|command| command.env("MAINSTAY_LEASE", id))
            .start();
        server.wire.initialize().unwrap();
        let pid = server.wire.call("pid", &json!({})).unwrap()["pid"].as_i64();
        self.servers.push(server);
        identity::of(pid.unwrap() as i32).unwrap()
    }

    /// `client.deleteSession(id)` as in the SDK: bookkeeping only. The server's stdin stays open, and no signal is sent.
    fn delete_session(&mut self) {
        assert!(self.servers.last_mut().unwrap().runs());
    }

    /// `client.forceStop()`: the host's end.
    fn force_stop(mut self) {
        for server in &mut self.servers {
            server.wire.close_write();
            server.wait();
        }
    }
}

#[test]
fn without_a_lease_every_session_leaves_its_server() {
    let stage = Stage::new();
    let argv = run(mainstay(), &["--name", "atai"], stage.unruly::<&str>(&[]));
    let mut host = Host {
        stage: &stage,
        servers: Vec::new(),
    };
    let mut servers = Vec::new();
    for _ in 0..SESSIONS {
        // An empty name is no lease.
        servers.push(host.create_session(&argv, ""));
        host.delete_session();
        // "Actual: the MCP subprocess is still alive."
        assert!(servers.iter().all(|who| identity::alive(*who)));
    }
    host.force_stop();
    // "Only here does the MCP subprocess disappear."
    stage.census.assert_empty();
    assert_gone(&servers);
}

#[test]
fn with_a_lease_nothing_is_left_after_each_delete() {
    let stage = Stage::new();
    let habits = ["--ignore-eof", "--ignore-term", "--grandchild", "--daemon"];
    let options = [
        "--name",
        "atai",
        "--grace-eof",
        "100ms",
        "--grace-term",
        "100ms",
    ];
    let argv = run(mainstay(), &options, stage.unruly(&habits));
    let owner = std::process::id().to_string();
    let mut host = Host {
        stage: &stage,
        servers: Vec::new(),
    };
    for number in 0..SESSIONS {
        let id = format!("session-{number}");
        lease(&stage, &["open", &id, "--owner", &owner]);
        let server = host.create_session(&argv, &id);
        let all = all_processes(&stage);
        assert!(all.contains(&server) && all.len() >= 6, "{all:?}");
        host.delete_session();
        let closed = lease(&stage, &["close", &id]);
        // "Expected: the session-scoped MCP subprocess exits here." With everything that it started, and all of ours.
        assert_gone(&all);
        assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
        let row = &closed["servers"][0];
        assert_eq!(
            (&row["server"], &row["pid"]),
            (&json!("atai"), &json!(server.pid))
        );
        // The host lives on. No process or file of the session does.
        assert_eq!(left_on_disk(&stage), [""; 0]);
    }
    let ended = stage.events("teardown");
    assert_eq!(ended.len(), SESSIONS);
    assert!(ended.iter().all(|event| event["left"] == json!([])));
    host.force_stop();
    until_nothing_on_disk(&stage);
}

/// The same with the example for Node hosts, a client in the style of the SDK.
#[test]
fn the_node_example_leaves_no_process() {
    let stage = Stage::new();
    let host = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/node-host/host.mjs"
    );
    let mut argv: Vec<OsString> = vec!["node".into(), host.into()];
    argv.extend(stage.unruly(&["--grandchild", "--daemon"]));
    let mut host = Launch::new(&stage, &argv)
        .with(|command| command.env("MAINSTAY_BIN", mainstay()))
        .start();
    for number in 0..SESSIONS {
        let id = format!("job-{number}");
        host.wire.send_bytes(format!("{id}\n").as_bytes()).unwrap();
        let line = host.wire.line().unwrap().expect("the host lives");
        let told: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (
                &told["job"],
                &told["answered"],
                &told["servers"],
                &told["left"]
            ),
            (&json!(id), &json!(true), &json!(1), &json!(0))
        );
        assert!(told["ended"].as_u64().unwrap() >= 3, "{told}");
        assert_eq!(left_on_disk(&stage), [""; 0]);
        let others: Vec<_> = all_processes(&stage)
            .into_iter()
            .filter(|who| *who != host.who)
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }
    let (status, _) = host.finish();
    assert!(status.success());
}
