use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::http::lines::look;
use crate::message::frame::Kind;

mod chance;
mod unkind;

/// A bridge with a clock, and everything that it has put out.
struct Play {
    bridge: Bridge,
    now: Moment,
    said: Vec<String>,
    sent: Vec<Sending>,
    notes: Vec<(String, Option<String>)>,
    paid: Vec<String>,
    owed: Vec<String>,
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
            paid: vec![],
            owed: vec![],
            closed: vec![],
            told: vec![],
            openings: vec![],
            unknown: vec![],
            done: false,
            refuse_notes: false,
        }
    }

    /// With a session `s1` open and confirmed, and no stream for what comes unasked.
    fn open(retry: Retry) -> Self {
        let mut play = Self::new(retry);
        play.line(OPENING);
        let opening = play.last();
        play.head(opening, 200, Content::Json, Some("s1"));
        play.body(opening, OPENED);
        play.line(INITIALIZED);
        let confirm = play.last();
        play.accepted(confirm);
        let listen = play.last();
        assert_eq!(play.sending(listen).verb, Verb::Get);
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
                        Err("no space left on device".into())
                    } else {
                        self.notes.push((session.clone(), version));
                        Ok(())
                    };
                    self.bridge.handle(self.now, Input::Noted(session, result));
                }
                Output::Paid { session, .. } => self.paid.push(session),
                Output::Owed { session, .. } => self.owed.push(session),
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

#[test]
fn a_session_is_noted_before_the_client_sees_it() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    let opening = play.last();
    assert_eq!(play.header(opening, headers::SESSION), None);
    assert_eq!(play.header(opening, headers::VERSION), None);
    assert_eq!(
        play.header(opening, "accept"),
        Some("application/json, text/event-stream")
    );
    play.line(&list(1));
    assert_eq!(play.sent.len(), 1, "nothing passes before the opening");
    play.head(opening, 200, Content::Json, Some("s1"));
    assert_eq!(
        play.notes,
        [("s1".into(), Some("2025-11-25".into()))],
        "with the head already"
    );
    assert!(play.said.is_empty());
    play.body(opening, OPENED);
    assert_eq!(play.said, [OPENED]);
    assert_eq!(
        play.notes[1].1.as_deref(),
        Some("2025-06-18"),
        "and with the version that was agreed on"
    );
    let next = play.last();
    assert_eq!(play.method(next), "tools/list");
    assert_eq!(play.header(next, headers::SESSION), Some("s1"));
    assert_eq!(play.header(next, headers::VERSION), Some("2025-06-18"));
}

#[test]
fn a_session_that_cannot_be_noted_is_closed_and_not_shown() {
    let mut play = Play::new(Retry::Safe);
    play.refuse_notes = true;
    play.line(OPENING);
    let opening = play.last();
    play.line(&list(1));
    play.head(opening, 200, Content::Json, Some("s1"));
    let delete = play.last();
    assert_eq!(play.sending(delete).verb, Verb::Delete);
    assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
    play.body(opening, OPENED);
    play.status(delete, 200, "");
    assert_eq!(play.paid, ["s1"]);
    assert_eq!(play.said.len(), 2, "{:?}", play.said);
    assert!(
        play.said[0].contains("no space left on device; make room"),
        "{:?}",
        play.said
    );
}

#[test]
fn the_end_of_the_client_closes_the_session() {
    for (status, body, paid) in [
        (200, "", true),
        (202, "", true),
        (404, "", true),
        (405, "", true),
        (400, "Bad Request: no valid session", true),
        (400, "what?", false),
        (500, "", false),
    ] {
        let mut play = Play::open(Retry::Safe);
        play.give(Input::Eof);
        let delete = play.last();
        assert_eq!(play.sending(delete).verb, Verb::Delete);
        assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
        assert_eq!(play.header(delete, headers::VERSION), Some("2025-06-18"));
        assert!(!play.done);
        play.status(delete, status, body);
        assert_eq!(
            (play.paid.len(), play.owed.len()),
            (usize::from(paid), usize::from(!paid)),
            "{status}"
        );
        assert!(play.done);
    }
}

