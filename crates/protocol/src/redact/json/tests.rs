//! guards: A message that is cut at any byte shows no secret that the whole message hides.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use serde_json::{Value, json};

const SECRET: &str = "s3cr3tS3CR3Ts3cr3t";

fn shown(text: &str) -> String {
    body(text).into_owned()
}

#[test]
fn values_under_names_of_secrets_are_hidden_and_the_rest_is_not() {
    for (text, expected) in [
        (r#"{"token":"abc"}"#, r#"{"token":"[hidden]"}"#),
        (r#"{"api_key" : 123}"#, r#"{"api_key" : "[hidden]"}"#),
        (
            r#"{"a":{"password":["x",{"y":"z"},1,null]},"b":"c"}"#,
            r#"{"a":{"password":["[hidden]",{"y":"[hidden]"},"[hidden]",null]},"b":"c"}"#,
        ),
        (r#"{"\u0074oken":"abc"}"#, r#"{"\u0074oken":"[hidden]"}"#),
        (
            r#"{"_meta":{"progressToken":"p-1"},"max_tokens":64}"#,
            r#"{"_meta":{"progressToken":"p-1"},"max_tokens":64}"#,
        ),
        (r#"{"tokens":["abc"]}"#, r#"{"tokens":["[hidden]"]}"#),
        (
            r#"{"name":"API_KEY","value":"abc"}"#,
            r#"{"name":"API_KEY","value":"[hidden]"}"#,
        ),
        (
            r#"{"name":"city","value":"Ulm"}"#,
            r#"{"name":"city","value":"Ulm"}"#,
        ),
        (
            r#"["--token","abc","--port","80"]"#,
            r#"["--token","[hidden]","--port","80"]"#,
        ),
        (
            r#"{"h":"Bearer abcdef0123456789"}"#,
            r#"{"h":"Bearer [hidden]"}"#,
        ),
        (
            r#"{"t":"key is ghp_abcdefghijkl, ok"}"#,
            r#"{"t":"key is [hidden], ok"}"#,
        ),
        (
            r#"{"text":"{\"token\":\"abc\"}"}"#,
            r#"{"text":"{\"token\":\"[hidden]\"}"}"#,
        ),
        (
            r#"{"u":"https://ann:pw@h/x?a=1"}"#,
            r#"{"u":"https://ann:[hidden]@h/x?a=1"}"#,
        ),
        (
            r#"{"u":"get git+https://abc@h/x or ssh://git@h/x, https://h?q=a@b"}"#,
            r#"{"u":"get git+https://[hidden]@h/x or ssh://git@h/x, https://h?q=a@b"}"#,
        ),
        (
            r#"{"u":"http://localhost:8080/x"}"#,
            r#"{"u":"http://localhost:8080/x"}"#,
        ),
        (
            r#"{"pw":"abc","db_pw":"abc","userPass":"abc","pwd":"abc","passphrase":"abc","otp":123456}"#,
            r#"{"pw":"[hidden]","db_pw":"[hidden]","userPass":"[hidden]","pwd":"[hidden]","passphrase":"[hidden]","otp":"[hidden]"}"#,
        ),
        // Results of tests, and the shell's working directory.
        (
            r#"{"pass":12,"fail":0,"bypass":"no","env":{"PWD":"/srv"}}"#,
            r#"{"pass":12,"fail":0,"bypass":"no","env":{"PWD":"/srv"}}"#,
        ),
        (r#"{"pass":"abc"}"#, r#"{"pass":"[hidden]"}"#),
        (
            "login with pw=abc, pwd: def",
            "login with pw=[hidden], pwd: [hidden]",
        ),
        // A text that is no JSON.
        ("token=abc x", "token=[hidden] x"),
        (
            r#"log: {"token": "abc"} y"#,
            r#"log: {"token": "[hidden]"} y"#,
        ),
        (
            "{token: abc def, x: 1}",
            r#"{token: "[hidden]" "[hidden]", x: 1}"#,
        ),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: [hidden]\nHost: x"),
        ("é: ü {", "é: ü {"),
        ("", ""),
    ] {
        assert_eq!(shown(text), expected);
    }
}

/// One message with a secret in every place that is known.
fn full() -> String {
    let inner = json!({"password": SECRET, "list": [{"secret": SECRET}]}).to_string();
    json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {
            "name": "login", "emoji": "a😀b",
            "arguments": {
                "token": SECRET, "Authorization": format!("Bearer {SECRET}"),
                "nested": {"api_key": {"deep": [SECRET, {"x": SECRET}]}},
                "text": inner, "set-cookie": [format!("sid={SECRET}; Path=/")],
                "note": format!("use sk-{SECRET} or password: {SECRET}"),
                "url": format!("https://ann:{SECRET}@h/?access_token={SECRET}&b=1"),
                "args": ["--api-key", SECRET, format!("--secret={SECRET}")],
                "env": [{"name": "MY_TOKEN", "value": SECRET}],
                "plain": "stays"
            }
        }
    })
    .to_string()
}

#[test]
fn cut_off_at_any_byte_nothing_leaks() {
    let text = full();
    for cut in (0..=text.len()).filter(|&cut| text.is_char_boundary(cut)) {
        let shown = shown(&text[..cut]);
        assert!(!shown.contains("s3cr"), "{cut}: {shown}");
        assert!(!shown.contains("S3CR"), "{cut}: {shown}");
    }
}

#[test]
fn json_stays_json_and_keeps_what_is_no_secret() {
    let value: Value = serde_json::from_str(&shown(&full())).unwrap();
    assert_eq!(value["method"], "tools/call");
    let arguments = &value["params"]["arguments"];
    assert_eq!(arguments["plain"], "stays");
    assert_eq!(arguments["token"], HIDDEN);
    assert_eq!(value["params"]["emoji"], "a😀b");
    let inner: Value = serde_json::from_str(arguments["text"].as_str().unwrap()).unwrap();
    assert_eq!(inner["list"][0]["secret"], HIDDEN);
}

#[test]
fn any_text_is_redacted_without_a_panic() {
    let pieces = [
        "{", "}", "[", "\"", "\\", "\\u", ":", "token", ",", "1", " ", "é", "x", "//", "@", "=",
        "\u{c}", "\u{b}", "\u{a0}", "\0",
    ];
    let mut seed = 1u64;
    for _ in 0..20_000 {
        let mut words: Vec<&str> = Vec::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            words.push(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let text = words.concat();
        let once = shown(&text);
        assert!(
            serde_json::from_str::<Value>(&text).is_err()
                || serde_json::from_str::<Value>(&once).is_ok(),
            "{text}"
        );
    }
    assert_eq!(body("plain").to_string(), "plain");
}
