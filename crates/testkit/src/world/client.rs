//! A scripted client: it opens in one era, sends all kinds of requests, answers questions, and cancels requests.

use std::collections::BTreeMap;

use mainstay_protocol::message::frame::Kind;
use serde_json::Value;

use super::message::{Message, key, key_of};
use super::outside::{Outside, text};
use super::pipe::{Lines, Read};

/// How a client opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize` first.
    Legacy,
    /// No opening.
    Modern,
    /// `server/discover` first, and `initialize` if that is unknown.
    Probing,
}

/// The client.
#[derive(Debug)]
pub struct Client {
    era: Era,
    /// It does not wait for the answer to its opening.
    hasty: bool,
    /// How many requests it still sends.
    pub left: u64,
    count: u64,
    opening: Opening,
    tries: u32,
    /// Unanswered requests: id token and method.
    waiting: BTreeMap<String, (String, String)>,
    /// Written, but the pipe had no room yet.
    backlog: Vec<u8>,
    lines: Lines,
    /// The size of its reads.
    pub read_most: u64,
    uris: u64,
    /// It opens in another way than the others.
    other: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Unsent,
    Sent,
    Done,
    Failed,
}

/// What the client does later.
#[derive(Debug)]
pub enum Later {
    /// It sends this.
    Say(Vec<u8>),
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
const INITIALIZE: &str = r#""method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}"#;

/// The client's opening line.
pub fn opening(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{INITIALIZE}}}"#)
}

impl Client {
    /// A client with a random character.
    pub fn new(outside: &mut Outside) -> Self {
        let dice = &mut outside.dice;
        Self {
            era: dice.pick(&[Era::Legacy, Era::Legacy, Era::Modern, Era::Probing]),
            hasty: dice.permille(150),
            left: dice.between(3, 50),
            count: 0,
            opening: Opening::Unsent,
            tries: 0,
            waiting: BTreeMap::new(),
            backlog: Vec::new(),
            lines: Lines::default(),
            read_most: dice.pick(&[7, 100, 4_096, 65_536, 65_536]),
            uris: dice.between(1, 3),
            other: false,
        }
    }

    /// A client that comes back, in the era that the link knows. It counts its ids from the beginning.
    pub fn returning(outside: &mut Outside, modern: bool) -> Self {
        let mut client = Self::new(outside);
        client.era = if modern { Era::Modern } else { Era::Legacy };
        client.left = client.left.max(1);
        client.other = outside.dice.permille(200);
        client
    }

    /// Writes what the pipe had no room for. Returns whether it took any.
    pub fn flush(&mut self, outside: &mut Outside) -> bool {
        match outside.from_client.write(&self.backlog) {
            Ok(len) => {
                self.backlog.drain(..len);
                len > 0
            }
            Err(_) => {
                self.backlog.clear();
                false
            }
        }
    }

    /// Sends this now.
    pub fn say(&mut self, outside: &mut Outside, line: &[u8]) {
        if outside.from_client.writer_gone {
            // It has closed its end, perhaps within a line. Anything that followed would look like the rest of that line.
            return;
        }
        for said in Message::read(line).unwrap_or_default() {
            match said.kind {
                Kind::Request => outside.watch.client_asks(&said),
                Kind::Response | Kind::Error => outside.watch.client_answers(&said.key()),
                Kind::Notification | Kind::Batch | Kind::Blank | Kind::Junk => {}
            }
        }
        outside.note(|| format!("client says: {}", text(line)));
        self.backlog.extend_from_slice(line);
        self.flush(outside);
    }

    /// Closes its end, perhaps in the middle of a line.
    pub fn close(&mut self, outside: &mut Outside) {
        outside.note(|| "client closes".into());
        self.flush(outside);
        self.backlog.clear();
        outside.from_client.writer_gone = true;
    }

    /// Does something by itself.
    pub fn act(&mut self, outside: &mut Outside) {
        if outside.from_client.writer_gone {
            return;
        }
        match self.opening {
            Opening::Unsent => self.open(outside),
            Opening::Sent if self.hasty && self.left > 0 => self.ask_anything(outside),
            Opening::Done if self.left > 0 => {
                let many = if outside.bulky {
                    outside.dice.between(1, 6)
                } else {
                    1
                };
                for _ in 0..many.min(self.left) {
                    self.ask_anything(outside);
                }
            }
            Opening::Failed if self.tries < 3 => self.open(outside),
            Opening::Sent | Opening::Done | Opening::Failed => {}
        }
    }

