//! From the bytes of a config file to what will be done with each entry, and the new bytes. Pure: no file is opened here.
//!
//! Invariants: every byte outside of the splices is the old one; the new text is read again, and its values are exactly those that were
//! intended; what is adopted is released again on trial, and must give the old bytes. An entry for which that fails is left alone with a reason.

mod adopt;
mod bridge;
mod entries;
pub mod hook;
mod mask;
mod reason;
mod release;
mod started;

pub use adopt::{Adopt, RemoteEntries, Thrift, adopt};
pub use reason::Reason;
pub use release::{Release, release};
pub use started::{Started, Survey, started, survey};

use std::fmt;
use std::ops::Range;

use crate::diff;
use crate::format::{self, Document, Format, Splice};
use crate::node::Value;
use crate::refusal::Refusal;

/// What will be done with a file.
#[derive(Clone, Debug)]
pub struct Plan {
    entries: Vec<EntryPlan>,
    old: Vec<u8>,
    new: Vec<u8>,
    splices: Vec<Splice>,
    format: Format,
}

/// What will be done with one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlan {
    /// The name of the server: its key, or the value of `name`.
    pub name: String,
    /// The keys that lead to its table; for a local entry of Claude Code that includes the project's directory.
    pub table: Vec<String>,
    /// Its command line or URL as it stands there, secrets masked.
    pub shown: String,
    /// What will happen.
    pub action: Action,
}

/// What will happen to an entry, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its command will go through mainstay.
    Wrap(Thrift),
    /// Its URL will go through mainstay.
    Bridge(Thrift),
    /// It goes through mainstay; program and flags will be replaced.
    Update(Thrift),
    /// It goes through mainstay already and stays as it is.
    Already,
    /// Its old command or URL will be put back.
    Restore,
    /// It does not go through mainstay, so there is nothing to release.
    NotAdopted,
    /// It is left alone.
    Leave(Reason),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (does, thrift) = match self {
            Self::Wrap(thrift) => ("will go through mainstay", *thrift),
            Self::Bridge(thrift) => ("will go through `mainstay run --url`", *thrift),
            Self::Update(thrift) => ("will get the new path and flags", *thrift),
            Self::Already => ("goes through mainstay", Thrift::NotAsked),
            Self::Restore => ("will be as before", Thrift::NotAsked),
            Self::NotAdopted => ("does not go through mainstay", Thrift::NotAsked),
            Self::Leave(reason) => return write!(f, "left alone: {reason}"),
        };
        match thrift {
            Thrift::NotAsked => f.write_str(does),
            Thrift::Thrifty => write!(f, "{does}, started when needed"),
            Thrift::KeepsState(what) => write!(f, "{does}, always running: {what} keeps state"),
        }
    }
}

impl Action {
    /// Whether the entry will change.
    pub fn changes(&self) -> bool {
        match self {
            Self::Wrap(_) | Self::Bridge(_) | Self::Update(_) | Self::Restore => true,
            Self::Already | Self::NotAdopted | Self::Leave(_) => false,
        }
    }
}

impl Plan {
    /// All entries that were found, in the order of the file.
    pub fn entries(&self) -> &[EntryPlan] {
        &self.entries
    }

    /// Whether the file will change.
    pub fn changes(&self) -> bool {
        self.old != self.new
    }

    /// The bytes from which this was planned.
    pub fn old(&self) -> &[u8] {
        &self.old
    }

    /// The bytes that the file will have.
    pub fn new_bytes(&self) -> &[u8] {
        &self.new
    }

    /// The places of the old file that change, in bytes, byte order mark included.
    pub fn changed_places(&self) -> Vec<Range<usize>> {
        let skipped = Document::read(&self.old, self.format).map_or(0, |read| read.skipped);
        let place = |splice: &&Splice| splice.span.start + skipped..splice.span.end + skipped;
        format::in_order(&self.splices).iter().map(place).collect()
    }

    /// A unified diff for people: secrets are masked, in the lines around the changes as well.
    pub fn diff(&self, name: &str) -> String {
        let (Ok(old), Ok(new)) = (
            Document::read(&self.old, self.format),
            Document::read(&self.new, self.format),
        ) else {
            return String::new();
        };
        let masked = |document: &Document<'_>| mask::masks(document);
        diff::unified(
            name,
            &old,
            &masked(&old),
            &new,
            &masked(&new),
            &self.splices,
        )
    }
}

/// One entry with what its change needs.
struct Draft {
    plan: EntryPlan,
    path: Vec<usize>,
    change: Option<Change>,
}

/// The change of one entry.
struct Change {
    splices: Vec<Splice>,
    becomes: Value,
}

/// Whether a new text passes one more test, with the paths of the entries that changed.
type Check<'c> = &'c dyn Fn(&str, &[&[usize]]) -> bool;

/// Does all changes, reads the result again and compares it with what was meant. An entry whose change does not read as meant, or does not
/// pass the check, is left alone.
fn finish(
    bytes: &[u8],
    document: &Document<'_>,
    drafts: Vec<Draft>,
    check: Check<'_>,
) -> Result<Plan, Refusal> {
    let mut drafts = drafts;
    let text = if let Some(text) = try_all(document, &drafts, check) {
        text
    } else {
        for draft in &mut drafts {
            let alone = std::slice::from_ref(draft);
            if draft.change.is_some() && try_all(document, alone, check).is_none() {
                draft.change = None;
                draft.plan.action = Action::Leave(Reason::Unusual);
            }
        }
        try_all(document, &drafts, check).ok_or(Refusal::Mismatch)?
    };
    let mut new = bytes[..document.skipped].to_vec();
    new.extend_from_slice(text.as_bytes());
    let splices = drafts.iter().filter_map(|draft| draft.change.as_ref());
    Ok(Plan {
        splices: splices.flat_map(|change| change.splices.clone()).collect(),
        entries: drafts.into_iter().map(|draft| draft.plan).collect(),
        old: bytes.to_vec(),
        new,
        format: document.format,
    })
}

fn try_all(document: &Document<'_>, drafts: &[Draft], check: Check<'_>) -> Option<String> {
    let with_change = |draft: &Draft| draft.change.is_some();
    if !drafts.iter().any(with_change) {
        return Some(document.text.to_owned());
    }
    let mut splices = Vec::new();
    let mut others = Vec::new();
    for draft in drafts {
        if let Some(change) = &draft.change {
            splices.extend(change.splices.iter().cloned());
            others.push((draft.path.as_slice(), &change.becomes));
        }
    }
    others.sort_by_key(|(path, _)| *path);
    let ordered = format::in_order(&splices);
    let overlap = |pair: &[&Splice]| pair[0].span.end > pair[1].span.start;
    if ordered.windows(2).any(overlap) {
        return None;
    }
    let meant = document.root.as_ref()?.value_with(&others);
    let text = format::apply(document.text, &splices);
    let read = Document::read(text.as_bytes(), document.format).ok()?;
    let paths: Vec<&[usize]> = others.iter().map(|(path, _)| *path).collect();
    let passes = read.root?.value() == meant && check(&text, &paths);
    passes.then_some(text)
}
