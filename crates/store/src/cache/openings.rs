//! The last openings of one command. They show which variables of the environment are volatile.
//!
//! A client gives its servers tokens, sockets and ids that are new in each session. With them in the key of the cache, no
//! session would find the file of an earlier one. A variable is volatile if three openings in a row had three
//! different values of it, no value came back, and the server gave all of them the same answers. As soon as its answers to
//! the same questions differ, the openings before that prove nothing and are dropped, so a variable that changes what the
//! server shows stays a part of the key.
//!
//! Invariants:
//! - No value is stored, only 16 bits of a salted digest: enough to see that a value has changed.
//! - Nothing is stored of a variable whose name says that it is a credential or an account. It is never volatile.
//! - At most [`OPENINGS_PER_CLIENT`] openings of [`CLIENTS`] kinds of clients are kept.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;

use mainstay_protocol::message::remembered::{Answers, PARTS};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::key::{is_noise, name};

/// The version that is written, and the only one that is read. With a file of another version, learning starts again.
const VERSION: u32 = 1;
/// How many different values make a variable volatile.
const VALUES: usize = 3;
/// Openings that are kept of clients that open with the same params.
const OPENINGS_PER_CLIENT: usize = 8;
/// Kinds of clients that are kept. Clients are of one kind if they open with the same params.
const CLIENTS: usize = 4;
/// At most this many variables are compared.
const VARIABLES: usize = 512;
/// Variables with longer names are ignored.
const NAME_BYTES: usize = 128;
/// Hex digits of a value's digest.
const DIGITS: usize = 4;
/// Stands for the digest of a variable that was not set.
const UNSET: &str = "----";

/// Names with one of these in them are never volatile: such a variable says for which account the server acts, and a new
/// value may be another account. (A client's own token is named in its profile.)
const CREDENTIALS: [&str; 10] = [
    "ACCOUNT",
    "AUTH",
    "CREDENTIAL",
    "KEY",
    "PASS",
    "PROFILE",
    "SECRET",
    "TENANT",
    "TOKEN",
    "USER",
];

/// The last openings of one command, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Openings {
    salt: u64,
    openings: Vec<NotedOpening>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NotedOpening {
    /// The session of this opening, so that it is noted once.
    session: u64,
    answers: Answers,
    /// Digests of the values, by name.
    values: BTreeMap<String, u16>,
}