#[test]
fn a_server_that_does_not_answer_the_delete_is_not_waited_for_for_ever() {
    let mut play = Play::open(Retry::Safe);
    play.give(Input::Term);
    play.wait(limits::HTTP_FAREWELL_MS - 1);
    assert!(!play.done);
    play.wait(2);
    assert!(play.done);
    assert_eq!(play.owed, ["s1"], "it stays written down");
}

#[test]
fn what_is_in_flight_has_its_time_after_eof_and_none_after_a_signal() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let request = play.last();
    play.give(Input::Eof);
    assert_eq!(play.last(), request, "no delete yet");
    play.json(request, &result(1));
    assert_eq!(play.said, [result(1)]);
    assert_eq!(play.sending(play.last()).verb, Verb::Delete);

    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let request = play.last();
    play.give(Input::Eof);
    play.give(Input::Term);
    assert!(play.closed.contains(&request));
    assert_eq!(play.sending(play.last()).verb, Verb::Delete);
}

#[test]
fn a_session_that_appears_at_the_very_end_is_closed_too() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    let opening = play.last();
    play.give(Input::Term);
    assert!(!play.done);
    play.head(opening, 200, Content::Json, Some("late"));
    assert_eq!(play.notes[0].0, "late");
    let delete = play.last();
    assert_eq!(play.header(delete, headers::SESSION), Some("late"));
    play.status(delete, 200, "");
    assert_eq!(play.paid, ["late"]);
    assert!(play.done);
}

