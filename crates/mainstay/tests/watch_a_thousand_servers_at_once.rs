//! A thousand servers that start at once and end at once: each is told once, in both directions. Alone in its file: the
//! client is this very process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod watching;

use std::collections::BTreeSet;
use std::process::Stdio;

use mainstay_testkit::stage::Stage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use watching::watch;

const SERVERS: usize = 1_000;

#[test]
fn each_is_told_once() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let stage = Stage::new();
    let mut watch = watch(&stage, &[&std::process::id().to_string()]);
    let mut servers: Vec<_> = (0..SERVERS)
        .map(|_| {
            let mut command = stage.command("cat");
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let pids: BTreeSet<i64> = servers.iter().map(|child| i64::from(child.id())).collect();
    for what in ["new", "gone"] {
        let mut told = BTreeSet::new();
        while told.len() < SERVERS {
            let line = watch.that(what, |line| line["what"] == what);
            let pid = line["pid"].as_i64().unwrap();
            assert!(told.insert(pid), "once: {line}");
            if what == "gone" {
                assert_eq!(line["status"]["code"], 0, "{line}");
            }
        }
        assert_eq!(told, pids);
        for child in &mut servers {
            drop(child.stdin.take());
        }
        if what == "new" {
            for child in &mut servers {
                child.wait().unwrap();
            }
        }
    }
    assert_eq!(watch.interrupt().len(), 2 * SERVERS);
}
