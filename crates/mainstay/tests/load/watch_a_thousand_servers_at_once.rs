//! A thousand servers start at once and end at once. Each start and each end is reported once. The client is this process, so no
//! other test may start a server meanwhile.
//! guards: `watch` reports each start and each end of a server exactly once.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::Descriptors;
use crate::support::watching::watch;
use mainstay_testkit::stage::Stage;

const SERVERS: usize = 1_000;

#[test]
fn watch_reports_each_start_and_end_of_a_thousand_servers_once() {
    let _turn = crate::turn();
    let _descriptors = Descriptors::raised();
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
