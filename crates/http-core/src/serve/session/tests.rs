//! guards: An answer that comes while the client of `serve` is away is kept, or replaced by an error.

use super::*;
use crate::serve::client_queues::{First, Taken};
use alloc::string::ToString;

const KEEPS: Keeps = Keeps {
    events: 8,
    bytes: 1_000,
    streams: 2,
};

struct Scene {
    session: Session,
    readers: ClientQueues,
    next: u64,
}

impl Scene {
    fn new(keeps: Keeps) -> Self {
        let mut session = Session::new(keeps);
        session.greeted("2025-11-25");
        Self {
            session,
            readers: ClientQueues::default(),
            next: 100,
        }
    }

    fn reader(&mut self) -> u64 {
        self.next += 1;
        self.readers.open(self.next);
        self.next
    }

    /// A request whose stream has begun: stream and reader.
    fn streamed(&mut self, id: u64) -> (u64, u64) {
        let reader = self.reader();
        let id = id.to_string();
        let stream = self.session.ask(Moment(0), id.as_bytes(), None, reader);
        let stream = stream.unwrap();
        self.readers.begin(reader);
        assert!(self.session.priming(stream).is_some());
        (stream, reader)
    }

    fn lose(&mut self, stream: u64, reader: u64) {
        self.readers.close(reader);
        self.session.left(stream, reader);
        self.session.check();
    }

    fn answer(&mut self, id: u64, size: usize) -> SessionLine {
        let text = "x".repeat(size);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#);
        let heard = self
            .session
            .hear(Moment(5), line.as_bytes(), &mut self.readers);
        self.session.check();
        heard
    }

    fn resumed(&mut self, stream: u64, number: u64) -> Result<Vec<String>, UnknownEvent> {
        let reader = self.reader();
        self.readers.begin(reader);
        let last = EventId { stream, number };
        self.session
            .resume(Moment(9), last, reader, &mut self.readers)?;
        self.session.check();
        Ok(self.read(reader))
    }

    fn read(&mut self, reader: u64) -> Vec<String> {
        let mut all = Vec::new();
        while let Taken::Event(event) = self.readers.take(reader) {
            all.push(String::from_utf8(event).unwrap());
        }
        all
    }
}

#[test]
fn an_answer_that_came_while_its_client_was_away_is_kept() {
    let mut scene = Scene::new(KEEPS);
    let (stream, reader) = scene.streamed(7);
    scene.lose(stream, reader);
    assert_eq!(scene.answer(7, 1), SessionLine::Answered(None));
    for _ in 0..2 {
        let rest = scene.resumed(stream, 0).unwrap();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].contains(r#""id":7"#), "{rest:?}");
    }
    assert_eq!(scene.resumed(stream, 1), Ok(Vec::new()), "it was delivered");
    assert_eq!(scene.resumed(stream + 1, 0), Err(UnknownEvent));
}

#[test]
fn a_slow_request_is_not_forgotten_for_being_the_oldest() {
    let mut scene = Scene::new(KEEPS);
    let (slow, reader) = scene.streamed(1);
    for id in 2..6 {
        scene.streamed(id);
        scene.answer(id, 1);
    }
    scene.lose(slow, reader);
    scene.answer(1, 1);
    assert_eq!(scene.resumed(slow, 0).unwrap().len(), 1);
    assert_eq!(
        scene.resumed(slow + 1, 0),
        Err(UnknownEvent),
        "the first one"
    );
}

#[test]
fn an_answer_that_is_not_kept_is_told_as_an_error() {
    for lost in [
        |scene: &mut Scene| _ = scene.answer(7, 2_000),
        |scene: &mut Scene| {
            scene.answer(7, 1);
            let news = br#"{"method":"notifications/tools/list_changed"}"#;
            for _ in 0..8 {
                scene.session.hear(Moment(1), news, &mut scene.readers);
            }
        },
    ] {
        let mut scene = Scene::new(KEEPS);
        let (stream, reader) = scene.streamed(7);
        scene.lose(stream, reader);
        lost(&mut scene);
        let rest = scene.resumed(stream, 0).unwrap();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].contains(r#""id":7,"error""#), "{rest:?}");
        assert!(
            !rest[0].contains("id: "),
            "the client is not to come back: {rest:?}"
        );
        assert_eq!(
            scene.resumed(stream, 1),
            Ok(Vec::new()),
            "it had the answer"
        );
    }
}

