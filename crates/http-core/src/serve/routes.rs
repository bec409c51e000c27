//! Which stream a line of a server with one client goes on: the legacy era.
//!
//! An answer goes on the stream of its request, progress on the stream whose request gave the token. Anything else does
//! not say what it belongs to: what a server asks or logs goes on the newest stream that a client reads, news of lists
//! and resources on the stream that the client opened for such things. A message goes on one stream, never on two.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope;
use mainstay_protocol::message::frame::{Id, Kind, Scanner};

use super::framed;

/// Where a line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// It is the answer that this stream waits for, and its last message; with the id of the request.
    Last(u64, Vec<u8>),
    /// On this stream, before its answer.
    On(u64),
    /// On the stream that the client opened for news.
    News,
    /// Nowhere: it is not a message, or no request waits for it.
    Drop,
}

/// The requests of one session that are not answered yet.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    waiting: BTreeMap<Vec<u8>, Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    stream: u64,
    token: Option<Vec<u8>>,
    /// Whether a client reads the stream.
    read: bool,
}

impl Routes {
    /// A request came on this stream; false if one with its id is not answered yet.
    pub fn asked(&mut self, id: &[u8], token: Option<&[u8]>, stream: u64) -> bool {
        if self.waiting.contains_key(id) {
            return false;
        }
        let token = token.map(<[u8]>::to_vec);
        let waiting = Waiting {
            stream,
            token,
            read: true,
        };
        self.waiting.insert(id.to_vec(), waiting);
        true
    }

    /// The client stopped reading this stream, or reads it again.
    pub fn read(&mut self, stream: u64, read: bool) {
        for waiting in self.waiting.values_mut() {
            if waiting.stream == stream {
                waiting.read = read;
            }
        }
    }

    /// Whether this stream still waits for its answer.
    pub fn waits(&self, stream: u64) -> bool {
        self.waiting.values().any(|one| one.stream == stream)
    }

    /// The client has no use for an answer to this request any more: its stream, if it was not answered yet.
    pub fn cancelled(&mut self, id: &[u8]) -> Option<u64> {
        Some(self.waiting.remove(id)?.stream)
    }

    /// How many requests are not answered.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether all are.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A line of the server.
    pub fn heard(&mut self, line: &[u8]) -> Route {
        let mut scanner = Scanner::default();
        let frame = framed(&mut scanner, line);
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => match self.waiting.remove_entry(id) {
                Some((id, waiting)) => Route::Last(waiting.stream, id),
                None => Route::Drop,
            },
            (Kind::Request, _) => self.newest(),
            (Kind::Notification, _) => self.notified(frame.method.as_deref().unwrap_or(""), line),
            (Kind::Response | Kind::Error | Kind::Batch | Kind::Blank | Kind::Junk, _) => {
                Route::Drop
            }
        }
    }

    /// Takes every request that is not answered: its id and its stream.
    pub fn drain(&mut self) -> Vec<(Vec<u8>, u64)> {
        let waiting = core::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .map(|(id, one)| (id, one.stream))
            .collect()
    }

    fn notified(&self, method: &str, line: &[u8]) -> Route {
        match method {
            "notifications/progress" => {
                let token = envelope::progress(line).map(|(token, _)| token);
                let of = self
                    .waiting
                    .values()
                    .find(|one| one.token.as_deref() == token);
                of.map_or(Route::Drop, |one| Route::On(one.stream))
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => Route::News,
            _ => self.newest(),
        }
    }

    fn newest(&self) -> Route {
        let read = self.waiting.values().filter(|one| one.read);
        read.map(|one| one.stream)
            .max()
            .map_or(Route::News, Route::On)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let mut routes = Routes::default();
        assert!(routes.asked(b"1", Some(b"\"p\""), 10));
        assert!(routes.asked(b"\"1\"", None, 11));
        assert!(!routes.asked(b"1", None, 12), "in flight already");
        routes
    }

    #[test]
    fn each_line_goes_on_one_stream() {
        for (line, way) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                Route::Last(10, b"1".to_vec()),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"1","error":{}}"#,
                Route::Last(11, b"\"1\"".to_vec()),
            ),
            (r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, Route::Drop),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, Route::Drop),
            (
                r#"{"method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
                Route::On(10),
            ),
            (
                r#"{"method":"notifications/progress","params":{"progressToken":"q","progress":1}}"#,
                Route::Drop,
            ),
            (
                r#"{"id":1,"method":"sampling/createMessage"}"#,
                Route::On(11),
            ),
            (
                r#"{"method":"notifications/message","params":{}}"#,
                Route::On(11),
            ),
            (
                r#"{"method":"notifications/tools/list_changed"}"#,
                Route::News,
            ),
            (
                r#"{"method":"notifications/resources/updated","params":{"uri":"a"}}"#,
                Route::News,
            ),
            ("hello", Route::Drop),
            ("[]", Route::Drop),
        ] {
            assert_eq!(routes().heard(line.as_bytes()), way, "{line}");
        }
    }

    #[test]
    fn a_long_answer_with_its_id_at_the_end_is_found() {
        for size in [10, 1_000, 10_000, 100_000] {
            let text = "x".repeat(size);
            for end in ["", "\n"] {
                let line = alloc::format!(
                    r#"{{"result":{{"tools":["{text}"]}},"jsonrpc":"2.0","id":1}}{end}"#
                );
                let way = Route::Last(10, b"1".to_vec());
                assert_eq!(routes().heard(line.as_bytes()), way, "{size}");
            }
        }
    }

    #[test]
    fn what_was_cancelled_is_not_waited_for() {
        let mut routes = routes();
        assert_eq!(routes.cancelled(b"1"), Some(10));
        assert_eq!(routes.cancelled(b"1"), None);
        assert_eq!((routes.len(), routes.waits(10)), (1, false));
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(routes.heard(answer), Route::Drop, "it comes too late");
        assert!(routes.asked(b"1", None, 12));
    }

    #[test]
    fn an_answer_comes_once_and_a_left_stream_gets_only_what_is_its_own() {
        let mut routes = routes();
        let ask = br#"{"id":1,"method":"roots/list"}"#;
        routes.read(11, false);
        assert_eq!(routes.heard(ask), Route::On(10));
        routes.read(10, false);
        assert_eq!(routes.heard(ask), Route::News);
        routes.read(11, true);
        assert_eq!(routes.heard(ask), Route::On(11));
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(routes.heard(answer), Route::Last(10, b"1".to_vec()));
        assert_eq!(routes.heard(answer), Route::Drop);
        assert_eq!(routes.drain(), [(b"\"1\"".to_vec(), 11)]);
        assert!(routes.is_empty());
    }
}
