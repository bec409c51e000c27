//! README and the guides are followed to the letter: every block of commands is run, page by page, in a fresh HOME.
//!
//! A block of the language `sh` is run as a whole, of a block `console` the lines after `$ `. The blocks of one page run in one
//! shell, as a reader would type them. A mark before a block changes that:
//!
//! - `<!-- not run: REASON -->`: it cannot be run here.
//! - `<!-- ci: NAME -->`: CI runs it on its own.
//! - `<!-- until: Ctrl-C -->`: it is interrupted after its first line, and must then succeed.
//!
//! guards: Every command in README and the guides works as it is written.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use mainstay_os::identity::Handle;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Source, Stage};
use rustix::process::Signal;

use crate::support::scene::mainstay;

/// More blocks than this may not be left out.
const MOST_NOT_RUN: usize = 9;

#[test]
fn every_command_in_the_readme_and_the_guides_runs() {
    let (mut run, mut not_run) = (0, Vec::new());
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap().to_owned();
        let mut commands = Vec::new();
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            match block.mark {
                Some(Mark::NotRun(reason)) => {
                    not_run.push(format!("{name}:{}: {reason}", block.line));
                }
                Some(Mark::Ci) => {}
                Some(Mark::UntilInterrupted) => {
                    commands.push((block.line, interrupted(&block.commands)));
                }
                None => commands.push((block.line, block.commands)),
            }
        }
        if !commands.is_empty() {
            run += commands.len();
            follow(&name, &commands);
        }
    }
    println!(
        "{run} blocks were run, {} were not:\n{}",
        not_run.len(),
        not_run.join("\n")
    );
    assert!(run > 15, "the pages were not understood");
    assert!(not_run.len() <= MOST_NOT_RUN, "{not_run:#?}");
}

#[test]
fn command_blocks_in_markdown_are_found() {
    let page = "text\n```sh\na\nb\n```\n1. nested\n\n   ```console\n   $ c\n   its output\n   $ d\n   ```\n<!-- not run: needs root -->\n\
                ```sh\ne\n```\n```json\n{}\n```\n<!-- ci: test -->\n```sh\nf\n```\n\
                <!-- until: Ctrl-C -->\n\n```sh\ng\n```\n";
    let found: Vec<(usize, String, Option<Mark>)> = blocks(page)
        .into_iter()
        .map(|block| (block.line, block.commands, block.mark))
        .collect();
    assert_eq!(
        found,
        [
            (2, "a\nb\n".into(), None),
            (8, "c\nd\n".into(), None),
            (14, "e\n".into(), Some(Mark::NotRun("needs root".into()))),
            (21, "f\n".into(), Some(Mark::Ci)),
            (26, "g\n".into(), Some(Mark::UntilInterrupted)),
        ]
    );
}

/// Runs the blocks of one page. Before them, one session with a server `playwright` is over, and another one is open, whose
/// server was killed once. So `ps`, `why`, `events` and `stop` have something to show.
fn follow(page: &str, commands: &[(usize, String)]) {
    let stage = Stage::new();
    let bin = stage.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(mainstay(), bin.join("mainstay")).unwrap();
    let server = stage.unruly::<&str>(&[]);
    let words: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    let stand_in = format!("#!/bin/sh\nexec {}\n", words.join(" "));
    for launcher in ["npx", "uvx"] {
        stage.program(&bin.join(launcher), Source::Text(&stand_in));
    }

    // No port is fixed in a test.
    let config = stage.path(".config/mainstay");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("config.toml"),
        "[serve]\nlisten = \"127.0.0.1:0\"\n",
    )
    .unwrap();

    let argv: Vec<OsString> = "mainstay run --name playwright -- npx -y @playwright/mcp"
        .split(' ')
        .map(Into::into)
        .collect();
    drop(Client::open(&stage, &argv).finish());
    let mut client = Client::open(&stage, &argv);
    let first = stage.card().server.unwrap();
    Handle::open(first).unwrap().signal(Signal::KILL).unwrap();
    stage.event("ready");

    let mut script = String::from("trap 'echo \"in the block at line $block\" >&2' ERR\n");
    for (line, block) in commands {
        write!(script, "block={line}\n{block}").unwrap();
    }
    let output = stage
        .command("timeout")
        .args(["120", "bash", "-Eeuo", "pipefail", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{page}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    drop(client.finish());
}

/// Starts the command, waits for its first line, interrupts it and waits for its end.
fn interrupted(command: &str) -> String {
    format!("exec 7< <(exec {command})\nread -r line <&7\nkill -INT $!\nwait $!\n")
}

/// Commands in a page.
struct Block {
    line: usize,
    commands: String,
    mark: Option<Mark>,
}

/// Why a block is not run by this test, or not to its end.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    NotRun(String),
    Ci,
    UntilInterrupted,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut mark = None;
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let Some(language) = text.strip_prefix("```") else {
            if !text.is_empty() {
                mark = mark_in(text);
            }
            continue;
        };
        let mut commands = String::new();
        for (_, line) in lines.by_ref() {
            if line.trim_start() == "```" {
                break;
            }
            let line = line.get(indent..).unwrap_or_default();
            let command = match language {
                "console" => line.strip_prefix("$ "),
                _ => Some(line),
            };
            if let Some(command) = command {
                commands += command;
                commands.push('\n');
            }
        }
        let mark = mark.take();
        if ["sh", "bash", "console"].contains(&language) {
            found.push(Block {
                line: number,
                commands,
                mark,
            });
        }
    }
    found
}

fn mark_in(line: &str) -> Option<Mark> {
    let comment = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    match comment.split_once(": ")? {
        ("not run", reason) => Some(Mark::NotRun(reason.into())),
        ("ci", _) => Some(Mark::Ci),
        ("until", "Ctrl-C") => Some(Mark::UntilInterrupted),
        _ => None,
    }
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let guides = fs::read_dir(root.join("docs/guides")).unwrap();
    pages.extend(guides.map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages[1..].sort();
    pages
}
