//! Without a token, `serve` accepts only the user who runs it, root, and users that this user allows. A loopback address alone
//! does not keep other users of this machine out.
//! guards: Without a token, `serve` refuses other users of the machine.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::Descriptors;
use crate::support::front::{self, Front, mainstay, request, secret_file};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Source, Stage};
use mainstay_testkit::wait::until;
use rustix::fs::Uid;
use rustix::process::Signal;
use serde_json::{Value, json};

const STRANGER: u32 = 65_534;
const OTHER: u32 = 23_456;
const OPENED: &str = "mainstay_sessions_opened_total";

fn only_as_root() -> bool {
    skip::root_or_skip("only root can be another user")
}

/// A connection of this user. The kernel notes the owner of a socket when it is made.
fn connect_as(user: u32, address: SocketAddr) -> TcpStream {
    crowd_as(user, address, 1).remove(0)
}

/// This many such connections.
fn crowd_as(user: u32, address: SocketAddr, many: usize) -> Vec<TcpStream> {
    let connect = || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(None, user, None).unwrap();
        let each = (0..many).map(|_| TcpStream::connect(address).unwrap());
        each.collect()
    };
    // Only this thread changes its user, and it ends as that user.
    std::thread::scope(|scope| scope.spawn(connect).join().unwrap())
}

fn opening() -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    request(1, "initialize", &params)
}

/// The status that this user gets for opening a session.
fn opens(front: &Front, user: u32) -> u16 {
    let mut connection = front.speak(connect_as(user, front.address));
    connection.post(&[], &opening());
    connection.answer().status
}

fn words(stage: &Stage, options: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["--name", "unruly"].map(Into::into).into();
    words.extend(options.iter().map(OsString::from));
    words.push("--".into());
    words.extend(stage.unruly::<&str>(&[]));
    words
}

#[test]
fn another_user_is_refused_on_every_path_and_method_with_a_hint() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    let front = Front::start(&[], &[]);
    for path in ["/mcp", "/healthz", "/metrics", "/nowhere"] {
        let mut connection = front.speak(connect_as(STRANGER, front.address));
        connection.path = path.into();
        // Not even the preflight request of a browser is answered.
        for method in ["POST", "GET", "OPTIONS"] {
            let mut connection = front.speak(connect_as(STRANGER, front.address));
            connection.path = path.into();
            connection.send(method, &[("origin", "http://localhost")], b"");
            assert_eq!(connection.answer().status, 403, "{method} {path}");
        }
        connection.post(&[], &opening());
        let answer = connection.answer();
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.code(), -32600);
        assert_eq!(
            answer.message()["error"]["message"],
            "this connection is of another user of this machine (uid 65534); let that user in with \
             --allow-user 65534, or clients with a token with --token-file"
        );
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(connection.closed());
    }
    assert_eq!(opens(&front, OTHER), 403);
    assert_eq!(front.metric(OPENED), 0, "no server was bothered");
    assert_eq!(front.metric("mainstay_requests_refused_total"), 17);
    let told = front.stderr();
    assert_eq!(told.matches("(uid 65534)").count(), 1, "once: {told}");
    assert_eq!(told.matches("(uid 23456)").count(), 1, "{told}");
    drop(front.session());
    assert_eq!(front.metric(OPENED), 1, "we come in");
    front.finish();
}

#[test]
fn another_user_is_refused_even_with_valid_requests() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    let front = Front::start(&[], &[]);
    let copy = std::env::temp_dir().join(format!("mainstay-{}", front.stage.census.mark()));
    let home = copy.with_extension("home");
    front.stage.program(&copy, Source::Copy(&mainstay()));
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut client = front
        .stage
        .command(&copy)
        .args(["run", "--url", &format!("http://{}/mcp", front.address)])
        .env("HOME", &home)
        .current_dir("/")
        .uid(STRANGER)
        .gid(STRANGER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    writeln!(stdin, "{}", opening()).unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdin);
    client.wait().unwrap();
    std::fs::remove_file(copy).unwrap();
    // Guard and keeper outlive the shim by a moment, and write their last events into this directory.
    until("the directory of the other user is removed", || {
        std::fs::remove_dir_all(&home).ok()
    });
    let answer: Value = serde_json::from_str(&line).unwrap();
    let told = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains("(uid 65534)"), "{line}");
    assert_eq!(front.metric(OPENED), 0, "no server was bothered");
    front.finish();
}

/// The kernel reports a socket that its process has closed as owned by root.
#[test]
fn a_connection_closed_before_the_check_is_refused() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    let front = Front::start(&[], &[]);
    front.metric_is(OPENED, 0);
    front.signal(Signal::STOP);
    let address = front.address;
    for user in [STRANGER, 0] {
        let mut connection = front.speak(connect_as(user, address));
        connection.post(&[], &opening());
    }
    front.signal(Signal::CONT);
    front.metric_is("mainstay_requests_refused_total", 2);
    assert_eq!(front.metric(OPENED), 0, "no server was bothered");
    let told = front.stderr();
    let words = "(no process of this machine has its other end open)\nhint: allow all users of this machine";
    assert!(told.contains(words), "{told}");
    front.finish();
}

/// Writes half of a request of this size.
fn half_request(connection: &mut TcpStream, bytes: usize) {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: {}",
        "y".repeat(bytes)
    );
    // The front may have closed a refused connection already.
    connection.write_all(head.as_bytes()).ok();
}

const RESIDENT: &str = "mainstay_resident_bytes";
/// The memory that one metrics page more or less may cost.
const SLACK: u64 = 6 * 1024 * 1024;

