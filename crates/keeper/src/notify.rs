//! Runs the command of `notify` in the config file: the user wants to know that a server was given up, or that there are orphans.
//!
//! The text is ours alone: names are made of letters, digits and few signs, because the command may be a shell, or a program that
//! interprets its arguments (tmux, Pango). The command has no input and no output, ends after a limit, and is not run again for
//! the same server for a while.

use std::path::Path;
use std::process::Command;

use mainstay_os::{child, clock, role, title};
use mainstay_protocol::event::Abandoned;
use mainstay_protocol::limits::{NOTIFY_EVERY_MS, NOTIFY_MS};
use mainstay_report::measure::span;
use mainstay_store::paths::Paths;

/// What the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `given_up` or `orphans`.
    pub event: &'static str,
    /// The server's name; empty for orphans.
    pub server: String,
    /// One sentence.
    pub text: String,
}

impl Notice {
    /// A server was given up.
    pub fn given_up(server: &str, abandoned: &Abandoned) -> Self {
        let server = harmless(server);
        let within = span(abandoned.window_ms);
        let why = match (abandoned.deaths, abandoned.failed_starts) {
            (_, _) if abandoned.changed.is_some() => {
                "does not start after a file was changed".into()
            }
            (0, failed) => format!("could not be started {failed} times in {within}"),
            (deaths, 0) => format!("ended {deaths} times in {within}"),
            (deaths, failed) => {
                format!("ended {deaths} times and could not be started {failed} times in {within}")
            }
        };
        Self {
            event: "given_up",
            text: format!("server {server} was given up, because it {why}: mainstay why {server}"),
            server,
        }
    }

    /// Orphans were found.
    pub fn orphans(count: usize) -> Self {
        let are = if count == 1 {
            "1 MCP server runs"
        } else {
            &format!("{count} MCP servers run")
        };
        Self {
            event: "orphans",
            server: String::new(),
            text: format!("{are} without a client: mainstay reap"),
        }
    }

    /// The name of the file whose time says when this was last told.
    fn file(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let server: String = self.server.chars().map(plain).collect();
        format!("{}-{server}", self.event)
    }
}

/// A name without signs that a shell, tmux or a desktop would interpret.
fn harmless(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " -_./@".contains(c);
    name.chars()
        .map(|c| if plain(c) { c } else { '?' })
        .collect()
}

/// Runs the command in a helper process, so that the keeper does not wait.
pub fn start(command: &[String], paths: &Paths, notice: &Notice) {
    if command.is_empty() {
        return;
    }
    // If no process can be started, the event says the same.
    drop(role::start_helper(|| {
        title::set(c"mcp-helper");
        run(command, paths, notice);
        0
    }));
}

/// Runs the command, unless it was run for the same reason a short time ago, and waits for its end.
#[expect(
    clippy::disallowed_methods,
    reason = "a short command of the user, not a server: it is ended with its group"
)]
pub fn run(command: &[String], paths: &Paths, notice: &Notice) {
    let Some((program, arguments)) = command.split_first() else {
        return;
    };
    if !is_due(paths, &notice.file()) {
        return;
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(&notice.text)
        .env("MAINSTAY_EVENT", notice.event)
        .env("MAINSTAY_SERVER", &notice.server)
        .env("MAINSTAY_TEXT", &notice.text);
    for (name, value) in desktop() {
        command.env(name, value);
    }
    // A command that cannot be started or fails has no other place to be reported; the event is there in any case.
    child::run_within(command, NOTIFY_MS).ok();
}

/// Whether enough time has passed since this file was written; then writes it.
fn is_due(paths: &Paths, file: &str) -> bool {
    let Ok(directory) = paths.state().join("notified").make() else {
        // Without a state directory there is no limit to keep.
        return true;
    };
    let now = clock::wall_ms();
    let last = directory.look(file).map(|info| info.changed_ms);
    if last.is_ok_and(|last| last <= now && now - last < NOTIFY_EVERY_MS) {
        return false;
    }
    directory.replace(file, b"").is_ok()
}

/// The variables by which a program finds the user's desktop, for clients that do not pass them on.
fn desktop() -> Vec<(&'static str, String)> {
    let missing = |name: &str| std::env::var_os(name).is_none();
    let runtime = format!("/run/user/{}", rustix::process::getuid().as_raw());
    let bus = format!("{runtime}/bus");
    let mut variables = Vec::new();
    if missing("XDG_RUNTIME_DIR") && Path::new(&runtime).is_dir() {
        variables.push(("XDG_RUNTIME_DIR", runtime));
    }
    if missing("DBUS_SESSION_BUS_ADDRESS") && Path::new(&bus).exists() {
        variables.push(("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={bus}")));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_store::scratch::Scratch;

    fn abandoned(deaths: u32, failed_starts: u32) -> Abandoned {
        Abandoned {
            deaths,
            failed_starts,
            window_ms: 60_000,
            last: "exit code 1: $(rm -rf ~)".into(),
            changed: None,
            probe_ms: 1,
        }
    }

    #[test]
    fn a_notice_says_what_happened_and_which_command_tells_more() {
        for (deaths, failed, text) in [
            (
                5,
                0,
                "server play was given up, because it ended 5 times in 1m00s: mainstay why play",
            ),
            (
                0,
                3,
                "server play was given up, because it could not be started 3 times in 1m00s: mainstay why play",
            ),
        ] {
            assert_eq!(
                Notice::given_up("play", &abandoned(deaths, failed)).text,
                text
            );
        }
        assert_eq!(
            Notice::orphans(1).text,
            "1 MCP server runs without a client: mainstay reap"
        );
        assert_eq!(
            Notice::orphans(2).text,
            "2 MCP servers run without a client: mainstay reap"
        );
    }

    #[test]
    fn a_notice_has_no_sign_that_another_program_interprets() {
        let notice = Notice::given_up("a #(reboot) `b` $C <i> 'd'", &abandoned(5, 0));
        assert!(
            !notice.text.contains(['#', '`', '$', '<', '\'', '(']),
            "{}",
            notice.text
        );
        assert!(
            notice
                .file()
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        );
    }

    #[test]
    fn the_same_is_not_told_twice_in_a_short_time() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        assert!(is_due(&paths, "orphans-"));
        assert!(!is_due(&paths, "orphans-"));
        assert!(is_due(&paths, "given_up-play"));
    }
}
