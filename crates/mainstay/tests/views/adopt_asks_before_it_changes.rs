//! Without a yes, at the terminal or as an option, no file is changed. What is written is what was shown.
//! guards: `adopt` changes nothing that the user has not agreed to.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};

use mainstay_testkit::terminal::Terminal;

use crate::support::configs::{fixture, put};
use crate::support::home::{Home, outcome};

const CONFIG: &str = r#"{
  "mcpServers": {
    "clock": { "command": "uvx", "args": ["mcp-server-time"], "env": { "ZONE_TOKEN": "hunter2" } }
  }
}
"#;

const SHOWN: &str = r#"CLIENT  FILE
  SERVER  WHAT WILL HAPPEN
Claude Code  ~/.claude.json
  clock   will go through mainstay

--- ~/.claude.json
+++ ~/.claude.json
@@ -1,5 +1,5 @@
 {
   "mcpServers": {
-    "clock": { "command": "uvx", "args": ["mcp-server-time"], "env": { "ZONE_TOKEN": "[hidden]" } }
+    "clock": { "command": "~/.local/bin/mainstay", "args": ["run", "--name", "clock", "--", "uvx", "mcp-server-time"], "env": { "ZONE_TOKEN": "[hidden]" } }
   }
 }

mainstay will be copied to ~/.local/bin/mainstay, because the program that you
started is where package runners or builds put files that they remove.
"#;

#[test]
fn without_a_terminal_nothing_is_changed() {
    let home = Home::new();
    let path = put(home.path(), "Claude Code", CONFIG.as_bytes());
    let run = |words: &[&str]| home.outcome(home.command(words).env("COLUMNS", "80"));
    let said = "nothing was changed: there is no terminal to ask at; `mainstay adopt --yes` changes the files without a question\n";
    assert_eq!(run(&["adopt"]), outcome(SHOWN, said, 1));
    assert_eq!(
        run(&["adopt", "--dry-run"]),
        outcome(SHOWN, "nothing was written\n", 0)
    );
    let json = run(&["adopt", "--json"]);
    assert_eq!(json.code, Some(1));
    let view = json.json();
    assert_eq!(
        (&view["changes"], &view["written"]),
        (&true.into(), &false.into())
    );
    assert_eq!(view["files"][0]["servers"][0]["action"], "wrap");
    assert!(!json.stdout.contains("hunter2"));
    assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
    assert!(
        !home.path().join(".local").exists(),
        "looking writes nothing"
    );
}

/// A command at a terminal.
struct AtTerminal {
    child: Child,
    terminal: Terminal,
    said: String,
}

impl AtTerminal {
    fn start(home: &Home, words: &[&str]) -> Self {
        let terminal = Terminal::open().unwrap();
        let slave = || Stdio::from(terminal.slave().unwrap());
        let child = home
            .command(words)
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        Self {
            child,
            terminal,
            said: String::new(),
        }
    }

