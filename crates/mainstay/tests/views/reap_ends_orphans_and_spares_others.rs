//! `mainstay reap` on real processes: orphans are found and ended, and everything that other reapers have ended by mistake is spared.
//!
//! Other programs run on this machine. So each command that ends processes names the process that is meant.
//! guards: `reap` ends a server only if the kernel proves that its client is gone, and without `--yes` it ends none.

use std::process::{Child, Stdio};

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::client::Carrier;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::{Source, Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::watching::{mainstay, watch, words};

/// What `mainstay reap` prints with these words, about the servers with these processes.
pub fn reap(stage: &Stage, options: &[&str], pids: &[i32]) -> Value {
    let mut command = stage.command(mainstay());
    command
        .args(["reap", "--json", "--min-age", "0s"])
        .args(options);
    command.args(pids.iter().map(ToString::to_string));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The server that this process belongs to; null if it is not listed.
pub fn server(stage: &Stage, pid: i32) -> Value {
    reap(stage, &[], &[pid])["servers"][0].clone()
}

/// What people see on a screen of 80 columns.
fn shown(stage: &Stage, pid: i32) -> String {
    let mut command = stage.command(mainstay());
    command
        .args(["reap", "--min-age", "0s", &pid.to_string()])
        .env("COLUMNS", "80");
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn verdict(stage: &Stage, pid: i32) -> String {
    server(stage, pid)["verdict"]
        .as_str()
        .unwrap_or("not listed")
        .to_owned()
}

/// Ends it, as far as `reap` may.
pub fn try_to_end(stage: &Stage, pid: i32) -> Value {
    let who = identity::of(pid).unwrap();
    let done = reap(stage, &["--yes", "--stale"], &[pid]);
    assert_eq!(done["done"], Value::Array(Vec::new()), "{done}");
    assert!(identity::alive(who), "spared: {done}");
    done["servers"][0].clone()
}

pub fn kill(who: Identity) {
    let handle = Handle::open(who).unwrap();
    handle.signal(Signal::KILL).unwrap();
    assert!(handle.wait_ended(60_000));
}

/// A server that outlives its client.
fn deaf(stage: &Stage) -> Vec<std::ffi::OsString> {
    stage.unruly(&["--ignore-eof"])
}

/// A process with pipes whose other ends we hold.
fn piped(stage: &Stage, program: &str, arguments: &[&str]) -> Child {
    let mut command = stage.command(program);
    let command = command.args(arguments).stderr(Stdio::null());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Closes our ends, and waits until no fork of another test holds a copy.
fn abandon(stage: &Stage, child: &mut Child) {
    drop((child.stdin.take(), child.stdout.take()));
    until("its other ends are gone", || {
        let evidence = server(stage, child.id() as i32)["evidence"].to_string();
        evidence.contains("end of its output").then_some(())
    });
}

fn end(mut child: Child) {
    child.kill().ok();
    child.wait().unwrap();
}

#[test]
fn orphans_of_pipes_and_sockets_are_ended_only_when_asked() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let plan = Plan {
            carrier,
            ..Plan::default()
        };
        let client = Puppet::start(&stage, plan, &deaf(&stage));
        let orphan = client.shims[0];
        assert_eq!(verdict(&stage, orphan.pid), "in_use");
        let spared = try_to_end(&stage, orphan.pid);
        assert_eq!(spared["client"]["pid"], client.who.pid);
        client.kill();
        let found = server(&stage, orphan.pid);
        assert_eq!(found["verdict"], "orphan", "{found}");
        assert_eq!(found["blocked"], Value::Array(Vec::new()));
        let text = shown(&stage, orphan.pid);
        assert!(
            text.contains("1 orphan (1 process)\nto end the orphans: mainstay reap --yes\n"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(identity::alive(orphan), "nothing was asked for");
        let done = reap(&stage, &["--yes"], &[orphan.pid]);
        assert_eq!(done["done"][0]["ended"], 1, "{done}");
        assert_eq!(done["done"][0]["left"], Value::Array(Vec::new()));
        assert!(!identity::alive(orphan));
    }
}

#[test]
fn a_pid_that_is_ended_needs_no_advice_and_one_that_is_no_server_is_an_error() {
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &deaf(&stage));
    let orphan = client.shims[0];
    client.kill();
    let reap = |pids: &[i32]| {
        let mut command = stage.command(mainstay());
        command.args(["reap", "--yes", "--min-age", "0s"]);
        command.args(pids.iter().map(ToString::to_string));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code();
        (code, text(output.stdout), text(output.stderr))
    };
    let mut command = stage.command("sleep");
    let mut other = command.arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let pid = other.id() as i32;
    let (code, out, err) = reap(&[i32::MAX, pid]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(
        err,
        format!(
            "error: process {} does not exist, process {pid} is no MCP server without mainstay\n\
             hint: `mainstay reap` lists the servers and their processes\n",
            i32::MAX
        )
    );
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let (code, out, err) = reap(&[orphan.pid, i32::MAX]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("ended 1 process, 0 left"), "{out}");
    assert!(!out.contains("to end the orphans"), "{out}");
    assert_eq!(err, format!("note: process {} does not exist\n", i32::MAX));
    assert!(!identity::alive(orphan));
}

#[test]
fn a_younger_server_is_no_orphan_yet() {
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &deaf(&stage));
    let orphan = client.shims[0];
    client.kill();
    let young = reap(&stage, &["--yes", "--min-age", "1h"], &[orphan.pid]);
    let young = &young["servers"][0];
    assert_eq!(young["verdict"], "unsure", "{young}");
    assert!(
        young["blocked"][0]
            .as_str()
            .unwrap()
            .starts_with("it started ")
    );
    kill(orphan);
}

#[test]
fn a_whole_tree_is_ended_also_one_behind_launchers() {
    let stage = Stage::new();
    let server = deaf(&stage);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    // npx does this: a shell that starts a shell that starts the server, which has a child.
    let inner = format!("sleep 1000 & {}; exit 5", server.join(" "));
    let outer = format!("sh -c '{inner}'; exit 6");
    let mut client = Puppet::start(&stage, Plan::default(), &words(&["sh", "-c", &outer]));
    let pid = client.call_pids()[0].unwrap();
    let launcher = client.shims[0];
    client.kill();
    let found = self::server(&stage, pid);
    assert_eq!(found["verdict"], "orphan", "{found}");
    assert_eq!(found["processes"].as_array().unwrap().len(), 4, "{found}");
    let done = reap(&stage, &["--yes"], &[pid]);
    assert_eq!(done["done"][0]["ended"], 4, "{done}");
    assert!(!identity::alive(launcher));
}

#[test]
fn no_more_than_asked_for_are_ended_in_one_run() {
    let stage = Stage::new();
    let plan = Plan {
        copies: Some(3),
        ..Plan::default()
    };
    let client = Puppet::start(&stage, plan, &deaf(&stage));
    let pids: Vec<i32> = client.shims.iter().map(|who| who.pid).collect();
    client.kill();
    let done = reap(&stage, &["--yes", "--max", "2"], &pids);
    assert_eq!(done["done"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(done["postponed"], 1);
    let done = reap(&stage, &["--yes"], &pids);
    assert_eq!(done["done"].as_array().unwrap().len(), 1, "{done}");
}

#[test]
fn equal_servers_of_a_living_client_are_duplicates_and_spared() {
    let stage = Stage::new();
    let plan = Plan {
        copies: Some(2),
        ..Plan::default()
    };
    let mut client = Puppet::start(&stage, plan, &stage.unruly::<&str>(&[]));
    let verdicts: Vec<String> = client
        .shims
        .iter()
        .map(|who| verdict(&stage, who.pid))
        .collect();
    let mut sorted = verdicts.clone();
    sorted.sort();
    assert_eq!(sorted, ["duplicate", "in_use"], "{verdicts:?}");
    for who in client.shims.clone() {
        try_to_end(&stage, who.pid);
    }
    client.close();
    client.wait_shims();
}

#[test]
fn a_server_whose_launcher_left_early_is_spared() {
    let stage = Stage::new();
    let server = deaf(&stage);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    let early = format!("exec 3<&0; {} <&3 & exit 0", server.join(" "));
    let mut client = Puppet::start(&stage, Plan::default(), &words(&["sh", "-c", &early]));
    let pid = client.call_pids()[0].unwrap();
    let found = try_to_end(&stage, pid);
    assert_eq!(found["verdict"], "in_use", "{found}");
    assert_eq!(found["client"]["pid"], client.who.pid);
    kill(identity::of(pid).unwrap());
}

#[test]
fn a_client_that_has_lost_its_own_pipes_is_spared() {
    let stage = Stage::new();
    let program = stage.path("codex");
    let unruly = stage.unruly(&["--ignore-eof"]);
    stage.program(&program, Source::Copy(unruly[0].as_ref()));
    let arguments: Vec<&str> = unruly[1..]
        .iter()
        .map(|word| word.to_str().unwrap())
        .collect();
    let mut daemon = piped(&stage, program.to_str().unwrap(), &arguments);
    abandon(&stage, &mut daemon);
    let found = try_to_end(&stage, daemon.id() as i32);
    assert_eq!(found["verdict"], "unsure", "{found}");
    assert_eq!(
        found["blocked"][0],
        "one of its processes is a client: Codex"
    );
    end(daemon);
}

#[test]
fn an_end_that_leaked_into_a_sibling_spares_and_one_in_its_own_tree_does_not() {
    for (leak, expected) in [(Leak::Sibling, "unsure"), (Leak::Command, "orphan")] {
        let stage = Stage::new();
        let plan = Plan {
            leak,
            ..Plan::default()
        };
        let client = Puppet::start(&stage, plan, &deaf(&stage));
        let server = client.shims[0];
        kill(client.who);
        let found = self::server(&stage, server.pid);
        assert_eq!(found["verdict"], expected, "{leak:?}: {found}");
        if let Some(sibling) = client.sibling {
            let block = format!("process {} holds one end of its pipes", sibling.pid);
            assert_eq!(found["blocked"][0], block);
            try_to_end(&stage, server.pid);
        }
        kill(server);
    }
}

#[test]
fn test_runs_and_other_programs_are_spared_whatever_their_path_says() {
    let stage = Stage::new();
    let folder = stage.path("claude/mcp-server");
    std::fs::create_dir_all(&folder).unwrap();
    let script = folder.join("pytest");
    stage.program(&script, Source::Text("#!/bin/sh\nsleep 1000\nexit 0\n"));
    // Started by a client's shell, which passes its variables on.
    let mut command = stage.command(&script);
    command
        .args(["tests/claude/test_mcp.py"])
        .env("CLAUDE_CODE_SESSION_ID", "1a2b3c4d");
    command
        .env("CLAUDECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut tests = command.spawn().unwrap();
    abandon(&stage, &mut tests);
    let found = try_to_end(&stage, tests.id() as i32);
    assert_eq!(found["verdict"], "unsure", "{found}");
    assert_eq!(
        found["blocked"][0],
        "nothing shows that it is an MCP server"
    );
    let who = identity::of(tests.id() as i32).unwrap();
    for stat in mainstay_os::census::descendants(who.pid) {
        kill(stat.who());
    }
    tests.wait().unwrap();
    // A process that only inherited the variables has no wire at all.
    let mut command = stage.command("sleep");
    command
        .arg("1000")
        .env("CLAUDE_CODE_SESSION_ID", "1a2b3c4d")
        .stdin(Stdio::null());
    let multiplexer = command.stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(verdict(&stage, multiplexer.id() as i32), "not listed");
    end(multiplexer);
}

#[test]
fn what_the_config_file_protects_is_spared() {
    let stage = Stage::new();
    let config = stage.path(".config/mainstay/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(config, "[reap]\nprotect = [\"--ignore-eof\"]\n").unwrap();
    let client = Puppet::start(&stage, Plan::default(), &deaf(&stage));
    let orphan = client.shims[0];
    client.kill();
    let found = try_to_end(&stage, orphan.pid);
    assert_eq!(
        found["blocked"][0],
        "the config file protects `--ignore-eof`"
    );
    kill(orphan);
}

#[test]
fn servers_of_mainstay_are_not_listed() {
    let stage = Stage::new();
    let argv = run(mainstay(), &["--name", "files"], stage.unruly::<&str>(&[]));
    let mut client = Puppet::start(&stage, Plan::default(), &argv);
    let card = stage.card();
    for who in [card.server.unwrap(), client.shims[0]] {
        assert_eq!(verdict(&stage, who.pid), "not listed");
    }
    client.close();
    client.wait_shims();
    stage.event("teardown");
}

/// The Python SDK 2.3 moves its wire to other descriptors and puts `/dev/null` on 0.
#[test]
fn a_server_that_has_moved_its_wire_is_seen_by_reap_and_watch() {
    let stage = Stage::new();
    let script = stage.path("server.sh");
    // It has no child, because pipes to a child would look the same.
    let text = "exec 6<&0 7>&1 </dev/null 1>&2\necho ready >&7\n# serverInfo\nkill -STOP $$\n";
    std::fs::write(&script, text).unwrap();
    let mut child = piped(&stage, "bash", &[script.to_str().unwrap()]);
    let pid = child.id() as i32;
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let found = until("it is in use", || {
        Some(server(&stage, pid)).filter(|found| found["verdict"] == "in_use")
    });
    assert_eq!(found["descriptors"], serde_json::json!([6, 7]), "{found}");
    assert_eq!(found["client"]["pid"], std::process::id());
    let mut seen = watch(&stage, &["--all", "--once"]);
    let new = seen.of("new", pid);
    assert_eq!(new["client"]["pid"], std::process::id(), "{new}");
    drop(seen);
    abandon(&stage, &mut child);
    assert_eq!(verdict(&stage, pid), "orphan");
    let done = reap(&stage, &["--yes"], &[pid]);
    assert_eq!(done["done"][0]["ended"], 1, "{done}");
    child.wait().unwrap();
}

/// A runner of tests or of builds has pipes to its own children, some of which have ended.
#[test]
fn pipes_to_children_are_no_lost_client() {
    let stage = Stage::new();
    let script = stage.path("run.sh");
    let text = "# serverInfo\ncoproc S { cat; }\nexec 6<&${S[0]} 7>&${S[1]}\necho hello >&7; read -u 6 line; touch ready; read -u 6 line\n";
    std::fs::write(&script, text).unwrap();
    let mut command = stage.command("bash");
    command
        .arg(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut runner = command.stderr(Stdio::null()).spawn().unwrap();
    let pid = runner.id() as i32;
    until("its child has answered", || {
        stage.path("ready").exists().then_some(())
    });
    let found = try_to_end(&stage, pid);
    assert_eq!(found["verdict"], "unsure", "{found}");
    for stat in mainstay_os::census::descendants(pid) {
        kill(stat.who());
    }
    runner.wait().unwrap();
}

/// A server in the background that is reached by a port: its launcher has left, its users have not.
#[test]
fn a_server_that_listens_is_spared() {
    let stage = Stage::new();
    let script = stage.path("server.py");
    let text = "import socket, signal\n# FastMCP\nport = socket.create_server(('127.0.0.1', 0))\nprint('ready', flush=True)\nsignal.pause()\n";
    std::fs::write(&script, text).unwrap();
    let mut child = piped(&stage, "python3", &[script.to_str().unwrap()]);
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    abandon(&stage, &mut child);
    let found = try_to_end(&stage, child.id() as i32);
    assert_eq!(found["verdict"], "unsure", "{found}");
    assert_eq!(
        found["blocked"][0],
        "it listens on a port or socket: others may use it"
    );
    end(child);
}

/// Programs that only pass the bytes on belong to the server's tree, and their client lives.
#[test]
fn a_server_whose_children_pass_its_messages_on_is_spared() {
    let stage = Stage::new();
    let script = stage.path("logged.sh");
    let text = "# serverInfo\nexec 0< <(exec tee in.log) 1> >(exec tee out.log >&3)\nexec 3>&-\ntouch ready\nkill -STOP $$\n";
    std::fs::write(&script, text).unwrap();
    let start = format!("exec 3>&1; exec bash {}", script.display());
    let mut child = piped(&stage, "bash", &["-c", &start]);
    let pid = child.id() as i32;
    until("it is wired", || stage.path("ready").exists().then_some(()));
    let found = try_to_end(&stage, pid);
    assert_eq!(found["verdict"], "unsure", "{found}");
    drop((child.stdin.take(), child.stdout.take()));
    let children = mainstay_os::census::descendants(pid);
    kill(identity::of(pid).unwrap());
    for stat in children {
        if let Ok(handle) = Handle::open(stat.who()) {
            handle.signal(Signal::KILL).ok();
        }
    }
    child.wait().unwrap();
}

#[test]
fn a_timer_is_installed_and_removed_again_without_touching_others() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.path("bin")).unwrap();
    let table = stage.path("table");
    let crontab = format!(
        "#!/bin/sh\nif [ \"$1\" = -l ]; then cat {table}; else cat > {table}; fi\n",
        table = table.display()
    );
    stage.program(&stage.path("bin/crontab"), Source::Text(&crontab));
    std::fs::write(&table, "0 3 * * * backup\n").unwrap();
    let units = stage.path(".config/systemd/user");
    for (manager, act) in [(false, false), (true, true)] {
        let systemctl = format!(
            "#!/bin/sh\necho \"$@\" >> {}\nexit {}\n",
            stage.path("asked").display(),
            i32::from(!manager)
        );
        stage.program(&stage.path("bin/systemctl"), Source::Text(&systemctl));
        let reap = |options: &[&str]| {
            let mut command = stage.command(mainstay());
            let output = command
                .arg("reap")
                .args(options)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let would = reap(&["--install", "--dry-run"]);
        assert!(would.starts_with("would "), "{would}");
        assert_eq!(
            reap(&["--uninstall", "--dry-run"]),
            "nothing was installed\n"
        );
        let text = reap(if act {
            &["--install", "--act"]
        } else {
            &["--install"]
        });
        let lines = std::fs::read_to_string(&table).unwrap();
        if manager {
            assert!(
                text.contains(" reap --yes\n"),
                "it shows what it wrote: {text}"
            );
            assert!(units.join("mainstay-reap.timer").exists());
            assert_eq!(lines, "0 3 * * * backup\n");
            let asked = std::fs::read_to_string(stage.path("asked")).unwrap();
            assert!(
                asked.contains("--user enable --now mainstay-reap.timer\n"),
                "{asked}"
            );
        } else {
            assert!(
                text.contains(" reap # mainstay reap\n"),
                "it shows what it wrote: {text}"
            );
            assert!(
                lines.starts_with("0 3 * * * backup\n*/30 * * * * /"),
                "{lines}"
            );
        }
        let would = reap(&["--uninstall", "--dry-run"]);
        assert!(would.starts_with("would remove "), "{would}");
        let text = reap(&["--uninstall"]);
        assert_eq!(text, would.replacen("would remove", "removed", 1));
        assert_eq!(
            std::fs::read_to_string(&table).unwrap(),
            "0 3 * * * backup\n"
        );
        assert!(!units.join("mainstay-reap.timer").exists());
        assert_eq!(reap(&["--uninstall"]), "nothing was installed\n");
    }
}

#[test]
fn a_hook_of_claude_code_is_installed_and_its_settings_come_back() {
    let stage = Stage::new();
    let settings = stage.path(".claude/settings.json");
    let run = |options: &[&str]| {
        let mut command = stage.command(mainstay());
        let command = command.arg("reap").args(options);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, said) = run(&["--install", "--hook"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("there is no directory ~/.claude\nhint: "),
        "{said}"
    );
    assert_eq!(
        run(&["--hook"]).0,
        Some(2),
        "a hook is installed or removed"
    );
    std::fs::create_dir(settings.parent().unwrap()).unwrap();
    let old = "{\n\t\"model\": \"opus\",\n\t\"apiKeyHelper\": \"print-key --token hunter2\"\n}\n";
    for before in [Some(old), None] {
        if let Some(old) = before {
            std::fs::write(&settings, old).unwrap();
        }
        let read = || std::fs::read_to_string(&settings).ok();
        let (code, shown, _) = run(&["--install", "--hook", "--dry-run"]);
        assert_eq!((code, read().as_deref()), (Some(0), before), "{shown}");
        assert!(shown.contains("SessionEnd"), "{shown}");
        let (code, shown, said) = run(&["--install", "--hook"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(shown.contains(" reap\""), "it shows what it wrote: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let hooked = read().unwrap();
        let value: Value = serde_json::from_str(&hooked).unwrap();
        let hook = &value["hooks"]["SessionEnd"][0]["hooks"][0];
        let words = hook["command"].as_str().unwrap();
        assert_eq!(words, format!("{} reap", mainstay().display()));
        let (code, shown, _) = run(&["--install", "--hook"]);
        assert_eq!(code, Some(0));
        assert_eq!(shown, "~/.claude/settings.json has this hook already\n");
        assert_eq!(read().as_deref(), Some(hooked.as_str()), "twice is once");
        assert_eq!(run(&["--install", "--hook", "--act"]).0, Some(0));
        assert!(read().unwrap().contains(" reap --yes\""));
        let (code, shown, said) = run(&["--uninstall", "--hook"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            shown.contains("  as it was: ~/.local/state/mainstay/backups/"),
            "{shown}"
        );
        assert_eq!(read().as_deref(), before, "the old bytes");
        let (code, shown, _) = run(&["--uninstall", "--hook"]);
        assert_eq!(code, Some(0));
        assert_eq!(shown, "~/.claude/settings.json has no hook of mainstay\n");
        std::fs::remove_file(&settings).ok();
    }
    let off = "{\"disableAllHooks\": true}";
    std::fs::write(&settings, off).unwrap();
    let (_, _, said) = run(&["--install", "--hook"]);
    assert!(said.contains("hooks do not run"), "{said}");
    std::fs::write(&settings, "{").unwrap();
    let (code, _, said) = run(&["--uninstall", "--hook"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("settings.json: line 1, column") && said.contains("hint: "),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), "{");
}
