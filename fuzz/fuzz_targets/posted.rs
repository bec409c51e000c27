//! What a client posts to `serve`, and the Host that it names: whatever is let in means the same to a reader that takes the
//! last of two keys and does not tell upper case from lower case. Up to the first newline it is a host, the rest is a body.
#![no_main]

use std::net::IpAddr;

use mainstay_fuzz::json::{Read, Value, What, read};
use mainstay_http_core::serve::access::AccessRules;
use mainstay_http_core::serve::headers::named_by;
use mainstay_http_core::serve::posted::{Kind, Posted, Unread, line};

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == b'\n');
    let (first, body) = data.split_at(end.map_or(0, |end| end + 1));
    host(&String::from_utf8_lossy(first));
    posted(body);
});

fn host(text: &str) {
    if AccessRules::default()
        .judge(Some(text), None, None)
        .is_err()
    {
        return;
    }
    let text = text.trim();
    let name = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => text.split(':').next().unwrap_or(""),
    };
    let name = name.trim_end_matches('.').to_lowercase();
    // Leading zeros are read in two ways, and in both the first number says that it is this machine.
    let plain: Vec<&str> = name
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        })
        .collect();
    let address = |text: &str| text.parse::<IpAddr>().is_ok_and(|one| one.is_loopback());
    let ours = address(&name) || name.starts_with("127.") && address(&plain.join("."));
    let named = name == "localhost" || name.ends_with(".localhost");
    assert!(ours || named, "{text:?} is not this machine");
}

fn posted(body: &[u8]) {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let read = read(text);
    match (Posted::read(body), &read) {
        (Ok(posted), Read::Json(value)) => agrees(&posted, value),
        (Ok(_), Read::NotJson) => panic!("it is no JSON"),
        (Err(Unread::Ambiguous), Read::Json(value)) => {
            assert!(
                !value.plain(),
                "refused, although every reader takes it alike"
            );
        }
        (Err(_), _) | (Ok(_), Read::TooDeep) => {}
    }
    let Ok(line) = line(body) else {
        return;
    };
    assert_eq!(
        line.iter().position(|&byte| byte == b'\n'),
        Some(line.len() - 1)
    );
    let kind = |body: &[u8]| Posted::read(body).map(|posted| format!("{:?}", posted.kind));
    assert_eq!(
        kind(&line),
        kind(body),
        "the line means what the body meant"
    );
}

fn agrees(posted: &Posted<'_>, value: &Value<'_>) {
    assert!(!value.repeats(), "a key is there twice");
    let raw = |key: &str| value.last_of_any_case(key).map(|value| value.raw);
    let text = |key: &str| value.last_of_any_case(key).and_then(Value::text);
    match posted.kind {
        Kind::Request(id) | Kind::Answer(id) => assert_eq!(raw("id"), Some(id)),
        Kind::Notification => assert_eq!(raw("id"), None),
    }
    match posted.kind {
        Kind::Request(_) | Kind::Notification => {
            assert_eq!(text("method").as_deref(), Some(&*posted.method));
        }
        Kind::Answer(_) => assert_eq!(raw("method"), None),
    }
    let params = value.last_of_any_case("params");
    let params = params.filter(|params| matches!(params.what, What::Object(_)));
    let param = |key: &str| params.and_then(|params| params.last_of_any_case(key));
    if let Some(key) = named_by(&posted.method) {
        let read = posted.param(key).map(String::from);
        assert_eq!(read, param(key).and_then(Value::text), "Mcp-Name");
    }
    if posted.method == "tools/call" {
        assert_eq!(
            posted.arguments(),
            param("arguments").map(|value| value.raw)
        );
    }
    let meta = param("_meta").filter(|meta| matches!(meta.what, What::Object(_)));
    let of_meta = |key: &str| meta.and_then(|meta| meta.last_of_any_case(key));
    let token = of_meta("progressToken").map(|value| value.raw);
    assert_eq!(posted.progress_token(), token);
    let version = of_meta("io.modelcontextprotocol/protocolVersion").and_then(Value::text);
    assert_eq!(posted.version().map(String::from), version);
}
