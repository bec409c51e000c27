//! Shared by the tests of deaths: one client with one server that can be killed, and a count of answers.

use std::ffi::OsString;
use std::fs;
use std::process::Output;

use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

/// One client with one server under mainstay. The client ends first, then the stage counts the processes that are left.
pub struct Scene {
    pub client: Client,
    pub stage: Stage,
}

/// The command under test.
pub fn mainstay() -> std::path::PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

/// `mainstay run` with these options for an unruly server with these options, which counts its generations.
pub fn argv(stage: &Stage, options: &[&str], habits: &[&str]) -> Vec<OsString> {
    let count = stage.path("generations");
    let mut words = vec!["--generations", count.to_str().unwrap()];
    words.extend(habits);
    let mut all = vec!["--name", "unruly"];
    all.extend(options);
    run(mainstay(), &all, stage.unruly(&words))
}

impl Scene {
    /// Starts it and opens the session.
    pub fn open(options: &[&str], habits: &[&str]) -> Self {
        let mut scene = Self::start(options, habits);
        scene.client.wire.initialize().unwrap();
        scene
    }

    /// Starts it. The client has not sent a line yet.
    pub fn start(options: &[&str], habits: &[&str]) -> Self {
        let stage = Stage::new();
        let argv = argv(&stage, options, habits);
        Self::on(stage, &argv)
    }

    /// Starts it on an existing stage.
    pub fn on(stage: Stage, argv: &[OsString]) -> Self {
        let client = Launch::new(&stage, argv).start();
        Self { client, stage }
    }

    /// Waits for the server process of this generation and returns it.
    pub fn server(&self, generation: u32) -> Identity {
        let card = self.stage.card_that("names that generation", |card| {
            card.json["generation"] == generation
        });
        card.server.unwrap()
    }

    /// Waits until the link reports this state.
    pub fn state(&self, word: &str) {
        until(&format!("the state `{word}`"), || {
            let cards = self.stage.cards();
            cards.iter().find(|card| card.json["state"] == word)?;
            Some(())
        });
    }

    /// Kills a generation from outside.
    pub fn kill(&self, generation: u32) {
        let handle = Handle::open(self.server(generation)).unwrap();
        handle.signal(Signal::KILL).unwrap();
    }

    /// Stops a generation from outside, so that it reads nothing, and waits until it is stopped.
    pub fn freeze(&self, generation: u32) {
        freeze(self.server(generation));
    }

    /// Continues a stopped generation.
    pub fn thaw(&self, generation: u32) {
        thaw(self.server(generation));
    }

    /// Makes the server read without answering: every request stays in flight.
    pub fn mute(&mut self) {
        assert_eq!(self.call("mute", &json!({})), json!({"mute": true}));
    }

    /// Waits until the client's pipe is empty.
    pub fn taken(&self) {
        let to = self.client.wire.writer().unwrap();
        until("the client's pipe is empty", || {
            (rustix::io::ioctl_fionread(to).unwrap() == 0).then_some(())
        });
    }

    /// The number of bytes that a generation has not read yet.
    pub fn unread(&self, generation: u32) -> u64 {
        let stdin = format!("/proc/{}/fd/0", self.server(generation).pid);
        rustix::io::ioctl_fionread(fs::File::open(stdin).unwrap()).unwrap()
    }

    /// Waits until the server has read all that the client wrote so far.
    pub fn sync(&mut self) {
        let answer = self.client.wire.request("unruly/sync", &json!({})).unwrap();
        assert_eq!(answer["error"]["code"], -32601);
    }

    /// Waits for the end of a generation and returns its `exit` event.
    pub fn exit(&self, generation: u32) -> Value {
        self.stage
            .event_that("exit", |event| event["generation"] == generation)
    }

    /// Waits until a generation has got the replay and returns its `ready` event.
    pub fn replayed(&self, generation: u32) -> Value {
        self.stage
            .event_that("ready", |event| event["generation"] == generation)
    }

    /// Calls a tool. Returns its structured content, or the whole message if it failed.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.client.wire.call(tool, arguments).unwrap()
    }

    /// Calls a tool without waiting and returns the id.
    pub fn ask_call(&mut self, tool: &str, arguments: &Value) -> i64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.client.wire.ask("tools/call", &params).unwrap()
    }

    /// The state in the memory of the running generation.
    pub fn held(&mut self) -> Value {
        self.call("held", &json!({}))
    }

    /// The methods that the running generation has read, in order.
    pub fn heard(&mut self) -> Vec<String> {
        heard(&self.held())
    }

    /// The next message, of any kind.
    pub fn message(&mut self) -> Value {
        let line = self.client.wire.line().unwrap();
        let line = line.expect("the client's pipe stays open");
        serde_json::from_slice(&line).unwrap()
    }

    /// Reads until each of these requests has an answer. Returns everything that came, in order.
    pub fn read_answers(&mut self, ids: &[i64]) -> Vec<Value> {
        let mut open = ids.to_vec();
        let mut all = Vec::new();
        while !open.is_empty() {
            let message = self.message();
            if message.get("method").is_none() {
                open.retain(|id| message["id"] != *id);
            }
            all.push(message);
        }
        all
    }

    /// Runs a mainstay command of the same user to its end.
    pub fn mainstay(&self, words: &[&str]) -> Output {
        let mut command = self.stage.command(mainstay());
        command.args(words).output().unwrap()
    }

    /// Closes the client and asserts that no process is left. Returns the messages that still came.
    pub fn finish(mut self) -> Vec<Value> {
        let (_, rest) = self.client.finish();
        self.stage.census.assert_empty();
        messages(&rest)
    }
}

/// Stops a process and waits until it is stopped.
pub fn freeze(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::STOP).unwrap();
    until("it is stopped", || {
        let stat = mainstay_os::census::stat(who.pid).unwrap();
        (stat.state == b'T').then_some(())
    });
}

/// Continues a stopped process.
pub fn thaw(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::CONT).unwrap();
}

/// The methods that a generation has read.
pub fn heard(held: &Value) -> Vec<String> {
    heard_messages(held)
        .iter()
        .map(|message| match message["method"].as_str() {
            Some(method) => method.to_owned(),
            None => format!("answer {}", message["id"]),
        })
        .collect()
}

/// The messages that a generation has read.
pub fn heard_messages(held: &Value) -> Vec<Value> {
    let lines = held["heard"].as_array();
    let lines = lines.unwrap_or_else(|| panic!("not held: {held}"));
    let text = |line: &Value| serde_json::from_str(line.as_str().unwrap()).unwrap();
    lines.iter().map(text).collect()
}

/// Parses each line as a message.
pub fn messages(bytes: &[u8]) -> Vec<Value> {
    bytes
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// The answers with this id.
pub fn answers(all: &[Value], id: i64) -> Vec<&Value> {
    all.iter()
        .filter(|message| message.get("method").is_none() && message["id"] == id)
        .collect()
}

/// The structured content of a good answer.
pub fn content(answer: &Value) -> &Value {
    let content = answer.pointer("/result/structuredContent");
    content.unwrap_or_else(|| panic!("no content: {answer}"))
}
