use super::*;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// `kind id method` of a line, fed whole and byte by byte.
fn told(line: &[u8]) -> String {
    let mut whole = Scanner::new();
    let with_newline = [line, b"\n"].concat();
    assert_eq!(
        whole.feed(&with_newline),
        Fed::Line {
            used: with_newline.len()
        }
    );
    let mut bytewise = Scanner::new();
    for byte in line {
        assert_eq!(bytewise.feed(&[*byte]), Fed::Partial);
    }
    bytewise.feed(b"\n");
    assert_eq!(whole.frame(), bytewise.frame());
    let frame = whole.frame();
    assert_eq!(frame.bytes, with_newline.len() as u64);
    let id = match frame.id {
        Id::Absent => "-".to_owned(),
        Id::Null => "null".to_owned(),
        Id::Token(token) => String::from_utf8_lossy(token).into_owned(),
        Id::TooLong => "long".to_owned(),
    };
    let method = frame.method.as_deref().unwrap_or("-").to_string();
    format!("{:?} {id} {method}", frame.kind)
}

#[test]
fn lines_and_what_they_are() {
    for (line, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
            "Request 1 tools/call",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"x"},"jsonrpc":"2.0","id":3}"#,
            "Request 3 tools/call",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "Notification - notifications/initialized",
        ),
        (
            r#"{"result":{"content":[{"id":9}]},"jsonrpc":"2.0","id":"a b"}"#,
            "Response \"a b\" -",
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}"#,
            "Error 7 -",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#,
            "Error null -",
        ),
        (
            " \t{ \"id\" : 1.0 , \"result\" : null } \r",
            "Response 1.0 -",
        ),
        ("\u{feff}{\"id\":1,\"method\":\"ping\"}", "Request 1 ping"),
        // Nested keys never count.
        (
            r#"{"params":{"id":1,"method":"x","result":1},"method":"m"}"#,
            "Notification - m",
        ),
        (
            r#"{"params":["}","\"","\\",{"id":4}],"method":"m","id":5}"#,
            "Request 5 m",
        ),
        (r#"{"x":"\"id\":1,","method":"m\\"}"#, "Notification - m\\"),
        // Escapes.
        (
            r#"{"\u0069d":1,"m\u0065thod":"tools\/c\u0061ll"}"#,
            "Request 1 tools/call",
        ),
        (
            r#"{"\u0072\u0065\u0073\u0075\u006c\u0074":{},"id":"\u0031"}"#,
            "Response \"\\u0031\" -",
        ),
        (r#"{"method":"\ud800","id":1}"#, "Request 1 -"),
        // Odd ids.
        (r#"{"id":{"a":[1]},"method":"m"}"#, "Request {\"a\":[1]} m"),
        (r#"{"id":true,"method":"m"}"#, "Request true m"),
        (r#"{"id":"","method":"m"}"#, "Request \"\" m"),
        // First word counts.
        (
            r#"{"id":1,"id":2,"method":"a","method":"b"}"#,
            "Request 1 a",
        ),
        (r#"{"method":"a","id":1,"result":{}}"#, "Request 1 a"),
        (r#"{"result":{},"id":1,"method":"a"}"#, "Response 1 -"),
        (r#"{"result":{},"error":{},"id":1}"#, "Response 1 -"),
        (r#"{"error":{},"result":{},"id":1}"#, "Error 1 -"),
        // Null is not there, except for a result and an id.
        (
            r#"{"id":1,"method":null,"params":null,"result":{},"error":null}"#,
            "Response 1 -",
        ),
        (r#"{"id":1,"error":null,"result":{}}"#, "Response 1 -"),
        (r#"{"id":1,"method":null,"error":{}}"#, "Error 1 -"),
        (r#"{"id":1}"#, "Response 1 -"),
        (r#"{"id":null}"#, "Response null -"),
        (r#"{"id":1,"method":5}"#, "Request 1 -"),
        // Arrays.
        (r#"[{"id":1,"method":"m"}]"#, "Batch - -"),
        ("[", "Batch - -"),
        // Blank.
        ("", "Blank - -"),
        (" \t\r", "Blank - -"),
        ("\u{feff}\r", "Blank - -"),
        // Junk.
        ("{}", "Junk - -"),
        (r#"{"jsonrpc":"2.0"}"#, "Junk - -"),
        (r#"{"jsonrpc":"2.0",}"#, "Junk - -"),
        (r#"{"method":null}"#, "Junk - -"),
        ("Server listening on 3000", "Junk - -"),
        ("\"id\"", "Junk - -"),
        ("1", "Junk - -"),
        (" \u{feff}{\"id\":1}", "Junk - -"),
        (r#"{"id" 1,"method":"m"}"#, "Junk - -"),
        (r#"{"id":,"method":"m"}"#, "Junk - -"),
        ("{id:1}", "Junk - -"),
        (r#"{"id":1 2}"#, "Junk - -"),
        // Torn.
        (r#"{"id":1,"meth"#, "Junk - -"),
        (r#"{"method":"m","params":{"#, "Junk - -"),
        (r#"{"method":"m\"#, "Junk - -"),
        ("{", "Junk - -"),
        // What comes after the decision is not our business.
        (r#"{"id":1,"method":"m",,,"#, "Request 1 m"),
        (r#"{"method":"m"}}}"#, "Notification - m"),
    ] {
        assert_eq!(told(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(told(b"\xff\xfe"), "Junk - -");
    assert_eq!(told(b"\xef\xbb"), "Junk - -");
    assert_eq!(told(b"\xef\xbb{}"), "Junk - -");
    assert_eq!(told(b"{\"method\":\"\xff\",\"id\":1}"), "Request 1 -");
    assert_eq!(
        told(b"{\"x\":\"\xff\",\"method\":\"m\"}"),
        "Notification - m"
    );
}

#[test]
fn limits_are_exact() {
    let id = |n: usize| format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(n));
    let fits = format!("Request \"{}\" m", "x".repeat(ID_BYTES - 2));
    assert_eq!(told(id(ID_BYTES - 2).as_bytes()), fits);
    assert_eq!(told(id(ID_BYTES - 1).as_bytes()), "Request long m");
    assert_eq!(told(id(5_000).as_bytes()), "Request long m");
    let method = |n: usize| format!(r#"{{"id":1,"method":"{}"}}"#, "y".repeat(n));
    let fits = format!("Request 1 {}", "y".repeat(METHOD_BYTES));
    assert_eq!(told(method(METHOD_BYTES).as_bytes()), fits);
    assert_eq!(told(method(METHOD_BYTES + 1).as_bytes()), "Request 1 -");
    let key = format!(r#"{{"{}id":1,"method":"m"}}"#, "k".repeat(4_000));
    assert_eq!(told(key.as_bytes()), "Notification - m");
}

#[test]
fn a_long_answer_is_known_before_its_end() {
    let mut scanner = Scanner::new();
    assert_eq!(scanner.known(), None);
    scanner.feed(br#"{"jsonrpc":"2.0","id":4"#);
    assert_eq!(scanner.known(), None);
    scanner.feed(br#"2,"result":{"conte"#);
    let known = scanner.known().expect("id and kind were there");
    assert_eq!((known.kind, known.id), (Kind::Response, Id::Token(b"42")));
    assert!(!scanner.certain_junk());
    assert!(!scanner.between_lines());
    assert_eq!(scanner.feed(b"nt\":[]}}\n{"), Fed::Line { used: 9 });
    assert!(scanner.between_lines());
    assert_eq!(scanner.frame().kind, Kind::Response);
    scanner.feed(b"{");
    assert_eq!(scanner.known(), None);
}

#[test]
fn a_batch_and_junk_are_known_from_their_first_byte() {
    let mut scanner = Scanner::new();
    scanner.feed(b" [");
    assert_eq!(scanner.known().map(|f| f.kind), Some(Kind::Batch));
    assert!(!scanner.certain_junk());
    let mut scanner = Scanner::new();
    scanner.feed(b" \t");
    assert!(!scanner.certain_junk());
    scanner.feed(b"L");
    assert!(scanner.certain_junk());
    assert_eq!(scanner.known(), None);
}

#[test]
fn the_last_line_may_lack_its_newline() {
    let mut scanner = Scanner::new();
    assert_eq!(scanner.finish(), None);
    scanner.feed(br#"{"id":1,"method":"ping"}"#);
    assert_eq!(scanner.finish().map(|f| f.kind), Some(Kind::Request));
    assert_eq!(scanner.finish(), None);
    scanner.feed(b"{}\n");
    assert_eq!(scanner.finish(), None);
    scanner.feed(b"{\"id\"");
    assert_eq!(
        scanner.finish().map(|f| (f.kind, f.bytes)),
        Some((Kind::Junk, 5))
    );
}

#[test]
fn lines_follow_each_other_in_one_piece() {
    let input =
        b"{\"id\":1,\"method\":\"a\"}\r\n\n{\"result\":1,\"id\":2}\nhello\n{\"id\":3,\"meth";
    let mut scanner = Scanner::new();
    let mut rest = &input[..];
    let mut kinds = Vec::new();
    while let Fed::Line { used } = scanner.feed(rest) {
        kinds.push((scanner.frame().kind, used));
        rest = &rest[used..];
    }
    assert_eq!(
        kinds,
        [
            (Kind::Request, 23),
            (Kind::Blank, 1),
            (Kind::Response, 20),
            (Kind::Junk, 6)
        ]
    );
    scanner.feed(b"od\":\"b\"}\n");
    assert_eq!(scanner.frame().method.as_deref(), Some("b"));
}