#[test]
fn a_lost_session_is_opened_again_unnoticed() {
    let mut play = Play::open(Retry::Safe);
    for line in [
        r#"{"id":"l","method":"logging/setLevel","params":{"level":"info"}}"#,
        r#"{"id":"u","method":"resources/subscribe","params":{"uri":"x:1"}}"#,
    ] {
        play.line(line);
        let id = String::from_utf8(look(line.as_bytes()).id.unwrap()).unwrap();
        play.json(play.last(), &format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    play.line(&call(1));
    let refused = play.last();
    play.line(&call(2));
    let other = play.last();
    play.said.clear();
    play.status(refused, 404, "gone");
    let greet = play.last();
    play.status(other, 404, "gone");
    assert_eq!(play.last(), greet, "opened once");
    let delete = play.sent.iter().find(|one| one.verb == Verb::Delete);
    let delete = delete.unwrap().exchange;
    assert_eq!(play.header(delete, headers::SESSION), Some("s1"));
    play.status(delete, 404, "gone");
    assert_eq!(play.paid, ["s1"]);
    assert_eq!(play.method(greet), "initialize");
    assert_eq!(play.header(greet, headers::SESSION), None);
    let id = String::from_utf8(look(&play.sending(greet).body).id.unwrap()).unwrap();
    play.line(&call(3));
    play.head(greet, 200, Content::Json, Some("s2"));
    play.body(greet, &OPENED.replace("\"id\":0", &format!("\"id\":{id}")));
    let confirm = play.last();
    assert_eq!(play.method(confirm), "notifications/initialized");
    play.accepted(confirm);
    let restored: Vec<ExchangeId> = play
        .sent
        .iter()
        .map(|one| one.exchange)
        .filter(|one| *one > confirm)
        .collect();
    assert_eq!(
        restored
            .iter()
            .map(|one| play.method(*one))
            .collect::<Vec<_>>(),
        ["logging/setLevel", "resources/subscribe"]
    );
    for one in &restored {
        let id = String::from_utf8(look(&play.sending(*one).body).id.unwrap()).unwrap();
        play.json(*one, &format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    let again: Vec<&Sending> = play
        .sent
        .iter()
        .filter(|one| one.exchange > restored[1])
        .collect();
    assert_eq!(again.len(), 3, "{again:?}");
    let again: Vec<ExchangeId> = again.iter().map(|one| one.exchange).collect();
    for one in again {
        assert_eq!(play.header(one, headers::SESSION), Some("s2"));
        let id = look(&play.sending(one).body).id.unwrap();
        let id: u32 = String::from_utf8(id).unwrap().parse().unwrap();
        play.json(one, &result(id));
    }
    let mut said = play.said.clone();
    said.sort();
    assert_eq!(
        said,
        [
            result(1),
            result(2),
            result(3),
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into(),
        ]
    );
    assert_eq!(
        play.notes
            .iter()
            .map(|(session, _)| session.as_str())
            .collect::<Vec<_>>()
            .last(),
        Some(&"s2")
    );
}

#[test]
fn a_request_that_loses_two_sessions_is_answered() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    for session in ["s2", "s3"] {
        let refused = play.last();
        play.status(refused, 404, "");
        if !play.said.iter().any(|line| line.contains("twice")) {
            let greet = play.last();
            let id = String::from_utf8(look(&play.sending(greet).body).id.unwrap()).unwrap();
            play.head(greet, 200, Content::Json, Some(session));
            play.body(
                greet,
                &OPENED
                    .replace("\"id\":0", &format!("\"id\":{id}"))
                    .replace("listChanged", "x"),
            );
            play.accepted(play.last());
        }
    }
    assert_eq!(play.said.len(), 1, "{:?}", play.said);
    assert!(play.said[0].contains("twice in a row"), "{:?}", play.said);
}

#[test]
fn a_server_that_says_it_with_400_is_understood() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    play.status(play.last(), 400, body);
    assert_eq!(play.method(play.last()), "initialize");
    assert!(play.said.is_empty());
}

#[test]
fn a_session_that_cannot_be_opened_again_is_told_and_tried_again() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    play.status(play.last(), 404, "");
    play.fails(play.last(), true);
    assert_eq!(play.said.len(), 1);
    assert!(
        play.said[0].contains("a new one could not be opened: h: connection refused"),
        "{:?}",
        play.said
    );
    play.line(&call(2));
    assert_eq!(play.method(play.last()), "initialize");
}

#[test]
fn a_broken_stream_with_ids_is_resumed() {
    let mut play = Play::open(Retry::Never);
    play.line(&call(1));
    let first = play.last();
    play.stream(first);
    play.event(first, Some("e1"), "");
    play.event(
        first,
        Some("e2"),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
    );
    play.fails(first, false);
    assert_eq!(play.said.len(), 1);
    play.wait(limits::HTTP_RETRY_MS);
    let resumed = play.last();
    assert_eq!(play.sending(resumed).verb, Verb::Get);
    assert_eq!(play.header(resumed, headers::LAST_EVENT), Some("e2"));
    assert_eq!(play.header(resumed, headers::SESSION), Some("s1"));
    play.fails(resumed, true);
    play.wait(2 * limits::HTTP_RETRY_MS);
    let resumed = play.last();
    play.stream(resumed);
    play.event(resumed, Some("e3"), &result(1));
    play.give(Input::End(resumed, End::Done));
    assert_eq!(play.said[1..], [result(1)]);
}

#[test]
fn a_stream_that_is_never_there_again_is_given_up() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let first = play.last();
    play.stream(first);
    play.event(first, Some("e1"), "");
    play.fails(first, false);
    let mut failed = first;
    for _ in 0..1_000 {
        play.wait(limits::HTTP_RETRY_MS);
        if play.last() > failed {
            failed = play.last();
            play.fails(failed, true);
        }
    }
    assert_eq!(play.said.len(), 1, "{:?}", play.said);
    assert!(
        play.said[0].contains("may or may not have taken effect"),
        "it had begun to answer: {:?}",
        play.said
    );
    let tries = play.sent.iter().filter(|one| one.verb == Verb::Get).count();
    assert!((5..20).contains(&tries), "{tries}");
}

