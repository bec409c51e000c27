//! One server for many clients: the modern era, and [`super::shared_server`] with what the legacy era needs beside it.
//!
//! Ids and progress tokens are only unique per client, so each request gets an id of ours, which is its progress token
//! and the name of its subscription too; on the way back each is replaced by what the client wrote. A rewrite replaces
//! the span of one value and leaves every other byte. A log message names no request: it goes to the one request that
//! asked for logs, and is dropped if there are several.
//!
//! Invariants:
//! - An id of ours has 128 random bits of its own. A client that makes the server say an id that it guessed, or one that
//!   it learned from an answer to itself, reaches no request of another client.
//! - What a client gets in the place of an answer has one id, its own. An answer that names two ids belongs to the first,
//!   as in the keeper, and becomes an error.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope::{Members, SUBSCRIPTION_KEY};
use mainstay_protocol::message::frame::{Id, Kind, Scanner};
use mainstay_protocol::message::settle;

use super::framed;
use super::posted::{Kind as Sort, Posted};
use super::words;

/// What a line of the server is, and which request it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relabelled {
    /// The answer to this request, which is over.
    Last(u64, Vec<u8>),
    /// Something on the way to it.
    On(u64, Vec<u8>),
    /// The answer to a question of ours, which is over.
    Ours(u64, Vec<u8>),
    /// It belongs to no request.
    NoRequest,
}

/// The requests that are not answered yet.
#[derive(Clone, Debug)]
pub struct Relabel {
    draw: Draw,
    next: u64,
    open: BTreeMap<u64, Open>,
}

/// Draws random bits that no client can guess.
pub type Draw = fn() -> u128;

#[derive(Clone, Debug)]
struct Open {
    /// Our id.
    label: Vec<u8>,
    whose: Whose,
    listens: bool,
    logs: bool,
}

#[derive(Clone, Debug)]
enum Whose {
    Client { id: Vec<u8>, token: Option<Vec<u8>> },
    Ours,
}

impl Relabel {
    /// A table without requests.
    pub fn new(draw: Draw) -> Self {
        Self {
            draw,
            next: 0,
            open: BTreeMap::new(),
        }
    }

    /// A client's request: its number, and the line that the server gets.
    pub fn asked(&mut self, posted: &Posted<'_>, line: &[u8]) -> Option<(u64, Vec<u8>)> {
        let Sort::Request(id) = posted.kind else {
            return None;
        };
        let token = posted.progress_token();
        let own = self.label();
        let mut spans = Vec::with_capacity(2);
        spans.push((id, own.as_slice()));
        spans.extend(token.map(|token| (token, own.as_slice())));
        let rewritten = spliced(line, spans)?;
        let open = Open {
            label: own,
            whose: Whose::Client {
                id: id.to_vec(),
                token: token.map(<[u8]>::to_vec),
            },
            listens: posted.method == "subscriptions/listen",
            logs: posted.wants_log(),
        };
        Some((self.insert(open), rewritten))
    }

    /// A question of ours: its number and its id.
    pub fn ask(&mut self) -> (u64, Vec<u8>) {
        let label = self.label();
        let open = Open {
            label: label.clone(),
            whose: Whose::Ours,
            listens: false,
            logs: false,
        };
        (self.insert(open), label)
    }

    /// An id of ours for the next request. It is no number, and it cannot be taken for one.
    fn label(&self) -> Vec<u8> {
        format!("\"h{}-{:032x}\"", self.next, (self.draw)()).into_bytes()
    }

    fn insert(&mut self, open: Open) -> u64 {
        let key = self.next;
        self.next += 1;
        self.open.insert(key, open);
        key
    }

    /// The open request that has this id of ours.
    fn labelled(&self, label: &[u8]) -> Option<u64> {
        let rest = label.strip_prefix(b"\"h")?;
        let digits = rest.split(|&byte| byte == b'-').next()?;
        let key = core::str::from_utf8(digits).ok()?.parse().ok()?;
        (self.open.get(&key)?.label == label).then_some(key)
    }

    /// The client waits for this request no more: what the server is told. A late answer is dropped.
    pub fn cancel(&mut self, key: u64) -> Option<Vec<u8>> {
        let open = self.open.remove(&key)?;
        Some(settle::cancel(
            &open.label,
            "no client waits for the answer",
        ))
    }

    /// How many requests of clients are not answered.
    pub fn len(&self) -> usize {
        let clients = |one: &&Open| matches!(one.whose, Whose::Client { .. });
        self.open.values().filter(clients).count()
    }

    /// Whether all are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests of clients that only listen: number and the client's id.
    pub fn listening(&self) -> Vec<(u64, Vec<u8>)> {
        let each = self.open.iter().filter(|(_, one)| one.listens);
        each.filter_map(|(key, one)| match &one.whose {
            Whose::Client { id, .. } => Some((*key, id.clone())),
            Whose::Ours => None,
        })
        .collect()
    }

