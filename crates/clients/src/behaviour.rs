//! How a client's processes behave: how they look in the process table, how they end servers, how long a server is kept.
//!
//! What is known of each client is in its [`profile`]. All of it was measured or read in the client's source.
//! A client without a profile gets the defaults.

use std::os::fd::AsFd;

use mainstay_os::{census, holder};
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;

use crate::profile;

/// What is known of the processes of one client.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Its name, for people.
    pub name: &'static str,
    /// Whether a process is this client.
    pub is: fn(&Signature) -> bool,
    /// How it ends a session.
    pub farewell: Farewell,
    /// How long a server is kept for it when its shim was killed without an end of stdin.
    pub linger_ms: u64,
    /// After how long its first turn goes on without a server that is not there yet.
    pub first_turn_ms: Option<u64>,
    /// After how long it gives a server up that does not open.
    pub connect_ms: u64,
    /// Which variables of its own environment it gives to servers.
    pub passes: Passes,
    /// How it opens a session.
    pub opens: Opens,
    /// Variables that it sets anew in each session, or in one of its processes that start servers and not in another. They
    /// say nothing about the server: the cache does not count them.
    pub session_variables: &'static [&'static str],
}

/// Which variables of its own environment a client gives to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// All of them.
    All,
    /// Only these.
    Only(&'static [&'static str]),
    /// All but these.
    AllBut(&'static [&'static str]),
    /// All but those whose name speaks of a credential.
    NoCredentials,
}

impl Passes {
    /// Whether servers get this variable.
    pub fn passes(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&name),
            Self::AllBut(names) => !names.contains(&name),
            Self::NoCredentials => {
                let name = name.to_uppercase();
                let speaks = |word: &&str| name.contains(word);
                !["TOKEN", "KEY", "SECRET", "AUTH", "PASS", "CREDENTIAL"]
                    .iter()
                    .any(speaks)
            }
        }
    }
}

/// How a client opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens {
    /// Whether it asks `server/discover` first.
    pub discovers: bool,
    /// The protocol version that it offers in `initialize`.
    pub version: &'static str,
    /// Whether it asks for prompts and resources although the server has not announced them.
    pub asks_for_all_lists: bool,
}

impl Default for Opens {
    fn default() -> Self {
        Self {
            discovers: false,
            version: "2025-11-25",
            asks_for_all_lists: false,
        }
    }
}

/// How a client ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It closes stdin; signals come later, if at all.
    Eof,
    /// It closes stdin and signals at the same time: the EOF says that it is meant.
    SignalsAndEof,
    /// It signals, and stdin stays open until it ends itself: what is meant cannot be told.
    Signals,
    /// It kills the tree or the group, and that is meant.
    Kills,
}

/// A process as the process table shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Its short name.
    pub comm: String,
    /// The file that it runs, if it can be seen.
    pub exe: Option<String>,
    /// Its words.
    pub argv: Vec<String>,
}

impl Signature {
    /// The signature of a living process; none if it has ended or another process has its pid now.
    pub fn of(who: Identity) -> Option<Self> {
        let stat = census::stat(who.pid)
            .ok()
            .filter(|stat| stat.who() == who && !stat.dead())?;
        Some(Self::at(who.pid, &stat.comm))
    }

    /// The signature of the process that has this pid now, with the short name that the caller has read.
    pub fn at(pid: i32, comm: &str) -> Self {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        Self {
            comm: comm.to_owned(),
            exe: exe.map(|path| path.to_string_lossy().into_owned()),
            argv: census::cmdline(pid),
        }
    }

    /// Whether it is a program of this name: by its short name, its first word, or its file.
    pub fn is_called(&self, name: &str) -> bool {
        self.comm == name
            || self.argv.first().is_some_and(|word| base(word) == name)
            || self
                .exe
                .as_ref()
                .is_some_and(|exe| base(exe).strip_suffix(".exe").unwrap_or(base(exe)) == name)
    }

    /// Whether it is an interpreter that runs a script of this name.
    pub fn scripts(&self, name: &str) -> bool {
        let script =
            |word: &str| base(word).trim_end_matches(".js").trim_end_matches(".mjs") == name;
        self.script().is_some_and(script)
    }

    /// Whether its file, or the script that it runs, is below a directory of this name.
    pub fn runs_from(&self, part: &str) -> bool {
        self.exe.as_ref().is_some_and(|exe| exe.contains(part))
            || self.script().is_some_and(|script| script.contains(part))
    }

