//! Any story keeps the promises: one answer for each request, and no session that is neither closed nor noted as unclosed.
//! guards: In any order of events, each request is answered once and each session is closed or recorded as unclosed.

use alloc::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// What the server, or the network, does to the oldest or the newest exchange that is open.
#[derive(Clone, Debug)]
enum Act {
    Ask(u8),
    /// The client begins anew.
    Begin,
    Cancel(u8),
    Answer {
        newest: bool,
    },
    Stream {
        newest: bool,
        with_ids: bool,
        ends: bool,
    },
    Status {
        newest: bool,
        status: u16,
    },
    Fail {
        newest: bool,
        unsent: bool,
    },
    Question,
    Pass(u16),
    NotesFail(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..3u8).prop_map(Act::Ask),
        1 => Just(Act::Begin),
        1 => any::<u8>().prop_map(Act::Cancel),
        8 => any::<bool>().prop_map(|newest| Act::Answer { newest }),
        3 => any::<(bool, bool, bool)>().prop_map(|(newest, with_ids, ends)| Act::Stream { newest, with_ids, ends }),
        3 => (any::<bool>(), prop_oneof![Just(404u16), Just(400), Just(405), Just(202), Just(500), Just(503), Just(401)])
            .prop_map(|(newest, status)| Act::Status { newest, status }),
        3 => any::<(bool, bool)>().prop_map(|(newest, unsent)| Act::Fail { newest, unsent }),
        1 => Just(Act::Question),
        3 => (0..3_000u16).prop_map(Act::Pass),
        1 => any::<bool>().prop_map(Act::NotesFail),
    ];
    proptest::collection::vec(act, 0..80)
}

struct Story {
    play: Play,
    asked: BTreeSet<u32>,
    cancelled: BTreeSet<u32>,
    next: u32,
    sessions: BTreeSet<String>,
    ended: BTreeSet<ExchangeId>,
    /// Exchanges whose answer has begun.
    begun: BTreeSet<ExchangeId>,
}

impl Story {
    fn open(&self) -> Vec<ExchangeId> {
        let sent = self.play.sent.iter().map(|one| one.exchange);
        sent.filter(|one| !self.ended.contains(one) && !self.play.closed.contains(one))
            .collect()
    }

    fn pick(&self, newest: bool) -> Option<ExchangeId> {
        let open = self.open();
        if newest {
            open.last().copied()
        } else {
            open.first().copied()
        }
    }

    fn end(&mut self, exchange: ExchangeId, end: End) {
        self.ended.insert(exchange);
        self.play.give(Input::End(exchange, end));
    }

