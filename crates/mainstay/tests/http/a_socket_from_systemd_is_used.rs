//! `serve` gets its socket from systemd: a small program plays systemd's part, as `sd_listen_fds(3)` describes it.
//! guards: `serve` uses a socket that systemd passes to it, gives it to no server, and refuses one that it cannot use.

use std::fs;
use std::process::{Command, Stdio};

use mainstay_testkit::stage::Stage;
use serde_json::json;

use crate::support::front::{Front, mainstay};

/// Opens sockets at descriptors 3, 4 … and becomes the command. Arguments: the kind of each socket, `--`, the command.
const SYSTEMD: &str = r#"
import os, socket, sys
kinds, command = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
sockets = []
for kind in kinds:
    if kind == "unix":
        one = socket.socket(socket.AF_UNIX)
        one.bind("\0" + os.environ["HOME"])
    else:
        one = socket.socket()
        one.bind(("0.0.0.0" if kind == "public" else "127.0.0.1", 0))
    if kind != "silent":
        one.listen()
    sockets.append(os.dup(one.detach()))
# Above all targets first, so that no target is overwritten before it was moved.
high = [os.dup2(fd, 100 + number) for number, fd in enumerate(sockets)]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES="serve")
os.execv(command[0], command)
"#;

fn passing(stage: &Stage, kinds: &[&str], words: &[&str]) -> Command {
    let mut command = stage.command("python3");
    command.args(["-c", SYSTEMD]).args(kinds).arg("--");
    command
        .arg(mainstay())
        .args(["serve", "--json"])
        .args(words);
    command.args(["--name", "unruly", "--"]);
    command.args(stage.unruly::<&str>(&[]));
    command
}

#[test]
fn the_socket_is_served_and_stays_with_serve() {
    let stage = Stage::new();
    // An address that could not be used, so the test sees that it is not.
    let command = passing(&stage, &["local"], &["--listen", "192.0.2.1:9"]);
    let front = Front::by(stage, command);
    assert!(front.address.ip().is_loopback(), "{}", front.address);
    let session = front.session();
    let echo = session.call(1, "echo", &json!({"text": "hello"}));
    assert!(echo["error"].is_null(), "{echo}");

    let server = session.server();
    let environ = fs::read(format!("/proc/{server}/environ")).unwrap();
    let environ = String::from_utf8_lossy(&environ);
    assert!(!environ.contains("LISTEN_"), "{environ}");
    let inode = |pid: u32, fd: &str| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok();
    let listening = inode(front.pid(), "3").expect("the socket stays at its descriptor");
    let of_server: Vec<_> = fs::read_dir(format!("/proc/{server}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!of_server.contains(&listening), "{of_server:?}");
    front.finish();
}

#[test]
fn a_socket_that_cannot_be_used_is_an_error_with_its_reason() {
    for (kinds, exit, expected) in [
        (
            &["local", "local"][..],
            125,
            "2 sockets were passed, and only one can be used",
        ),
        (
            &["unix"],
            125,
            "descriptor 3 is not a TCP socket that listens",
        ),
        (
            &["silent"],
            125,
            "descriptor 3 is not a TCP socket that listens",
        ),
        (&["public"], 2, "no token is asked for"),
    ] {
        let stage = Stage::new();
        let output = passing(&stage, kinds, &[])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(expected), "{kinds:?}: {stderr}");
        assert_eq!(output.status.code(), Some(exit), "{kinds:?}: {stderr}");
    }
}
