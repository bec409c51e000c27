//! What clients want: those of both eras, and attackers that use the ids of others.
//!
//! Every request carries a mark of its client, which its server repeats: a mark that reaches another client is a leak. Ids
//! and tokens count from one for each client, so that they are the same for all.

use std::collections::BTreeSet;

use mainstay_http_core::serve::front::Get;
use mainstay_http_core::serve::posted::LEGACY;
use mainstay_http_core::serve::sse::EventId;
use mainstay_protocol::clock::Moment;
use serde_json::{Value, json};

use super::server::Kind;
use super::{FrontCounts, Path};
use crate::world::dice::Dice;

/// The version of the modern era.
const MODERN: &str = "2026-07-28";

/// What a client does.
#[derive(Clone, Debug)]
pub enum Wish {
    Post(Posting),
    Stream(Streaming),
    Delete(Streaming),
}

#[derive(Clone)]
pub struct Posting {
    pub path: u64,
    pub session: Option<String>,
    pub headers: Vec<(String, String)>,
    pub line: Vec<u8>,
    pub request: Option<usize>,
}

impl std::fmt::Debug for Posting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (session, line) = (&self.session, String::from_utf8_lossy(&self.line));
        let line: String = line.trim_end().chars().take(500).collect();
        write!(f, "post in {session:?}: {line}")
    }
}

#[derive(Clone, Debug)]
pub struct Streaming {
    pub path: u64,
    pub session: Option<String>,
    pub last: Option<String>,
    pub request: Option<usize>,
}

impl Streaming {
    pub fn as_get(&self) -> Get<'_> {
        Get {
            path: self.path,
            session: self.session.as_deref(),
            version: None,
            last: self.last.as_deref().map(str::as_bytes),
        }
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its answer comes on the connection with this exchange.
    On(u64),
    /// Its connection was cut after this event: the client can come back.
    Lost(EventId),
    /// It was answered, refused, or its client left without a way back.
    Done,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: Value,
    pub mark: String,
    pub token: Option<Value>,
    pub state: State,
    /// The last progress that arrived.
    pub progress: u64,
    /// The stream of its events, and which of them arrived.
    pub stream: Option<u64>,
    pub arrived: BTreeSet<u64>,
    /// Its server repeats its mark in the answer.
    pub repeats: bool,
    /// It opens a session.
    pub opens: bool,
    /// It is answered only when it is over.
    pub listens: bool,
    path: u64,
    session: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    pub number: usize,
    pub attacks: bool,
    pub requests: Vec<Request>,
    era: Era,
    path: usize,
    session: Option<Session>,
    next: u64,
    /// How much longer its calls are.
    pad: usize,
    marks: u64,
    /// Names of sessions that it had.
    former: Vec<String>,
}

#[derive(Clone, Debug)]
struct Session {
    name: String,
    path: u64,
}

impl Client {
    pub fn new(number: usize, dice: &mut Dice, paths: &[Path], pad: usize) -> Self {
        let path = dice.below(paths.len() as u64) as usize;
        let modern = match paths[path].kind {
            Kind::Legacy | Kind::Broken | Kind::Silent => 50,
            Kind::Modern => 900,
            Kind::Both => 400,
        };
        Self {
            number,
            attacks: number > 0 && dice.permille(300),
            requests: Vec::new(),
            era: if dice.permille(modern) {
                Era::Modern
            } else {
                Era::Legacy
            },
            path,
            session: None,
            next: 1,
            pad,
            marks: 0,
            former: Vec::new(),
        }
    }

    /// What it does now.
    pub fn acts(
        &mut self,
        dice: &mut Dice,
        paths: &[Path],
        told: &mut FrontCounts,
        _now: Moment,
    ) -> Option<Wish> {
        let path = paths[self.path].number;
        if self.attacks && dice.permille(500) {
            told.attacks += 1;
            return self.attack(dice, path, told);
        }
        match (self.era, &self.session) {
            (Era::Modern, _) => Some(self.modern(dice, path, told)),
            (Era::Legacy, None) => self.initialize(dice, path, told),
            (Era::Legacy, Some(_)) => self.legacy(dice, told),
        }
    }

    fn initialize(&mut self, dice: &mut Dice, path: u64, told: &mut FrontCounts) -> Option<Wish> {
        let opening = |one: &Request| one.opens && one.state != State::Done;
        if self.requests.iter().any(opening) {
            return None;
        }
        let params = json!({
            "protocolVersion": dice.pick(&LEGACY),
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        });
        let request = self.request(dice, "initialize", params, path, told);
        self.requests[request.0].opens = true;
        Some(self.post(request, path, Vec::new()))
    }

