//! The content of the cache: what an earlier session of the same configuration saw, so that the client of a slow server
//! need not wait.
//!
//! Results are kept raw, as the server wrote them. An answer from the cache is such a result under the client's own id.
//! This module knows nothing of files and of what makes two configurations the same, and it does not decide *when* the
//! cache answers. Data from a file passes the same checks as data from a server, so an edited file can hold nothing
//! that a server could not have sent.
//!
//! Invariants: a result is one JSON object without a line end; a list is whole (a list in pages is not kept); openings,
//! and bytes in all, stay within [`CACHE_OPENINGS`] and [`CACHE_BYTES`].

use alloc::vec::Vec;

use serde_json::Value;

use super::envelope::Members;
use super::lists::Which;
use crate::limits::{CACHE_BYTES, CACHE_OPENINGS};

/// What an earlier session of the same configuration saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    discovery: Discovery,
    /// The oldest first.
    openings: Vec<Opening>,
    modern_lists: Lists,
    modern_refusals: Lists,
    changed: bool,
    heard: Option<SaidParts>,
}

/// What became of `server/discover`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Discovery {
    #[default]
    Unknown,
    /// The `DiscoverResult`.
    Answered(Vec<u8>),
    /// The error object of a server that knows no such method.
    Refused(Vec<u8>),
    /// The server died of it.
    Fatal,
}

/// Which parts the server itself has said in this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SaidParts {
    /// The opening that they belong to; none in the modern era.
    params_digest: Option<u64>,
    /// In the order of [`Answers::parts`].
    parts: [bool; PARTS],
}

/// An opening and the four lists.
pub const PARTS: usize = 5;

/// What the server itself has said in one session, as digests, so that two sessions can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The opening that they belong to; none in the modern era.
    pub params_digest: Option<u64>,
    /// The answer to the opening, then the lists. None: the server has not said it, or not whole.
    pub parts: [Option<u64>; PARTS],
}

impl Answers {
    /// False if the two sessions got different answers to the same question.
    pub fn agrees(&self, other: &Self) -> bool {
        let mut both = self.parts.iter().zip(&other.parts);
        both.all(|(one, other)| one.is_none() || other.is_none() || one == other)
    }
}

/// One legacy opening: the server's answer to `initialize` with certain params, and the lists that followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// See [`digest_of_params`].
    pub params_digest: u64,
    /// The `InitializeResult`.
    pub result: Vec<u8>,
    /// The lists.
    pub lists: Lists,
    /// The error objects with which lists were refused, because the server has none of that sort.
    pub refusals: Lists,
}

/// Whole results of the four lists, each in the place of its [`Which`].
pub type Lists = [Option<Vec<u8>>; 4];

/// How something that the server said compares with what was remembered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing was remembered.
    New,
    /// It means the same.
    Same,
    /// It means something else: the clients that were answered from the cache must be told.
    Other,
}

impl Remembered {
    /// The `DiscoverResult`.
    pub fn discover(&self) -> Option<&[u8]> {
        self.discovery.result()
    }

    /// The error object with which the server refused `server/discover`.
    pub fn refusal(&self) -> Option<&[u8]> {
        match &self.discovery {
            Discovery::Refused(error) => Some(error),
            Discovery::Unknown | Discovery::Answered(_) | Discovery::Fatal => None,
        }
    }

    /// Whether the server died of `server/discover`, so that it must be spared that question.
    pub fn is_legacy(&self) -> bool {
        matches!(self.discovery, Discovery::Fatal)
    }

    /// The openings, the oldest first.
    pub fn openings(&self) -> &[Opening] {
        &self.openings
    }

    /// The opening that followed `initialize` with these params.
    pub fn opening(&self, digest: u64) -> Option<&Opening> {
        self.openings
            .iter()
            .find(|opening| opening.params_digest == digest)
    }

    /// A list: of the opening with this digest, or of the modern era.
    pub fn list(&self, digest: Option<u64>, list: Which) -> Option<&[u8]> {
        let lists = match digest {
            Some(digest) => &self.opening(digest)?.lists,
            None => &self.modern_lists,
        };
        lists[list as usize].as_deref()
    }

    /// The error object with which a list was refused: in the session with this opening, or in the modern era.
    pub fn list_refusal(&self, digest: Option<u64>, list: Which) -> Option<&[u8]> {
        let refusals = match digest {
            Some(digest) => &self.opening(digest)?.refusals,
            None => &self.modern_refusals,
        };
        refusals[list as usize].as_deref()
    }

