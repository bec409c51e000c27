//! guards: A remembered answer is what the server itself said to a client that offered the same.

use super::*;
use crate::message::lists::Which;
use alloc::format;
use alloc::string::String;
use alloc::vec;

fn text(bytes: Option<&[u8]>) -> Option<&str> {
    bytes.map(|bytes| core::str::from_utf8(bytes).unwrap())
}

fn initialize(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#)
}

/// A result of exactly so many bytes.
fn sized(bytes: usize) -> Vec<u8> {
    let mut result = br#"{"x":""#.to_vec();
    result.resize(bytes - 2, b'x');
    result.extend_from_slice(br#""}"#);
    result
}

fn digests(remembered: &Remembered) -> Vec<u64> {
    let openings = remembered.openings();
    openings
        .iter()
        .map(|opening| opening.params_digest)
        .collect()
}

#[test]
fn the_digest_is_of_what_the_client_offers() {
    let plain = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}"#;
    let digest = |params: &str| digest_of_params(initialize(params).as_bytes());
    let first = digest(plain);
    assert!(first.is_some());
    for alike in [
        r#"{"clientInfo":{"version":"1","name":"c"},"capabilities":{"sampling":{},"roots":{"listChanged":true}},"protocolVersion":"2025-06-18"}"#,
        r#"{ "protocolVersion" : "2025\u002d06-18", "capabilities":{"roots":{"listChanged":true},"sampling":{}},"clientInfo":{"name":"c","version":"1"},"_meta":{"progressToken":7}}"#,
    ] {
        assert_eq!(digest(alike), first, "{alike}");
    }
    let mut all = vec![first];
    for other in [
        plain.replace("2025-06-18", "2025-11-25"),
        plain.replace("true", "false"),
        plain.replace("true", "null"),
        plain.replace(r#""sampling":{}"#, r#""sampling":[]"#),
        plain.replace(r#""name":"c""#, r#""name":"d""#),
        plain.replace(r#""version":"1""#, r#""version":1"#),
        plain.replace(r#""version":"1""#, r#""version":"2""#),
        String::from("{}"),
        String::from(r#"{"capabilities":{}}"#),
    ] {
        let other = digest(&other);
        assert!(other.is_some() && !all.contains(&other), "{other:?}");
        all.push(other);
    }
}

#[test]
fn the_digest_is_stored_and_must_never_change() {
    let line = initialize(
        r#"{"protocolVersion":"2025-06-18","capabilities":{"a":[1,2.5,null]},"clientInfo":{"name":"c"}}"#,
    );
    assert_eq!(
        digest_of_params(line.as_bytes()),
        Some(0x0e74_9811_9230_6bc6)
    );
}

#[test]
fn only_an_initialize_has_a_digest() {
    for line in [
        r#"{"id":0,"method":"ping","params":{}}"#,
        r#"{"id":0,"method":"initialize"}"#,
        r#"{"id":0,"method":"initialize","params":[]}"#,
        r#"{"id":0,"result":{}}"#,
        "[]",
        "{",
        "",
    ] {
        assert_eq!(digest_of_params(line.as_bytes()), None, "{line}");
    }
    let deep = "[".repeat(1_000);
    let line = initialize(&format!(r#"{{"capabilities":{deep}"#));
    assert_eq!(digest_of_params(line.as_bytes()), None);
}

#[test]
fn a_list_is_asked_for_from_its_beginning() {
    for (line, expected) in [
        (r#"{"id":1,"method":"tools/list"}"#, Some(Which::Tools)),
        (
            r#"{"id":1,"method":"prompts\/list","params":{}}"#,
            Some(Which::Prompts),
        ),
        (
            r#"{"id":1,"method":"resources/list","params":{"cursor":null}}"#,
            Some(Which::Resources),
        ),
        (
            r#"{"id":1,"method":"resources/templates/list","params":{"_meta":{"cursor":1}}}"#,
            Some(Which::Templates),
        ),
        (
            r#"{"id":1,"method":"tools/list","params":{"cursor":"x"}}"#,
            None,
        ),
        (r#"{"method":"tools/list"}"#, None),
        (r#"{"id":1,"method":"tasks/list"}"#, None),
        ("[]", None),
    ] {
        assert_eq!(Which::asked(line.as_bytes()), expected, "{line}");
    }
    for (place, list) in Which::ALL.into_iter().enumerate() {
        assert_eq!(list as usize, place);
    }
}

#[test]
fn the_result_of_a_response_is_raw() {
    for (line, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result": {"a" : 1.0} }"#,
            Some(r#"{"a" : 1.0}"#),
        ),
        ("{\"result\":{},\"id\":1}\r\n", Some("{}")),
        (r#"{"id":1,"error":{"code":1,"message":"m"}}"#, None),
        (r#"{"id":1,"error":{},"result":{}}"#, None),
        (r#"{"id":1,"method":"m","result":{}}"#, None),
        (r#"[{"id":1,"result":{}}]"#, None),
        ("{", None),
    ] {
        assert_eq!(text(result_of(line.as_bytes())), expected, "{line}");
    }
}

#[test]
fn an_answer_has_the_clients_own_id() {
    for (id, result, expected) in [
        ("1.0", r#"{"a" : 1}"#, r#"{"a" : 1}"#),
        (r#""a\u0062""#, "{}", "{}"),
        (
            "7",
            r#"{"ttlMs": 60000 ,"tools":[{"ttlMs":5}]}"#,
            r#"{"ttlMs": 0 ,"tools":[{"ttlMs":5}]}"#,
        ),
        (
            "7",
            r#"{"tools":[],"ttlMs":1}"#,
            r#"{"tools":[],"ttlMs":0}"#,
        ),
    ] {
        let line = answer(id.as_bytes(), result.as_bytes());
        let whole = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{expected}}}\n");
        assert_eq!(text(Some(&line)), Some(whole.as_str()));
    }
}

#[test]
fn an_opening_is_learned_with_its_lists() {
    let mut remembered = Remembered::default();
    assert_eq!(
        remembered.learn_list(Some(1), Which::Tools, b"{}"),
        Learned::New
    );
    assert!(
        !remembered.changed(),
        "a list without an opening is dropped"
    );
    assert_eq!(remembered.learn_opening(1, br#"{"a":1}"#), Learned::New);
    assert_eq!(
        remembered.learn_list(Some(1), Which::Tools, br#"{"tools":[1]}"#),
        Learned::New
    );
    assert_eq!(
        remembered.learn_list(None, Which::Tools, br#"{"tools":[2]}"#),
        Learned::New
    );
    assert!(remembered.changed());
    remembered.written();

    // The same in other words is the same, and nothing to write.
    assert_eq!(remembered.learn_opening(1, br#"{ "a": 1 }"#), Learned::Same);
    assert_eq!(
        remembered.learn_list(Some(1), Which::Tools, br#"{"tools": [1]}"#),
        Learned::Same
    );
    assert!(!remembered.changed());

    assert_eq!(remembered.learn_opening(1, br#"{"a":2}"#), Learned::Other);
    assert!(remembered.changed());
    let opening = remembered.opening(1).unwrap();
    assert_eq!(text(Some(&opening.result)), Some(r#"{"a":2}"#));
    assert_eq!(
        text(remembered.list(Some(1), Which::Tools)),
        Some(r#"{"tools":[1]}"#)
    );
    assert_eq!(
        text(remembered.list(None, Which::Tools)),
        Some(r#"{"tools":[2]}"#)
    );
    assert_eq!(remembered.list(Some(1), Which::Prompts), None);

    remembered.written();
    remembered.forget_opening(2);
    assert!(!remembered.changed());
    remembered.forget_opening(1);
    assert!(remembered.changed());
    assert_eq!(remembered.opening(1), None);
}

#[test]
fn a_list_that_is_not_whole_is_not_kept() {
    let whole = br#"{"tools":[],"nextCursor":null}"#;
    for result in [
        r#"{"tools":[],"nextCursor":"2"}"#,
        r#"{"tools":[],"nextCursor":""}"#,
        r#"{"tools":[],"resultType":"input_required"}"#,
        r#"{"tools":[],"resultType":7}"#,
        "{\"tools\":\n[]}",
        " {}",
        "[]",
        "7",
        "{",
        "",
    ] {
        let mut remembered = Remembered::default();
        assert_eq!(
            remembered.learn_list(None, Which::Tools, result.as_bytes()),
            Learned::New
        );
        assert!(!remembered.changed(), "{result}");
        remembered.learn_list(None, Which::Tools, whole);
        assert!(remembered.list(None, Which::Tools).is_some());
        remembered.written();
        // What was known is known to be out of date.
        let learned = remembered.learn_list(None, Which::Tools, result.as_bytes());
        assert_ne!(learned, Learned::New, "{result}");
        let kept = remembered.list(None, Which::Tools);
        assert_eq!(kept.is_some(), learned == Learned::Same, "{result}");
        assert_eq!(remembered.changed(), learned == Learned::Other);
    }
}

#[test]
fn the_oldest_of_too_many_openings_goes() {
    let mut remembered = Remembered::default();
    for digest in 1..=4 {
        remembered.learn_opening(digest, b"{}");
    }
    remembered.written();
    remembered.learn_opening(4, b"{}");
    assert!(!remembered.changed());
    remembered.learn_opening(1, b"{}");
    assert!(remembered.changed(), "another is the oldest now");
    remembered.learn_opening(5, b"{}");
    assert_eq!(digests(&remembered), [3, 4, 1, 5]);
}

#[test]
fn bytes_are_bounded() {
    let mut remembered = Remembered::default();
    remembered.learn_discover(&sized(1_000));
    for digest in 1..=4 {
        remembered.learn_opening(digest, &sized(CACHE_BYTES / 8));
    }
    assert_eq!(digests(&remembered), [1, 2, 3, 4]);
    // A list of the oldest lets others go, not its own opening.
    let learned = remembered.learn_list(Some(1), Which::Tools, &sized(CACHE_BYTES * 3 / 4));
    assert_eq!(learned, Learned::New);
    assert_eq!(digests(&remembered), [1]);
    assert!(remembered.bytes() <= CACHE_BYTES);
    // What will never fit removes no other result, but is known to be out of date.
    for bytes in [CACHE_BYTES - 900, CACHE_BYTES * 2] {
        remembered.learn_opening(9, &sized(bytes));
        remembered.learn_list(None, Which::Tools, &sized(bytes));
        assert_eq!(digests(&remembered), [1]);
        assert!(remembered.list(None, Which::Tools).is_none());
    }
    remembered.written();
    assert_eq!(
        remembered.learn_discover(&sized(CACHE_BYTES + 1)),
        Learned::Other
    );
    assert!(remembered.changed());
    assert!(remembered.discover().is_none());
    // A large opening pushes out the others.
    remembered.learn_opening(2, &sized(CACHE_BYTES));
    assert_eq!(digests(&remembered), [2]);
    assert_eq!(remembered.bytes(), CACHE_BYTES);
}

#[test]
fn a_server_that_dies_of_discover_is_legacy_until_it_answers() {
    let mut remembered = Remembered::default();
    remembered.learn_discover(b"{}");
    remembered.written();
    remembered.learn_legacy();
    assert!(remembered.is_legacy() && remembered.changed());
    assert_eq!(remembered.discover(), None);
    remembered.written();
    remembered.learn_legacy();
    assert!(!remembered.changed());
    assert_eq!(remembered.learn_discover(b"{}"), Learned::New);
    assert!(!remembered.is_legacy() && remembered.changed());
    assert_eq!(text(remembered.discover()), Some("{}"));
}

const UNKNOWN: &[u8] = br#"{"code":-32601,"message":"Method not found"}"#;

#[test]
fn a_refusal_is_kept_raw_until_the_server_answers() {
    let mut remembered = Remembered::default();
    remembered.learn_refusal(UNKNOWN);
    assert_eq!(remembered.refusal(), Some(UNKNOWN));
    assert!(remembered.changed() && !remembered.is_legacy());
    remembered.written();
    remembered.learn_refusal(UNKNOWN);
    assert!(!remembered.changed());
    assert_eq!(remembered.learn_discover(b"{}"), Learned::New);
    assert!(remembered.changed() && remembered.refusal().is_none());
    // A server that answered once and now fails for another reason is asked again.
    remembered.written();
    remembered.learn_refusal(br#"{"code":-32603,"message":"no network"}"#);
    assert!(remembered.changed() && remembered.refusal().is_none());
    assert_eq!(remembered.discover(), None);
    for line in [
        &b"{\"code\":-32601,\n\"message\":\"\"}"[..],
        b"-32601",
        b"",
        b"[-32601]",
    ] {
        remembered.learn_refusal(line);
        assert_eq!(remembered.refusal(), None);
    }
    remembered.learn_legacy();
    remembered.forget_refusal();
    assert!(!remembered.is_legacy());
}

#[test]
fn a_refusal_is_sent_under_the_clients_id() {
    assert_eq!(
        refusal(b"\"probe-1\"", UNKNOWN),
        br#"{"jsonrpc":"2.0","id":"probe-1","error":{"code":-32601,"message":"Method not found"}}
"#
    );
    let line = refusal(b"7", UNKNOWN);
    assert_eq!(error_of(&line), Some(UNKNOWN));
    assert_eq!(result_of(&line), None);
    assert_eq!(error_of(br#"{"id":7,"result":{},"error":{}}"#), None);
}

#[test]
fn answers_are_what_the_server_itself_said_in_this_session() {
    let mut first = Remembered::default();
    assert_eq!(first.answers(), None);
    first.learn_opening(7, br#"{"a":1,"b":2}"#);
    first.learn_list(Some(7), Which::Tools, br#"{"tools":[]}"#);
    let said = first.answers().unwrap();
    assert_eq!(said.params_digest, Some(7));
    assert_eq!(
        said.parts.map(|part| part.is_some()),
        [true, true, false, false, false]
    );
    // What comes from the disk was said by no server of this session.
    let mut second = first.clone().from_disk();
    assert_eq!(second.answers(), None);
    second.learn_opening(7, br#"{"b":2, "a":1}"#);
    let again = second.answers().unwrap();
    assert_eq!(
        again.parts[0], said.parts[0],
        "another order of members is the same"
    );
    assert_eq!(again.parts[1], None);
    assert!(again.agrees(&said) && said.agrees(&again));
    second.learn_list(Some(7), Which::Tools, br#"{"tools":[{"name":"x"}]}"#);
    assert!(!second.answers().unwrap().agrees(&said));
    // A list in pages is not kept, so it cannot be compared.
    second.learn_list(Some(7), Which::Tools, br#"{"tools":[],"nextCursor":"n"}"#);
    assert_eq!(second.answers().unwrap().parts[1], None);
    // Another client of the same link begins anew.
    second.learn_opening(8, br#"{"a":1}"#);
    assert_eq!(second.answers().unwrap().params_digest, Some(8));
}

#[test]
fn what_was_learned_stands_in_for_a_client_with_the_same_version() {
    let mut remembered = Remembered::default();
    let learned = digest_of_params(&learning_line(b"1", "2025-11-25")).unwrap();
    remembered.learn_opening(learned, br#"{"protocolVersion":"2025-11-25"}"#);
    remembered.learn_list(Some(learned), Which::Tools, br#"{"tools":[]}"#);
    let client = |version: &str, name: &str| {
        initialize(&format!(
            r#"{{"protocolVersion":"{version}","capabilities":{{"roots":{{}}}},"clientInfo":{{"name":"{name}","version":"1"}}}}"#
        ))
    };
    let other = client("2025-06-18", "c");
    remembered.client_opens(other.as_bytes());
    remembered.client_opens(b"{}");
    assert_eq!(digests(&remembered), [learned]);
    let line = client("2025-11-25", "c");
    let own = digest_of_params(line.as_bytes()).unwrap();
    for _twice in 0..2 {
        remembered.client_opens(line.as_bytes());
        assert_eq!(digests(&remembered), [learned, own]);
    }
    assert_eq!(
        text(remembered.list(Some(own), Which::Tools)),
        Some(r#"{"tools":[]}"#)
    );
    // Many clients: the openings stay within their limit, and what was learned is not the one that goes.
    for name in ["d", "e", "f", "g", "h"] {
        remembered.client_opens(client("2025-11-25", name).as_bytes());
    }
    assert_eq!(remembered.openings().len(), CACHE_OPENINGS);
    assert!(remembered.opening(learned).is_some());
}

#[test]
fn a_record_of_a_session_comes_before_what_was_learned() {
    let mut learned = Remembered::default();
    learned.learn_discover(br#"{"n":1}"#);
    learned.learn_list(None, Which::Tools, br#"{"tools":["learned"]}"#);
    learned.learn_opening(1, br#"{"a":1}"#);
    learned.learn_opening(2, br#"{"a":1}"#);
    let mut own = Remembered::default();
    own.learn_list(None, Which::Tools, br#"{"tools":["own"]}"#);
    own.learn_opening(2, br#"{"b":2}"#);
    own.complete_with(learned);
    assert_eq!(text(own.discover()), Some(r#"{"n":1}"#));
    assert_eq!(
        text(own.list(None, Which::Tools)),
        Some(r#"{"tools":["own"]}"#)
    );
    assert_eq!(digests(&own), [1, 2]);
    assert_eq!(own.opening(2).unwrap().result, br#"{"b":2}"#);
}
