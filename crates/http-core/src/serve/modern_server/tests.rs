//! guards: Clients that share a modern server get only their own answers, and the end of the server answers all of them.

use super::*;
use crate::serve::client_queues::First;

fn at(ms: u64) -> Moment {
    Moment::default().after_ms(ms)
}

fn id(line: &[u8]) -> Value {
    let line: Value = serde_json::from_slice(line).unwrap();
    line["id"].clone()
}

fn result(asked: &[u8], result: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({"jsonrpc": "2.0", "id": id(asked), "result": result})).unwrap()
}

fn speaking() -> (ModernServer, ClientQueues) {
    let (mut modern, asked) = ModernServer::new(at(0), || 7);
    let mut readers = ClientQueues::default();
    let answer = result(&asked, &json!({"supportedVersions": [VERSION]}));
    let heard = modern.hear(at(1), &answer, &mut readers);
    assert_eq!(heard, ModernLine::Learned(None));
    assert_eq!(
        *modern.speaks(),
        Speaks::Modern(alloc::vec![VERSION.into()])
    );
    (modern, readers)
}

fn call(modern: &mut ModernServer, readers: &mut ClientQueues, reader: u64) -> (u64, Vec<u8>) {
    readers.open(reader);
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
"#;
    let posted = Posted::read(body).unwrap();
    modern.ask(at(2), &posted, body, reader).unwrap()
}

#[test]
fn a_server_that_is_silent_counts_as_legacy_for_those_who_wait_now() {
    let (mut modern, _) = ModernServer::new(at(0), || 7);
    assert_eq!(modern.wake_at(), Some(at(QUESTION_MS)));
    assert_eq!(modern.tick(at(QUESTION_MS - 1)), None);
    assert!(modern.tick(at(QUESTION_MS)).is_some(), "it is told");
    assert_eq!(*modern.speaks(), Speaks::Legacy(Said::Nothing));
    let (mut modern, asked) = ModernServer::new(at(0), || 7);
    let error =
        json!({"jsonrpc": "2.0", "id": id(&asked), "error": {"code": -32601, "message": ""}});
    let error = serde_json::to_vec(&error).unwrap();
    modern.hear(at(1), &error, &mut ClientQueues::default());
    assert_eq!(*modern.speaks(), Speaks::Legacy(Said::Itself));
}

#[test]
fn two_clients_get_their_own_answers_and_one_that_left_is_cancelled() {
    let (mut modern, mut readers) = speaking();
    let (_, first) = call(&mut modern, &mut readers, 11);
    let (left, _) = call(&mut modern, &mut readers, 12);
    assert_eq!(modern.unused_since(), None);
    let told = modern.left(at(3), left).unwrap();
    assert!(String::from_utf8(told).unwrap().contains("cancelled"));
    modern.check();
    let heard = modern.hear(at(4), &result(&first, &json!({})), &mut readers);
    assert_eq!(heard, ModernLine::Answered(2_000_000));
    let First::Answer(answer) = readers.first(11) else {
        panic!("no answer");
    };
    assert_eq!(id(&answer), 1);
    assert_eq!(readers.first(12), First::Nothing);
    assert_eq!(modern.unused_since(), Some(at(4)));
    modern.retire();
    assert!(modern.is_done());
}

#[test]
fn one_tool_list_is_asked_for_all_that_wait_and_an_old_one_refuses_nothing() {
    let (mut modern, mut readers) = speaking();
    let fresh = Fresh::Recent(at(5));
    let Listed::Ask(first) = modern.tools(at(5), fresh) else {
        panic!("it knows nothing yet");
    };
    assert!(matches!(modern.tools(at(5), fresh), Listed::Wait));
    let page = json!({"tools": [], "nextCursor": "b"});
    let ModernLine::Learned(Some(second)) =
        modern.hear(at(6), &result(&first, &page), &mut readers)
    else {
        panic!("there is a second page");
    };
    assert!(String::from_utf8_lossy(&second).contains(r#""cursor":"b""#));
    assert!(matches!(modern.tools(at(6), fresh), Listed::Wait));
    modern.hear(at(7), &result(&second, &json!({"tools": []})), &mut readers);
    assert!(matches!(modern.tools(at(8), fresh), Listed::Known(_)));
    // It was asked for at 5. A refusal at 8 needs a new question.
    let strict = Fresh::Since(at(8));
    assert!(matches!(modern.tools(at(8), strict), Listed::Ask(_)));
    assert_eq!(modern.wake_at(), Some(at(8 + TOOLS_WAIT_MS)));
    assert!(modern.tick(at(8 + TOOLS_WAIT_MS)).is_some());
    let now = at(9 + TOOLS_WAIT_MS);
    assert!(matches!(modern.tools(now, strict), Listed::Unanswered));
    let later = Fresh::Recent(now);
    assert!(matches!(modern.tools(now, later), Listed::Ask(_)));
}

#[test]
fn a_death_answers_everything_and_listeners_without_an_error() {
    let (mut modern, mut readers) = speaking();
    call(&mut modern, &mut readers, 11);
    readers.open(12);
    let body = br#"{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{}}
"#;
    let posted = Posted::read(body).unwrap();
    modern.ask(at(2), &posted, body, 12).unwrap();
    assert!(!modern.is_idle());
    assert_eq!(modern.settle("gone", &mut readers), 1);
    modern.check();
    for (reader, key) in [(11, "error"), (12, "result")] {
        let First::Answer(answer) = readers.first(reader) else {
            panic!("no answer");
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer.get(key).is_some(), "{answer}");
    }
    assert_eq!(modern.settle("gone", &mut readers), 0);
}
