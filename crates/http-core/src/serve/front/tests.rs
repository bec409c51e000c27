//! guards: Two sessions of `serve` get their own answers, and a client that leaves ends its session.

use mainstay_protocol::limits::HELD_LINE_BYTES;

use super::*;
use crate::serve::posted::Posted;
use alloc::string::ToString;
use alloc::vec::Vec;
use serde_json::{Value, json};

fn at(ms: u64) -> Moment {
    Moment::default().after_ms(ms)
}

struct Scene {
    front: Front,
    path: u64,
    outputs: Vec<Output>,
}

impl Scene {
    fn new(share: bool) -> Self {
        let limits = ServeLimits {
            requests_max: 3,
            ..ServeLimits::default()
        };
        Self::with(limits, share)
    }

    fn with(limits: ServeLimits, share: bool) -> Self {
        let mut front = Front::new(limits, || {
            use core::sync::atomic::{AtomicU64, Ordering};
            static NEXT: AtomicU64 = AtomicU64::new(1);
            u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
        });
        let path = front.add_path("/mcp".into(), share);
        Self {
            front,
            path,
            outputs: Vec::new(),
        }
    }

    /// Performs what came out: every link can be started.
    fn perform(&mut self) {
        while let Some(output) = self.front.next_output() {
            if let Output::Start { link, .. } = output {
                self.front.started(at(0), link);
            }
            self.outputs.push(output);
        }
        self.front.check();
    }

    fn post(&mut self, exchange: u64, session: Option<&str>, body: &Value) -> Step {
        let line = alloc::format!("{body}\n");
        let posted = Posted::read(line.as_bytes()).unwrap();
        let post = Post {
            path: self.path,
            session,
            version: None,
            posted: &posted,
            line: line.as_bytes(),
            header: &|_| Vec::new(),
        };
        let step = self.front.post(at(1), exchange, &post);
        self.perform();
        step
    }

    fn lines(&mut self, link: u64) -> Vec<Value> {
        let mut all = Vec::new();
        while let NextLine::Line(line) = self.front.next_line(link) {
            self.front.written(link, line.len());
            all.push(serde_json::from_slice(&line).unwrap());
        }
        all
    }

    fn hear(&mut self, link: u64, line: &Value) {
        let line = alloc::format!("{line}\n");
        self.front.server_bytes(at(2), link, line.as_bytes());
        self.perform();
    }

    fn started(&self) -> Vec<u64> {
        let mut links = Vec::new();
        for output in &self.outputs {
            if let Output::Start { link, .. } = output {
                links.push(*link);
            }
        }
        links
    }

    /// Opens a session: its name, and the link of its server.
    fn open(&mut self) -> (String, u64) {
        let exchange = self.front.open();
        let body = initialize();
        let mut step = self.post(exchange, None, &body);
        let link = *self.started().last().unwrap();
        if let Some(asked) = self
            .lines(link)
            .iter()
            .find(|line| line["method"] == "initialize")
        {
            let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
            self.hear(
                link,
                &json!({"jsonrpc": "2.0", "id": asked["id"], "result": greeting}),
            );
            step = self.post(exchange, None, &body);
        }
        let Step::Answer { session, .. } = step else {
            panic!("{step:?}");
        };
        self.front.left(at(3), exchange);
        self.perform();
        (session.unwrap(), link)
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})
}

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a"}})
}

fn message(step: &Step) -> Value {
    let Step::Answer { message, .. } = step else {
        panic!("{step:?}");
    };
    serde_json::from_slice(message).unwrap()
}

#[test]
fn two_sessions_of_one_server_get_their_own_answers() {
    let mut scene = Scene::new(true);
    let (one, link) = scene.open();
    let (other, same) = scene.open();
    assert_eq!((link, scene.started().len()), (same, 1));
    let (first, second) = (scene.front.open(), scene.front.open());
    assert_eq!(
        scene.post(first, Some(&one), &call(7)),
        Step::Wait(Some(at(15_001)))
    );
    assert_eq!(
        scene.post(second, Some(&other), &call(7)),
        Step::Wait(Some(at(15_001)))
    );
    let asked = scene.lines(link);
    let ids: Vec<&Value> = asked
        .iter()
        .filter(|line| line["method"] == "tools/call")
        .map(|line| &line["id"])
        .collect();
    assert_ne!(ids[0], ids[1]);
    scene.hear(
        link,
        &json!({"jsonrpc": "2.0", "id": ids[1], "result": {"for": "other"}}),
    );
    assert!(matches!(
        scene.post(first, Some(&one), &call(7)),
        Step::Wait(_)
    ));
    let answer = message(&scene.post(second, Some(&other), &call(7)));
    assert_eq!(
        (&answer["id"], &answer["result"]["for"]),
        (&json!(7), &json!("other"))
    );
}

#[test]
fn a_client_that_leaves_before_it_knows_its_session_ends_it() {
    let mut scene = Scene::new(false);
    let exchange = scene.front.open();
    assert!(matches!(
        scene.post(exchange, None, &initialize()),
        Step::Wait(_)
    ));
    let link = scene.started()[0];
    assert_eq!(scene.lines(link).len(), 1);
    scene.front.left(at(2), exchange);
    scene.perform();
    assert_eq!(scene.front.open_sessions(), 0);
    assert_eq!(scene.front.next_line(link), NextLine::Close);
    scene.front.link_over(at(3), link, "exit status: 0");
    scene.perform();
    assert_eq!(scene.front.links(), 0);
}

