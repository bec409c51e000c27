//! claude-code #40207, the diagnosis: five healthy stdio servers of one client get SIGTERM in the same second, and the reporter
//! needs `strace` on the client and a home-made watchdog to see it. `mainstay watch` and `mainstay trace-signals` show the same.
//! They also show what the script could not: how the servers ended, and which process sent the signal.
//! guards: `watch` and `trace-signals` show which process ended servers that mainstay did not start.

use std::collections::BTreeSet;

use crate::support::watching::{trace, watch};
use mainstay_testkit::client::Carrier;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::Stage;

const SERVERS: u32 = 5;

#[test]
fn five_servers_end_in_the_same_second() {
    let stage = Stage::new();
    let plan = Plan {
        copies: Some(SERVERS),
        carrier: Carrier::Sockets,
        ..Plan::default()
    };
    let client = Puppet::start(&stage, plan, &stage.unruly::<&str>(&[]));
    let servers: BTreeSet<i64> = client.shims.iter().map(|who| i64::from(who.pid)).collect();

    // 1. "strace -p <claude_pid> -e kill,tgkill -f": one tool for all processes, and it stops none of them.
    let tracer = trace(&stage, &["--signal", "INT,TERM,KILL"]);

    // 2. "mcp-watchdog.sh <claude_pid>": `watch` needs no list of names and no interval of ten seconds.
    let mut watch = watch(&stage, &[&client.who.pid.to_string()]);
    let mut new = BTreeSet::new();
    while new.len() < SERVERS as usize {
        let line = watch.that("a server", |line| line["what"] == "new");
        assert_eq!(
            (&line["stdin"], &line["stdout"]),
            (&"socket".into(), &"socket".into())
        );
        new.insert(line["pid"].as_i64().unwrap());
    }
    assert_eq!(new, servers);

    // A short-lived wrapper sends all of them the same signal and exits.
    let pids: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let script = format!("kill -TERM {}", pids.join(" "));
    let mut wrapper = stage.command("sh").args(["-c", &script]).spawn().unwrap();
    let by = wrapper.id();
    assert!(wrapper.wait().unwrap().success());

    let mut gone = BTreeSet::new();
    while gone.len() < SERVERS as usize {
        let line = watch.that("an end", |line| line["what"] == "gone");
        // The script reported "exit code: 127" for all of them, which was its own mistake.
        assert_eq!(line["status"]["signal"]["number"], 15, "{line}");
        if tracer.is_some() {
            assert_eq!(line["sender"]["pid"], by, "{line}");
        }
        gone.insert(line["pid"].as_i64().unwrap());
    }
    assert_eq!(gone, servers);

    let Some(mut tracer) = tracer else { return };
    let mut victims = BTreeSet::new();
    while victims.len() < SERVERS as usize {
        let line = tracer.that("a signal", |line| line["sender"]["pid"] == by);
        assert_eq!(line["signal"], "SIGTERM");
        victims.insert(line["victim"]["pid"].as_i64().unwrap());
    }
    assert_eq!(victims, servers);
    tracer.interrupt();

    // "Auto-stops when Claude exits."
    client.exit();
    watch.that("the client's end", |line| line["what"] == "client_gone");
    assert_eq!(watch.line(), None);
    assert_eq!(watch.wait().code(), Some(0));
}
