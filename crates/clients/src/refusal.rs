//! Why a whole file is left alone.

use std::fmt;

use crate::explain::{Explain, Explanation};
use crate::limits::{DEPTH_LEVELS_MAX, FILE_BYTES_MAX};

/// Why a file cannot be planned. Nothing of it is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is larger than [`FILE_BYTES_MAX`].
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// It has a byte that no text has.
    NulByte {
        /// Where the first one is.
        at: usize,
    },
    /// It is not UTF-8.
    NotUtf8 {
        /// Where the first wrong byte is.
        at: usize,
    },
    /// It breaks the rules of its format.
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the reader says.
        problem: String,
    },
    /// Lists and tables are nested deeper than [`DEPTH_LEVELS_MAX`].
    TooDeep,
    /// It has several YAML documents.
    SeveralDocuments,
    /// Where the servers should be is no table (or list).
    NotATable {
        /// The key.
        key: String,
    },
    /// A key on the way to the servers is there twice, and which one the client takes is not known.
    Duplicate {
        /// The key.
        key: String,
    },
    /// The table of servers, or what holds it, is anchored, repeated from elsewhere or tagged.
    Tied {
        /// The key.
        key: String,
    },
    /// This kind of file is never edited.
    Never {
        /// Why.
        why: &'static str,
    },
    /// An option of the plan cannot be written into a config.
    BadOption {
        /// What is wrong with it.
        problem: String,
    },
    /// Where hooks should be in Claude Code's settings is something else.
    NotSettings {
        /// The key, or the file itself.
        key: String,
    },
    /// A hook that runs `mainstay reap` is there in a form that `reap --install --hook` does not write.
    HookByHand,
    /// The client has changed the file since the user saw the plan, and more would change than the user agreed to.
    Drifted,
    /// The edited text does not read as planned. This is a mistake in mainstay.
    Mismatch,
}

impl Refusal {
    /// Whether the client cannot read the file either.
    pub fn is_broken(&self) -> bool {
        matches!(
            self,
            Self::NulByte { .. } | Self::NotUtf8 { .. } | Self::Syntax { .. }
        )
    }
}

impl Explain for Refusal {
    fn explain(&self) -> Explanation {
        let (what, why, hint) = match self {
            Self::TooLarge { bytes } => (
                format!("the file has {bytes} bytes"),
                format!("at most {FILE_BYTES_MAX} bytes are read"),
                "see what made it so large; a config of servers needs a few kilobytes".into(),
            ),
            Self::NulByte { at } => (
                format!("byte {at} is NUL"),
                "no text file has such a byte, so the file is damaged".into(),
                "restore it from the client's own backup".into(),
            ),
            Self::NotUtf8 { at } => (
                format!("byte {at} is not UTF-8"),
                "clients read their config as UTF-8".into(),
                "save the file as UTF-8".into(),
            ),
            Self::Syntax {
                line,
                column,
                problem,
            } => (
                format!("line {line}, column {column}: {problem}"),
                "the client cannot read the file either, or is writing it at this moment".into(),
                "correct that line, then try again".into(),
            ),
            Self::TooDeep => (
                format!("values are nested deeper than {DEPTH_LEVELS_MAX} levels"),
                "deeper files are not read".into(),
                "edit the entry by hand".into(),
            ),
            Self::SeveralDocuments => (
                "the file has several YAML documents".into(),
                "clients read one of them, and which one is not known".into(),
                "remove the `---` that separates them, or edit by hand".into(),
            ),
            Self::NotATable { key } => (
                format!("`{key}` holds no servers"),
                "a table of servers is expected there".into(),
                "correct it, or remove the key".into(),
            ),
            Self::Duplicate { key } => (
                format!("the key `{key}` is there twice"),
                "which one the client takes is not known".into(),
                "remove one of them".into(),
            ),
            Self::Tied { key } => (
                format!("`{key}` is anchored, repeated from elsewhere or tagged"),
                "a change there would also change another place".into(),
                "write the servers out, or edit by hand".into(),
            ),
            Self::Never { why } => (
                "this file is never edited".into(),
                (*why).into(),
                "edit it by hand".into(),
            ),
            Self::BadOption { problem } => (
                problem.clone(),
                "the client would change or misread it".into(),
                "choose another value".into(),
            ),
            Self::NotSettings { key } => (
                format!("{key} holds no settings of Claude Code"),
                "an object is expected, with `hooks` as an object and `SessionEnd` as a list in it"
                    .into(),
                "correct it; an empty file needs `{}`".into(),
            ),
            Self::HookByHand => (
                "a hook with `mainstay reap` is there, beside other commands or with a matcher"
                    .into(),
                "it was written by hand, and what stood there before is not known".into(),
                "remove it by hand".into(),
            ),
            Self::Drifted => (
                "the file has changed since it was shown".into(),
                "other servers would be changed than you agreed to".into(),
                "run the command again".into(),
            ),
            Self::Mismatch => (
                "the edited text does not read as planned".into(),
                "this is a mistake in mainstay; nothing was written".into(),
                "edit by hand, and please report it".into(),
            ),
        };
        Explanation { what, why, hint }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain().fmt(f)
    }
}

impl std::error::Error for Refusal {}