#[test]
fn a_link_that_cannot_be_started_is_told_to_its_client_and_leaves_no_session() {
    for share in [false, true] {
        let mut scene = Scene::new(share);
        let exchange = scene.front.open();
        let line = alloc::format!("{}\n", initialize());
        let posted = Posted::read(line.as_bytes()).unwrap();
        let path = scene.path;
        let post = Post {
            path,
            session: None,
            version: None,
            posted: &posted,
            line: line.as_bytes(),
            header: &|_| Vec::new(),
        };
        assert!(matches!(
            scene.front.post(at(0), exchange, &post),
            Step::Wait(_)
        ));
        while let Some(output) = scene.front.next_output() {
            assert!(!matches!(output, Output::Began { .. } | Output::Over(_)));
            if let Output::Start { link, .. } = output {
                scene.front.start_failed(at(0), link, "no process");
            }
        }
        let refused = Step::Refuse(Refused::CannotStart("no process".to_string()));
        assert_eq!(scene.front.post(at(0), exchange, &post), refused);
        scene.front.left(at(1), exchange);
        scene.perform();
        assert_eq!((scene.front.open_sessions(), scene.front.links()), (0, 0));
    }
}

#[test]
fn a_stop_waits_for_answers_and_then_ends_everything() {
    let mut scene = Scene::new(false);
    let (name, link) = scene.open();
    let exchange = scene.front.open();
    scene.post(exchange, Some(&name), &call(7));
    scene.front.stop(at(10), 0);
    scene.perform();
    assert!(scene.front.is_stopping() && !scene.front.is_closing());
    let late = scene.front.open();
    let refused = Step::Refuse(Refused::Stopping);
    assert_eq!(scene.post(late, Some(&name), &call(8)), refused);
    scene.front.left(at(10), late);
    let due = scene.front.wake_at().unwrap();
    assert_eq!(due, at(10 + ServeLimits::default().stop_wait_ms));
    scene.front.tick(due);
    scene.perform();
    assert!(scene.front.is_closing());
    assert!(scene.outputs.contains(&Output::CloseConnections));
    let answer = message(&scene.post(exchange, Some(&name), &call(7)));
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("serve stops")
    );
    scene.lines(link);
    assert_eq!(scene.front.next_line(link), NextLine::Close);
}

#[test]
fn before_a_stop_sessions_go_on_and_no_session_is_opened() {
    let mut scene = Scene::new(false);
    let (name, link) = scene.open();
    scene.front.stop(at(10), 500);
    scene.perform();
    assert!(scene.front.is_leaving() && !scene.front.is_stopping());
    let opening = scene.front.open();
    let refused = Step::Refuse(Refused::Stopping);
    assert_eq!(scene.post(opening, None, &initialize()), refused);
    scene.front.left(at(10), opening);
    let exchange = scene.front.open();
    scene.post(exchange, Some(&name), &call(7));
    assert_eq!(scene.front.wake_at(), Some(at(510)));
    // A second request to stop changes nothing.
    scene.front.stop(at(100), 900);
    assert_eq!(scene.front.wake_at(), Some(at(510)));
    scene.front.tick(at(510));
    scene.perform();
    assert!(scene.front.is_stopping() && !scene.front.is_closing());
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n";
    scene.front.server_bytes(at(511), link, line);
    scene.perform();
    let answer = message(&scene.post(exchange, Some(&name), &call(7)));
    assert_eq!(answer["id"], 7);
    assert!(
        scene.front.is_closing(),
        "the last answer does not wait for the end of the time"
    );
}

#[test]
fn too_many_requests_are_refused_and_a_name_is_of_its_path_only() {
    let mut scene = Scene::new(false);
    let (name, _) = scene.open();
    for id in 2..5 {
        let exchange = scene.front.open();
        assert!(matches!(
            scene.post(exchange, Some(&name), &call(id)),
            Step::Wait(_)
        ));
    }
    let fourth = scene.front.open();
    let step = scene.post(fourth, Some(&name), &call(9));
    assert_eq!(step, Step::Refuse(Refused::Requests));
    let elsewhere = scene.front.add_path("/other/mcp".into(), false);
    scene.path = elsewhere;
    let fifth = scene.front.open();
    let step = scene.post(fifth, Some(&name), &call(9));
    assert_eq!(step, Step::Refuse(Refused::NoSession));
}

#[test]
fn an_answer_that_is_too_long_is_answered_for_and_the_next_line_is_read() {
    let mut scene = Scene::new(false);
    let (name, link) = scene.open();
    let (long, short) = (scene.front.open(), scene.front.open());
    scene.post(long, Some(&name), &call(7));
    scene.post(short, Some(&name), &call(8));
    let big = alloc::vec![b'x'; HELD_LINE_BYTES];
    for piece in [
        br#"{"jsonrpc":"2.0","id":7,"result":""#.as_slice(),
        &big,
        b"\"}\n{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n",
    ] {
        scene.front.server_bytes(at(2), link, piece);
        scene.perform();
    }
    let answer = message(&scene.post(long, Some(&name), &call(7)));
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("16 MiB")
    );
    assert_eq!(message(&scene.post(short, Some(&name), &call(8)))["id"], 8);
}