    /// The first word behind an interpreter that is no option.
    fn script(&self) -> Option<&str> {
        let program = base(self.argv.first()?);
        let interprets = INTERPRETERS.iter().any(|name| program.starts_with(name));
        let mut words = self.argv.iter().skip(1);
        let script = words.find(|word| !word.starts_with('-'));
        script.map(String::as_str).filter(|_| interprets)
    }
}

/// What runs the scripts of the clients that are scripts.
const INTERPRETERS: [&str; 4] = ["node", "bun", "deno", "python"];

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The client that a process belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The process.
    pub who: Identity,
    /// Which client it is, if it is known.
    pub profile: Option<&'static Behaviour>,
}

impl Owner {
    /// The client behind our stdin, among these, nearest first: the nearest that we know, up to the one that holds the other
    /// end, else that one. A process above the holder is not the client, and if none of them holds the end, none is: a dead
    /// client's parent must not be taken for the client.
    pub fn among(candidates: &[Identity], stdin: &impl AsFd) -> Option<Self> {
        let place = holder::nearest(stdin, candidates)?;
        let near = &candidates[..=place];
        let known = |who: &Identity| Some((*who, known(&Signature::of(*who)?)?));
        let found = near.iter().find_map(known);
        Some(Self {
            who: found.map_or(candidates[place], |(who, _)| who),
            profile: found.map(|(_, profile)| profile),
        })
    }
}

/// Every behaviour that is known.
pub fn all() -> impl Iterator<Item = &'static Behaviour> {
    profile::ALL
        .iter()
        .filter_map(|client| client.behaviour.as_ref())
}

/// The profile of a process.
pub fn known(signature: &Signature) -> Option<&'static Behaviour> {
    all().find(|profile| (profile.is)(signature))
}

/// Whether this variable is of some client's session. Of all clients, because one may be started by another.
pub fn is_of_session(variable: &str) -> bool {
    all().any(|profile| profile.session_variables.contains(&variable))
}

/// A client under its own name where the short name of its process does not tell it: `Gemini CLI` instead of `node`.
pub fn called(mut client: Seen) -> Seen {
    client.comm = name(Signature::at(client.who.pid, &client.comm));
    client
}

fn name(signature: Signature) -> String {
    let known = known(&signature).map(|profile| profile.name);
    let tells = |name: &str| name.to_lowercase().contains(&signature.comm);
    match known.filter(|name| !tells(name)) {
        Some(name) => name.into(),
        None => signature.comm,
    }
}

/// The profile of a client that is called so: by its whole name or by its first word, however it is written.
pub fn named(name: &str) -> Option<&'static Behaviour> {
    let plain = |text: &str| text.replace([' ', '-', '_'], "").to_lowercase();
    let wanted = plain(name);
    all().find(|profile| {
        let first = profile.name.split(' ').next().unwrap_or_default();
        [plain(profile.name), plain(first)].contains(&wanted)
    })
}

#[cfg(test)]
mod tests {
    //! guards: No server is kept for a client that ends its sessions by killing.

    use super::*;