#[test]
fn a_broken_stream_without_ids_is_settled_by_the_rules() {
    for (retry, line, again) in [
        (Retry::Safe, list(1), true),
        (Retry::Safe, call(1), false),
        (Retry::Annotated, call(1), true),
        (Retry::Never, list(1), false),
    ] {
        let mut play = Play::open(retry);
        play.line(&list(9));
        play.json(
            play.last(),
            r#"{"id":9,"result":{"tools":[{"name":"t","annotations":{"readOnlyHint":true}}]}}"#,
        );
        play.said.clear();
        play.line(&line);
        let first = play.last();
        play.stream(first);
        play.fails(first, false);
        play.wait(1_000);
        assert_eq!(play.last() != first, again, "{line}");
        if again {
            play.fails(play.last(), false);
            play.wait(5_000);
        }
        assert_eq!(play.said.len(), 1, "{line}: {:?}", play.said);
        assert!(
            play.said[0].contains("did not finish its answer"),
            "{:?}",
            play.said
        );
    }
}

#[test]
fn what_the_server_has_not_seen_is_tried_a_few_times() {
    let mut play = Play::open(Retry::Never);
    play.line(&call(1));
    for _ in 0..=limits::HTTP_AGAIN_MS.len() {
        assert!(play.said.is_empty());
        play.fails(play.last(), true);
        play.wait(1_000);
    }
    assert_eq!(play.said.len(), 1);
    assert!(
        play.said[0].contains("cannot be reached: h: connection refused; tools/call was not sent"),
        "{:?}",
        play.said
    );
    play.line(&call(2));
    play.fails(play.last(), true);
    play.wait(1_000);
    play.json(play.last(), &result(2));
    assert_eq!(play.said[1..], [result(2)]);
}

#[test]
fn refusals_are_told_with_the_servers_own_words_where_there_are_any() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    play.status(play.last(), 401, "<html>secret</html>");
    assert!(
        play.said[0].contains("HTTP 401 (unauthorized)"),
        "{:?}",
        play.said
    );
    assert!(!play.said[0].contains("secret"));
    play.line(&call(2));
    play.status(
        play.last(),
        400,
        r#"{"error":{"code":-32602,"message":"no"}}"#,
    );
    assert_eq!(
        play.said[1],
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}"#
    );
    play.line(&call(3));
    let page = play.last();
    play.head(page, 200, Content::Other("text/html".into()), None);
    play.body(page, "<html>");
    assert!(
        play.said[2].contains("`text/html` where JSON"),
        "{:?}",
        play.said
    );
    play.line(&call(4));
    play.give(Input::End(play.last(), End::TooLong));
    assert!(play.said[3].contains("more than 16 MiB"), "{:?}", play.said);
    play.line(&call(5));
    let accepted = play.last();
    play.accepted(accepted);
    assert!(
        play.said[4].contains("without an answer"),
        "{:?}",
        play.said
    );
    play.line(&list(6));
    play.status(play.last(), 503, "");
    play.wait(1_000);
    play.json(play.last(), &result(6));
    assert_eq!(play.said[5], result(6), "a passing trouble is waited for");
}

#[test]
fn only_the_first_answer_counts() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let request = play.last();
    play.stream(request);
    for id in [7, 1, 1] {
        play.event(request, None, &result(id));
    }
    play.give(Input::End(request, End::Done));
    assert_eq!(play.said, [result(1)]);
    play.line(&call(2));
    play.json(play.last(), &format!("[{},\n{}]", result(2), result(2)));
    assert_eq!(play.said[1..], [result(2)]);
}

#[test]
fn a_stream_that_stays_open_after_its_answer_is_broken_off() {
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let request = play.last();
    play.stream(request);
    play.event(request, None, &result(1));
    play.wait(limits::HTTP_SPENT_MS);
    assert!(play.closed.contains(&request));
}