/// Connections of a refused user take neither places nor memory.
#[test]
fn a_refused_user_takes_neither_places_nor_memory() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    let descriptors = Descriptors::raised();
    let many = (descriptors.most() / 2).min(3_000) as usize;
    let front = Front::start(&["--connections-max", "500"], &[]);
    let session = front.session();
    let before = front.metric(RESIDENT);
    let mut strangers = Vec::new();
    while strangers.len() < many {
        for mut one in crowd_as(STRANGER, front.address, 250) {
            half_request(&mut one, 4_000);
            strangers.push(one);
        }
        let answer = session.post(&request(strangers.len() as i64, "ping", &json!({})));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(session.post(&request(-1, "ping", &json!({}))).status, 200);
    let during = front.metric(RESIDENT);
    assert!(
        during < before + SLACK,
        "{before} B before, {during} B beside {many}"
    );
    assert!(front.metric("mainstay_connections_open") < 100);
    drop(strangers);
    // The metrics request itself is one connection.
    front.metric_is("mainstay_connections_open", 1);
    assert!(front.metric(RESIDENT) < before + SLACK);
    drop(session);
    front.finish();
}

/// The memory of our own connections is given back when they are closed.
#[test]
fn memory_of_closed_connections_is_released() {
    let _turn = crate::turn();
    let descriptors = Descriptors::raised();
    let many = (descriptors.most() / 2).min(800) as usize;
    let front = Front::start(&[], &[]);
    let before = front.metric(RESIDENT);
    let held: Vec<_> = (0..many)
        .map(|_| {
            let mut one = TcpStream::connect(front.address).unwrap();
            half_request(&mut one, 50_000);
            one
        })
        .collect();
    until("all are read", || {
        (front.metric(RESIDENT) > before + 3 * SLACK).then_some(())
    });
    drop(held);
    until("it is given back", || {
        (front.metric(RESIDENT) < before + SLACK).then_some(())
    });
    front.finish();
}

#[test]
fn an_allowed_user_is_accepted() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    for (options, stranger) in [
        (&["--allow-user", "23456"][..], 403),
        (&["--allow-user", "23456", "--allow-user", "65534"], 200),
        (&["--allow-user", "any"], 200),
    ] {
        let front = Front::start(options, &[]);
        let opened = [STRANGER, OTHER, 0].map(|user| opens(&front, user));
        assert_eq!(opened, [stranger, 200, 200], "{options:?}");
        front.finish();
    }
    let stage = Stage::new();
    std::fs::create_dir_all(stage.path(".config/mainstay")).unwrap();
    let file = stage.path(".config/mainstay/config.toml");
    std::fs::write(&file, "[serve]\nallow_user = [65534]\n").unwrap();
    let words = words(&stage, &["--allow-user", "23456"]);
    let front = Front::on(stage, &words);
    let opened = [STRANGER, OTHER, 1].map(|user| opens(&front, user));
    assert_eq!(opened, [200, 200, 403], "both lists count");
    // An open connection is refused once its user is no longer allowed.
    let mut open = front.speak(connect_as(STRANGER, front.address));
    open.path = "/healthz".into();
    open.send("GET", &[], b"");
    assert_eq!(open.answer().status, 200);
    std::fs::write(&file, "[serve]\nallow_user = [1]\n").unwrap();
    front.signal(Signal::HUP);
    until("it is told", || {
        front.stderr().contains("was read").then_some(())
    });
    open.send("GET", &[], b"");
    assert_eq!(open.answer().status, 403);
    let opened = [STRANGER, OTHER, 1].map(|user| opens(&front, user));
    assert_eq!(opened, [403, 200, 200]);
    front.finish();
}

#[test]
fn a_user_with_the_token_is_accepted() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    let stage = Stage::new();
    let secret = "a-very-secret-token-0123456789";
    secret_file(&stage.path("token"), secret);
    std::fs::create_dir_all(stage.path(".config/mainstay")).unwrap();
    let file = stage.path(".config/mainstay/config.toml");
    std::fs::write(&file, "[serve]\ntoken_file = \"~/token\"\n").unwrap();
    let words = words(&stage, &[]);
    let front = Front::on(stage, &words);
    let bearer = format!("Bearer {secret}");
    for user in [STRANGER, 0] {
        assert_eq!(opens(&front, user), 401);
        let mut connection = front.speak(connect_as(user, front.address));
        connection.post(&[("authorization", &bearer)], &opening());
        assert_eq!(connection.answer().status, 200);
    }
    let ask = |connection: &mut front::Connection| {
        connection.path = "/healthz".into();
        connection.send("GET", &[], b"");
        connection.answer().status
    };
    let mut early = front.speak(connect_as(STRANGER, front.address));
    assert_eq!(
        ask(&mut early),
        200,
        "open to all users while a token is set"
    );
    // A connection from that time is refused once the token is gone.
    std::fs::write(&file, "[serve]\n").unwrap();
    front.signal(Signal::HUP);
    until("it is told", || {
        front.stderr().contains("was read").then_some(())
    });
    assert_eq!(ask(&mut early), 403);
    assert_eq!([STRANGER, 0].map(|user| opens(&front, user)), [403, 200]);
    front.finish();
}

#[test]
fn another_user_is_refused_over_ipv6() {
    let _turn = crate::turn();
    if !only_as_root() {
        return;
    }
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        return skip::skip(&format!("no IPv6: {error}"));
    }
    for (options, status) in [(&[][..], 403), (&["--allow-user", "65534"], 200)] {
        let stage = Stage::new();
        let words = words(&stage, options);
        let front = Front::at("[::1]:0", stage, &words);
        let opened = [STRANGER, OTHER, 0].map(|user| opens(&front, user));
        assert_eq!(opened, [status, 403, 200]);
        front.finish();
    }
}
