//! What goes out: exchanges with the server, lines for the client, notes for the disk, in the order in which they are
//! asked for.
//!
//! It knows which exchanges are open, what each is for and in which session it was begun. It does not judge what comes
//! back.
//!
//! Invariants:
//! - Of an exchange that has ended or was broken off nothing is known any more; its name is not given again.
//! - An exchange that asks for a session is announced before it is sent, and [`Output::Opened`] follows once.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits;

use super::io::{End, ExchangeId, Head, Output, Sending, Verb};
use super::queue::Delivery;
use crate::lines::look;

/// The exchanges that are open, and the outputs that were not taken yet.
#[derive(Debug)]
pub(super) struct Wire {
    exchanges: BTreeMap<ExchangeId, HttpExchange>,
    next: ExchangeId,
    /// Counts sessions, from 1; a new one begins with the loss of the last.
    epoch: u32,
    own_ids: u64,
    transport: Transport,
    outputs: VecDeque<Output>,
    /// The time of the last input.
    now: Moment,
}

/// How messages reach the server.
#[derive(Clone, Debug)]
enum Transport {
    /// By POST to the URL.
    Streamable,
    /// As in 2024-11-05: by POST to an endpoint that the server names on a stream, where its answers come, too.
    Old {
        /// Where messages go; none while it is not known.
        endpoint: Option<String>,
        /// The status with which it refused the first POST to the URL.
        refused: u16,
    },
}

/// One HTTP exchange.
#[derive(Clone, Debug)]
pub(super) struct HttpExchange {
    pub purpose: Purpose,
    /// The session that it belongs to.
    pub epoch: u32,
    pub head: Option<Head>,
    /// When it was begun.
    pub at: Moment,
    /// When it had brought what it was for; a stream may stay open a little longer.
    pub spent: Option<Moment>,
    /// Its answer comes on the old transport's stream.
    pub elsewhere: bool,
    /// It asks for a session, and it is not known yet what became of that.
    opening: bool,
}

/// What an exchange is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An `initialize` of the client's.
    Initialize(Vec<u8>),
    /// A request of the client's, or the resumption of its answer.
    Request(Vec<u8>),
    /// A notification or an answer of the client's.
    Deliver(Delivery),
    /// The stream for what the server says unasked.
    Listen,
    /// A DELETE.
    Farewell(String),
    /// A step of opening a session again.
    Reopen,
    /// A question of ours on the way to a request of the client's that is sent again then.
    Refresh(Vec<u8>),
    /// The stream of the old transport.
    Old,
}

/// An exchange whose answer has begun.
pub(super) struct Begun {
    pub purpose: Purpose,
    /// It belongs to a session that was lost since.
    pub late: bool,
    /// It asked for a session: [`Wire::opened`] is due when its head was looked at.
    pub opening: bool,
}

impl Wire {
    pub fn new() -> Self {
        Self {
            exchanges: BTreeMap::new(),
            next: 1,
            epoch: 0,
            own_ids: 0,
            transport: Transport::Streamable,
            outputs: VecDeque::new(),
            now: Moment(0),
        }
    }

    pub fn set_time(&mut self, now: Moment) {
        self.now = now;
    }

