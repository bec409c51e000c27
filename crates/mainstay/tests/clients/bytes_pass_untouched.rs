//! Lines reach the other side byte by byte as they were written: odd spacing, unicode, \r\n, blank lines, batches, invalid UTF-8,
//! numbers that no float can hold.
//! guards: Bytes between two newlines reach the other side unchanged and in order.

use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::stage::{Stage, run};

/// Messages that a parser and printer would change.
const ODD: [&[u8]; 14] = [
    br#"{"jsonrpc":"2.0","method":"notifications/plain"}"#,
    b"  {  \"jsonrpc\" :\t\"2.0\" , \"method\"\t:  \"notifications/spacing\"  }  ",
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/carriage-return\"}\r",
    br#"{"method":"notifications/order","params":{"z":1,"a":2},"jsonrpc":"2.0"}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/twice","method":"notifications/twice"}"#,
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/unicode\",\"params\":{\"é\":\"日本語 🦀 \u{202e}\"}}".as_bytes(),
    br#"{"jsonrpc":"2.0","method":"notifications/escapes","params":{"s":"\u00e9\ud83e\udd80\/\b\f"}}"#,
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/not-utf-8\",\"params\":{\"s\":\"\xff\xfe\xc3\x28\"}}",
    br#"{"jsonrpc":"2.0","method":"notifications/huge","params":{"n":123456789012345678901234567890.12345678901234567890e400}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/zero","params":{"n":[-0,-0.0,1E+2,0.10]}}"#,
    br#"[{"jsonrpc":"2.0","method":"notifications/batch"},  {"jsonrpc":"2.0","method":"notifications/batch"}]"#,
    br#"{"jsonrpc":"2.0","method":"notifications/extra","unknown":{"deep":[[[[[[[[[]]]]]]]]]}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/strings","params":{"s":"{\"id\":7,\"method\":\"x\"}\\"}}"#,
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nul\",\"params\":{\"s\":\"\\u0000 \x7f\"}}",
];

/// Lines that only a client may send: they pass unchecked.
const WORSE: [&[u8]; 6] = [
    b"",
    b"\r",
    b"not json at all",
    b"{\"half\":",
    b"\xf0\x28\x8c\x28",
    b"[]",
];

fn lines(of: &[&[u8]]) -> Vec<u8> {
    let mut bytes: Vec<u8> = of
        .iter()
        .flat_map(|line| [line, &b"\n"[..]].concat())
        .collect();
    // Lines around the size up to which a line is forwarded whole.
    for size in [65_534, 65_535, 65_536, 65_537, 200_000] {
        let head = r#"{"jsonrpc":"2.0","method":"notifications/long","params":{"s":""#;
        let pad = "y".repeat(size - head.len() - 3);
        bytes.extend_from_slice(format!("{head}{pad}\"}}}}\n").as_bytes());
    }
    bytes
}

#[test]
fn bytes_from_client_to_server_are_unchanged() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let record = stage.path("record");
        let server = stage.unruly(&["--record", record.to_str().unwrap()]);
        let mut client = Launch::new(&stage, &run(mainstay, &[], server))
            .carrier(carrier)
            .start();
        let said = [lines(&ODD), WORSE.join(&b'\n'), b"\n".to_vec(), lines(&ODD)].concat();
        client.wire.send_bytes(&said).unwrap();
        let (status, rest) = client.finish();
        assert!(status.success());
        assert_same(&fs::read(record).unwrap(), &said);
        assert_eq!(rest, b"");
        stage.census.assert_empty();
    }
}

#[test]
fn bytes_from_server_to_client_are_unchanged() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let replay = stage.path("replay");
    let said = lines(&ODD);
    fs::write(&replay, &said).unwrap();
    let server = stage.unruly(&["--replay", replay.to_str().unwrap()]);
    let mut client = Launch::new(&stage, &run(mainstay, &[], server)).start();
    client
        .wire
        .send_bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/begin\"}\n")
        .unwrap();
    let (status, rest) = client.finish();
    assert!(status.success());
    assert_same(&rest, &said);
    stage.census.assert_empty();
}

/// Names the first difference, because half a megabyte of bytes in a report does not help.
fn assert_same(got: &[u8], sent: &[u8]) {
    let differs = got.iter().zip(sent).position(|(one, other)| one != other);
    let at = differs.unwrap_or(got.len().min(sent.len()));
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(40).min(bytes.len())..(at + 40).min(bytes.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    assert!(
        got == sent,
        "at byte {at} of {}: got {:?}, sent {:?}",
        sent.len(),
        around(got),
        around(sent)
    );
}
