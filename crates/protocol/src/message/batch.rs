//! Batches: arrays of messages, which only the protocol of 2025-03-26 knows.
//!
//! A batch is forwarded as it came; its members are looked at so that each request in it is tracked. Each member is
//! judged by the same [`Scanner`] as a line.

use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::frame::{Frame, Kind, Scanner};
use crate::limits::HELD_LINE_BYTES;

/// Shows each member of a whole batch line. There are none if the line is no well-formed array or is longer than
/// [`HELD_LINE_BYTES`].
pub fn each_member(line: &[u8], mut show: impl FnMut(Frame<'_>)) {
    if line.len() > HELD_LINE_BYTES {
        return;
    }
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let members: Vec<&RawValue> = serde_json::from_slice(line).unwrap_or_default();
    for member in members {
        let mut scanner = Scanner::new();
        scanner.feed(member.get().as_bytes());
        if let Some(frame) = scanner.finish() {
            show(frame);
        }
    }
}

/// Whether a whole line that begins like an array is a batch: one of its members is a message. A log line that begins
/// with `[` is none.
pub fn is_batch(line: &[u8]) -> bool {
    let mut found = false;
    each_member(line, |member| {
        found |= match member.kind {
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error => true,
            Kind::Batch | Kind::Blank | Kind::Junk => false,
        };
    });
    found
}

/// The same, each with the line that it would be by itself.
pub fn each_member_line(line: &[u8], mut show: impl FnMut(Frame<'_>, &[u8])) {
    if line.len() > HELD_LINE_BYTES {
        return;
    }
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let members: Vec<&RawValue> = serde_json::from_slice(line).unwrap_or_default();
    for member in members {
        // A newline within it is white space between two tokens.
        let mut line = member.get().replace(['\n', '\r'], " ").into_bytes();
        line.push(b'\n');
        let mut scanner = Scanner::new();
        scanner.feed(&line);
        show(scanner.frame(), &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn told(line: &str) -> Vec<String> {
        let mut all = Vec::new();
        each_member(line.as_bytes(), |frame| {
            all.push(format!("{:?} {:?}", frame.kind, frame.id));
        });
        all
    }

    #[test]
    fn each_member_is_told() {
        assert_eq!(
            told(r#" [ {"id":1,"method":"a"}, {"method":"b"},{"result":{},"id":"x"},7,[]] "#),
            [
                "Request Token([49])",
                "Notification Absent",
                "Response Token([34, 120, 34])",
                "Junk Absent",
                "Batch Absent",
            ]
        );
        assert_eq!(
            told("\u{feff}[{\"id\":1,\"error\":{}}]\r\n"),
            ["Error Token([49])"]
        );
    }

    #[test]
    fn a_log_line_is_no_batch() {
        for line in [
            "[INFO] starting",
            "[2026-11-17 12:00:00] listening",
            "[]",
            "[ ]",
            "[1,2]",
            r#"["a"]"#,
            "[{}]",
            "[[]]",
            r#"[{"id":1,"method":"a"}] trailing"#,
            r#"[{"level":"info"}]"#,
        ] {
            assert!(!is_batch(line.as_bytes()), "{line}");
        }
        for line in [
            r#"[{"id":1,"method":"a"}]"#,
            r#" [7,{"method":"a"}]"#,
            r#"[{"result":{},"id":1}]"#,
        ] {
            assert!(is_batch(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_malformed_or_huge_batch_has_no_members() {
        for line in [
            "",
            "[",
            "[]",
            r#"[{"id":1,"method":"a"}"#,
            r#"[{"id":1,"method":"a"},]"#,
            r#"{"id":1,"method":"a"}"#,
        ] {
            assert!(told(line).is_empty(), "{line}");
        }
        let huge = format!(r#"[{{"id":1,"method":"{}"}}]"#, "x".repeat(HELD_LINE_BYTES));
        assert!(told(&huge).is_empty());
    }
}
