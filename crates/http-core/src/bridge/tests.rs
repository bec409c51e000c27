//! The stage: a bridge, a clock, and a server that does what each test says.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use mainstay_protocol::policy::Retry;

use super::*;
use crate::sse;

mod answer;
mod chance;
mod lost;
mod modern;
mod old;
mod session;
mod stream;
mod unkind;

/// A bridge with a clock, and everything that it has put out.
struct Play {
    bridge: Bridge,
    now: Moment,
    said: Vec<String>,
    sent: Vec<Sending>,
    notes: Vec<(String, Option<String>)>,
    sessions_closed: Vec<String>,
    sessions_unclosed: Vec<String>,
    closed: Vec<ExchangeId>,
    told: Vec<String>,
    /// Openings of which it is not known yet, or never, what became of them.
    openings: Vec<ExchangeId>,
    unknown: Vec<ExchangeId>,
    done: bool,
    refuse_notes: bool,
}

const OPENING: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const OPENED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Play {
    fn new(retry: Retry) -> Self {
        Self {
            bridge: Bridge::new(About {
                name: "s".into(),
                place: "http://h/mcp".into(),
                retry,
                drain_ms: 1_000,
            }),
            now: Moment(1_000_000_000),
            said: vec![],
            sent: vec![],
            notes: vec![],
            sessions_closed: vec![],
            sessions_unclosed: vec![],
            closed: vec![],
            told: vec![],
            openings: vec![],
            unknown: vec![],
            done: false,
            refuse_notes: false,
        }
    }

    /// With a session `s1` open, whose confirmation is on its way.
    fn greeted(retry: Retry) -> Self {
        let mut play = Self::new(retry);
        let opening = play.ask(OPENING);
        play.head(opening, 200, Content::Json, Some("s1"));
        play.body(opening, OPENED);
        play.line(INITIALIZED);
        play.said.clear();
        play
    }

    /// With a session `s1` open whose stream for what comes unasked is on its way; that exchange.
    fn listening(retry: Retry) -> (Self, ExchangeId) {
        let mut play = Self::greeted(retry);
        play.accepted(play.last());
        let listen = play.last();
        assert_eq!(play.sending(listen).verb, Verb::Get);
        (play, listen)
    }

    /// With a session `s1` open and confirmed, and no stream for what comes unasked.
    fn open(retry: Retry) -> Self {
        let (mut play, listen) = Self::listening(retry);
        play.head(listen, 405, Content::Other(String::new()), None);
        play.said.clear();
        play
    }

    fn give(&mut self, input: Input) {
        self.bridge.handle(self.now, input);
        while let Some(output) = self.bridge.output() {
            match output {
                Output::Send(sending) => self.sent.push(sending),
                Output::Opening(exchange) => {
                    assert!(self.sent.iter().all(|one| one.exchange != exchange));
                    self.openings.push(exchange);
                }
                Output::Opened { exchange, known } => {
                    let before = self.openings.len();
                    self.openings.retain(|one| *one != exchange);
                    assert_eq!(self.openings.len() + 1, before, "once for each");
                    if !known {
                        self.unknown.push(exchange);
                    }
                }
                Output::Close(exchange) => self.closed.push(exchange),
                Output::Note { session, version } => {
                    let result = if self.refuse_notes {
                        Noted::Failed {
                            why: "no space left on device".into(),
                        }
                    } else {
                        self.notes.push((session.clone(), version));
                        Noted::Written
                    };
                    self.bridge.handle(self.now, Input::Noted(session, result));
                }
                Output::SessionClosed { session, .. } => self.sessions_closed.push(session),
                Output::SessionUnclosed { session, .. } => self.sessions_unclosed.push(session),
                Output::Say(line) => {
                    assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
                    let line = String::from_utf8(line).unwrap();
                    self.said.push(line.trim_end().into());
                }
                Output::Tell(text) => self.told.push(text),
                Output::Done => self.done = true,
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.give(Input::Line(line.into()));
    }

    /// A line, and the exchange that it goes out with.
    fn ask(&mut self, line: &str) -> ExchangeId {
        self.line(line);
        self.last()
    }

    fn last(&self) -> ExchangeId {
        self.sent.last().unwrap().exchange
    }

    fn sending(&self, exchange: ExchangeId) -> &Sending {
        self.sent
            .iter()
            .find(|one| one.exchange == exchange)
            .unwrap()
    }

    fn header(&self, exchange: ExchangeId, name: &str) -> Option<&str> {
        let headers = &self.sending(exchange).headers;
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The id of the request that went out with an exchange.
    fn id(&self, exchange: ExchangeId) -> String {
        String::from_utf8(look(&self.sending(exchange).body).id.unwrap()).unwrap()
    }

    fn method(&self, exchange: ExchangeId) -> String {
        look(&self.sending(exchange).body).method
    }

    fn head(&mut self, exchange: ExchangeId, status: u16, content: Content, session: Option<&str>) {
        self.give(Input::Head(
            exchange,
            Head {
                status,
                content,
                session: session.map(Into::into),
                retry_after_ms: None,
            },
        ));
    }

    fn body(&mut self, exchange: ExchangeId, body: &str) {
        self.give(Input::Body(exchange, body.into()));
        self.give(Input::End(exchange, End::Done));
    }

    fn accepted(&mut self, exchange: ExchangeId) {
        self.head(exchange, 202, Content::Other(String::new()), None);
        self.body(exchange, "");
    }

    fn json(&mut self, exchange: ExchangeId, body: &str) {
        self.head(exchange, 200, Content::Json, None);
        self.body(exchange, body);
    }

    fn status(&mut self, exchange: ExchangeId, status: u16, body: &str) {
        self.head(exchange, status, Content::Other("text/plain".into()), None);
        self.body(exchange, body);
    }

    fn stream(&mut self, exchange: ExchangeId) {
        self.head(exchange, 200, Content::Events, None);
    }

    fn event(&mut self, exchange: ExchangeId, id: Option<&str>, data: &str) {
        self.give(Input::Event(
            exchange,
            sse::Event {
                name: String::new(),
                id: id.map(Into::into),
                retry_ms: None,
                data: data.into(),
            },
        ));
    }

    fn fails(&mut self, exchange: ExchangeId, unsent: bool) {
        let why = "h: connection refused".into();
        self.give(Input::End(exchange, End::Failed { unsent, why }));
    }

    /// Answers our own `initialize` with this session; what follows it is the last exchange.
    fn greet(&mut self, session: &str) {
        let greet = self.last();
        assert_eq!(self.method(greet), "initialize");
        self.head(greet, 200, Content::Json, Some(session));
        let id = self.id(greet);
        let answer = OPENED.replace("\"id\":0", &format!("\"id\":{id}"));
        self.body(greet, &answer.replace("listChanged", "x"));
    }

    /// That the line at this place has these words.
    fn says(&self, at: usize, words: &str) {
        assert!(self.said[at].contains(words), "{:?}", self.said);
    }

    /// Lets the time pass until nothing is due any more, or this long.
    fn wait(&mut self, ms: u64) {
        let until = self.now.after_ms(ms);
        let mut turns = 0;
        while let Some(at) = self.bridge.wake_at().filter(|at| *at <= until) {
            turns += 1;
            assert!(turns < 10_000, "it wakes for nothing: {:?}", self.bridge);
            self.now = self.now.max(at);
            self.give(Input::Tick);
        }
        self.now = until;
    }
}

fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

fn list(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)
}

fn result(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}
