//! Shared by the tests of frames: a `mainstay tap` that runs beside a scene, and a bare connection to its keeper.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use mainstay_testkit::stage::Stage;
use serde_json::Value;

use crate::support::scene::mainstay;

/// A `mainstay tap … --json` that has attached.
pub struct Tap {
    child: Child,
    out: BufReader<ChildStdout>,
    pub head: Value,
}

impl Tap {
    /// Attaches a tap, which shows all frames from now on.
    pub fn attach(stage: &Stage, words: &[&str]) -> Self {
        let mut command = stage.command(mainstay());
        let command = command.args(["tap", "unruly", "--json"]).args(words);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut tap = Self {
            child,
            out,
            head: Value::Null,
        };
        tap.head = tap.line();
        assert_eq!(tap.head["line"], "head", "{}", tap.head);
        tap
    }

    /// The next line.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no line: {line:?}"))
    }

    /// Frames up to and including the first that fulfils a condition.
    pub fn until(&mut self, so: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let line = self.line();
            let found = so(&line);
            all.push(line);
            if found {
                return all;
            }
        }
    }

    /// The next frame that fulfils a condition.
    pub fn find(&mut self, so: impl Fn(&Value) -> bool) -> Value {
        self.until(so).pop().unwrap()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for its end. Returns the exit code, the rest of stdout, and stderr.
    pub fn end(mut self) -> (Option<i32>, String, String) {
        let (mut rest, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), rest, errors)
    }
}

/// A connection to a keeper's control socket.
pub fn connect(directory: &Path) -> UnixStream {
    // The path may be too long for a socket's address.
    let directory = fs::File::open(directory).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&directory);
    UnixStream::connect(format!("/proc/self/fd/{fd}/control.sock")).unwrap()
}

/// A connection on which these bytes were sent.
pub fn saying(directory: &Path, bytes: &[u8]) -> UnixStream {
    let mut stream = connect(directory);
    stream.write_all(bytes).unwrap();
    stream
}

/// The lines of a file.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("torn: {line}")))
        .collect()
}

/// The lines that are frames.
pub fn frames(all: &[Value]) -> Vec<&Value> {
    all.iter().filter(|line| line["line"] == "frame").collect()
}