    /// A good server's answer to an exchange.
    fn answer(&mut self, exchange: ExchangeId) {
        let sending = self.play.sending(exchange).clone();
        let seen = look(&sending.body);
        if !self.begun.insert(exchange) {
            // The rest of a stream.
            if let Some(id) = seen.id.filter(|_| !seen.method.is_empty()) {
                let id = String::from_utf8(id).unwrap();
                let answer = OPENED.replace("\"id\":0", &format!("\"id\":{id}"));
                self.play.event(exchange, None, &answer);
            }
            self.end(exchange, End::Done);
            return;
        }
        match (sending.verb, seen.id) {
            (Verb::Post, Some(id)) if !seen.method.is_empty() => {
                let id = String::from_utf8(id).unwrap();
                let opens = seen.method == "initialize";
                let session = opens.then(|| format!("s{exchange}"));
                self.sessions.extend(session.clone());
                self.play
                    .head(exchange, 200, Content::Json, session.as_deref());
                let body = if opens {
                    OPENED.replace("\"id\":0", &format!("\"id\":{id}"))
                } else {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
                };
                self.play.give(Input::Body(exchange, body.into()));
            }
            (Verb::Post, _) => self
                .play
                .head(exchange, 202, Content::Other(String::new()), None),
            (Verb::Get, _) => self
                .play
                .head(exchange, 405, Content::Other(String::new()), None),
            (Verb::Delete, _) => self
                .play
                .head(exchange, 200, Content::Other(String::new()), None),
        }
        self.end(exchange, End::Done);
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Ask(kind) => {
                self.next += 1;
                self.asked.insert(self.next);
                let line = match kind {
                    0 => call(self.next),
                    1 => list(self.next),
                    _ => format!(
                        r#"{{"id":{},"method":"logging/setLevel","params":{{"level":"info"}}}}"#,
                        self.next
                    ),
                };
                self.play.line(&line);
            }
            Act::Begin => {
                self.next += 1;
                self.asked.insert(self.next);
                let id = format!("\"id\":{}", self.next);
                self.play.line(&OPENING.replace("\"id\":0", &id));
            }
            Act::Cancel(which) => {
                let id = 1 + u32::from(which) % self.next.max(1);
                self.cancelled.insert(id);
                self.play.line(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                ));
            }
            Act::Answer { newest } => {
                if let Some(exchange) = self.pick(newest) {
                    self.answer(exchange);
                }
            }
            Act::Stream {
                newest,
                with_ids,
                ends,
            } => {
                if let Some(exchange) = self.pick(newest) {
                    self.begun.insert(exchange);
                    self.play.stream(exchange);
                    let id = with_ids.then(|| format!("e{exchange}"));
                    self.play.event(exchange, id.as_deref(), "");
                    if ends {
                        self.end(exchange, End::Done);
                    }
                }
            }
            Act::Status { newest, status } => {
                if let Some(exchange) = self.pick(newest) {
                    if self.begun.insert(exchange) {
                        self.play.status(exchange, status, "session");
                        self.ended.insert(exchange);
                    } else {
                        self.end(exchange, End::Done);
                    }
                }
            }
            Act::Fail { newest, unsent } => {
                if let Some(exchange) = self.pick(newest) {
                    let why = "x".into();
                    self.end(exchange, End::Failed { unsent, why });
                }
            }
            Act::Question => {
                if let Some(exchange) = self.pick(true) {
                    self.play
                        .event(exchange, None, r#"{"id":1,"method":"roots/list"}"#);
                }
            }
            Act::Pass(ms) => self.play.wait(u64::from(ms)),
            Act::NotesFail(fail) => self.play.refuse_notes = fail,
        }
    }

    fn answers(&self) -> BTreeMap<u32, usize> {
        let mut answers = BTreeMap::new();
        for line in &self.play.said {
            let seen = look(line.as_bytes());
            if matches!(seen.kind, Kind::Response | Kind::Error) {
                let id = String::from_utf8(seen.id.unwrap()).unwrap();
                *answers.entry(id.parse().unwrap()).or_default() += 1;
            }
        }
        answers
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_story_keeps_the_promises(acts in acts(), kind in 0..3u8) {
        let retry = [Retry::Never, Retry::Safe, Retry::Annotated][usize::from(kind)];
        let mut story = Story {
            play: Play::new(retry),
            asked: BTreeSet::from([0]),
            cancelled: BTreeSet::new(),
            next: 0,
            sessions: BTreeSet::new(),
            ended: BTreeSet::new(),
            begun: BTreeSet::new(),
        };
        story.play.line(OPENING);
        for act in acts {
            story.act(&act);
            prop_assert!(story.answers().values().all(|count| *count == 1));
        }
        // From here on the server is well.
        story.play.refuse_notes = false;
        for _ in 0..500 {
            match story.pick(false) {
                Some(exchange) => story.answer(exchange),
                None if story.play.bridge.in_flight() == 0 => break,
                None => story.play.wait(60_000),
            }
        }
        for id in &story.asked {
            let count = story.answers().get(id).copied().unwrap_or(0);
            let due = usize::from(!story.cancelled.contains(id));
            prop_assert!(count == 1 || count == due, "request {} has {} answers", id, count);
        }
        story.play.give(Input::Eof);
        for _ in 0..50 {
            if let Some(exchange) = story.pick(false) {
                story.answer(exchange);
            }
        }
        story.play.wait(60_000);
        prop_assert!(story.play.done);
        for session in &story.sessions {
            let closed = story.play.sessions_closed.contains(session) || story.play.sessions_unclosed.contains(session);
            prop_assert!(closed, "session {} is neither closed nor noted as unclosed", session);
        }
    }
}