    fn legacy(&mut self, dice: &mut Dice, told: &mut FrontCounts) -> Option<Wish> {
        let path = self.session.as_ref()?.path;
        Some(match dice.below(100) {
            0..=54 => {
                let mark = self.mark();
                let pad = "x".repeat(self.pad);
                let params = json!({"name": "work", "arguments": {"mark": mark, "pad": pad}});
                let request = self.marked(dice, "tools/call", params, path, mark, told);
                self.post(request, path, Vec::new())
            }
            55..=64 => Wish::Stream(self.streaming(None, None)?),
            65..=69 => {
                let params = json!({"uri": format!("res://mark-c{}-", self.number)});
                let request = self.request(dice, "resources/subscribe", params, path, told);
                self.post(request, path, Vec::new())
            }
            70..=74 => {
                let params = json!({"level": dice.pick(&["debug", "info", "error"])});
                let request = self.request(dice, "logging/setLevel", params, path, told);
                self.post(request, path, Vec::new())
            }
            75..=79 => {
                let open = |one: &&Request| matches!(one.state, State::On(_)) && !one.opens;
                let id = self.requests.iter().find(open)?.id.clone();
                self.notify("notifications/cancelled", &json!({"requestId": id}))?
            }
            80..=94 => return self.comes_back(told),
            95..=97 => self.notify("notifications/initialized", &json!({}))?,
            _ => Wish::Delete(self.streaming(None, None)?),
        })
    }

    fn modern(&mut self, dice: &mut Dice, path: u64, told: &mut FrontCounts) -> Wish {
        let mark = self.mark();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let (method, mut params, name) = match dice.below(10) {
            0 => ("subscriptions/listen", json!({}), None),
            1 => ("server/discover", json!({}), None),
            _ => {
                let pad = "x".repeat(self.pad);
                let arguments = json!({"mark": mark, "region": "eu", "pad": pad});
                let params = json!({"name": "work", "arguments": arguments});
                ("tools/call", params, Some("work"))
            }
        };
        params["_meta"] = meta;
        let request = self.marked(dice, method, params, path, mark, told);
        self.requests[request.0].listens = method == "subscriptions/listen";
        let mut headers = vec![
            ("mcp-protocol-version".into(), MODERN.into()),
            ("mcp-method".into(), method.into()),
        ];
        headers.extend(name.map(|name| ("mcp-name".into(), name.into())));
        if name.is_some() {
            headers.push(("mcp-param-region".into(), "eu".into()));
        }
        self.post(request, path, headers)
    }

    /// Something that an honest client never does.
    fn attack(&mut self, dice: &mut Dice, path: u64, told: &mut FrontCounts) -> Option<Wish> {
        let guess = format!("h{}-{:032x}", dice.below(16), dice.roll());
        let id = dice.between(1, 6);
        let id = if dice.permille(500) {
            json!(id)
        } else {
            json!(guess)
        };
        match dice.below(12) {
            0 => self.notify("notifications/cancelled", &json!({"requestId": id})),
            1 => {
                let last = format!("{}-{}", dice.below(8), dice.below(4));
                Some(Wish::Stream(self.streaming(Some(last), None)?))
            }
            2 => {
                // The answer to a request of another client, or of ours.
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
                Some(Wish::Post(self.posting(&answer, None)?))
            }
            3 => {
                let name = format!("{:032x}", dice.roll());
                let session = self.former.last().cloned().unwrap_or(name);
                Some(Wish::Stream(Streaming {
                    path,
                    session: Some(session),
                    last: None,
                    request: None,
                }))
            }
            4 => {
                // An id that is in flight already.
                let open = |one: &&Request| matches!(one.state, State::On(_));
                let id = self.requests.iter().find(open)?.id.clone();
                let line = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
                Some(Wish::Post(self.posting(&line, None)?))
            }
            5..=10 => {
                // A server that says what its client tells it to say.
                // It counts requests of ours, and has to guess the rest of their ids.
                let count = if id.is_number() { 1 } else { 40 };
                let kind = dice.below(4);
                let said = (0..count).map(|number| {
                    let guess = json!(format!("h{number}-{:032x}", dice.roll()));
                    let id = if id.is_number() { &id } else { &guess };
                    raw(kind, id).to_string()
                });
                let said: Vec<String> = said.collect();
                let path = self.session.as_ref()?.path;
                let params = json!({"name": "say", "arguments": {"raw": said}});
                let request = self.request(dice, "tools/call", params, path, told);
                Some(self.post(request, path, Vec::new()))
            }
            _ => {
                let name = format!("{:032x}", dice.roll());
                let session = Some(self.former.last().cloned().unwrap_or(name));
                let (last, request) = (None, None);
                Some(Wish::Delete(Streaming {
                    path,
                    session,
                    last,
                    request,
                }))
            }
        }
    }