    fn open(&mut self, outside: &mut Outside) {
        self.tries += 1;
        let id = self.next_id(outside);
        match self.era {
            Era::Legacy => {
                self.opening = Opening::Sent;
                let mut line = format!("{}\n", opening(&id));
                if self.other {
                    line = line.replace(r#""roots":{}"#, r#""sampling":{}"#);
                }
                let mark = format!(r#""params":{{"w":"{}","#, self.mark(outside));
                line = line.replace(r#""params":{"#, &mark);
                self.wait(&id, "initialize");
                self.say(outside, line.as_bytes());
            }
            Era::Probing => {
                self.opening = Opening::Sent;
                let mark = self.mark(outside);
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"server/discover\",\"params\":{{\"w\":\"{mark}\",{META}}}}}\n"
                );
                self.wait(&id, "server/discover");
                self.say(outside, line.as_bytes());
            }
            Era::Modern => {
                self.opening = Opening::Done;
                self.ask_anything(outside);
            }
        }
    }

    fn ask_anything(&mut self, outside: &mut Outside) {
        self.left -= 1;
        let line = match outside.dice.below(100) {
            0..5 => self.cancel(outside),
            5..8 => Some(
                "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}\n".into(),
            ),
            8 => Some("junk from the client\n".into()),
            9 => Some("\n".into()),
            10..14 if self.era == Era::Legacy => {
                // A batch sets nothing that is replayed, because servers of its era do not need it.
                let (one, two) = (self.request(outside, false), self.request(outside, false));
                Some(format!("[{one},{two}]\n"))
            }
            _ => Some(format!("{}\n", self.request(outside, true))),
        };
        if let Some(line) = line {
            self.say(outside, line.as_bytes());
        }
    }

    fn cancel(&mut self, outside: &mut Outside) -> Option<String> {
        let at = outside.dice.below(self.waiting.len() as u64) as usize;
        let (id, (token, method)) = self.waiting.iter().nth(at)?;
        if method == "initialize" {
            return None;
        }
        outside.watch.client_cancels(id);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{token}}}}}\n"
        );
        let id = id.clone();
        self.waiting.remove(&id);
        Some(line)
    }

    /// One request, as JSON.
    fn request(&mut self, outside: &mut Outside, lasting: bool) -> String {
        let id = self.next_id(outside);
        let bulky = outside.bulky;
        let dice = &mut outside.dice;
        let legacy = self.era != Era::Modern;
        let sort = if outside.calls_mostly && dice.permille(500) {
            30
        } else {
            dice.below(100)
        };
        let (method, mut params) = match sort {
            0..8 => ("ping", String::new()),
            8..20 => ("tools/list", String::new()),
            20..24 => ("prompts/list", String::new()),
            24..28 => ("resources/list", String::new()),
            28..30 => ("resources/templates/list", String::new()),
            30..50 => {
                let name = dice.pick(&["ro", "rw", "ro2"]);
                let task = if dice.permille(100) {
                    r#","task":{}"#
                } else {
                    ""
                };
                // Not in a batch: if the keeper is killed while a long batch arrives, its members are unknown.
                let size = if lasting && dice.permille(if bulky { 700 } else { 20 }) {
                    let sizes: &[u64] = if bulky {
                        &[9_000, 30_000, 60_000, 70_000, 140_000]
                    } else {
                        &[70_000]
                    };
                    dice.pick(sizes) as usize
                } else {
                    0
                };
                let fill = "x".repeat(size);
                (
                    "tools/call",
                    format!(r#""name":"{name}","arguments":{{"fill":"{fill}"}}{task}"#),
                )
            }
            50..58 => ("resources/read", r#""uri":"file:///a""#.into()),
            58..62 => ("prompts/get", r#""name":"p""#.into()),
            62..65 => ("completion/complete", String::new()),
            65..72 if lasting && legacy && !self.waits_for("logging/setLevel") => {
                let level = dice.pick(&["debug", "info", "error"]);
                ("logging/setLevel", format!(r#""level":"{level}""#))
            }
            72..82 if lasting && legacy && !self.waits_for("resources/") => {
                let uri = dice.below(self.uris);
                let method = dice.pick(&[
                    "resources/subscribe",
                    "resources/subscribe",
                    "resources/unsubscribe",
                ]);
                (method, format!(r#""uri":"file:///{uri}""#))
            }
            82..88 if !legacy => (
                "subscriptions/listen",
                r#""notifications":{"toolsListChanged":true,"resourcesListChanged":true}"#.into(),
            ),
            88..92 => ("tasks/get", r#""taskId":"t""#.into()),
            92..94 => ("tasks/cancel", r#""taskId":"t""#.into()),
            94..97 => ("vendor/odd", String::new()),
            97..99 if !legacy => ("server/discover", String::new()),
            _ => ("resources/read", r#""uri":"file:///b""#.into()),
        };
        let progress = method != "subscriptions/listen" && dice.permille(300);
        let meta = match (legacy, progress) {
            (true, false) => String::new(),
            (true, true) => format!(r#""_meta":{{"progressToken":"p{}"}}"#, self.count),
            (false, false) => META.into(),
            (false, true) => META.replace('{', &format!(r#"{{"progressToken":"p{}","#, self.count)),
        };
        for part in [format!(r#""w":"{}""#, self.mark(outside)), meta] {
            if !params.is_empty() && !part.is_empty() {
                params.push(',');
            }
            params.push_str(&part);
        }
        self.wait(&id, method);
        if outside.dice.permille(150) {
            return format!(
                r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}},"id":{id}}}"#
            );
        }
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    }

    /// Distinguishes its requests from those of earlier clients with the same ids.
    fn mark(&self, outside: &Outside) -> String {
        format!("{}-{}", outside.attachment, self.count)
    }

    fn waits_for(&self, method: &str) -> bool {
        self.waiting
            .values()
            .any(|(_, waits)| waits.starts_with(method))
    }

    fn next_id(&mut self, outside: &mut Outside) -> String {
        self.count += 1;
        let n = self.count;
        match outside.dice.below(20) {
            0..3 => format!("\"c-{n}\""),
            3..5 => format!("{n}.0"),
            5 => format!("\"c\\/{n}\""),
            // The client is itself a mainstay.
            6 => format!("\"ms:own:00000008:{n}\""),
            _ => format!("{n}"),
        }
    }

    fn wait(&mut self, token: &str, method: &str) {
        self.waiting
            .insert(key_of(token), (token.into(), method.into()));
    }

    /// Reads what is there, up to its read size. Returns what it does later.
    pub fn read(&mut self, outside: &mut Outside) -> Vec<Later> {
        let most = outside.dice.between(1, self.read_most) as usize;
        let Read::Bytes(bytes) = outside.to_client.read(most) else {
            return Vec::new();
        };
        let mut later = Vec::new();
        for line in self.lines.feed(&bytes) {
            for said in Message::read(&line).unwrap_or_default() {
                self.hears(outside, &said, &mut later);
            }
        }
        later
    }

    fn hears(&mut self, outside: &mut Outside, said: &Message, later: &mut Vec<Later>) {
        match said.kind {
            Kind::Request => {
                let Some(token) = &said.token else { return };
                let params = &said.value["params"];
                let payload = format!(r#"{{"by":{},"n":{}}}"#, params["by"], params["n"]);
                let answer = match outside.dice.below(10) {
                    // It never answers.
                    0 => return,
                    1 => format!(r#""error":{{"code":-1,"message":"no","data":{payload}}}"#),
                    _ => format!(r#""result":{payload}"#),
                };
                let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{token},{answer}}}\n");
                later.push(Later::Say(line.into_bytes()));
            }
            Kind::Response | Kind::Error => {
                let Some((_, method)) = self.waiting.remove(&said.key()) else {
                    return;
                };
                self.answered(outside, &method, said);
            }
            Kind::Notification | Kind::Batch | Kind::Blank | Kind::Junk => {}
        }
    }

    fn answered(&mut self, outside: &mut Outside, method: &str, said: &Message) {
        let unknown = key(&said.value["error"]["code"]) == "-32601";
        match (method, said.is_success()) {
            ("initialize", true) => {
                self.opening = Opening::Done;
                let line = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
                self.say(outside, line.as_bytes());
            }
            ("server/discover", true) if self.opening == Opening::Sent => {
                self.era = Era::Modern;
                self.opening = Opening::Done;
            }
            ("server/discover", false) if self.opening == Opening::Sent && unknown => {
                self.era = Era::Legacy;
                self.open(outside);
            }
            ("initialize" | "server/discover", false) if self.opening == Opening::Sent => {
                self.opening = Opening::Failed;
            }
            _ => {}
        }
    }

    /// Whether it has bytes that the pipe has not taken.
    pub fn is_stuck(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The number of requests without an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The client's parameters, to compare openings.
pub fn opening_params() -> Value {
    let opening: Value = serde_json::from_str(&opening("1")).unwrap_or_default();
    opening["params"].clone()
}
