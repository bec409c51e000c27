//! Why one entry is left alone.

use std::fmt;
use std::path::PathBuf;

use crate::explain::{Explain, Explanation};

/// Why an entry is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user named other servers.
    NotChosen,
    /// It is no table.
    NotATable,
    /// It, its command or its arguments are anchored, repeated from elsewhere, merged or tagged.
    Tied,
    /// A key is there twice, and which one the client takes is not known.
    Duplicate {
        /// The key.
        key: String,
    },
    /// It has neither a command nor a URL: an extension or the client itself owns it.
    NoCommand,
    /// It is of a kind that is no process of its own.
    OtherType {
        /// The value of `type`, if it has one.
        of: Option<String>,
    },
    /// A key says that it does not run here as it stands.
    KeptBy {
        /// The key.
        key: &'static str,
        /// What it means.
        why: &'static str,
    },
    /// Its command is no single string on one line.
    CommandNotText,
    /// Its command is a whole command line, which only a shell takes apart.
    CommandLine,
    /// Its arguments are no list.
    ArgsNotAList,
    /// It goes through mainstay in a form that a person wrote.
    ByHand,
    /// A list of allowed servers names exact commands.
    AllowList {
        /// The file with the list.
        file: PathBuf,
    },
    /// A list of forbidden servers names it.
    DenyList {
        /// The file with the list.
        file: PathBuf,
    },
    /// An administrator's file replaces this one.
    Managed {
        /// The administrator's file.
        file: PathBuf,
    },
    /// A file with rules exists and cannot be read.
    UnreadablePolicy {
        /// The file.
        file: PathBuf,
    },
    /// A server behind a URL, and the client ends its sessions itself.
    RemoteEndsSessions,
    /// A server behind a URL, and whether the client ends its sessions has not been tested.
    RemoteNotTested,
    /// A server behind a URL of a kind that `run --url` does not speak (the older SSE).
    RemoteType {
        /// What the entry says.
        of: Option<String>,
    },
    /// It has a login by OAuth, which only the client can do.
    OAuth,
    /// It has no credentials and is not on this machine: the client may log in by OAuth when the server asks.
    MayNeedLogin,
    /// It has a key that `run --url` has nothing for.
    RemoteKey {
        /// The key.
        key: String,
    },
    /// Its environment has variables that adopt did not write, so its headers cannot be put back.
    ForeignVariables,
    /// Remote entries were not asked for.
    RemoteNotAsked,
    /// It is laid out in a way that cannot be edited safely.
    Unusual,
}

impl Explain for Reason {
    fn explain(&self) -> Explanation {
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "missing".into());
        let (what, why, hint) = match self {
            Self::NotChosen => (
                "not chosen",
                "other servers were named".into(),
                "name it, too",
            ),
            Self::NotATable => (
                "not an entry",
                "a table with a command is expected".into(),
                "correct it by hand",
            ),
            Self::Tied => (
                "anchor, alias, merge key or tag",
                "a change would also change another place, or its type".into(),
                "write the entry out, or edit it by hand",
            ),
            Self::Duplicate { key } => (
                "duplicate key",
                format!("`{key}` is there twice, and which one the client takes is not known"),
                "remove one of them",
            ),
            Self::NoCommand => (
                "no command",
                "an extension or the client itself owns this server".into(),
                "nothing to do",
            ),
            Self::OtherType { of } => (
                "not a process of its own",
                format!("its type is {}", shown(of)),
                "nothing to do",
            ),
            Self::KeptBy { key, why } => ("kept", format!("`{key}`: {why}"), "nothing to do"),
            Self::CommandNotText => (
                "unusual command",
                "the command is no single string on one line".into(),
                "edit it by hand",
            ),
            Self::CommandLine => (
                "command line in one string",
                "mainstay starts programs without a shell".into(),
                "split it into `command` and `args`",
            ),
            Self::ArgsNotAList => (
                "unusual arguments",
                "the arguments are no list of words".into(),
                "write them as a list",
            ),
            Self::ByHand => (
                "wrapped by hand",
                "it goes through mainstay in a form that adopt does not write".into(),
                "edit it by hand",
            ),
            Self::AllowList { file } => (
                "allow-list",
                format!(
                    "{} names the exact commands that may run, and a wrapped one is not among them",
                    file.display()
                ),
                "ask for the wrapped command to be listed, too",
            ),
            Self::DenyList { file } => (
                "deny-list",
                format!("{} forbids this server", file.display()),
                "nothing to do",
            ),
            Self::Managed { file } => (
                "managed",
                format!("the client takes its servers from {} only", file.display()),
                "ask the administrator of the machine",
            ),
            Self::UnreadablePolicy { file } => (
                "unknown rules",
                format!(
                    "{} cannot be read, and may forbid the change",
                    file.display()
                ),
                "make it readable",
            ),
            Self::RemoteEndsSessions => (
                "remote",
                "this client ends its HTTP sessions itself".into(),
                "nothing to do",
            ),
            Self::RemoteNotTested => (
                "remote",
                "whether this client ends its HTTP sessions has not been tested".into(),
                "edit it by hand if the server keeps sessions",
            ),
            Self::RemoteType { of } => (
                "remote, not streamable HTTP",
                format!("its type is {}", shown(of)),
                "nothing to do",
            ),
            Self::OAuth => (
                "OAuth",
                "only the client can log in".into(),
                "nothing to do",
            ),
            Self::MayNeedLogin => (
                "may need a login",
                "it has no credentials, so the client may log in by OAuth when the server asks"
                    .into(),
                "`--remote all` adopts it, too",
            ),
            Self::RemoteKey { key } => (
                "remote",
                format!("`run --url` has nothing for `{key}`"),
                "edit it by hand",
            ),
            Self::ForeignVariables => (
                "changed environment",
                "it has variables that adopt did not write, and a URL entry has no place for them"
                    .into(),
                "remove them, then release again",
            ),
            Self::RemoteNotAsked => (
                "remote",
                "remote entries were left out".into(),
                "`--remote safe` adopts them",
            ),
            Self::Unusual => (
                "unusual layout",
                "the edited text would not read as meant".into(),
                "edit it by hand",
            ),
        };
        Explanation {
            what: what.into(),
            why,
            hint: hint.into(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain().fmt(f)
    }
}
