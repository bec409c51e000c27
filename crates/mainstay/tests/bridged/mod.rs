//! What the tests of `run --url` share: one client, one mainstay, one HTTP server.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::process::Output;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::httpd::Httpd;
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

/// The client goes first, then the stage counts who is left; the server goes last.
pub struct Bridged {
    pub client: Client,
    pub stage: Stage,
    pub http: Httpd,
}

/// `mainstay run --url` for this server.
pub fn argv(http: &Httpd, options: &[&str]) -> Vec<OsString> {
    let program = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let url = http.url();
    let mut words = vec!["run", "--name", "web", "--url", &url];
    words.extend(options);
    let words = words.into_iter().map(OsString::from);
    std::iter::once(program.into()).chain(words).collect()
}

impl Bridged {
    /// Started and opened.
    pub fn open(options: &[&str]) -> Self {
        let mut play = Self::start(options);
        play.client.wire.initialize().unwrap();
        play
    }

    /// Started; the client has said nothing yet.
    pub fn start(options: &[&str]) -> Self {
        Self::on(Stage::new(), Httpd::start(), options)
    }

    /// Started on a stage and before a server that are there already.
    pub fn on(stage: Stage, http: Httpd, options: &[&str]) -> Self {
        let client = Launch::new(&stage, &argv(&http, options)).start();
        Self {
            client,
            stage,
            http,
        }
    }

    /// A request, and its answer.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.client.wire.request(method, params).unwrap()
    }

    /// A call, and its answer.
    pub fn call(&mut self, tool: &str) -> Value {
        let params = json!({"name": tool, "arguments": {"said": "hello"}});
        self.ask("tools/call", &params)
    }

    /// A mainstay command of the same user, to its end.
    pub fn mainstay(&self, words: &[&str]) -> Output {
        mainstay(&self.stage, words)
    }

    /// The client closes, and nobody is left; the server stays.
    pub fn finish(mut self) -> (Stage, Httpd) {
        let (status, _) = self.client.finish();
        assert!(status.success(), "{status:?}");
        self.stage.census.assert_empty();
        (self.stage, self.http)
    }
}

/// A mainstay command, to its end.
pub fn mainstay(stage: &Stage, words: &[&str]) -> Output {
    let program = under_test(env!("CARGO_BIN_EXE_mainstay"));
    stage.command(program).args(words).output().unwrap()
}

/// What is owed, as `debts --json` tells it.
pub fn owed(stage: &Stage) -> Vec<Value> {
    let shown = mainstay(stage, &["debts", "--json"]);
    serde_json::from_slice(&shown.stdout).unwrap()
}