    pub fn now(&self) -> Moment {
        self.now
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What is begun from now on belongs to the next session.
    pub fn next_epoch(&mut self) {
        self.epoch += 1;
    }

    /// An id for a request of ours.
    pub fn own_id(&mut self) -> Vec<u8> {
        self.own_ids += 1;
        alloc::format!("\"ms:http:{}\"", self.own_ids).into_bytes()
    }

    pub fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub fn put(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// A line for the client; its newline may be missing.
    pub fn say(&mut self, mut line: Vec<u8>) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        self.put(Output::Say(line));
    }

    pub fn tell(&mut self, text: String) {
        self.put(Output::Tell(text));
    }

    /// Sends a message.
    pub fn post(
        &mut self,
        purpose: Purpose,
        body: Vec<u8>,
        mut headers: Vec<(String, String)>,
    ) -> ExchangeId {
        headers.push((
            "accept".into(),
            "application/json, text/event-stream".into(),
        ));
        headers.push(("content-type".into(), "application/json".into()));
        let to = match &self.transport {
            Transport::Streamable => None,
            Transport::Old { endpoint, .. } => endpoint.clone(),
        };
        self.send(purpose, Verb::Post, headers, body, to)
    }

    /// Opens a stream.
    pub fn get(&mut self, purpose: Purpose, mut headers: Vec<(String, String)>) -> ExchangeId {
        headers.push(("accept".into(), "text/event-stream".into()));
        self.send(purpose, Verb::Get, headers, Vec::new(), None)
    }

    /// Closes a session.
    pub fn delete(&mut self, session: String, headers: Vec<(String, String)>) {
        let purpose = Purpose::Farewell(session);
        self.send(purpose, Verb::Delete, headers, Vec::new(), None);
    }

    fn send(
        &mut self,
        purpose: Purpose,
        verb: Verb,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        to: Option<String>,
    ) -> ExchangeId {
        let exchange = self.next;
        self.next += 1;
        let opening = !self.is_old() && look(&body).method == "initialize";
        if opening {
            self.put(Output::Opening(exchange));
        }
        let one = HttpExchange {
            purpose,
            epoch: self.epoch,
            head: None,
            at: self.now,
            spent: None,
            elsewhere: to.is_some(),
            opening,
        };
        let before = self.exchanges.insert(exchange, one);
        debug_assert!(before.is_none(), "no name is given twice");
        self.put(Output::Send(Sending {
            exchange,
            verb,
            headers,
            body,
            to,
        }));
        exchange
    }

    /// Breaks an exchange off.
    pub fn close(&mut self, exchange: ExchangeId) {
        if let Some(one) = self.exchanges.remove(&exchange) {
            self.put(Output::Close(exchange));
            self.opened(exchange, one.opening, false);
        }
    }

    /// Breaks off those that match.
    pub fn close_each(&mut self, matches: impl Fn(&HttpExchange) -> bool) {
        let all = self.exchanges.iter();
        let all: Vec<ExchangeId> = all
            .filter(|(_, one)| matches(one))
            .map(|(id, _)| *id)
            .collect();
        for exchange in all {
            self.close(exchange);
        }
    }

    /// Breaks off those that have brought what they were for and do not end by themselves.
    pub fn close_spent(&mut self) {
        let now = self.now;
        self.close_each(|one| one.closes_at().is_some_and(|at| at <= now));
    }

    /// The head of an answer is there; none if it is not the first one, or not wanted any more.
    pub fn begun(&mut self, exchange: ExchangeId, head: &Head) -> Option<Begun> {
        let one = self.exchanges.get_mut(&exchange)?;
        if one.head.is_some() {
            return None;
        }
        one.head = Some(head.clone());
        Some(Begun {
            purpose: one.purpose.clone(),
            late: one.epoch < self.epoch,
            opening: core::mem::take(&mut one.opening),
        })
    }

    /// What became of an exchange that may have asked for a session is known, or never will be.
    pub fn opened(&mut self, exchange: ExchangeId, opening: bool, known: bool) {
        if opening {
            self.put(Output::Opened { exchange, known });
        }
    }

    /// The exchange has brought what it was for. Its stream may end by itself; if not, it is broken off soon.
    pub fn spend(&mut self, exchange: ExchangeId) {
        if let Some(one) = self.exchanges.get_mut(&exchange)
            && !matches!(one.purpose, Purpose::Old | Purpose::Listen)
        {
            one.spent = Some(self.now);
        }
    }

    /// The exchange is over: what it was.
    pub fn end(&mut self, exchange: ExchangeId, end: &End) -> Option<HttpExchange> {
        let one = self.exchanges.remove(&exchange)?;
        let known = matches!(end, End::Failed { unsent: true, .. });
        self.opened(exchange, one.opening, known);
        Some(one)
    }

    /// Nothing more of this exchange counts; it ends by itself.
    pub fn forget(&mut self, exchange: ExchangeId) {
        let one = self.exchanges.remove(&exchange);
        debug_assert!(one.is_none_or(|one| !one.opening), "its head was seen");
    }

    /// Stops waiting: sessions that are not closed yet stay noted as unclosed.
    pub fn abandon(&mut self) {
        for (exchange, one) in core::mem::take(&mut self.exchanges) {
            self.opened(exchange, one.opening, false);
            if let Purpose::Farewell(session) = one.purpose {
                let why = "it has not answered in time".into();
                self.put(Output::SessionUnclosed { session, why });
            }
        }
        self.put(Output::Done);
    }

    pub fn exchange(&self, exchange: ExchangeId) -> Option<&HttpExchange> {
        self.exchanges.get(&exchange)
    }

    /// What an exchange is for, unless that is a delivery: nothing that comes back belongs to one, and its line may be long
    /// and is not copied for each.
    pub fn aim(&self, exchange: ExchangeId) -> Option<Purpose> {
        let purpose = &self.exchanges.get(&exchange)?.purpose;
        (!matches!(purpose, Purpose::Deliver(_))).then(|| purpose.clone())
    }

    /// Whether this exchange is a step on the way to the session that is being opened.
    pub fn is_step(&self, exchange: ExchangeId) -> bool {
        let one = self.exchanges.get(&exchange);
        one.is_some_and(|one| one.epoch == self.epoch && one.spent.is_none())
    }

    pub fn any(&self, matches: impl Fn(&HttpExchange) -> bool) -> bool {
        self.exchanges.values().any(matches)
    }

    /// Since when the client's `initialized` is on its way.
    pub fn confirming_since(&self) -> Option<Moment> {
        let mut waiting = self.exchanges.values().filter(|one| one.head.is_none());
        waiting
            .find(|one| matches!(&one.purpose, Purpose::Deliver(one) if one.confirms()))
            .map(|one| one.at)
    }

    pub fn is_full(&self) -> bool {
        self.exchanges.len() >= limits::HTTP_EXCHANGES
    }

    pub fn wake_at(&self) -> Option<Moment> {
        self.exchanges
            .values()
            .filter_map(HttpExchange::closes_at)
            .min()
    }

    /// Whether the server speaks only the transport of 2024.
    pub fn is_old(&self) -> bool {
        matches!(self.transport, Transport::Old { .. })
    }

    /// The first POST was refused as a server of 2024 would: from now on it is spoken to as one.
    pub fn try_old(&mut self, refused: u16) {
        let endpoint = None;
        self.transport = Transport::Old { endpoint, refused };
        self.dial_old();
    }

    /// Opens the stream on which a server of 2024 names its endpoint.
    pub fn dial_old(&mut self) {
        self.lose_endpoint();
        // It is no message, so it goes to the URL.
        self.get(Purpose::Old, Vec::new());
    }

    /// The client begins anew: a server that has not named an endpoint yet is asked in the usual way again.
    pub fn stop_dialing(&mut self) {
        if let Transport::Old { endpoint: None, .. } = self.transport {
            self.close_each(|one| one.purpose == Purpose::Old);
            self.transport = Transport::Streamable;
        }
    }

    pub fn name_endpoint(&mut self, named: String) {
        if let Transport::Old { endpoint, .. } = &mut self.transport {
            *endpoint = Some(named);
        }
    }

    pub fn lose_endpoint(&mut self) {
        if let Transport::Old { endpoint, .. } = &mut self.transport {
            *endpoint = None;
        }
    }

    /// It is no server of 2024 either: the status with which it refused the first POST.
    pub fn give_up_old(&mut self) -> u16 {
        match core::mem::replace(&mut self.transport, Transport::Streamable) {
            Transport::Streamable => 404,
            Transport::Old { refused, .. } => refused,
        }
    }
}

impl HttpExchange {
    fn closes_at(&self) -> Option<Moment> {
        let spent = self.spent?;
        Some(spent.after_ms(limits::HTTP_SPENT_MS))
    }
}
