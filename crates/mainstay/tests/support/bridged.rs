//! Shared by the tests of `run --url`: one client, one mainstay, one HTTP server.

use std::ffi::OsString;
use std::process::Output;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::httpd::Httpd;
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

/// Fields drop in this order: the client ends first, then the stage counts the processes that are left, and the server ends last.
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
    /// Starts it and opens the session.
    pub fn open(options: &[&str]) -> Self {
        let mut play = Self::start(options);
        play.client.wire.initialize().unwrap();
        play
    }

    /// Starts it. The client has not sent a line yet.
    pub fn start(options: &[&str]) -> Self {
        Self::on(Stage::new(), Httpd::start(), options)
    }

    /// Starts it on an existing stage with an existing server.
    pub fn on(stage: Stage, http: Httpd, options: &[&str]) -> Self {
        let client = Launch::new(&stage, &argv(&http, options)).start();
        Self {
            client,
            stage,
            http,
        }
    }

    /// Sends a request and returns its answer.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.client.wire.request(method, params).unwrap()
    }

    /// Calls a tool and returns the answer.
    pub fn call(&mut self, tool: &str) -> Value {
        let params = json!({"name": tool, "arguments": {"said": "hello"}});
        self.ask("tools/call", &params)
    }

    /// Runs a mainstay command of the same user to its end.
    pub fn mainstay(&self, words: &[&str]) -> Output {
        mainstay(&self.stage, words)
    }

    /// Closes the client and asserts that no process is left. The server stays.
    pub fn finish(mut self) -> (Stage, Httpd) {
        let (status, _) = self.client.finish();
        assert!(status.success(), "{status:?}");
        self.stage.census.assert_empty();
        (self.stage, self.http)
    }
}

/// Runs a mainstay command to its end.
pub fn mainstay(stage: &Stage, words: &[&str]) -> Output {
    let program = under_test(env!("CARGO_BIN_EXE_mainstay"));
    stage.command(program).args(words).output().unwrap()
}

/// The sessions that are still to be closed, from `sessions --json`.
pub fn unclosed(stage: &Stage) -> Vec<Value> {
    let shown = mainstay(stage, &["sessions", "--json"]);
    serde_json::from_slice(&shown.stdout).unwrap()
}