    /// A client opens with this `initialize`. If no session with such an opening is remembered, what `learn` saw for the same protocol
    /// version takes its place until the server itself answers. Servers rarely care about the client's name.
    pub fn client_opens(&mut self, initialize_line: &[u8]) {
        let Some(digest) = digest_of_params(initialize_line) else {
            return;
        };
        if self.opening(digest).is_some() {
            return;
        }
        let version = Members::of_line(initialize_line)
            .and_then(|message| message.object("params"))
            .and_then(|params| params.text("protocolVersion").map(Into::into));
        let Some(learned) = version.and_then(|version: alloc::string::String| {
            self.opening(digest_of_params(&learning_line(b"0", &version))?)
        }) else {
            return;
        };
        let (learned_digest, mut opening) = (learned.params_digest, learned.clone());
        opening.params_digest = digest;
        if !self.make_room(opening.bytes(), Some(learned_digest)) {
            return;
        }
        if self.openings.len() == CACHE_OPENINGS {
            let mut all = self.openings.iter();
            let oldest = all.position(|one| one.params_digest != learned_digest);
            self.openings.remove(oldest.unwrap_or(0));
        }
        self.openings.push(opening);
        debug_assert!(self.openings.len() <= CACHE_OPENINGS, "the oldest goes");
    }

    /// Adds what another record has and this one has not: a record of a session comes before what `learn` saw.
    pub fn complete_with(&mut self, learned: Self) {
        if self.discovery == Discovery::Unknown {
            self.discovery = learned.discovery;
        }
        let lists = self.modern_lists.iter_mut().zip(learned.modern_lists);
        let refusals = self.modern_refusals.iter_mut().zip(learned.modern_refusals);
        for (own, learned) in lists.chain(refusals) {
            if own.is_none() {
                *own = learned;
            }
        }
        for opening in learned.openings {
            let known = self.opening(opening.params_digest).is_some();
            let fits = self.bytes() + opening.bytes() <= CACHE_BYTES;
            if !known && fits && self.openings.len() < CACHE_OPENINGS {
                self.openings.insert(0, opening);
            }
        }
    }

    /// The server's answer to `initialize`. Lists of an earlier session stay: they are checked each for itself.
    pub fn learn_opening(&mut self, digest: u64, result: &[u8]) -> Learned {
        let at = self
            .openings
            .iter()
            .position(|opening| opening.params_digest == digest);
        let newest = at.is_some_and(|at| at + 1 == self.openings.len());
        let mut opening = match at {
            Some(at) => self.openings.remove(at),
            None => Opening {
                params_digest: digest,
                result: Vec::new(),
                lists: Lists::default(),
                refusals: Lists::default(),
            },
        };
        let known = at.map(|_| core::mem::take(&mut opening.result));
        let learned = compare(known.as_deref(), result);
        self.hear(Some(digest), OPENING);
        if learned == Learned::Other
            && known.as_deref().map(server_info) != Some(server_info(result))
        {
            // Another version of the server may know the modern era.
            self.forget_refusal();
        }
        if learned == Learned::Other {
            // It may have more sorts of lists now.
            opening.refusals = Lists::default();
        }
        let result = match (known, learned) {
            (Some(known), Learned::Same) => known,
            (_, Learned::New | Learned::Other | Learned::Same) => result.to_vec(),
        };
        let bytes = result.len() + size(&opening.lists) + size(&opening.refusals);
        if !is_result(&result) || !self.make_room(bytes, None) {
            self.changed |= at.is_some();
            return learned;
        }
        if self.openings.len() == CACHE_OPENINGS {
            self.openings.remove(0);
        }
        self.openings.push(Opening { result, ..opening });
        debug_assert!(self.openings.len() <= CACHE_OPENINGS, "the oldest goes");
        self.changed |= learned != Learned::Same || !newest;
        learned
    }

    /// The server's answer to a list request for the first page, in the session with this opening or in the modern era.
    /// A list in pages is not kept: the further pages might be of another time.
    pub fn learn_list(&mut self, digest: Option<u64>, list: Which, result: &[u8]) -> Learned {
        let Some(place) = self.place(digest, list) else {
            return Learned::New;
        };
        let known = place.take();
        self.hear(digest, 1 + list as usize);
        let refusal = self.refusal_place(digest, list).and_then(Option::take);
        self.changed |= refusal.is_some();
        let learned = compare(known.as_deref(), result);
        let result = match (known, learned) {
            (Some(known), Learned::Same) => Some(known),
            (known, Learned::New | Learned::Other | Learned::Same) => {
                self.changed |= known.is_some();
                let keep = is_whole_list(result) && self.make_room(result.len(), digest);
                self.changed |= keep;
                keep.then(|| result.to_vec())
            }
        };
        if let Some(place) = self.place(digest, list) {
            *place = result;
        }
        learned
    }

