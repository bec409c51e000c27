//! guards: The scanner accepts exactly the lines that `serde_json` accepts and never panics.

use super::*;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// `kind id method` of a line, fed whole, byte by byte, and (if it is short) in two pieces cut anywhere.
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
    for cut in 0..line.len().min(300) {
        let mut halves = Scanner::new();
        halves.feed(&with_newline[..cut]);
        halves.feed(&with_newline[cut..]);
        assert_eq!(whole.frame(), halves.frame(), "cut at {cut}");
    }
    let frame = whole.frame();
    assert_eq!(frame.bytes, with_newline.len() as u64);
    if let Some((glanced, used)) = Frame::at_a_glance(&with_newline) {
        assert_eq!((&glanced, used), (&frame, with_newline.len()));
    }
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
        (
            r#"{"xid":1,"xmethod":"n","xresult":{},"method":"m"}"#,
            "Notification - m",
        ),
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
fn a_long_line_gives_its_id_from_the_end() {
    let big = format!(r#"[{{"id":1,"x":"}}\""}},{}4]"#, "3,".repeat(3_000));
    for (line, expected) in [
        (r#"{"result":@,"jsonrpc":"2.0","id":7}"#, "Response 7 -"),
        (
            r#"{"result":@,"id":"a\"\\","jsonrpc":"2.0"}"#,
            r#"Response "a\"\\" -"#,
        ),
        (
            r#"{"result":{"x":@} , "\u0069d" : "b" , "jsonrpc":"2.0" } "#,
            "Response \"b\" -",
        ),
        (r#"{"error":{"data":@},"id":null}"#, "Error null -"),
        (
            r#"{"method":"m","params":@,"jsonrpc":"2.0","id":-1.5e3}"#,
            "Request -1.5e3 m",
        ),
        (r#"{"method":"m","params":@}"#, "Notification - m"),
        (
            r#"{"method":"m","params":@,"jsonrpc":"2.0"}"#,
            "Notification - m",
        ),
        (
            r#"{"method":"m","params":{"x":@,"id":5}}"#,
            "Notification - m",
        ),
        (
            r#"{"method":"m","x":@,"params":{"id":5}}"#,
            "Notification - m",
        ),
        (r#"{"id":1,"x":@,"result":{}}"#, "Response 1 -"),
        // The kind is not known before the long value: it is walked over.
        (r#"{"x":@,"id":1,"y":@,"method":"m"}"#, "Request 1 m"),
        // Torn.
        (r#"{"result":@"#, "Junk - -"),
        (r#"{"result":@,"id":7"#, "Junk - -"),
        // What is given up: an id between two nested values.
        (r#"{"result":@,"id":7,"x":{}}"#, "Response - -"),
    ] {
        assert_eq!(told(line.replace('@', &big).as_bytes()), expected, "{line}");
    }
}

#[test]
fn a_line_that_just_becomes_long_is_read_the_same() {
    for pad in 4_000..4_150 {
        let pad = "x".repeat(pad);
        let line = format!(r#"{{"result":["{pad}"],"id":7}}"#);
        assert_eq!(told(line.as_bytes()), "Response 7 -", "{}", line.len());
        let line = format!(r#"{{"method":"m","params":["{pad}\""]}}"#);
        assert_eq!(told(line.as_bytes()), "Notification - m", "{}", line.len());
    }
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
fn an_answer_whose_id_comes_last_is_one_before_that() {
    for (begins, kind) in [
        (r#"{"result":{"a":"#, Some(Kind::Response)),
        (r#"{"jsonrpc":"2.0","error":{"#, Some(Kind::Error)),
        (r#"{"result":"text"#, Some(Kind::Response)),
        (r#"{"result":{},"#, Some(Kind::Response)),
        (r#"{"params":{"a":"#, None),
        (r#"{"method":"m","params":{"#, None),
        (r#"{"error":null,"#, None),
        (r#"{"result":{}]"#, None),
    ] {
        let mut scanner = Scanner::new();
        scanner.feed(begins.as_bytes());
        let begun = scanner.begun();
        assert_eq!(begun.as_ref().map(|frame| frame.kind), kind, "{begins}");
        assert!(begun.is_none_or(|frame| frame.id == Id::Absent));
        assert_eq!(scanner.known(), None, "{begins}");
    }
    let mut scanner = Scanner::new();
    scanner.feed(br#"{"id":1,"result":{"#);
    assert_eq!(scanner.begun(), scanner.known());
}

#[test]
fn the_rest_of_a_line_whose_beginning_is_lost_tells_its_id_if_that_comes_last() {
    for (rest, expected) in [
        ("xx\"}},\"jsonrpc\":\"2.0\",\"id\":7}\n", "Request 7 -"),
        (
            "{\"a\":{}},\"method\":\"m\",\"id\":\"x\"}\n",
            "Request \"x\" -",
        ),
        ("xx\"}}\n", "Notification - -"),
        ("7}\n", "Notification - -"),
        ("xx\n", "Junk - -"),
        // A nested value is no message.
        ("{\"id\":1,\"method\":\"m\"}},\"id\":7}\n", "Request 7 -"),
        ("[{\"id\":1,\"method\":\"m\"}]},\"id\":7}\n", "Request 7 -"),
    ] {
        for cut in 0..rest.len() {
            let mut scanner = Scanner::within_a_line(Begun::Unknown);
            scanner.feed(&rest.as_bytes()[..cut]);
            scanner.feed(&rest.as_bytes()[cut..]);
            let frame = scanner.frame();
            let id = match frame.id {
                Id::Token(id) => core::str::from_utf8(id).unwrap_or_default(),
                Id::Absent | Id::Null | Id::TooLong => "-",
            };
            let method = frame.method.as_deref().unwrap_or("-");
            assert_eq!(
                format!("{:?} {id} {method}", frame.kind),
                expected,
                "{rest}"
            );
        }
    }
    for (begun, expected) in [
        (Begun::Unknown, Kind::Request),
        (Begun::Asks, Kind::Request),
        (Begun::Answers, Kind::Response),
    ] {
        let mut scanner = Scanner::within_a_line(begun);
        scanner.feed(b"xx");
        assert_eq!(scanner.begun_as(), begun, "for the next successor");
        scanner.feed(b"xx\"},\"id\":7}\n");
        assert_eq!(scanner.frame().kind, expected);
    }
    let mut scanner = Scanner::within_a_line(Begun::Unknown);
    scanner.feed(b"xx\n");
    scanner.feed(b"yy,\"id\":7}\n");
    assert_eq!(
        scanner.frame().kind,
        Kind::Junk,
        "only the first line has lost anything"
    );
}

#[test]
fn a_batch_and_junk_are_known_from_their_first_byte() {
    let mut scanner = Scanner::new();
    scanner.feed(b" [");
    assert_eq!(scanner.known().map(|f| f.kind), Some(Kind::Batch));
    assert_eq!(scanner.begun(), scanner.known());
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

mod properties {
    use super::*;
    use crate::message::oracle;
    use proptest::prelude::*;

    fn blank() -> impl Strategy<Value = &'static str> {
        prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\t \r")]
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[a-z/]{0,12}",
            1 => any::<String>(),
            1 => r#"[\\"{}\[\],:idx]{0,20}"#,
            1 => (95..140usize).prop_map(|n| "x".repeat(n)),
        ]
        .prop_map(|text| serde_json::to_string(&text).expect("a string"))
    }

    fn scalar() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f32>()
                .prop_filter("JSON has no such number", |n| n.is_finite())
                .prop_map(|n| format!("{n:e}")),
            text(),
            Just(r#""\u0041\/\n\\""#.to_owned()),
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        scalar().prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec((blank(), inner.clone()), 0..5).prop_map(|items| {
                    let items: Vec<String> = items.iter().map(|(b, v)| format!("{b}{v}")).collect();
                    format!("[{}]", items.join(","))
                }),
                prop::collection::vec((key(), inner), 0..5).prop_map(|items| {
                    let items: Vec<String> =
                        items.iter().map(|(k, v)| format!("{k}:{v}")).collect();
                    format!("{{{}}}", items.join(","))
                }),
            ]
        })
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => prop::sample::select(&[
                r#""id""#, r#""method""#, r#""result""#, r#""error""#, r#""params""#, r#""jsonrpc""#,
            ][..]).prop_map(str::to_owned),
            1 => prop::sample::select(&[
                r#""\u0069d""#, r#""i\u0064""#, r#""m\u0065thod""#, r#""\u0072\u0065\u0073\u0075\u006c\u0074""#,
                r#""err\u006fr""#, r#""id\u0000""#, r#""ID""#, r#""i\/d""#,
                r#""xid""#,
                r#""\\id""#,
                r#""xresult""#,
            ][..]).prop_map(str::to_owned),
            1 => text(),
        ]
    }

    /// Valid lines, short and long.
    fn line() -> impl Strategy<Value = String> {
        let long =
            (3_900..4_300usize, blank()).prop_map(|(n, b)| format!("[{b}\"{}\"]", "y".repeat(n)));
        let value = prop_oneof![12 => value(), 1 => long];
        let member = (blank(), key(), blank(), blank(), value, blank());
        (
            prop_oneof![9 => Just(""), 1 => Just("\u{feff}")],
            blank(),
            prop::collection::vec(member, 0..7),
            prop_oneof![3 => Just("\n"), 1 => Just("\r\n")],
        )
            .prop_map(|(mark, b, members, end)| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(b1, key, b2, b3, value, b4)| format!("{b1}{key}{b2}:{b3}{value}{b4}"))
                    .collect();
                format!("{mark}{b}{{{}}}{b}{end}", members.join(","))
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn valid_lines_are_read_as_serde_json_reads_them(
            lines in prop::collection::vec(line(), 1..4),
            cuts in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            let lines = lines.concat();
            oracle::check(lines.as_bytes(), &[]);
            oracle::check(lines.as_bytes(), &[1]);
            oracle::check(lines.as_bytes(), &cuts);
        }

        #[test]
        fn damaged_lines_keep_every_promise(
            line in line(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cuts in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            let mut bytes = line.into_bytes();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            oracle::check(&bytes, &cuts);
        }

        #[test]
        fn any_bytes_keep_every_promise(
            pieces in prop::collection::vec(prop::sample::select(&[
                "{", "}", "[", "]", "\"", "\\", ":", ",", "\n", " ", "\r", "\u{feff}", "\"id\"", "\"method\"", "\"result\"",
                "\"error\"", "1", "null", "\"x\"", "\"jsonrpc\":\"2.0\"", "\u{feff}{", "\u{ff}",
            ][..]), 0..60),
            cuts in prop::collection::vec(1..9u8, 0..6),
        ) {
            oracle::check(pieces.concat().as_bytes(), &cuts);
        }
    }
}
