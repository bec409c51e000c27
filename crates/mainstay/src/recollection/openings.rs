//! The last openings of one command, and which variables of the environment they show to be volatile.
//!
//! A client gives its servers tokens, sockets and ids that are new in each session. With them in the key of the cache, no
//! session would find what the one before it has left. A variable is volatile if three openings in a row had three
//! different values of it, no value came back, and the server gave all of them the same answers. As soon as its answers to
//! the same questions differ, the openings before that prove nothing and are dropped, so a variable that changes what the
//! server shows stays a part of the key.
//!
//! Invariants: no value is stored, only 16 bits of a salted digest, which tell that a value has changed and little else; of
//! a variable whose name says that it is a credential or an account, not even that, and it is never volatile; at most
//! [`OPENINGS_PER_CLIENT`] openings of [`CLIENTS`] sorts of clients are kept.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;

use mainstay_core::message::remembered::{Answers, PARTS};
use serde::{Deserialize, Serialize};

use super::key::{is_noise, name};
use super::sha256::Sha256;

/// The version that is written, and the only one that is read: with an unknown one, learning begins anew.
const VERSION: u32 = 1;
/// Values that a variable must have had to be volatile.
const VALUES: usize = 3;
/// Openings that are kept of clients that open with the same params.
const OPENINGS_PER_CLIENT: usize = 8;
/// Sorts of clients that are kept, told apart by the params of their opening.
const CLIENTS: usize = 4;
/// Variables that are looked at.
const VARIABLES: usize = 512;
/// The longest name that is looked at.
const NAME_BYTES: usize = 128;
/// Hex digits of a value's digest.
const DIGITS: usize = 4;
/// In the place of a digest: the variable was not set.
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
    openings: Vec<Opening>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Opening {
    /// The session that saw it, so that it is noted once.
    session: u64,
    answers: Answers,
    /// Digests of the values, by name.
    values: BTreeMap<String, u16>,
}

impl Openings {
    /// None yet; their digests will be salted with this.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            openings: Vec::new(),
        }
    }

    /// Whether a variable is volatile.
    pub fn is_volatile(&self, name: &str) -> bool {
        let mut clients: Vec<_> = self.openings.iter().map(Opening::client).collect();
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

    /// Notes what the server has answered in a session with this environment. Whether that changed anything.
    pub fn note(&mut self, session: u64, answers: Answers, env: &[CString]) -> bool {
        let before = self.openings.clone();
        let values = self.values(env);
        self.openings.retain(|one| one.session != session);
        let client = answers.params_digest;
        let disagrees = |one: &Opening| one.client() == client && !one.answers.agrees(&answers);
        if self.openings.iter().any(disagrees) {
            self.openings.retain(|one| one.client() != client);
        }
        let last = self.openings.iter().rposition(|one| one.client() == client);
        let known = last.filter(|&last| self.is_known(&values, &self.openings[last].values));
        if let Some(last) = known {
            // No more than what this session has heard and the last one has not.
            let last = &mut self.openings[last].answers.parts;
            for (part, heard) in last.iter_mut().zip(answers.parts) {
                *part = part.or(heard);
            }
        } else {
            self.openings.push(Opening {
                session,
                answers,
                values,
            });
            self.trim(client);
        }
        self.openings != before
    }

    /// Whether two environments differ in nothing but variables that are known to be volatile.
    fn is_known(&self, one: &BTreeMap<String, u16>, other: &BTreeMap<String, u16>) -> bool {
        let mut names = one.keys().chain(other.keys());
        names.all(|name| one.get(name) == other.get(name) || self.is_volatile(name))
    }

    fn trim(&mut self, client: Option<u64>) {
        let count = |openings: &[Opening], client| {
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
            let is_seen = name.len() <= NAME_BYTES && !is_noise(name) && !is_credential(name);
            if is_seen && all.len() < VARIABLES {
                all.insert(name.into(), self.digest(entry));
            }
        }
        all
    }

    /// 16 bits of name and value, salted.
    fn digest(&self, entry: &[u8]) -> u16 {
        let mut sha = Sha256::new();
        sha.add(&self.salt.to_le_bytes());
        sha.add(entry);
        let (digest, _) = sha.finish();
        digest as u16
    }

    /// The bytes of a file.
    pub fn written(&self, server: &str) -> io::Result<Vec<u8>> {
        let mut names: Vec<&str> = Vec::new();
        for opening in &self.openings {
            names.extend(opening.values.keys().map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        let openings = self.openings.iter().map(|opening| opening.shape(&names));
        let shape = Shape {
            version: VERSION,
            server: server.into(),
            salt: hex(self.salt),
            openings: openings.collect(),
            names: names.iter().map(|&name| name.into()).collect(),
        };
        let mut bytes = serde_json::to_vec(&shape)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// What a file says; none if it is not understood in full.
    pub fn understand(bytes: &[u8]) -> Option<Self> {
        let shape: Shape = serde_json::from_slice(bytes).ok()?;
        if shape.version != VERSION {
            return None;
        }
        let openings = shape.openings.iter().map(|one| one.opening(&shape.names));
        Some(Self {
            salt: number(&shape.salt)?,
            openings: openings.collect::<Option<_>>()?,
        })
    }
}

impl Opening {
    /// Which sort of client it was: answers to others may differ.
    fn client(&self) -> Option<u64> {
        self.answers.params_digest
    }

    fn shape(&self, names: &[&str]) -> OpeningShape {
        let values = names.iter().map(|&name| match self.values.get(name) {
            Some(value) => format!("{value:0DIGITS$x}"),
            None => UNSET.into(),
        });
        OpeningShape {
            session: hex(self.session),
            params: self.answers.params_digest.map(hex),
            answers: self.answers.parts.map(|part| part.map(hex)),
            values: values.collect(),
        }
    }
}

/// Whether a name says that the variable is a credential or an account.
fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

#[derive(Serialize, Deserialize)]
struct Shape {
    version: u32,
    server: String,
    salt: String,
    names: Vec<String>,
    openings: Vec<OpeningShape>,
}

#[derive(Serialize, Deserialize)]
struct OpeningShape {
    session: String,
    params: Option<String>,
    answers: [Option<String>; PARTS],
    /// The digests of all names, one after the other.
    values: String,
}

impl OpeningShape {
    fn opening(&self, names: &[String]) -> Option<Opening> {
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
        Some(Opening {
            session: number(&self.session)?,
            answers: Answers {
                params_digest,
                parts,
            },
            values,
        })
    }
}

/// In hex: a number of 64 bits is not safe in every JSON reader.
fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