    /// The server refused a list with this error object. Only one that says that there is no such list is remembered.
    pub fn learn_list_refusal(&mut self, digest: Option<u64>, list: Which, error: &[u8]) {
        if !is_result(error) || !is_unknown_method(error) {
            return;
        }
        let known = self.list_refusal(digest, list) == Some(error);
        if known || !self.make_room(error.len(), digest) {
            return;
        }
        if let Some(place) = self.place(digest, list) {
            *place = None;
        }
        if let Some(place) = self.refusal_place(digest, list) {
            *place = Some(error.to_vec());
            self.changed = true;
        }
    }

    /// The server's answer to `server/discover`: it survives the question.
    pub fn learn_discover(&mut self, result: &[u8]) -> Learned {
        self.hear(None, OPENING);
        let before = core::mem::take(&mut self.discovery);
        let learned = compare(before.result(), result);
        if learned == Learned::Same {
            self.discovery = before;
            return learned;
        }
        self.modern_refusals = Lists::default();
        let keep = is_result(result) && self.make_room(result.len(), None);
        self.changed |= keep || before != Discovery::Unknown;
        if keep {
            self.discovery = Discovery::Answered(result.to_vec());
        }
        learned
    }

    /// The server refused `server/discover` with this error object. Only an error that says that it does not know the
    /// question is remembered: any other one may be of the moment.
    pub fn learn_refusal(&mut self, error: &[u8]) {
        let known = is_result(error) && is_unknown_method(error);
        let before = core::mem::take(&mut self.discovery);
        if known && self.make_room(error.len(), None) {
            self.discovery = Discovery::Refused(error.to_vec());
        }
        self.changed |= self.discovery != before;
    }

    /// The server died of `server/discover`.
    pub fn learn_legacy(&mut self) {
        self.changed |= self.discovery != Discovery::Fatal;
        self.discovery = Discovery::Fatal;
    }

    /// The server may now accept `server/discover` that it refused or died of: the next session asks it.
    pub fn forget_refusal(&mut self) {
        if let Discovery::Refused(_) | Discovery::Fatal = self.discovery {
            self.discovery = Discovery::Unknown;
            self.changed = true;
        }
    }

    /// Forgets an opening with its lists: what it says turned out to be wrong.
    pub fn forget_opening(&mut self, digest: u64) {
        let before = self.openings.len();
        self.openings
            .retain(|opening| opening.params_digest != digest);
        self.changed |= self.openings.len() != before;
    }

    /// Whether there is anything that is not on disk.
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// It is on disk, as it is now.
    pub fn written(&mut self) {
        self.changed = false;
    }

    /// It comes from the disk: no server of this session has said any of it.
    #[must_use]
    pub fn from_disk(mut self) -> Self {
        self.changed = false;
        self.heard = None;
        self
    }

    /// What the server itself has said in this session; none if it has said nothing that could be compared.
    pub fn answers(&self) -> Option<Answers> {
        let SaidParts {
            params_digest,
            parts,
        } = self.heard?;
        let opening = match params_digest {
            Some(digest) => self
                .opening(digest)
                .map(|opening| opening.result.as_slice()),
            None => self.discover(),
        };
        let lists = Which::ALL.map(|list| self.list(params_digest, list));
        let mut all = core::iter::once(opening).chain(lists);
        let parts = parts.map(|heard| {
            let said = all.next().flatten().filter(|_| heard)?;
            digest_of_value(said)
        });
        parts.iter().any(Option::is_some).then_some(Answers {
            params_digest,
            parts,
        })
    }

    /// The server itself has said this part, for the client that opened like this.
    fn hear(&mut self, params_digest: Option<u64>, part: usize) {
        let heard = self
            .heard
            .filter(|heard| heard.params_digest == params_digest);
        let mut parts = heard.map_or([false; PARTS], |heard| heard.parts);
        parts[part] = true;
        self.heard = Some(SaidParts {
            params_digest,
            parts,
        });
    }

    /// Bytes of all results.
    pub fn bytes(&self) -> usize {
        let openings: usize = self.openings.iter().map(Opening::bytes).sum();
        openings + self.bytes_but_openings()
    }

    fn bytes_but_openings(&self) -> usize {
        self.discovery.bytes() + size(&self.modern_lists) + size(&self.modern_refusals)
    }