    fn mark(&mut self) -> String {
        self.marks += 1;
        format!("mark-c{}-{}", self.number, self.marks)
    }

    fn request(
        &mut self,
        dice: &mut Dice,
        method: &str,
        params: Value,
        path: u64,
        told: &mut FrontCounts,
    ) -> (usize, Value) {
        let mark = self.mark();
        self.marked(dice, method, params, path, mark, told)
    }

    fn marked(
        &mut self,
        dice: &mut Dice,
        method: &str,
        mut params: Value,
        path: u64,
        mark: String,
        told: &mut FrontCounts,
    ) -> (usize, Value) {
        let id = if dice.permille(300) {
            json!(self.next.to_string())
        } else {
            json!(self.next)
        };
        self.next += 1;
        let token = dice.permille(800).then(|| json!(self.next));
        if let Some(token) = &token {
            params["_meta"]["progressToken"] = token.clone();
        }
        told.requests += 1;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.requests.push(Request {
            id,
            mark,
            token,
            state: State::On(0),
            progress: 0,
            stream: None,
            arrived: BTreeSet::new(),
            repeats: line["params"]["arguments"].get("mark").is_some(),
            opens: false,
            listens: false,
            path,
            session: self.session.as_ref().map(|session| session.name.clone()),
        });
        (self.requests.len() - 1, line)
    }

    fn post(
        &self,
        (request, line): (usize, Value),
        path: u64,
        headers: Vec<(String, String)>,
    ) -> Wish {
        let session = self.requests[request].session.clone();
        Wish::Post(Posting {
            path,
            session: session.filter(|_| self.era == Era::Legacy),
            headers,
            line: format!("{line}\n").into_bytes(),
            request: Some(request),
        })
    }

    fn posting(&self, line: &Value, request: Option<usize>) -> Option<Posting> {
        let session = self.session.as_ref()?;
        Some(Posting {
            path: session.path,
            session: Some(session.name.clone()),
            headers: Vec::new(),
            line: format!("{line}\n").into_bytes(),
            request,
        })
    }

    fn notify(&self, method: &str, params: &Value) -> Option<Wish> {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        Some(Wish::Post(self.posting(&line, None)?))
    }

    fn streaming(&self, last: Option<String>, request: Option<usize>) -> Option<Streaming> {
        let session = self.session.as_ref()?;
        Some(Streaming {
            path: session.path,
            session: Some(session.name.clone()),
            last,
            request,
        })
    }

    /// Comes back for the rest of a stream that was cut.
    pub fn comes_back(&mut self, told: &mut FrontCounts) -> Option<Wish> {
        let lost = self.requests.iter_mut().enumerate();
        let mut lost = lost.filter_map(|(number, one)| match one.state {
            State::Lost(last) => Some((number, one, last)),
            State::On(_) | State::Done => None,
        });
        let (number, one, last) = lost.next()?;
        one.state = State::On(0);
        told.resumed += 1;
        Some(Wish::Stream(Streaming {
            path: one.path,
            session: one.session.clone(),
            last: Some(last.to_string()),
            request: Some(number),
        }))
    }

    /// A session of its own.
    pub fn opened(&mut self, name: String, _now: Moment) {
        let path = self.requests.iter().rev().find(|one| one.opens);
        let path = path.map_or(0, |one| one.path);
        self.former.extend(self.session.take().map(|old| old.name));
        self.session = Some(Session { name, path });
    }

    /// The session is useless now; what waits in it gets its answer by itself.
    pub fn forget_session(&mut self) {
        self.former.extend(self.session.take().map(|old| old.name));
    }

    /// The answer of a request comes on this exchange.
    pub fn is_on(&mut self, request: usize, exchange: u64) {
        self.requests[request].state = State::On(exchange);
    }

    /// Whether it waits for an answer that should come.
    pub fn waits(&self) -> bool {
        self.waiting().is_some()
    }

    /// Such a request.
    pub fn waiting(&self) -> Option<String> {
        let waits = |one: &&Request| one.state != State::Done && !one.listens;
        let one = self.requests.iter().find(waits)?;
        Some(format!("client {}, {one:?}", self.number))
    }
}

/// A line that a server is told to say about a request.
fn raw(kind: u64, id: &Value) -> Value {
    let note =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
    match kind {
        0 => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        1 => note(
            "notifications/progress",
            json!({"progressToken": id, "progress": 1}),
        ),
        2 => note("notifications/cancelled", json!({"requestId": id})),
        _ => json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}),
    }
}
