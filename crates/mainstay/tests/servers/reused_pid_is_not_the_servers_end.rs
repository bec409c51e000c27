//! A launcher starts the server and exits. Later an orphan of the tree gets the launcher's pid and fails. That is not the end of
//! the server, which serves on.
//! guards: The end of another process with the pid of an earlier launcher does not count as the server's end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;

use crate::support::scene::mainstay;
use mainstay_os::census;
use mainstay_testkit::client::Client;
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

/// The launcher exits at once and leaves its session empty. When told, a follower makes an orphan with the launcher's pid. When
/// told again, that orphan fails.
fn launcher(stage: &Stage) -> Vec<OsString> {
    let follower = format!(
        r"read go < '{go}'
while kill -0 $root; do :; done
for try in 1 2 3 4 5 6 7 8; do
    echo $((root - 1)) > /proc/sys/kernel/ns_last_pid
    (read word < '{fail}'; exit 7) &
    [ $! = $root ] && : > '{reused}' && exit 0
done",
        go = stage.path("go").display(),
        fail = stage.path("fail").display(),
        reused = stage.path("reused").display(),
    );
    let script = r#"export root=$$
exec 3<&0
setsid sh -c "$1" </dev/null >/dev/null 2>&1 3<&- &
shift
setsid "$@" <&3 3<&- &
exit 0"#;
    let words = ["sh", "-c", script, "sh", &follower];
    let words = words.iter().map(OsString::from);
    words.chain(stage.unruly::<&str>(&[])).collect()
}

fn gate(stage: &Stage, name: &str) -> File {
    let path = stage.path(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn the_server_continues_if_its_launchers_pid_is_reused() {
    if !skip::root_or_skip("a PID namespace in which pids can be chosen needs root") {
        return;
    }
    let stage = Stage::new();
    let (mut go, mut fail) = (gate(&stage, "go"), gate(&stage, "fail"));
    let behind = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let init = ["sh", "-c", r#""$@"; exit $?"#, "sh"];
    let mut argv: Vec<OsString> = behind.iter().chain(&init).map(OsString::from).collect();
    argv.extend(run(mainstay(), &[], launcher(&stage)));
    let mut client = Client::open(&stage, &argv);
    let server = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
    assert!(server.is_i64(), "{server}");
    go.write_all(b"go\n").unwrap();
    until("the launcher's pid is another's", || {
        stage.path("reused").exists().then_some(())
    });
    // One orphan for each attempt that got another pid.
    fail.write_all(&b"go\n".repeat(8)).unwrap();
    until("the orphan is reaped", || {
        let all = census::all().unwrap();
        let marked = stage.census.living();
        let keeper = marked.iter().find(|stat| stat.comm == "mcp-keeper")?;
        let below = |stat: &&census::Stat| stat.ppid == keeper.pid && stat.comm == "sh";
        (all.iter().filter(below).count() == 0).then_some(())
    });
    let same = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
    assert_eq!(same, server);
    let card = until("it is listed", || stage.cards().into_iter().next());
    assert_eq!(card.json["generation"], 1);
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(0), Vec::new()));
    let ends = stage.events("exit");
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0]["status"], json!({"code": 0}));
    stage.census.assert_empty();
}