    fn place(&mut self, digest: Option<u64>, list: Which) -> Option<&mut Option<Vec<u8>>> {
        let lists = match digest {
            Some(digest) => {
                let mut openings = self.openings.iter_mut();
                &mut openings
                    .find(|opening| opening.params_digest == digest)?
                    .lists
            }
            None => &mut self.modern_lists,
        };
        Some(&mut lists[list as usize])
    }

    fn refusal_place(&mut self, digest: Option<u64>, list: Which) -> Option<&mut Option<Vec<u8>>> {
        let refusals = match digest {
            Some(digest) => {
                let mut openings = self.openings.iter_mut();
                &mut openings
                    .find(|opening| opening.params_digest == digest)?
                    .refusals
            }
            None => &mut self.modern_refusals,
        };
        Some(&mut refusals[list as usize])
    }

    /// Lets the oldest openings but one go until so many bytes fit. False, and nothing is lost, if they never will.
    fn make_room(&mut self, bytes: usize, but: Option<u64>) -> bool {
        let spared = but.and_then(|digest| self.opening(digest));
        let least = self.bytes_but_openings() + spared.map_or(0, Opening::bytes);
        if least + bytes > CACHE_BYTES {
            return false;
        }
        while self.bytes() + bytes > CACHE_BYTES {
            let oldest = self
                .openings
                .iter()
                .position(|opening| Some(opening.params_digest) != but);
            let Some(oldest) = oldest else { return false };
            self.openings.remove(oldest);
            self.changed = true;
        }
        debug_assert!(self.bytes() + bytes <= CACHE_BYTES, "there is room now");
        true
    }
}

impl Discovery {
    fn result(&self) -> Option<&[u8]> {
        match self {
            Self::Answered(result) => Some(result),
            Self::Unknown | Self::Refused(_) | Self::Fatal => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Answered(bytes) | Self::Refused(bytes) => bytes.len(),
            Self::Unknown | Self::Fatal => 0,
        }
    }
}

impl Opening {
    /// Bytes of its results.
    fn bytes(&self) -> usize {
        self.result.len() + size(&self.lists) + size(&self.refusals)
    }
}

/// A digest of what the client offers in `initialize`: protocol version, capabilities and name, in whatever order and
/// with whatever spaces they are written. Anything else in the params (a progress token, say) may differ from session
/// to session. None if the line is no `initialize`. Stable: it is stored.
pub fn digest_of_params(initialize_line: &[u8]) -> Option<u64> {
    let message = Members::of_line(initialize_line)?;
    if message.text("method")? != "initialize" {
        return None;
    }
    let params = message.object("params")?;
    let mut digest = Digest::new();
    for key in ["protocolVersion", "capabilities", "clientInfo"] {
        match params.get(key) {
            Some(value) => digest.value(&serde_json::from_str(value.get()).ok()?),
            None => digest.bytes(b"-"),
        }
    }
    Some(digest.0)
}

/// The `initialize` with which `learn` opens a server. Stable: its digest is stored.
pub fn learning_line(id_token: &[u8], version: &str) -> Vec<u8> {
    let params = serde_json::json!({
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": { "name": "mainstay-learn", "version": "1" },
    });
    let params = alloc::format!("{params}");
    let head = br#"{"jsonrpc":"2.0","id":"#;
    let method = br#","method":"initialize","params":"#;
    [head, id_token, method, params.as_bytes(), b"}\n"].concat()
}

/// The raw result of a response line; none for an error or anything else.
pub fn result_of(line: &[u8]) -> Option<&[u8]> {
    let message = Members::of_line(line)?;
    if message.get("method").is_some() || message.get("error").is_some() {
        return None;
    }
    Some(message.get("result")?.get().as_bytes())
}

/// The raw error object of a response line; none for a result or anything else.
pub fn error_of(line: &[u8]) -> Option<&[u8]> {
    let message = Members::of_line(line)?;
    if message.get("method").is_some() || message.get("result").is_some() {
        return None;
    }
    Some(message.get("error")?.get().as_bytes())
}