    fn named(comm: &str, exe: &str, cmdline: &str) -> Option<&'static str> {
        let signature = Signature {
            comm: comm.into(),
            exe: (!exe.is_empty()).then(|| exe.into()),
            argv: cmdline.split_whitespace().map(Into::into).collect(),
        };
        known(&signature).map(|profile| profile.name)
    }

    #[test]
    fn a_client_may_be_called_as_people_call_it() {
        for (word, name) in [
            ("claude", "Claude Code"),
            ("Claude Code", "Claude Code"),
            ("claude-code", "Claude Code"),
            ("vscode", "VS Code"),
            ("copilot", "Copilot CLI"),
            ("opencode", "opencode"),
        ] {
            assert_eq!(
                super::named(word).map(|profile| profile.name),
                Some(name),
                "{word}"
            );
        }
        assert!(super::named("bash").is_none());
    }

    /// As they were seen in the process table of real clients.
    #[test]
    fn real_clients_are_known() {
        let node = "/usr/bin/node";
        for (comm, exe, cmdline, name) in [
            (
                "claude",
                "/n/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
                "claude -p hello",
                "Claude Code",
            ),
            ("claude", node, "claude", "Claude Code"),
            (
                "codex",
                "/n/codex/bin/codex",
                "/n/bin/codex exec hello",
                "Codex",
            ),
            (
                "codex",
                "",
                "/h/.codex/packages/app-server-daemon/releases/1/bin/codex app-server --listen unix://",
                "Codex",
            ),
            ("node", node, "node /n/bin/gemini -p hello", "Gemini CLI"),
            (
                "node",
                node,
                "/usr/bin/node --max-old-space-size=4096 /n/bin/gemini -p hello",
                "Gemini CLI",
            ),
            ("node", node, "node /n/bin/qwen", "Qwen Code"),
            (
                "node",
                node,
                "node --expose-gc /n/lib/node_modules/@qwen-code/qwen-code/cli.js",
                "Qwen Code",
            ),
            ("node", node, "node /n/bin/copilot -p hello", "Copilot CLI"),
            (
                "MainThread",
                "/n/copilot-linux-x64/copilot",
                "/n/copilot-linux-x64/copilot -p hello",
                "Copilot CLI",
            ),
            (
                "MainThread",
                "",
                "/n/copilot-runtime --headless",
                "Copilot CLI",
            ),
            (
                "opencode",
                "/n/opencode-ai/bin/opencode.exe",
                "/n/bin/opencode run hello",
                "opencode",
            ),
            ("cline", "/n/cline", "cline hello there", "Cline CLI"),
            (
                "cline",
                "/n/cline",
                "cline --cline-hub-daemon --port 1 --pathname /hub",
                "Cline CLI",
            ),
            (
                "node",
                node,
                "node /n/bin/cn --auto -p hello",
                "Continue CLI",
            ),
            (
                "hermes",
                "/usr/bin/python3.12",
                "python3 /v/bin/hermes chat",
                "Hermes",
            ),
            (
                "python3",
                "/usr/bin/python3.12",
                "/v/bin/python3 /v/lib/tools/mcp_stdio_watchdog.py --ppid 7 -- npx x",
                "Hermes",
            ),
            (
                "node",
                node,
                "node /n/bin/mcp-inspector --cli",
                "MCP Inspector",
            ),
        ] {
            assert_eq!(named(comm, exe, cmdline), Some(name), "{comm}: {cmdline}");
        }
    }

    /// Its short name where that tells who it is, else its own.
    #[test]
    fn a_client_is_shown_under_a_name_that_tells() {
        for (comm, cmdline, name) in [
            ("claude", "/n/bin/claude mcp list", "claude"),
            ("codex", "/n/bin/codex exec hello", "codex"),
            ("node", "node /n/bin/gemini mcp list", "Gemini CLI"),
            ("node", "node /n/bin/cn -p hello", "Continue CLI"),
            (
                "MainThread",
                "/n/@github/copilot-linux-x64/copilot -p hello",
                "Copilot CLI",
            ),
            ("node", "node /srv/client.js", "node"),
            ("MainThread", "node /srv/client.js", "MainThread"),
        ] {
            let signature = Signature {
                comm: comm.into(),
                exe: None,
                argv: cmdline.split_whitespace().map(Into::into).collect(),
            };
            assert_eq!(super::name(signature), name, "{cmdline}");
        }
    }

    #[test]
    fn launchers_and_others_are_not() {
        for (comm, cmdline) in [
            ("sh", "sh -c claude-code-helper"),
            ("npm exec", "npm exec @x/y"),
            ("node", "node /x/claude.test.js"),
            ("node", "node /x/server.js --name gemini"),
            ("bash", "-bash"),
            ("", ""),
        ] {
            assert_eq!(named(comm, "", cmdline), None, "{comm}: {cmdline}");
        }
    }

    #[test]
    fn a_client_that_ends_sessions_by_killing_gets_no_linger_time() {
        for profile in all() {
            assert_eq!(
                profile.farewell == Farewell::Kills,
                profile.linger_ms == 0,
                "{}",
                profile.name
            );
        }
        let kept = |client| super::named(client).map(|profile| profile.linger_ms);
        assert_eq!(kept("Claude Code"), Some(60_000));
        assert_eq!(kept("Copilot CLI"), Some(0));
    }

    #[test]
    fn the_holder_of_the_other_end_owns_and_else_no_process() {
        let me = mainstay_os::identity::me().unwrap();
        let dead = Identity {
            pid: me.pid,
            start: me.start + 1,
        };
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let owner = Owner::among(&[dead, me], &reader).unwrap();
        assert_eq!(owner.who, me);
        assert!(owner.profile.is_none() && Owner::among(&[dead], &reader).is_none());
        drop(writer);
        let owner = Owner::among(&[dead, me], &reader);
        assert!(owner.is_none(), "a client that has closed cannot come back");
    }
}