    /// Reads until the command asks this.
    fn asked(&mut self, question: &str) {
        let mut screen = fs::File::from(self.terminal.keyboard().unwrap());
        while !self.said.contains(question) {
            let mut buffer = [0; 4096];
            let length = screen.read(&mut buffer).unwrap();
            self.said
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }

    fn answer(&mut self, line: &str) {
        let mut keyboard = fs::File::from(self.terminal.keyboard().unwrap());
        keyboard.write_all(line.as_bytes()).unwrap();
    }

    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

const QUESTION: &str = "Change 1 server in 1 file? [y/N] ";

fn adopted(path: &Path) -> bool {
    fs::read_to_string(path).unwrap().contains("\"run\"")
}

#[test]
fn the_answer_at_the_terminal_counts() {
    for (line, code, changed) in [("n\n", 1, false), ("\n", 1, false), ("y\n", 0, true)] {
        let home = Home::new();
        let path = put(home.path(), "Claude Code", CONFIG.as_bytes());
        let mut command = AtTerminal::start(&home, &["adopt"]);
        command.asked(QUESTION);
        assert!(!adopted(&path), "nothing is changed before the answer");
        command.answer(line);
        if changed {
            command.asked("Open each server once now");
            command.answer("n\n");
        }
        assert_eq!(command.end(), Some(code), "{line:?}");
        assert_eq!(adopted(&path), changed, "{line:?}");
    }
}

/// What is wrong with the file of another client does not matter for the servers that were adopted.
#[test]
fn the_end_names_what_failed_and_what_comes_next() {
    let home = Home::new();
    put(home.path(), "Claude Code", CONFIG.as_bytes());
    put(home.path(), "Zed", b"{");
    let mut command = AtTerminal::start(&home, &["adopt"]);
    command.asked(QUESTION);
    command.answer("y\n");
    command.asked("Open each server once now");
    command.answer("n\n");
    let said = command.said.replace("\r\n", "\n");
    let (_, end) = said.split_once("  as it was: ").unwrap();
    let (_, end) = end.split_once('\n').unwrap();
    assert!(
        end.contains("\nnot changed: ~/.config/zed/settings.json: line 1, column 1: "),
        "{end}"
    );
    let (_, next) = end.split_once("\nnot changed").unwrap();
    assert!(
        next.contains(
            "`mainstay ps` shows servers that run; `mainstay release --all` undoes this\n"
        ),
        "{end}"
    );
    assert_eq!(command.end(), Some(1));
}

#[test]
fn what_other_people_share_is_said_before_the_question() {
    let home = Home::new();
    put(home.path(), "Claude Code", CONFIG.as_bytes());
    let project = home.path().join("shop");
    fs::create_dir(&project).unwrap();
    fs::write(project.join(".mcp.json"), CONFIG).unwrap();
    let run = |words: &[&str]| home.outcome(home.command(words).current_dir(&project));
    let told = run(&["adopt", "--dry-run"]);
    let left = "~/shop/.mcp.json stays as it is, because others may share it: `mainstay adopt --project .` changes it";
    let flat = told.stdout.replace('\n', " ");
    assert!(flat.contains(left), "{}", told.stdout);
    assert_eq!(told.stderr, "nothing was written\n");
    let shares = "others who share ~/shop/.mcp.json need mainstay at the same path\n";
    assert!(!told.stdout.contains(shares), "{}", told.stdout);
    let told = run(&["adopt", "--dry-run", "--project", "."]);
    assert!(told.stdout.contains(shares), "{}", told.stdout);
    let told = run(&["adopt", "--yes", "--project", "."]);
    assert_eq!(told.stdout.matches(shares).count(), 1);
    assert!(told.stdout.find(shares) < told.stdout.find("changed ~/"));
    let told = run(&["adopt", "--dry-run"]);
    assert!(!told.stdout.contains("stays as it is"), "{}", told.stdout);
}

#[test]
fn a_server_that_came_after_the_question_is_not_changed() {
    let home = Home::new();
    let path = put(home.path(), "Claude Code", CONFIG.as_bytes());
    let mut command = AtTerminal::start(&home, &["adopt"]);
    command.asked(QUESTION);
    let more = CONFIG.replace(
        "\"clock\"",
        "\"late\": { \"command\": \"npx\" },\n    \"clock\"",
    );
    fs::write(&path, &more).unwrap();
    command.answer("y\n");
    command.asked("the file has changed since it was shown");
    assert_eq!(command.end(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), more);
}

#[test]
fn another_edit_after_the_question_is_kept() {
    let home = Home::new();
    let path = put(home.path(), "Claude Code", &fixture("claude_code.json"));
    let mut command = AtTerminal::start(&home, &["adopt", "--server", "clock"]);
    command.asked(QUESTION);
    let more = fs::read_to_string(&path).unwrap();
    let more = more.replace("\"numStartups\": 42", "\"numStartups\": 43");
    fs::write(&path, &more).unwrap();
    command.answer("y\n");
    command.asked("Open each server once now");
    command.answer("n\n");
    assert_eq!(command.end(), Some(0));
    assert!(adopted(&path));
    assert_eq!(home.mainstay(&["release", "--all", "--yes"]).code, Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), more);
}
