//! What the scanner must agree with: a slow and simple reading of the same bytes. For tests and fuzzing only.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::envelope::Members;
use super::frame::{Fed, Frame, Id, Kind, LONG_BYTES, METHOD_BYTES, Scanner};
use crate::limits::ID_BYTES;

/// Panics if the scanner breaks a promise on this input, cut into pieces of these lengths (0 counts as 256), in turn.
pub fn check(input: &[u8], cuts: &[u8]) {
    let mut expected: Vec<&[u8]> = input.split_inclusive(|&b| b == b'\n').collect();
    let last = expected.pop_if(|line| !line.ends_with(b"\n"));

    let mut scanner = Scanner::new();
    let mut lines = expected.iter();
    let mut cuts = cuts.iter().cycle();
    let mut rest = input;
    while !rest.is_empty() {
        let cut = cuts
            .next()
            .map_or(usize::MAX, |&n| if n == 0 { 256 } else { n.into() });
        let (mut piece, more) = rest.split_at(cut.min(rest.len()));
        rest = more;
        while let Fed::Line { used } = scanner.feed(piece) {
            assert_eq!(piece[used - 1], b'\n', "a line ends with its newline");
            let line = lines.next().expect("no more lines than newlines");
            check_line(line, &scanner.frame());
            piece = &piece[used..];
        }
        assert!(!piece.contains(&b'\n'), "no newline is passed over");
        if let Some(known) = scanner.known() {
            let line = lines.as_slice().first().copied().or(last);
            let line = line.expect("a line that is known has bytes");
            let mut whole = Scanner::new();
            whole.feed(line);
            let whole = whole.frame();
            assert_eq!(
                (known.kind, known.id, &known.method),
                (whole.kind, whole.id, &whole.method),
                "what is known stays true"
            );
        }
    }
    assert_eq!(lines.len(), 0, "no fewer lines than newlines");
    let finished = scanner.finish();
    assert_eq!(finished.is_some(), last.is_some());
    if let (Some(line), Some(frame)) = (last, finished) {
        check_line(line, &frame);
    }
}

fn check_line(line: &[u8], frame: &Frame<'_>) {
    assert_eq!(frame.bytes, line.len() as u64);
    let mut whole = Scanner::new();
    whole.feed(line);
    let of_whole = whole.finish();
    match of_whole {
        Some(of_whole) => assert_eq!(*frame, of_whole, "cuts do not matter"),
        None => assert_eq!(*frame, whole.frame(), "cuts do not matter"),
    }
    let Some(expected) = read(line) else {
        return;
    };
    assert_eq!(
        (frame.kind, frame.id, frame.method.as_deref()),
        (expected.kind, expected.id, expected.method.as_deref()),
        "{}",
        String::from_utf8_lossy(line)
    );
}

/// What a line is by the slow way; none where nothing is promised: no valid JSON, or a long line with ids all over.
fn read(line: &[u8]) -> Option<Frame<'_>> {
    let frame = |kind, id, method| {
        Some(Frame {
            kind,
            id,
            method,
            bytes: line.len() as u64,
        })
    };
    let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if text
        .iter()
        .all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
    {
        return frame(Kind::Blank, Id::Absent, None);
    }
    let value: &RawValue = serde_json::from_slice(text).ok()?;
    match value.get().as_bytes().first()? {
        b'{' => {}
        b'[' => return frame(Kind::Batch, Id::Absent, None),
        _ => return frame(Kind::Junk, Id::Absent, None),
    }
    let Some(Members(members)) = Members::of_line(line) else {
        // Valid but for a key with half a surrogate pair.
        return None;
    };
    if line.len() as u64 >= LONG_BYTES && !plain_ids(&members) {
        return None;
    }
    let mut id = None;
    let mut verb = None;
    for (key, value) in &members {
        let value = value.get();
        match &**key {
            "id" => id = id.or(Some(value)),
            "method" | "error" if value == "null" => {}
            "method" | "error" | "result" => verb = verb.or(Some((&**key, value))),
            _ => {}
        }
    }
    let kind = match (verb, id) {
        (Some(("method", _)), Some(_)) => Kind::Request,
        (Some(("method", _)), None) => Kind::Notification,
        (Some(("error", _)), _) => Kind::Error,
        (Some(_), _) | (None, Some(_)) => Kind::Response,
        (None, None) => Kind::Junk,
    };
    let id = match id {
        None => Id::Absent,
        Some("null") => Id::Null,
        Some(token) if token.len() > ID_BYTES => Id::TooLong,
        Some(token) => Id::Token(token.as_bytes()),
    };
    let method = match verb {
        Some(("method", token)) if token.len() <= METHOD_BYTES + 2 => {
            serde_json::from_str(token).ok().map(Cow::Owned)
        }
        Some(_) | None => None,
    };
    frame(kind, id, method)
}

/// Whether the line has at most one id, before all nested values or short and close to the end.
fn plain_ids(members: &[(Cow<'_, str>, &RawValue)]) -> bool {
    let nested = |(_, value): &(Cow<'_, str>, &RawValue)| value.get().starts_with(['{', '[']);
    let mut ids = members
        .iter()
        .enumerate()
        .filter(|(_, (key, _))| key == "id");
    match (ids.next(), ids.next()) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some((at, id)), None) => {
            let (before, after) = members.split_at(at);
            !nested(id)
                && (!before.iter().any(nested)
                    || (after.len() <= 2 && !after.iter().any(nested) && {
                        // White space may be anywhere; the end of the text of the last value is near enough.
                        let start = id.1.get().as_ptr() as usize;
                        let end = after.last().map_or(start, |(_, value)| {
                            value.get().as_ptr() as usize + value.get().len()
                        });
                        end - start <= ID_BYTES
                    }))
        }
    }
}
