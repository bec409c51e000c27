//! The scanner on any bytes cut into any pieces: against the promises of the property tests, and against a reader of JSON
//! that shares no code with it. The first byte says how many of the following are piece lengths; the rest is the input.
#![no_main]

use mainstay_fuzz::json::{Read, Value, What, read, units};
use mainstay_protocol::message::envelope::{cancelled_id, with_id};
use mainstay_protocol::message::frame::{Frame, Id, Kind, Scanner};
use mainstay_protocol::message::oracle;

use libfuzzer_sys::fuzz_target;

/// The longest id that the scanner reports, and the length from which on a line is not read to its end.
const ID_BYTES: usize = 104;
const LONG: usize = 4_096;
const LABEL: &[u8] = b"\"ms:7\"";

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, input) = rest.split_at(rest.len().min(usize::from(count % 8)));
    oracle::check(input, cuts);
    for line in input.split(|&byte| byte == b'\n') {
        check(line);
    }
});

fn check(line: &[u8]) {
    let mut scanner = Scanner::new();
    scanner.feed(line);
    let Some(frame) = scanner.finish() else {
        return;
    };
    let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let Read::Json(value) = read(text) else {
        return;
    };
    match &value.what {
        What::Object(_) => object(line, frame, &value),
        What::Array(_) => assert_eq!(frame.kind, Kind::Batch),
        What::Null | What::Bool | What::Number | What::Text(_) => {
            assert_eq!(frame.kind, Kind::Junk);
        }
    }
}

fn object<'a>(line: &'a [u8], frame: Frame<'a>, value: &Value<'a>) {
    let ids: Vec<&[u8]> = value.all("id").iter().map(|id| id.raw).collect();
    let kind = kind(value, !ids.is_empty());
    match frame.id {
        Id::Token(token) => assert!(ids.contains(&token), "an id of this very line"),
        Id::Null => assert!(ids.contains(&&b"null"[..])),
        Id::TooLong => assert!(ids.iter().any(|id| id.len() > ID_BYTES)),
        Id::Absent => assert!(ids.is_empty() || line.len() >= LONG),
    }
    if line.len() < LONG {
        assert_eq!(frame.kind, kind);
        let first = ids.first().copied();
        let expected = match first {
            None => Id::Absent,
            Some(b"null") => Id::Null,
            Some(id) if id.len() > ID_BYTES => Id::TooLong,
            Some(id) => Id::Token(id),
        };
        if kind != Kind::Junk {
            assert_eq!(frame.id, expected, "the first one counts");
        }
    } else {
        // What a long line is called may lack its id, and nothing else.
        let family = |kind| match kind {
            Kind::Request | Kind::Notification => 0,
            Kind::Response => 1,
            Kind::Error => 2,
            Kind::Batch | Kind::Blank | Kind::Junk => 3,
        };
        assert_eq!(family(frame.kind), family(kind));
    }
    let half = |unit: &u16| (0xd800..0xe000).contains(unit);
    let odd = value.members().iter().any(|(key, _)| key.iter().any(half));
    if let [id] = ids[..]
        && kind != Kind::Junk
        && !odd
    {
        let whole = frame.completed(line);
        assert_eq!(whole.kind, kind, "wherever its id is");
        let expected = if id == b"null" {
            Id::Null
        } else {
            Id::Token(id)
        };
        assert_eq!(whole.id, expected);
    }
    relabelled(line, value, &ids, odd);
    if let Some(id) = cancelled_id(line) {
        let (methods, params) = (value.all("method"), value.all("params"));
        assert_eq!((methods.len(), params.len()), (1, 1));
        assert_eq!(
            methods[0].text().as_deref(),
            Some("notifications/cancelled")
        );
        let asked = params[0].all("requestId");
        assert_eq!((asked.len(), asked[0].raw), (1, id));
    }
}

/// The first of method, result and error counts.
fn kind(value: &Value<'_>, has_id: bool) -> Kind {
    let verbs = ["method", "result", "error"].map(units);
    let verb = value.members().iter().find_map(|(key, value)| {
        let verb = verbs.iter().position(|verb| verb == key)?;
        (verb == 1 || value.raw != b"null").then_some(verb)
    });
    match (verb, has_id) {
        (Some(0), true) => Kind::Request,
        (Some(0), false) => Kind::Notification,
        (Some(1), _) | (None, true) => Kind::Response,
        (Some(_), _) => Kind::Error,
        (None, false) => Kind::Junk,
    }
}

/// A label takes the place of the only id, and changes nothing else.
fn relabelled(line: &[u8], value: &Value<'_>, ids: &[&[u8]], odd: bool) {
    let Some(new) = with_id(line, LABEL) else {
        assert!(
            ids.len() != 1 || odd,
            "a line with one id can be relabelled"
        );
        return;
    };
    assert_eq!(ids.len(), 1);
    let text = new.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&new);
    let Read::Json(after) = read(text) else {
        panic!("what was JSON stays JSON");
    };
    assert_eq!(after.all("id")[0].raw, LABEL);
    let id = units("id");
    let rest = |value: &Value<'_>| -> Vec<(Vec<u16>, Vec<u8>)> {
        let members = value.members().iter().filter(|(key, _)| *key != id);
        members
            .map(|(key, value)| (key.clone(), value.raw.to_vec()))
            .collect()
    };
    assert_eq!(rest(value), rest(&after));
}