    /// Takes every request that is not answered, with the client's id and whether it listens.
    pub fn drain(&mut self) -> Vec<(u64, Option<Vec<u8>>, bool)> {
        let open = core::mem::take(&mut self.open);
        let each = open.into_iter().map(|(key, one)| match one.whose {
            Whose::Client { id, .. } => (key, Some(id), one.listens),
            Whose::Ours => (key, None, one.listens),
        });
        each.collect()
    }

    /// A line of the server.
    pub fn heard(&mut self, line: &[u8]) -> Relabelled {
        let mut scanner = Scanner::default();
        let frame = framed(&mut scanner, line);
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => self.answered(id, line),
            (Kind::Notification, _) => {
                let method = frame.method.as_deref().unwrap_or("");
                self.notified(method, line).unwrap_or(Relabelled::NoRequest)
            }
            // A modern server asks nothing.
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
            ) => Relabelled::NoRequest,
        }
    }

    fn answered(&mut self, id: &[u8], line: &[u8]) -> Relabelled {
        let Some((key, open)) = self
            .labelled(id)
            .and_then(|key| Some((key, self.open.remove(&key)?)))
        else {
            return Relabelled::NoRequest;
        };
        let client = match open.whose {
            Whose::Ours => return Relabelled::Ours(key, line.to_vec()),
            Whose::Client { id, .. } => id,
        };
        let Some(message) = Members::of_line(line) else {
            return Relabelled::Last(key, refused(&client));
        };
        let Some(id) = message.get("id") else {
            return Relabelled::Last(key, refused(&client));
        };
        let mut spans = Vec::with_capacity(2);
        spans.push((id.get().as_bytes(), client.as_slice()));
        let meta = message
            .object("result")
            .and_then(|result| result.object("_meta"));
        if let Some(tag) = meta.and_then(|meta| meta.get(SUBSCRIPTION_KEY))
            && tag.get().as_bytes() == open.label
        {
            spans.push((tag.get().as_bytes(), client.as_slice()));
        }
        let answer = spliced(line, spans).unwrap_or_else(|| refused(&client));
        Relabelled::Last(key, answer)
    }

    fn notified(&mut self, method: &str, line: &[u8]) -> Option<Relabelled> {
        let params = Members::of_line(line)?.object("params");
        if method == "notifications/message" {
            let mut asked = self.open.iter().filter(|(_, one)| one.logs);
            let (key, _) = asked.next()?;
            return asked
                .next()
                .is_none()
                .then(|| Relabelled::On(*key, line.to_vec()));
        }
        let params = params?;
        if method == "notifications/cancelled" {
            // The end of a subscription, in the words of a pipe.
            let key = self.labelled(params.get("requestId")?.get().as_bytes())?;
            let open = self.open.get(&key).filter(|one| one.listens)?;
            let Whose::Client { id, .. } = &open.whose else {
                return None;
            };
            let end = words::listened(id);
            self.open.remove(&key);
            return Some(Relabelled::Last(key, end));
        }
        let tag = if method == "notifications/progress" {
            params.get("progressToken")?.get().as_bytes()
        } else {
            params
                .object("_meta")?
                .get(SUBSCRIPTION_KEY)?
                .get()
                .as_bytes()
        };
        let key = self.labelled(tag)?;
        match &self.open.get(&key)?.whose {
            Whose::Ours => None,
            Whose::Client { id, token } => {
                let own = if method == "notifications/progress" {
                    token.as_ref()?
                } else {
                    id
                };
                let line = spliced(line, alloc::vec![(tag, own.as_slice())])?;
                Some(Relabelled::On(key, line))
            }
        }
    }
}

fn refused(id: &[u8]) -> Vec<u8> {
    let problem = "the server's answer could not be read";
    words::error(Some(id), words::Code::Internal, problem, None)
}

