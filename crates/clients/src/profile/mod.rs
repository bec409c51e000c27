//! Clients, one file each: where its config is, what an entry looks like, and how its processes behave.
//!
//! All of it is data. A new client is a file here, its two lines in this one, and a fixture for `tests/edits/fixtures.rs`.

mod amp;
mod claude_code;
mod claude_desktop;
mod cline;
mod codex;
mod continue_dev;
mod copilot;
mod crush;
mod cursor;
mod gemini;
mod goose;
mod hermes;
mod inspector;
mod junie;
mod kiro;
mod lm_studio;
mod opencode;
mod qwen;
mod roo;
mod vs_code;
mod warp;
mod windsurf;
mod zed;

pub use crate::behaviour::{Behaviour, Farewell, Opens, Passes};
use crate::format::Format;

/// All that are known, sorted by the names of their files.
pub static ALL: &[&Client] = &[
    &amp::CLIENT,
    &claude_code::CLIENT,
    &claude_desktop::CLIENT,
    &cline::CLIENT,
    &codex::CLIENT,
    &continue_dev::CLIENT,
    &copilot::CLIENT,
    &crush::CLIENT,
    &cursor::CLIENT,
    &gemini::CLIENT,
    &goose::CLIENT,
    &hermes::CLIENT,
    &inspector::CLIENT,
    &junie::CLIENT,
    &kiro::CLIENT,
    &lm_studio::CLIENT,
    &opencode::CLIENT,
    &qwen::CLIENT,
    &roo::CLIENT,
    &vs_code::CLIENT,
    &warp::CLIENT,
    &windsurf::CLIENT,
    &zed::CLIENT,
];

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its name, for people.
    pub name: &'static str,
    /// Other names under which people ask for it, in lower case without blanks and dashes.
    pub aliases: &'static [&'static str],
    /// Its config.
    pub config: Config,
    /// Its processes, if they are known.
    pub behaviour: Option<Behaviour>,
}

/// How a client is configured.
#[derive(Debug)]
pub struct Config {
    /// Its files.
    pub files: &'static [ConfigFile],
    /// What an entry looks like.
    pub entry: Entry,
    /// Which of two members with one key it takes.
    pub duplicates: Duplicates,
    /// Files that may forbid an edit.
    pub policies: &'static [PolicyFile],
    /// What the user has to do after an edit, as a sentence.
    pub after_edit: &'static str,
}

/// The config of a client that has no file with servers.
const NO_CONFIG: Config = Config {
    files: &[],
    entry: COMMON_ENTRY,
    duplicates: Duplicates::Unknown,
    policies: &[],
    after_edit: "",
};

/// One kind of config file of a client.
#[derive(Debug)]
pub struct ConfigFile {
    /// Who has these servers.
    pub scope: Scope,
    /// Where it is.
    pub place: Place,
    /// How it is written.
    pub format: Format,
    /// The ways to the table of servers. All are looked at; an empty way (the whole file is the table) only if no other leads anywhere.
    pub tables: &'static [&'static [Key]],
    /// How servers stand in it.
    pub servers: Servers,
    /// Why it is never edited, if so.
    pub never: Option<&'static str>,
}