#[test]
fn questions_of_the_server_reach_the_client_and_its_answers_the_server() {
    let mut play = Play::open(Retry::Annotated);
    play.line(&call(1));
    let request = play.last();
    play.stream(request);
    let question = r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}"#;
    play.event(request, None, question);
    assert_eq!(play.said, [question]);
    play.line(r#"{"jsonrpc":"2.0","id":5,"result":{"x":1}}"#);
    let answer = play.last();
    assert_eq!(
        play.sending(answer).body,
        br#"{"jsonrpc":"2.0","id":5,"result":{"x":1}}"#
    );
    play.accepted(answer);
    play.line(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert_eq!(play.last(), answer, "nobody asks any more");
}

#[test]
fn the_stream_for_what_comes_unasked_is_kept_open() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    let opening = play.last();
    play.head(opening, 200, Content::Json, Some("s1"));
    play.body(opening, OPENED);
    play.line(INITIALIZED);
    play.accepted(play.last());
    let listen = play.last();
    assert_eq!(play.header(listen, "accept"), Some("text/event-stream"));
    play.stream(listen);
    let news = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    play.event(listen, Some("n1"), news);
    assert_eq!(play.said.last().map(String::as_str), Some(news));
    play.give(Input::End(listen, End::Done));
    play.wait(limits::HTTP_RETRY_MS);
    let again = play.last();
    assert_eq!(play.header(again, headers::LAST_EVENT), Some("n1"));
    play.fails(again, true);
    play.wait(limits::HTTP_RETRY_MOST_MS);
    let third = play.last();
    assert!(third > again);
    play.status(third, 404, "");
    assert_eq!(
        play.method(play.last()),
        "initialize",
        "the server was restarted"
    );
}

fn modern(id: u32, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

#[test]
fn modern_requests_carry_their_headers_and_no_session() {
    let mut play = Play::new(Retry::Safe);
    play.line(&modern(1, "server/discover", ""));
    let discover = play.last();
    assert_eq!(
        play.header(discover, headers::METHOD),
        Some("server/discover")
    );
    assert_eq!(play.header(discover, headers::VERSION), Some("2026-07-28"));
    play.head(discover, 200, Content::Json, Some("never"));
    play.body(discover, &result(1));
    play.line(&modern(3, "tools/list", ""));
    let unmarked = r#"{"id":3,"result":{"tools":[{"name":"t","inputSchema":{}}]}}"#;
    play.json(play.last(), unmarked);
    play.line(&modern(
        2,
        "tools/call",
        r#""name":"t","arguments":{"a":"x"},"#,
    ));
    let request = play.last();
    assert_eq!(play.header(request, headers::NAME), Some("t"));
    assert_eq!(play.header(request, headers::SESSION), None);
    let mismatch = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"x"}}"#;
    play.status(request, 400, mismatch);
    let refresh = play.last();
    assert_eq!(play.method(refresh), "tools/list");
    assert_eq!(play.header(refresh, headers::VERSION), Some("2026-07-28"));
    play.json(
        refresh,
        r#"{"id":"x","result":{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}}"#,
    );
    let again = play.last();
    assert_eq!(play.header(again, "mcp-param-a"), Some("x"));
    play.status(again, 400, mismatch);
    assert_eq!(play.said, [result(1), unmarked.into(), mismatch.into()]);
    play.give(Input::Eof);
    assert!(play.done, "there is nothing to close");
}