#[test]
fn more_than_a_reader_may_have_waiting_is_resumed_in_parts() {
    let size = super::super::limits::CLIENT_QUEUE_BYTES / 2;
    let mut scene = Scene::new(Keeps {
        events: 100,
        bytes: 100 * size,
        streams: 2,
    });
    let (stream, reader) = scene.streamed(7);
    scene.lose(stream, reader);
    let text = "x".repeat(size);
    let progress = format!(
        r#"{{"method":"notifications/message","params":{{"level":"info","data":"{text}"}}}}"#
    );
    // Nothing reads a request's stream, so this is news.
    for _ in 0..7 {
        scene
            .session
            .hear(Moment(1), progress.as_bytes(), &mut scene.readers);
    }
    let mut last = 0;
    let mut seen = 0;
    for _ in 0..4 {
        let reader = scene.reader();
        scene.readers.begin(reader);
        scene
            .session
            .read_news(Some(last), reader, &mut scene.readers);
        let part = scene.read(reader);
        seen += part.len() as u64;
        last = seen;
    }
    assert_eq!(seen, 7);
}

#[test]
fn an_error_that_was_missed_has_no_id_either() {
    let mut scene = Scene::new(KEEPS);
    let (stream, reader) = scene.streamed(7);
    scene.lose(stream, reader);
    let line = br#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#;
    scene.session.hear(Moment(1), line, &mut scene.readers);
    let rest = scene.resumed(stream, 0).unwrap();
    assert_eq!(rest.len(), 1);
    assert!(!rest[0].contains("id: "), "{rest:?}");
}

#[test]
fn a_client_that_comes_back_twice_reads_on_the_newest_connection() {
    let mut scene = Scene::new(KEEPS);
    let (stream, first) = scene.streamed(7);
    let second = scene.reader();
    scene.readers.begin(second);
    let last = EventId { stream, number: 0 };
    let resumed = scene
        .session
        .resume(Moment(1), last, second, &mut scene.readers);
    assert_eq!(resumed, Ok(Some(stream)));
    assert_eq!(scene.readers.take(first), Taken::End);
    // The first one leaves late: the second one is not touched.
    scene.lose(stream, first);
    scene.answer(7, 1);
    assert_eq!(scene.read(second).len(), 1);
    assert_eq!(scene.answer(7, 1), SessionLine::Unexpected, "over is over");
}

#[test]
fn what_is_in_flight_is_settled_once() {
    let mut scene = Scene::new(KEEPS);
    let reader = scene.reader();
    let asked = scene.session.ask(Moment(0), b"1", None, reader);
    assert!(asked.is_some());
    assert_eq!(scene.session.ask(Moment(0), b"1", None, 9), None);
    assert_eq!(scene.session.settle("gone", &mut scene.readers), 1);
    assert_eq!(scene.session.settle("gone", &mut scene.readers), 0);
    assert!(matches!(scene.readers.first(reader), First::Answer(_)));
}

#[test]
fn an_id_that_was_never_given_is_of_no_event() {
    let mut scene = Scene::new(KEEPS);
    let (stream, _) = scene.streamed(7);
    assert_eq!(scene.resumed(stream, 1), Err(UnknownEvent), "not yet");
    assert_eq!(scene.resumed(NEWS, 1), Err(UnknownEvent));
    let reader = scene.reader();
    let silent = scene.session.ask(Moment(0), b"8", None, reader).unwrap();
    assert_eq!(
        scene.resumed(silent, 0),
        Err(UnknownEvent),
        "it has not begun"
    );
    scene.answer(8, 1);
    assert!(matches!(scene.readers.first(reader), First::Answer(_)));
}