/// The line with new values in the place of some that borrow from it.
pub(super) fn spliced(line: &[u8], mut spans: Vec<(&[u8], &[u8])>) -> Option<Vec<u8>> {
    let start = |old: &[u8]| (old.as_ptr() as usize).checked_sub(line.as_ptr() as usize);
    spans.sort_by_key(|(old, _)| old.as_ptr() as usize);
    let more: usize = spans.iter().map(|(_, new)| new.len()).sum();
    let mut out = Vec::with_capacity(line.len() + more);
    let mut done = 0;
    for (old, new) in spans {
        let from = start(old)?;
        out.extend_from_slice(line.get(done..from)?);
        out.extend_from_slice(new);
        done = from + old.len();
    }
    out.extend_from_slice(line.get(done..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn ask(relabel: &mut Relabel, body: &Value) -> (u64, Value) {
        let body = serde_json::to_vec(body).unwrap();
        let (key, line) = relabel.asked(&Posted::read(&body).unwrap(), &body).unwrap();
        (key, serde_json::from_slice(&line).unwrap())
    }

    fn hear(relabel: &mut Relabel, line: &Value) -> Relabelled {
        relabel.heard(&serde_json::to_vec(line).unwrap())
    }

    fn own(key: u64) -> &'static str {
        format!("h{key}-{:032x}", 0xA).leak()
    }

    fn value(line: &[u8]) -> Value {
        serde_json::from_slice(line).unwrap()
    }

    #[test]
    fn two_clients_with_the_same_id_and_token() {
        let mut relabel = Relabel::new(|| 0xA);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": 1}}});
        let (one, first) = ask(&mut relabel, &body);
        let (other, second) = ask(&mut relabel, &body);
        assert_eq!(first["id"], own(0));
        assert_eq!(second["params"]["_meta"]["progressToken"], own(1));
        assert_eq!(relabel.len(), 2);
        let progress = |token: &str| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let Relabelled::On(key, line) = hear(&mut relabel, &progress(own(1))) else {
            panic!("it belongs to no request");
        };
        assert_eq!(
            (key, &value(&line)["params"]["progressToken"]),
            (other, &json!(1))
        );
        let Relabelled::Last(key, line) = hear(
            &mut relabel,
            &json!({"jsonrpc": "2.0", "id": own(0), "result": {"a": "h0"}}),
        ) else {
            panic!("it belongs to no request");
        };
        assert_eq!(
            (key, value(&line)),
            (
                one,
                json!({"jsonrpc": "2.0", "id": 1, "result": {"a": "h0"}})
            )
        );
        assert_eq!(
            hear(
                &mut relabel,
                &json!({"jsonrpc": "2.0", "id": own(0), "result": {}})
            ),
            Relabelled::NoRequest
        );
        assert_eq!(hear(&mut relabel, &progress(own(0))), Relabelled::NoRequest);
    }

    #[test]
    fn a_subscription_has_its_clients_name() {
        let mut relabel = Relabel::new(|| 0xA);
        let (key, line) = ask(
            &mut relabel,
            &json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {}}),
        );
        assert_eq!(line["id"], own(0));
        let tagged = |method: &str, tag: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": {SUBSCRIPTION_KEY: tag}}});
        let Relabelled::On(to, line) = hear(
            &mut relabel,
            &tagged("notifications/tools/list_changed", own(0)),
        ) else {
            panic!("it belongs to no request");
        };
        assert_eq!(
            (to, &value(&line)["params"]["_meta"][SUBSCRIPTION_KEY]),
            (key, &json!("l"))
        );
        assert_eq!(
            hear(
                &mut relabel,
                &tagged("notifications/tools/list_changed", own(9))
            ),
            Relabelled::NoRequest
        );
        let end = json!({"jsonrpc": "2.0", "id": own(0), "result": {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: own(0)}}});
        let Relabelled::Last(_, line) = hear(&mut relabel, &end) else {
            panic!("it belongs to no request");
        };
        assert_eq!(value(&line)["id"], "l");
        assert_eq!(value(&line)["result"]["_meta"][SUBSCRIPTION_KEY], "l");
    }

    #[test]
    fn a_subscription_that_the_server_cancels_ends_with_a_result() {
        let mut relabel = Relabel::new(|| 0xA);
        let (key, _) = ask(
            &mut relabel,
            &json!({"jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen"}),
        );
        let (call, _) = ask(
            &mut relabel,
            &json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call"}),
        );
        let cancelled = |id: &str| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        let Relabelled::Last(to, line) = hear(&mut relabel, &cancelled(own(0))) else {
            panic!("it belongs to no request");
        };
        assert_eq!(
            (to, &value(&line)["result"]["resultType"]),
            (key, &json!("complete"))
        );
        assert_eq!(
            hear(&mut relabel, &cancelled(own(1))),
            Relabelled::NoRequest,
            "calls are answered"
        );
        let told = relabel.cancel(call).unwrap();
        assert_eq!(value(&told)["params"]["requestId"], own(1));
        assert_eq!(relabel.cancel(call), None);
        assert_eq!(
            hear(
                &mut relabel,
                &json!({"jsonrpc": "2.0", "id": own(1), "result": {}})
            ),
            Relabelled::NoRequest
        );
    }

    #[test]
    fn a_log_message_goes_to_its_caller_or_is_dropped() {
        let mut relabel = Relabel::new(|| 0xA);
        let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
        let with = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": {"io.modelcontextprotocol/logLevel": "info"}}});
        ask(
            &mut relabel,
            &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}),
        );
        assert_eq!(hear(&mut relabel, &log), Relabelled::NoRequest);
        let (key, _) = ask(&mut relabel, &with);
        assert!(matches!(hear(&mut relabel, &log), Relabelled::On(to, _) if to == key));
        ask(&mut relabel, &with);
        assert_eq!(hear(&mut relabel, &log), Relabelled::NoRequest);
    }

    #[test]
    fn questions_of_ours_stay_with_us() {
        let mut relabel = Relabel::new(|| 0xA);
        let (key, id) = relabel.ask();
        assert_eq!(id, format!("\"{}\"", own(0)).into_bytes());
        assert!(relabel.is_empty());
        let line = format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#, own(0)).into_bytes();
        assert_eq!(relabel.heard(&line), Relabelled::Ours(key, line.clone()));
        assert_eq!(relabel.heard(&line), Relabelled::NoRequest);
    }

    #[test]
    fn a_long_answer_is_found_wherever_its_id_is() {
        let text = "x".repeat(100_000);
        for line in [
            r#"{"result":{"a":["T"]},"jsonrpc":"2.0","id":"ID"}"#,
            r#"{"result":{"a":["T"]},"id":"ID","more":{"id":"h9"}}"#,
            r#"{"result":{"a":["T"]},"id":"ID","more":[{}],"jsonrpc":"2.0"}"#,
            r#"{"more":{},"error":{"a":["T"]},"id":"ID","and":{"a":"T"}}"#,
        ] {
            let mut relabel = Relabel::new(|| 0xA);
            let (key, _) = ask(
                &mut relabel,
                &json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}),
            );
            let full = line.replace('T', &text).replace("ID", own(0));
            let Relabelled::Last(to, answer) = relabel.heard(full.as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!((to, &value(&answer)["id"]), (key, &json!(5)), "{line}");
        }
    }

    #[test]
    fn only_the_whole_id_is_an_id_of_ours() {
        for id in ["h0", "h0-", "h1-0000000000000000000000000000000a", "0"] {
            let mut relabel = Relabel::new(|| 0xA);
            relabel.ask();
            let line = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            assert_eq!(hear(&mut relabel, &line), Relabelled::NoRequest, "{id}");
        }
    }

    #[test]
    fn an_answer_with_two_ids_is_an_error_for_the_first_and_nothing_for_the_other() {
        let mut relabel = Relabel::new(|| 0xA);
        let call = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"});
        let (one, _) = ask(&mut relabel, &call("one"));
        ask(&mut relabel, &call("two"));
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","result":{{}},"id":"{}"}}"#,
            own(0),
            own(1)
        );
        let Relabelled::Last(key, answer) = relabel.heard(line.as_bytes()) else {
            panic!("it belongs to no request");
        };
        let answer = value(&answer);
        assert_eq!((key, &answer["id"]), (one, &json!("one")));
        assert!(answer["error"].is_object(), "{answer}");
        assert_eq!(relabel.len(), 1);
    }

    proptest! {
        #[test]
        fn only_the_id_and_the_token_change(id in "[0-9]{1,5}|\"[a-z\\\\\\\\h0-9]{0,8}\"", space in "[ \\t]{0,3}", text in "[a-z\"\\\\\\\\]{0,12}") {
            let text = serde_json::to_string(&text).unwrap();
            let own = own(0);
            let body = format!("{{{space}\"params\":{{\"x\":{text},\"_meta\":{{\"progressToken\":{space}{id}}}}},\"jsonrpc\":\"2.0\",\"id\":{space}{id}{space},\"method\":\"m\"}}");
            let Ok(posted) = Posted::read(body.as_bytes()) else {
                return Ok(());
            };
            let mut relabel = Relabel::new(|| 0xA);
            let (_, line) = relabel.asked(&posted, body.as_bytes()).unwrap();
            let expected = body.replace(&format!("\"id\":{space}{id}"), &format!("\"id\":{space}\"{own}\"")).replace(&format!("Token\":{space}{id}"), &format!("Token\":{space}\"{own}\""));
            prop_assert_eq!(String::from_utf8(line).unwrap(), expected);
            let answer = format!("{{\"result\":{{\"a\":{text}}},\"jsonrpc\":\"2.0\",\"id\":\"{own}\"}}");
            let Relabelled::Last(_, line) = relabel.heard(answer.as_bytes()) else {
                panic!("it belongs to no request");
            };
            prop_assert_eq!(String::from_utf8(line).unwrap(), answer.replace(&format!("\"id\":\"{own}\""), &format!("\"id\":{id}")));
        }

        #[test]
        fn any_line_of_a_server_is_taken(line in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut relabel = Relabel::new(|| 0xA);
            relabel.ask();
            let _heard = relabel.heard(&line);
        }
    }
}