/// A remembered error object as the answer to a request, as a line.
pub fn refusal(id_token: &[u8], error: &[u8]) -> Vec<u8> {
    let head = br#"{"jsonrpc":"2.0","id":"#;
    [head, id_token, br#","error":"#, error, b"}\n"].concat()
}

/// A result as the answer to a request, as a line. The id is written as the client wrote it. How long a modern result
/// stays fresh (`ttlMs`) is told as "no longer": it is of an earlier time, and the truth may be on its way.
pub fn answer(id_token: &[u8], result: &[u8]) -> Vec<u8> {
    let (before, after) = without_ttl(result).unwrap_or((result, &[]));
    let zero: &[u8] = if before.len() == result.len() {
        b""
    } else {
        b"0"
    };
    let head = br#"{"jsonrpc":"2.0","id":"#;
    [
        head,
        id_token,
        br#","result":"#,
        before,
        zero,
        after,
        b"}\n",
    ]
    .concat()
}

/// Whether two results mean the same: the same bytes, or the same values under the same keys.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    let value = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    match (value(one), value(other)) {
        (Some(one), Some(other)) => one == other,
        (Some(_) | None, None) | (None, Some(_)) => false,
    }
}

/// The place of the opening among [`Answers::parts`].
const OPENING: usize = 0;

/// Codes with which servers of the legacy era say that they do not know `server/discover`: no such method, such params
/// or such a request, not before `initialize` (two ways).
const UNKNOWN_METHOD: [&str; 5] = ["-32601", "-32602", "-32600", "-32002", "0"];

fn is_unknown_method(error: &[u8]) -> bool {
    let error = Members::of_line(error);
    let code = error.as_ref().and_then(|error| error.get("code"));
    code.is_some_and(|code| UNKNOWN_METHOD.contains(&code.get()))
}

/// What a server calls itself in an `InitializeResult`.
fn server_info(result: &[u8]) -> Option<Value> {
    let info = Members::of_line(result)?.get("serverInfo")?;
    serde_json::from_str(info.get()).ok()
}

fn digest_of_value(bytes: &[u8]) -> Option<u64> {
    let mut digest = Digest::new();
    digest.value(&serde_json::from_slice(bytes).ok()?);
    Some(digest.0)
}

fn compare(known: Option<&[u8]>, result: &[u8]) -> Learned {
    match known {
        None => Learned::New,
        Some(known) if same(known, result) => Learned::Same,
        Some(_) => Learned::Other,
    }
}

/// Whether these bytes may stand in a line of ours as a result.
fn is_result(bytes: &[u8]) -> bool {
    members(bytes).is_some()
}

/// Whether this is a list without a further page.
fn is_whole_list(bytes: &[u8]) -> bool {
    members(bytes).is_some_and(|members| !is_set(&members, "nextCursor"))
}

/// The members of a complete result on one line.
fn members(bytes: &[u8]) -> Option<Members<'_>> {
    let one_line = memchr::memchr2(b'\n', b'\r', bytes).is_none();
    let begins = bytes.first() == Some(&b'{');
    let members = Members::of_line(bytes).filter(|_| one_line && begins)?;
    let complete = match members.get("resultType") {
        Some(_) => members.text("resultType")? == "complete",
        None => true,
    };
    complete.then_some(members)
}

/// Whether a member is there and not null.
fn is_set(members: &Members<'_>, key: &str) -> bool {
    members.get(key).is_some_and(|value| value.get() != "null")
}

/// What stands before and after the value of a result's `ttlMs`.
fn without_ttl(result: &[u8]) -> Option<(&[u8], &[u8])> {
    let ttl = members(result)?.get("ttlMs")?.get().as_bytes();
    // The value borrows from the result, so the distance of the two is its place.
    let start = (ttl.as_ptr() as usize).checked_sub(result.as_ptr() as usize)?;
    let (before, rest) = result.split_at_checked(start)?;
    Some((before, rest.get(ttl.len()..)?))
}

fn size(lists: &Lists) -> usize {
    lists.iter().flatten().map(Vec::len).sum()
}

/// FNV-1a of a value in one fixed order. It withstands no attacker: who chooses bad params gets another's lists of the
/// same server with the same credentials.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Each value with a mark and its length before it, so that no two values are written alike.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes(b"n"),
            Value::Bool(true) => self.bytes(b"t"),
            Value::Bool(false) => self.bytes(b"f"),
            Value::Number(number) => self.text(b"#", &alloc::format!("{number}")),
            Value::String(text) => self.text(b"\"", text),
            Value::Array(values) => {
                self.count(b"[", values.len());
                for value in values {
                    self.value(value);
                }
            }
            Value::Object(members) => {
                // In the order of the keys, whatever order a feature of the parser gives them.
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                self.count(b"{", sorted.len());
                for (key, value) in sorted {
                    self.text(b"\"", key);
                    self.value(value);
                }
            }
        }
    }

    fn text(&mut self, mark: &[u8], text: &str) {
        self.count(mark, text.len());
        self.bytes(text.as_bytes());
    }

    fn count(&mut self, mark: &[u8], count: usize) {
        self.bytes(mark);
        self.bytes(&(count as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