/// Who has the servers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The user, everywhere.
    User,
    /// One project, for all who work on it.
    Project,
    /// All users of the machine.
    Machine,
}

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below HOME.
    Home(&'static str),
    /// Below the directory that a variable names, else below this directory of HOME.
    Own {
        /// The variable.
        variable: &'static str,
        /// The directory below HOME.
        home: &'static str,
        /// The file.
        file: &'static str,
    },
    /// The file that a variable names; none without it.
    Variable(&'static str),
    /// Below `XDG_CONFIG_HOME`, else `HOME/.config`, on every system.
    Config(&'static str),
    /// Below `XDG_DATA_HOME`, else `HOME/.local/share`.
    Data(&'static str),
    /// Below the place for programs' own files: as [`Place::Config`] on Linux, `Library/Application Support` on macOS.
    Application(&'static str),
    /// As [`Place::Application`], in each directory below the first path.
    ApplicationEach(&'static str, &'static str),
    /// Each file with one of these endings in a directory of HOME.
    HomeFolder(&'static str, &'static [&'static str]),
    /// Below the project.
    Project(&'static str),
    /// Below the project, or the nearest directory above it that has the file, up to the root of the repository.
    ProjectUpward(&'static str),
    /// Each file with one of these endings in a directory of the project.
    ProjectFolder(&'static str, &'static [&'static str]),
    /// An absolute path on Linux.
    Machine(&'static str),
}

/// One step on the way to the table of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// This key.
    Named(&'static str),
    /// The key that is the project's directory.
    ProjectDirectory,
}

/// How servers stand in their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// Each under its name.
    ByKey,
    /// A list; the name is the value of this key.
    Listed(&'static str),
}

/// What an entry looks like.
#[derive(Debug)]
pub struct Entry {
    /// The forms of a server that is a process, the first that fits counts.
    pub words: &'static [Words],
    /// Values of `type` that mean a process. If `type` has another value, the entry is not one.
    pub process_types: &'static [&'static str],
    /// Whether `type` must be there.
    pub type_needed: bool,
    /// Keys that keep an entry as it is unless they are `false`, with the reason.
    pub kept_by: &'static [(&'static str, &'static str)],
    /// The key of the variables that it sets.
    pub environment: &'static str,
    /// The key of the directory that it runs in.
    pub directory: &'static str,
    /// The forms of variables that the client expands in arguments and variables.
    pub expands: &'static [Expansion],
    /// Keys of a server's URL.
    pub urls: &'static [&'static str],
    /// Keys that speak of a login by OAuth.
    pub oauth: &'static [&'static str],
    /// What becomes of a server behind a URL.
    pub remote: Remote,
}

/// A form in which a variable may be written. One that is not set is left as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// `$NAME`
    Dollar,
    /// `${NAME}`
    Braces,
    /// `${NAME:-default}`
    Default,
    /// `${env:NAME}`
    DollarEnv,
    /// `{env:NAME}`
    CurlyEnv,
}

/// Where command and arguments stand in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// A string and a list.
    Split {
        /// The table within the entry that holds both, if any.
        within: Option<&'static str>,
        /// The key of the command.
        command: &'static str,
        /// The key of the arguments.
        args: &'static str,
    },
    /// One list, the command first.
    Joined {
        /// Its key.
        command: &'static str,
    },
}

/// What becomes of a server behind a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// The client ends its HTTP sessions itself.
    EndsSessions,
    /// Whether the client ends its HTTP sessions has not been tested.
    NotTested,
    /// The client leaves HTTP sessions open, so the entry becomes `mainstay run --url`.
    LeavesSessionsOpen(Bridge),
}

/// How an entry with a URL becomes one with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The key of a streamable-HTTP URL.
    pub url: &'static str,
    /// The value of `type` before and after; none if such entries have no `type`.
    pub types: Option<(&'static str, &'static str)>,
    /// The key of the headers, and the key of the environment that takes their values.
    pub headers: Option<(&'static str, &'static str)>,
    /// Keys that `run --url` has nothing for.
    pub blockers: &'static [&'static str],
}

/// Which of two members with one key a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// The last one.
    Last,
    /// Its reader refuses the file.
    Refused,
    /// Not known.
    Unknown,
}

/// A file that may forbid an edit.
#[derive(Debug)]
pub struct PolicyFile {
    /// Where it is.
    pub place: Place,
    /// How it is written.
    pub format: Format,
    /// What it says.
    pub rule: PolicyRule,
}

/// How a policy file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRule {
    /// If the file exists, the client takes its servers from there and from nowhere else.
    Exclusive,
    /// `allowedMcpServers` and `deniedMcpServers`, which may name exact command lines (`serverCommand`).
    ServerCommands,
    /// If this key exists, servers are matched by command.
    MatchesCommands(&'static str),
}

/// `{ "mcpServers": … }`
pub(crate) const MCP_SERVERS: &[&[Key]] = &[&[Key::Named("mcpServers")]];

/// `"command"` and `"args"`, as most clients have it.
pub(crate) const COMMAND_AND_ARGS: &[Words] = &[Words::Split {
    within: None,
    command: "command",
    args: "args",
}];

/// The entry of most clients: `command`, `args`, `env`, or `url`.
pub(crate) const COMMON_ENTRY: Entry = Entry {
    words: COMMAND_AND_ARGS,
    process_types: &["stdio"],
    type_needed: false,
    kept_by: &[],
    environment: "env",
    directory: "cwd",
    expands: &[],
    urls: &["url"],
    oauth: &["oauth", "auth"],
    remote: Remote::NotTested,
};

/// A file with `mcpServers`.
pub(crate) const fn file(scope: Scope, place: Place, format: Format) -> ConfigFile {
    ConfigFile {
        scope,
        place,
        format,
        tables: MCP_SERVERS,
        servers: Servers::ByKey,
        never: None,
    }
}

/// A file of the machine's administrator.
pub(crate) const fn managed(path: &'static str, format: Format) -> ConfigFile {
    ConfigFile {
        scope: Scope::Machine,
        place: Place::Machine(path),
        format,
        tables: MCP_SERVERS,
        servers: Servers::ByKey,
        never: Some("it belongs to the administrator of the machine"),
    }
}

/// The client that people call so, however it is written.
pub fn named(name: &str) -> Option<&'static Client> {
    let plain = |text: &str| text.replace([' ', '-', '_'], "").to_lowercase();
    let wanted = plain(name);
    ALL.iter()
        .copied()
        .find(|client| plain(client.name) == wanted || client.aliases.contains(&wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_client_of_the_list_is_known_by_the_names_that_people_use() {
        for (word, name) in [
            ("claude", "Claude Code"),
            ("claude-code", "Claude Code"),
            ("Claude Desktop", "Claude Desktop"),
            ("codex", "Codex"),
            ("gemini", "Gemini CLI"),
            ("qwen", "Qwen Code"),
            ("copilot", "Copilot CLI"),
            ("vscode", "VS Code"),
            ("code", "VS Code"),
            ("cursor", "Cursor"),
            ("windsurf", "Windsurf"),
            ("zed", "Zed"),
            ("cline", "Cline"),
            ("roo", "Roo Code"),
            ("continue", "Continue"),
            ("cn", "Continue"),
            ("goose", "Goose"),
            ("opencode", "opencode"),
            ("kiro", "Kiro"),
            ("warp", "Warp"),
            ("lm studio", "LM Studio"),
            ("amp", "Amp"),
            ("junie", "Junie"),
            ("crush", "Crush"),
            ("hermes", "Hermes"),
        ] {
            assert_eq!(named(word).map(|client| client.name), Some(name), "{word}");
        }
        assert!(named("emacs").is_none());
    }

    #[test]
    fn names_are_unique_and_every_client_has_a_file_that_is_edited() {
        let names: BTreeSet<_> = ALL.iter().map(|client| client.name).collect();
        assert_eq!(names.len(), ALL.len());
        for client in ALL {
            let config = &client.config;
            if config.files.is_empty() {
                assert_eq!(client.name, "MCP Inspector");
                assert!(client.behaviour.is_some());
                continue;
            }
            let mut editable = config.files.iter().filter(|file| file.never.is_none());
            assert!(editable.next().is_some(), "{}", client.name);
            assert!(!config.entry.words.is_empty() && !config.after_edit.is_empty());
            for file in config.files {
                assert!(!file.tables.is_empty(), "{}", client.name);
                let machine = matches!(file.place, Place::Machine(_));
                assert_eq!(machine, file.scope == Scope::Machine, "{}", client.name);
                assert!(!machine || file.never.is_some(), "{}", client.name);
            }
        }
    }
}
