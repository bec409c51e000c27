//! Everything that is known before the first fork, and that shim, guard and keeper share.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use mainstay_core::event::{Detached, Seen};
use mainstay_core::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};
use mainstay_core::limits::Limits;
use mainstay_core::link::About;
use mainstay_core::policy::Policy;
use mainstay_os::tier::Wish;

use crate::paths::Paths;

/// One link, as it was asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its id.
    pub id: LinkId,
    /// The server's name.
    pub name: String,
    /// The command.
    pub argv: Vec<OsString>,
    /// Variables that the config adds to what the client gave.
    pub env: Vec<(String, String)>,
    /// The directory that the config asks for; else the client's.
    pub cwd: Option<PathBuf>,
    /// Its limits.
    pub limits: Limits,
    /// What the user chose beyond numbers.
    pub policy: Policy,
    /// Absolute paths whose changes restart the server.
    pub watch: Vec<PathBuf>,
    /// Whether openings are remembered and used.
    pub record: bool,
    /// The lease that it is started in.
    pub lease: Option<String>,
    /// The absolute path of the file that all frames are recorded in.
    pub frames: Option<PathBuf>,
    /// Whether secrets are recorded, too.
    pub secrets: bool,
    /// The tier that was asked for.
    pub wish: Wish,
    /// Where our files are.
    pub paths: Paths,
    /// Where our pids have their meaning.
    pub realm: Realm,
    /// When the link began.
    pub started_at: String,
    /// The shim.
    pub shim: Identity,
    /// Who stands above the client: it may be a launcher that leaves early.
    pub ancestors: Vec<Identity>,
    /// Who started us.
    pub client: Option<Seen>,
    /// Whether the guard is detached.
    pub detached: Detached,
    /// How long the server is kept for a client that lives, if that was chosen; else its profile says.
    pub linger: Option<u64>,
    /// Why no server is started at all: the client is told, and that is all there is to this link.
    pub refused: Option<Refused>,
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
            realm: self.realm.clone(),
            owner: keeper,
            link: self.id,
        }
    }

    /// Who started us, and who stands above, nearest first.
    pub fn above(&self) -> Vec<Identity> {
        let client = self.client.iter().map(|seen| seen.who);
        client.chain(self.ancestors.iter().copied()).collect()
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
        self.argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    /// The directory that the server runs in, for people to read.
    pub fn directory(&self) -> String {
        let cwd = self.cwd.clone().or_else(|| std::env::current_dir().ok());
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
