//! TAB after `mainstay stop`, in the shells that people use: each loads the file in `packaging/completions`.
//! guards: In bash, zsh and fish, TAB after a command that takes a server offers the names and ids of servers.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use mainstay_testkit::client::Client;
use mainstay_testkit::skip::skip;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;

use crate::support::home::{Home, outcome};
use crate::support::scene::mainstay;

/// A stage with a server that has ended (`files`) and one that runs (`playwright`).
struct Servers {
    stage: Stage,
    client: Client,
    id: String,
}

impl Servers {
    fn start() -> Self {
        let stage = Stage::new();
        std::fs::create_dir(stage.path("bin")).unwrap();
        std::os::unix::fs::symlink(mainstay(), stage.path("bin/mainstay")).unwrap();
        let argv = |name: &str| {
            let mut argv: Vec<_> = ["mainstay", "run", "--name", name, "--"]
                .map(Into::into)
                .into();
            argv.extend(stage.unruly::<&str>(&[]));
            argv
        };
        drop(Client::open(&stage, &argv("files")).finish());
        let client = Client::open(&stage, &argv("playwright"));
        let id = stage.card().id;
        Self { stage, client, id }
    }

    /// What a shell prints for this script.
    fn shell(&self, shell: &str, words: &[&str]) -> String {
        let output = self
            .stage
            .command(shell)
            .args(words)
            .env("COMPLETIONS", completions())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{shell}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn finish(mut self) {
        drop(self.client.finish());
    }
}

fn completions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/completions")
}

fn has(shell: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(shell).exists());
    if !found {
        skip(&format!("no {shell}"));
    }
    found
}

#[test]
fn the_program_prints_names_and_ids() {
    let mut servers = Servers::start();
    let id = servers.id.clone();
    let complete = |which: &str| {
        let mut command = servers.stage.command(mainstay());
        String::from_utf8(command.args(["complete", which]).output().unwrap().stdout).unwrap()
    };
    let running = format!("playwright\t1 server\n{id}\tplaywright\n");
    assert_eq!(complete("running"), running);
    assert_eq!(complete("known"), format!("{running}files\tended\n"));
    drop(servers.client.finish());
    until("no server is offered", || {
        complete("running").is_empty().then_some(())
    });
}

#[test]
fn it_prints_nothing_and_writes_nothing_if_there_is_nothing() {
    let home = Home::new();
    for which in ["running", "known"] {
        assert_eq!(home.mainstay(&["complete", which]), outcome("", "", 0));
    }
    assert!(!home.path().join(".local").exists());
    // Without a home, other servers of this user may be offered.
    let mut command = home.command(&["complete", "known"]);
    let without_home = home.outcome(command.env("HOME", "/dev/null"));
    assert_eq!(
        (without_home.stderr.as_str(), without_home.code),
        ("", Some(0))
    );
}

#[test]
fn bash_offers_servers() {
    let servers = Servers::start();
    let script = r#"
        source "$COMPLETIONS/mainstay.bash"
        function_of_mainstay=$(complete -p mainstay | sed 's/.*-F \([^ ]*\).*/\1/')
        press_tab() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            "$function_of_mainstay" mainstay "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "${*:2}: ${COMPREPLY[*]}"
        }
        press_tab mainstay stop ''
        press_tab mainstay stop pl
        press_tab mainstay stop nothing
        press_tab mainstay restart --json ''
        press_tab mainstay why fi
        press_tab mainstay release cla
        press_tab mainstay tap --from ''
        press_tab mainstay stop --js
        press_tab mainstay restar
    "#;
    let id = &servers.id;
    // `tap --from` wants a file: clap's own function answers.
    let expected = format!(
        "stop : playwright {id}\nstop pl: playwright\nstop nothing: \nrestart --json : playwright {id}\nwhy fi: files\nrelease cla: claude\n"
    );
    let printed = servers.shell("bash", &["--norc", "-c", script]);
    let rest = printed
        .strip_prefix(&expected)
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(!rest.contains("playwright"), "{rest}");
    assert!(
        rest.ends_with("stop --js: --json\nrestar: restart\n"),
        "{rest}"
    );
    servers.finish();
}

#[test]
fn zsh_offers_servers() {
    if !has("zsh") {
        return;
    }
    let servers = Servers::start();
    // A shell in a terminal of its own, because zsh completes only there. `^A` goes to the start of the line, so what TAB
    // made of it is printed and not executed.
    let script = r#"
        zmodload zsh/zpty
        zpty inner TERM=dumb zsh -f -i
        zpty -w inner "PROMPT=; bindkey -e; fpath=($COMPLETIONS \$fpath); autoload -Uz compinit; compinit -u -d $HOME/dump; print LOA''DED"
        zpty -r inner answer '*LOADED*'
        for line in 'stop pl' 'why fi' 'restart --js'; do
            zpty -w -n inner "mainstay $line"$'\t\x01print MADE \x05\n'
            zpty -r inner answer $'*\nMADE mainstay*\n'
            print -r -- $answer
        done
        zpty -d inner
    "#;
    let printed = servers.shell("zsh", &["-f", "-c", script]);
    let lines: Vec<&str> = printed
        .lines()
        .filter_map(|line| Some(line.strip_prefix("MADE ")?.trim()))
        .collect();
    assert_eq!(
        lines,
        [
            "mainstay stop playwright",
            "mainstay why files",
            "mainstay restart --json"
        ],
        "{printed:?}"
    );
    servers.finish();
}

#[test]
fn fish_offers_servers() {
    if !has("fish") {
        return;
    }
    let servers = Servers::start();
    let script = r"
        source $COMPLETIONS/mainstay.fish
        complete --do-complete 'mainstay stop '
        complete --do-complete 'mainstay why fi'
        complete --do-complete 'mainstay restart --js'
        complete --do-complete 'mainstay release gem'
    ";
    let id = &servers.id;
    assert_eq!(
        servers.shell("fish", &["--no-config", "-c", script]),
        format!(
            "playwright\t1 server\n{id}\tplaywright\nfiles\tended\n--json\tPrint JSON\ngemini\n"
        )
    );
    servers.finish();
}
