//! Everything that is known before the first fork. The shim, the guard and the keeper share it.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use mainstay_core::link::About;
use mainstay_os::tier::Wish;
use mainstay_protocol::event::{Detached, Seen};
use mainstay_protocol::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::policy::Policy;
use mainstay_store::paths::Paths;

/// One link, as it was asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The link's id, which is in the tag of every process of the tree.
    pub id: LinkId,
    /// The server's name.
    pub name: String,
    /// What is executed.
    pub command: CommandLine,
    /// The limits after config file, options and profile.
    pub limits: Limits,
    /// What the user chose beyond numbers.
    pub policy: Policy,
    /// Absolute paths whose changes restart the server.
    pub watch: Vec<PathBuf>,
    /// Whether openings are remembered and used.
    pub cache: bool,
    /// Whether `mainstay learn` is the client: what is seen is remembered for all clients.
    pub learns: bool,
    /// The lease that it is started in.
    pub lease: Option<String>,
    /// The file that all frames are recorded in.
    pub recording: Option<RecordingFile>,
    /// The command that tells the user that the server was given up; empty if there is none.
    pub notify: Vec<String>,
    /// The tier that was asked for.
    pub wish: Wish,
    /// Where our files are.
    pub paths: Paths,
    /// How the link began.
    pub origin: LinkOrigin,
    /// How long the server is kept for a client that lives, if that was chosen; otherwise its profile says.
    pub linger: Option<u64>,
    /// Closes the HTTP sessions that dead bridges left; part of the sweep at a start. It is given, because a keeper knows
    /// nothing of HTTP.
    pub close_sessions: fn(&Paths),
    /// Why no server is started at all. The client gets an error, and the link does nothing else.
    pub refused: Option<Refused>,
}

/// The command of the server.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables that the config adds to what the client gave.
    pub env: Vec<(String, String)>,
    /// The directory that the config asks for; otherwise the client's.
    pub cwd: Option<PathBuf>,
}

/// A file that frames are recorded in.
#[derive(Clone, Debug)]
pub struct RecordingFile {
    /// Absolute.
    pub path: PathBuf,
    /// Whether secrets are recorded too.
    pub secrets: bool,
}

/// When, where and by which processes a link was started.
#[derive(Clone, Debug)]
pub struct LinkOrigin {
    /// When the link began, as in events.
    pub started_at: String,
    /// Where our pids have their meaning.
    pub realm: Realm,
    /// The process that the client started.
    pub shim: Identity,
    /// The process that started the shim.
    pub client: Option<Seen>,
    /// The processes above the client, nearest first: the client may be a launcher that leaves early.
    pub ancestors: Vec<Identity>,
    /// Whether the guard is detached.
    pub detached: Detached,
}

/// What was wrong before a server could be started.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What was wrong, and why.
    pub problem: String,
    /// What to do.
    pub hint: String,
    /// The exit code.
    pub code: u8,
}

impl Plan {
    /// The tag of the tree that this keeper starts.
    pub fn tag(&self, keeper: Identity) -> Tag {
        Tag {
            realm: self.origin.realm.clone(),
            owner: keeper,
            link: self.id,
        }
    }

    /// The client and the processes above it, nearest first.
    pub fn above(&self) -> Vec<Identity> {
        let client = self.origin.client.iter().map(|seen| seen.who);
        client
            .chain(self.origin.ancestors.iter().copied())
            .collect()
    }

    /// What the link machine needs to know.
    pub fn about(&self) -> About {
        About {
            link: self.id,
            name: self.name.clone(),
            argv: self.words(),
            cwd: self.directory(),
            listed: self.paths.has_place(),
        }
    }

    /// The command for people to read.
    pub fn words(&self) -> Vec<String> {
        self.command
            .argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    /// The directory that the server runs in, for people to read.
    pub fn directory(&self) -> String {
        let cwd = self
            .command
            .cwd
            .clone()
            .or_else(|| std::env::current_dir().ok());
        cwd.map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The command for `exec`; a word with a NUL inside cannot have come from an `exec`, so it is cut there.
    pub fn argv_c(&self, argv: &[OsString]) -> Vec<CString> {
        argv.iter().map(|word| c_string(word.as_bytes())).collect()
    }

    /// The client's environment, plus the config's variables, plus our one tag.
    pub fn env_c(&self, tag: &Tag) -> Vec<CString> {
        let added: Vec<(&OsStr, OsString)> = self
            .command
            .env
            .iter()
            .map(|(name, value)| (OsStr::new(name), OsString::from(value)))
            .chain([(OsStr::new(TAG_VARIABLE), OsString::from(tag.to_string()))])
            .collect();
        std::env::vars_os()
            .filter(|(name, _)| !added.iter().any(|(other, _)| other == name))
            .chain(
                added
                    .iter()
                    .map(|(name, value)| (name.to_os_string(), value.clone())),
            )
            .map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                c_string(&entry)
            })
            .collect()
    }
}

fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}
