//! The ends of `serve` itself: killed, signalled once, signalled twice, and a reload of its config.
//! guards: However `serve` ends, no server of it is left.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::front::{self, Front, call};
use mainstay_testkit::httpd::Httpd;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_killed_serve_leaves_no_server() {
    let mut front = Front::start(&[], &["--ignore-term", "--grandchild"]);
    let servers: Vec<_> = (0..3).map(|_| front.session().server()).collect();
    assert_eq!(servers.len(), 3);
    front.signal(Signal::KILL);
    front.wait();
    front.stage.census.assert_empty();
}

#[test]
fn a_killed_serve_with_servers_of_every_kind_leaves_no_process() {
    let stage = Stage::new();
    let (http, far) = (Httpd::start(), Httpd::start());
    let directory = stage.path(".config/mainstay");
    std::fs::create_dir_all(&directory).unwrap();
    let table = |name: &str, habits: &[&str], more: &str| {
        let argv = stage.unruly(habits);
        let words: Vec<_> = argv.iter().map(|word| word.to_str().unwrap()).collect();
        let args = serde_json::to_string(&words[1..]).unwrap();
        format!(
            "[server.{name}]\ncommand = {:?}\nargs = {args}\n{more}\n",
            words[0]
        )
    };
    let text = [
        table("legacy", &["--ignore-term", "--grandchild"], ""),
        table("modern", &["--modern", "--ignore-term"], ""),
        table("shared", &["--ignore-term", "--grandchild"], "share = true"),
        format!("[server.http]\nurl = \"{}\"\n", http.url()),
    ];
    std::fs::write(directory.join("config.toml"), text.concat()).unwrap();
    let words: [OsString; 0] = [];
    let mut front = Front::on(stage, &words);
    for path in ["/legacy/mcp", "/legacy/mcp", "/shared/mcp", "/shared/mcp"] {
        assert!(front.session_at(path).server() > 0);
    }
    front.session_at("/http/mcp");
    front.paths = vec!["/modern/mcp".into()];
    let mut modern = front.modern(&json!(1), "tools/list", json!({}));
    assert_eq!(modern.answer().status, 200);
    assert_eq!(front.metric("mainstay_links"), 5);
    // Another front of the same user with a foreign server upstream.
    let mut upstream = front
        .stage
        .command(front::mainstay())
        .args(["serve", "--listen", "0", "--json", "--upstream", &far.url()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = upstream.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = told["listen"].as_str().unwrap().parse().unwrap();
    let before = std::mem::replace(&mut front.address, address);
    front.paths = vec!["/mcp".into()];
    for _ in 0..3 {
        drop(front.session());
    }
    front.address = before;
    assert_eq!((http.open(), far.open()), (1, 3));
    // A guard sweeps once its link is listed.
    until("all links are listed", || {
        (front.stage.cards().len() == 5).then_some(())
    });
    front.stage.census.wait_swept();
    upstream.kill().unwrap();
    front.signal(Signal::KILL);
    upstream.wait().unwrap();
    front.wait();
    front.stage.census.assert_empty();
    assert_eq!(far.open(), 3, "no process was left to end them");
    let mut words: Vec<OsString> = vec!["--".into()];
    words.extend(front.stage.unruly::<&str>(&[]));
    let next = front.again(&words);
    far.empty();
    http.empty();
    next.finish();
}

#[test]
fn serve_answers_requests_in_flight_before_it_stops() {
    let mut front = Front::start(&["--stop-wait", "60s"], &[]);
    let session = front.session();
    session.server();
    let mut news = session.news(None);
    assert_eq!(news.head().status, 200);
    let mut waiting = session.asking(&call(7, "sleep", &json!({"ms": 1_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    front.signal(Signal::TERM);
    let answer = waiting.answer();
    assert_eq!(
        (answer.status, &answer.last()["result"]["isError"]),
        (200, &json!(null))
    );
    while news.event().is_some() {}
    assert!(front.wait().success());
    front.stage.census.assert_empty();
    assert_eq!(
        front.stage.event("client_session_closed")["why"],
        "shutdown"
    );
    let stopped = front.stage.event("serve_stopped");
    assert_eq!(
        (&stopped["number"], &stopped["left"], &stopped["sessions"]),
        (&json!(15), &json!(0), &json!(1))
    );
}

#[test]
fn serve_stops_although_a_request_never_ends() {
    // The server's graces are short, so that a slow machine has nearly all the time that serve waits for the end.
    let options = ["--stop-wait", "200ms", "--grace-eof", "200ms"];
    let mut front = Front::start(&options, &[]);
    let session = front.session();
    let mut waiting = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 2);
    front.signal(Signal::INT);
    let answer = waiting.answer().last();
    assert_eq!(answer["id"], 7);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("serve stops"),
        "{answer}"
    );
    assert!(front.wait().success());
    front.stage.census.assert_empty();
}

#[test]
fn serve_stops_at_once_by_a_second_signal() {
    let mut front = Front::start(&["--stop-wait", "10m"], &[]);
    let session = front.session();
    let waiting = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 2);
    front.signal(Signal::TERM);
    until("it takes nothing new", || {
        std::net::TcpStream::connect(front.address)
            .is_err()
            .then_some(())
    });
    front.signal(Signal::TERM);
    front.wait();
    front.stage.census.assert_empty();
    drop(waiting);
}

fn config(stage: &Stage, servers: &[(&str, &str)], more: &str) {
    let directory = stage.path(".config/mainstay");
    std::fs::create_dir_all(&directory).unwrap();
    let mut text = format!("[serve]\n{more}\n");
    for (name, echo) in servers {
        let argv = stage.unruly(&["--extra-tool", *echo]);
        let words: Vec<_> = argv.iter().map(|word| word.to_str().unwrap()).collect();
        let args = serde_json::to_string(&words[1..]).unwrap();
        let table = format!("[server.{name}]\ncommand = {:?}\nargs = {args}\n", words[0]);
        text.push_str(&table);
    }
    std::fs::write(directory.join("config.toml"), text).unwrap();
}

#[test]
fn serve_reloads_its_config() {
    let stage = Stage::new();
    config(
        &stage,
        &[("one", "old"), ("two", "old")],
        "session_ttl = \"20m\"",
    );
    let words: [OsString; 0] = [];
    let mut front = Front::on(stage, &words);
    assert_eq!(front.paths, ["/one/mcp", "/two/mcp"]);
    let tools = |session: &front::Session<'_>| {
        session
            .post(&front::request(5, "tools/list", &json!({})))
            .text()
    };
    let (one, two) = (front.session_at("/one/mcp"), front.session_at("/two/mcp"));
    assert!(tools(&one).contains("\"old\"") && tools(&two).contains("\"old\""));
    assert_eq!(
        two.post(&json!({"jsonrpc": "2.0", "method": "x"})).status,
        202
    );
    // A broken file changes nothing.
    std::fs::write(
        front.stage.path(".config/mainstay/config.toml"),
        "[serve]\nsession_tll = 3\n",
    )
    .unwrap();
    front.signal(Signal::HUP);
    until("it is told", || {
        front
            .stderr()
            .contains("everything stays as it is")
            .then_some(())
    });
    assert!(
        front.stderr().contains("did you mean `session_ttl`?"),
        "{}",
        front.stderr()
    );
    config(
        &front.stage,
        &[("one", "new"), ("three", "new")],
        "listen = \"127.0.0.1:1\"\nsession_cap = 3",
    );
    front.signal(Signal::HUP);
    until("it is told", || {
        front
            .stderr()
            .contains("new sessions get what it says")
            .then_some(())
    });
    let again = front.session_at("/one/mcp");
    assert!(
        tools(&again).contains("\"new\""),
        "a new session gets the new one"
    );
    assert!(tools(&one).contains("\"old\""), "an old one goes on");
    assert!(
        tools(&two).contains("\"old\""),
        "even if its server is not in the file any more"
    );
    let mut refused = front.connect();
    refused.path = "/two/mcp".into();
    refused.post(&[], &front::request(0, "initialize", &json!({})));
    assert_eq!(refused.answer().status, 404);
    front.session_at("/three/mcp");
    assert_eq!(
        front.metric("mainstay_sessions_open"),
        3,
        "the new cap holds"
    );
    front.paths = vec!["/one/mcp".into()];
    front.finish();
}