impl Openings {
    /// Empty; digests of values will be salted with this.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            openings: Vec::new(),
        }
    }

    pub fn is_volatile(&self, name: &str) -> bool {
        let mut clients: Vec<_> = self.openings.iter().map(NotedOpening::client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.into_iter().any(|client| {
            let of_client = self.openings.iter().filter(|one| one.client() == client);
            let mut values: Vec<u16> = of_client
                .filter_map(|one| one.values.get(name).copied())
                .collect();
            values.dedup();
            let runs = values.len();
            values.sort_unstable();
            values.dedup();
            runs >= VALUES && values.len() == runs
        })
    }

    /// Notes what the server answered in a session with this environment. True if that changed anything.
    pub fn note(&mut self, session: u64, answers: Answers, env: &[CString]) -> bool {
        let before = self.openings.clone();
        let values = self.values(env);
        self.openings.retain(|one| one.session != session);
        let client = answers.params_digest;
        let disagrees =
            |one: &NotedOpening| one.client() == client && !one.answers.agrees(&answers);
        if self.openings.iter().any(disagrees) {
            self.openings.retain(|one| one.client() != client);
        }
        let last = self.openings.iter().rposition(|one| one.client() == client);
        let known = last.filter(|&last| self.is_known(&values, &self.openings[last].values));
        if let Some(last) = known {
            // Only answers that the last session did not get are new.
            let last = &mut self.openings[last].answers.parts;
            for (part, heard) in last.iter_mut().zip(answers.parts) {
                *part = part.or(heard);
            }
        } else {
            self.openings.push(NotedOpening {
                session,
                answers,
                values,
            });
            self.trim(client);
        }
        self.openings != before
    }

    /// True if two environments differ only in volatile variables.
    fn is_known(&self, one: &BTreeMap<String, u16>, other: &BTreeMap<String, u16>) -> bool {
        let mut names = one.keys().chain(other.keys());
        names.all(|name| one.get(name) == other.get(name) || self.is_volatile(name))
    }

    fn trim(&mut self, client: Option<u64>) {
        let count = |openings: &[NotedOpening], client| {
            let of_client = openings.iter().filter(|one| one.client() == client);
            of_client.count()
        };
        if count(&self.openings, client) > OPENINGS_PER_CLIENT
            && let Some(oldest) = self.openings.iter().position(|one| one.client() == client)
        {
            self.openings.remove(oldest);
        }
        let mut clients: Vec<Option<u64>> = Vec::new();
        for one in self.openings.iter().rev() {
            if !clients.contains(&one.client()) {
                clients.push(one.client());
            }
        }
        clients.truncate(CLIENTS);
        self.openings.retain(|one| clients.contains(&one.client()));
    }

    fn values(&self, env: &[CString]) -> BTreeMap<String, u16> {
        let mut all: BTreeMap<String, u16> = BTreeMap::new();
        for entry in env {
            let entry = entry.as_bytes();
            let Ok(name) = str::from_utf8(name(entry)) else {
                continue;
            };
            let is_seen = name.len() <= NAME_BYTES && !is_noise(name) && !names_account(name);
            if is_seen && all.len() < VARIABLES {
                all.insert(name.into(), self.digest(entry));
            }
        }
        all
    }

    /// 16 bits of name and value, salted.
    fn digest(&self, entry: &[u8]) -> u16 {
        let mut sha = Digest::default();
        sha.add(&self.salt.to_le_bytes());
        sha.add(entry);
        let (digest, _) = sha.finish();
        digest as u16
    }

    /// The bytes of the file.
    pub fn serialize(&self, server: &str) -> io::Result<Vec<u8>> {
        let mut names: Vec<&str> = Vec::new();
        for opening in &self.openings {
            names.extend(opening.values.keys().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        let openings = self.openings.iter().map(|opening| opening.to_file(&names));
        let file = OpeningsFile {
            version: VERSION,
            server: server.into(),
            salt: hex(self.salt),
            openings: openings.collect(),
            names: names.iter().map(|&name| name.into()).collect(),
        };
        let mut bytes = serde_json::to_vec(&file)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// None if any part of the file is not valid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let file: OpeningsFile = serde_json::from_slice(bytes).ok()?;
        if file.version != VERSION {
            return None;
        }
        let openings = file.openings.iter().map(|one| one.opening(&file.names));
        Some(Self {
            salt: number(&file.salt)?,
            openings: openings.collect::<Option<_>>()?,
        })
    }
}

impl NotedOpening {
    /// The kind of the client. A server may give each kind other answers.
    fn client(&self) -> Option<u64> {
        self.answers.params_digest
    }

    fn to_file(&self, names: &[&str]) -> OpeningInFile {
        let values = names.iter().map(|&name| match self.values.get(name) {
            Some(value) => format!("{value:0DIGITS$x}"),
            None => UNSET.into(),
        });
        OpeningInFile {
            session: hex(self.session),
            params: self.answers.params_digest.map(hex),
            answers: self.answers.parts.map(|part| part.map(hex)),
            values: values.collect(),
        }
    }
}

/// True if the name says that the variable is a credential or an account.
pub fn names_account(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

#[derive(Serialize, Deserialize)]
struct OpeningsFile {
    version: u32,
    server: String,
    salt: String,
    names: Vec<String>,
    openings: Vec<OpeningInFile>,
}

#[derive(Serialize, Deserialize)]
struct OpeningInFile {
    session: String,
    params: Option<String>,
    answers: [Option<String>; PARTS],
    /// The digests of all names, one after the other.
    values: String,
}

impl OpeningInFile {
    fn opening(&self, names: &[String]) -> Option<NotedOpening> {
        if !self.values.is_ascii() || self.values.len() != names.len() * DIGITS {
            return None;
        }
        let mut values = BTreeMap::new();
        for (place, name) in names.iter().enumerate() {
            let digits = &self.values[place * DIGITS..][..DIGITS];
            if digits != UNSET {
                values.insert(name.clone(), u16::from_str_radix(digits, 16).ok()?);
            }
        }
        let mut parts = [None; PARTS];
        for (part, text) in parts.iter_mut().zip(&self.answers) {
            *part = match text {
                Some(text) => Some(number(text)?),
                None => None,
            };
        }
        let params_digest = match &self.params {
            Some(text) => Some(number(text)?),
            None => None,
        };
        Some(NotedOpening {
            session: number(&self.session)?,
            answers: Answers {
                params_digest,
                parts,
            },
            values,
        })
    }
}

/// In hex, because many JSON readers cannot hold a number of 64 bits.
fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