#[test]
fn a_modern_call_waits_for_a_tool_list_that_nobody_has_asked_for() {
    let called = |play: &mut Play, id: u32| {
        let name = r#""name":"t","arguments":{"a":"x"},"#;
        play.line(&modern(id, "tools/call", name));
        play.last()
    };
    // The bridge before this one may have shown it to the client.
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    assert_eq!(play.method(list), "tools/list");
    play.json(
        list,
        r#"{"id":"x","result":{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}}"#,
    );
    let call = play.last();
    assert_eq!(play.method(call), "tools/call");
    assert_eq!(play.header(call, "mcp-param-a"), Some("x"));
    play.json(call, &result(1));
    let next = called(&mut play, 2);
    assert_eq!(play.method(next), "tools/call", "it is known now");
    assert_eq!(play.said, [result(1)]);
    // A server that has none is called all the same, and one whose call was taken back meanwhile is not.
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    play.json(list, r#"{"id":"x","error":{"code":-32601,"message":"no"}}"#);
    assert_eq!(play.method(play.last()), "tools/call");
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    play.json(list, r#"{"id":"x","result":{"tools":[]}}"#);
    assert_eq!(play.last(), list, "nothing was sent");
    assert!(play.said.is_empty());
}

#[test]
fn a_modern_cancel_is_the_end_of_the_stream_and_a_legacy_one_a_message() {
    let mut play = Play::new(Retry::Safe);
    play.line(&modern(1, "prompts/get", r#""name":"t","#));
    let request = play.last();
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(play.closed, [request]);
    assert_eq!(play.last(), request);
    let mut play = Play::open(Retry::Safe);
    play.line(&call(1));
    let request = play.last();
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(play.method(play.last()), "notifications/cancelled");
    play.json(request, &result(1));
    assert!(play.said.is_empty(), "nobody waits for it");
}

#[test]
fn an_old_server_is_found_and_spoken_to_at_its_endpoint() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.status(play.last(), 405, "");
    let stream = play.last();
    assert_eq!(play.sending(stream).verb, Verb::Get);
    play.stream(stream);
    let endpoint = sse::Event {
        name: "endpoint".into(),
        id: None,
        retry_ms: None,
        data: b"/messages?s=1".to_vec(),
    };
    play.give(Input::Event(stream, endpoint.clone()));
    let opening = play.last();
    assert_eq!(play.sending(opening).to.as_deref(), Some("/messages?s=1"));
    play.accepted(opening);
    play.event(stream, None, OPENED);
    assert_eq!(play.said, [OPENED]);
    play.line(INITIALIZED);
    play.accepted(play.last());
    play.line(&call(1));
    play.accepted(play.last());
    play.event(stream, None, &result(1));
    play.line(&call(2));
    play.accepted(play.last());
    play.line(&list(3));
    let third = play.last();
    play.accepted(third);
    play.give(Input::End(stream, End::Done));
    play.wait(1_000);
    assert_eq!(play.said.len(), 3, "{:?}", play.said);
    assert!(
        play.said[2].contains("the server ended its event stream"),
        "{:?}",
        play.said
    );
    // The list may be asked for again, in a new session.
    let stream = play.last();
    assert_eq!(play.sending(stream).verb, Verb::Get);
    play.stream(stream);
    play.give(Input::Event(stream, endpoint));
    let greet = play.last();
    let id = String::from_utf8(look(&play.sending(greet).body).id.unwrap()).unwrap();
    play.accepted(greet);
    play.event(
        stream,
        None,
        &OPENED.replace("\"id\":0", &format!("\"id\":{id}")),
    );
    play.accepted(play.last());
    let again = play.last();
    assert_eq!(play.method(again), "tools/list");
    play.accepted(again);
    play.event(stream, None, &result(3));
    assert_eq!(play.said.last(), Some(&result(3)));
    play.give(Input::Eof);
    assert!(play.done);
}

#[test]
fn a_server_of_neither_kind_is_told_with_its_first_refusal() {
    let mut play = Play::new(Retry::Safe);
    play.line(OPENING);
    play.status(play.last(), 404, "nothing here");
    play.status(play.last(), 404, "nothing here");
    assert_eq!(play.said.len(), 1);
    assert!(
        play.said[0].contains("HTTP 404 (not found)"),
        "{:?}",
        play.said
    );
    assert_eq!(look(play.said[0].as_bytes()).kind, Kind::Error);
}

#[test]
fn a_client_that_begins_anew_leaves_no_session_behind() {
    let mut play = Play::open(Retry::Safe);
    play.line(&OPENING.replace("\"id\":0", "\"id\":50"));
    let delete = &play.sent[play.sent.len() - 2];
    assert_eq!(delete.verb, Verb::Delete);
    assert_eq!(play.method(play.last()), "initialize");
}

#[test]
fn a_line_that_is_too_long_is_answered() {
    let mut play = Play::open(Retry::Safe);
    play.give(Input::LongLine(Some(b"7".to_vec()), "tools/call".into()));
    assert!(
        play.said[0].contains("longer than 16 MiB"),
        "{:?}",
        play.said
    );
}
