//! Entries with a URL: which become `run --url`, how, and back.
//! guards: An entry with a URL becomes `run --url` with its headers as variables, and release restores it.

use mainstay_clients::plan::{self, Adopt, Reason, RemoteEntries};

use crate::support::{adopt, adopted, client, file, reason, release, text, wish};

#[test]
fn the_url_moves_and_headers_become_variables() {
    let old = r#"{"mcpServers":{"t":{"type":"http","url":"https://h.example/mcp","headers":{"Authorization":"Bearer x","X-Team":"blue"},"timeout":5}}}"#;
    let new = r#"{"mcpServers":{"t":{"type":"stdio","command":"/home/ann/.local/bin/mainstay", "args": ["run", "--name", "t", "--header-env", "Authorization=MAINSTAY_HEADER_1", "--header-env", "X-Team=MAINSTAY_HEADER_2", "--url", "https://h.example/mcp"],"env":{"MAINSTAY_HEADER_1":"Bearer x","MAINSTAY_HEADER_2":"blue"},"timeout":5}}}"#;
    assert_eq!(adopted("claude", old), new);
    let old = "{\"mcp\": {\n  \"t\": {\n    \"url\": \"http://localhost:1/\",\n    \"type\": \"remote\",\n  },\n}}";
    let new = "{\"mcp\": {\n  \"t\": {\n    \"command\": [\"/home/ann/.local/bin/mainstay\", \"run\", \"--name\", \"t\", \"--url\", \"http://localhost:1/\"],\n    \"type\": \"local\",\n  },\n}}";
    assert_eq!(adopted("opencode", old), new);
    let old =
        "mcpServers:\n- name: t\n  type: streamable-http # c\n  url: 'http://127.0.0.1:1/' # d\n";
    let new = "mcpServers:\n- name: t\n  type: stdio # c\n  command: \"/home/ann/.local/bin/mainstay\" # d\n  args: [\"run\", \"--name\", \"t\", \"--url\", 'http://127.0.0.1:1/']\n";
    assert_eq!(adopted("continue", old), new);
    let old = "{\"mcpServers\":{\"t\":{\"httpUrl\":\"http://[::1]:1/\",\"headers\":{}}}}";
    let new = "{\"mcpServers\":{\"t\":{\"command\":\"/home/ann/.local/bin/mainstay\", \"args\": [\"run\", \"--name\", \"t\", \"--url\", \"http://[::1]:1/\"],\"env\":{}}}}";
    assert_eq!(adopted("gemini", old), new);
}

#[test]
fn a_rewritten_remote_entry_comes_back() {
    let old = r#"{"mcpServers":{"t":{"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer x","X-B":"c"}}}}"#;
    let new = adopted("claude", old);
    let value: serde_json::Value = serde_json::from_str(&new).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    let back = release("claude", pretty.as_bytes()).unwrap();
    let back: serde_json::Value = serde_json::from_slice(back.new_bytes()).unwrap();
    assert_eq!(
        back,
        serde_json::from_str::<serde_json::Value>(old).unwrap()
    );
}

#[test]
fn variables_that_were_added_keep_the_entry() {
    let old = r#"{"mcpServers":{"t":{"type":"http","url":"https://h/mcp","headers":{"Authorization":"x"}}}}"#;
    let new = adopted("claude", old).replace("\"env\":{", "\"env\":{\"MINE\":\"1\",");
    let plan = release("claude", new.as_bytes()).unwrap();
    assert!(!plan.changes());
    let why = format!("{:?}", plan.entries()[0].action);
    assert!(why.contains("ForeignVariables"), "{why}");
}

#[test]
fn what_cannot_be_bridged_is_left_alone() {
    let claude = |body: &str| format!("{{\"mcpServers\":{{\"t\":{{{body}}}}}}}");
    let key = |key: &str| Reason::RemoteKey { key: key.into() };
    let of = |of: &str| Reason::RemoteType {
        of: Some(of.into()),
    };
    for (body, why) in [
        (
            r#""type":"http","url":"https://h/mcp""#,
            Reason::MayNeedLogin,
        ),
        (
            r#""type":"http","url":"https://h/mcp","headers":{"X-Team":"b"}"#,
            Reason::MayNeedLogin,
        ),
        (
            r#""type":"http","url":"https://h/mcp","oauth":{"clientId":"x"}"#,
            Reason::OAuth,
        ),
        (
            r#""type":"http","url":"https://h/mcp?k=1","headersHelper":"x""#,
            key("headersHelper"),
        ),
        (
            r#""type":"http","url":"https://h/mcp?k=1","env":{}"#,
            key("env"),
        ),
        (
            r#""type":"http","url":"https://h/mcp?k=1","args":[]"#,
            key("args"),
        ),
        (r#""type":"sse","url":"https://h/sse?k=1""#, of("sse")),
        (
            r#""url":"https://h/sse?k=1""#,
            Reason::RemoteType { of: None },
        ),
        (r#""type":"http","url":7"#, Reason::Unusual),
        (
            r#""type":"http","\u0075rl":"http://localhost/""#,
            Reason::Unusual,
        ),
        (
            r#""type":"ht\u0074p","url":"http://localhost/""#,
            Reason::Unusual,
        ),
        (
            r#""type":"http","url":"http://localhost/","headers":{"a b":"c"}"#,
            Reason::Unusual,
        ),
        (
            r#""type":"http","url":"http://localhost/","headers":{"A":1}"#,
            Reason::Unusual,
        ),
        (r#""note":1"#, Reason::NoCommand),
    ] {
        assert_eq!(reason("claude", &claude(body)), why, "{body}");
    }
    let open = "mcpServers:\n- name: t\n  type: streamable-http\n  url: http://localhost/\n  requestOptions: {headers: {A: b}}\n";
    assert_eq!(reason("continue", open), key("requestOptions"));
    let quoted = "mcpServers:\n- name: t\n  type: 'streamable-http'\n  url: http://localhost/\n";
    assert_eq!(reason("continue", quoted), Reason::Unusual);
    let off =
        "{\"mcp\":{\"t\":{\"type\":\"remote\",\"url\":\"http://localhost/\",\"oauth\":false}}}";
    assert_eq!(reason("opencode", off), key("oauth"));
}

#[test]
fn remote_entries_may_be_chosen_more_or_less_boldly() {
    let open = r#"{"mcpServers":{"t":{"type":"http","url":"https://h/mcp"}}}"#;
    let bold = Adopt {
        remote: RemoteEntries::WithoutCredentials,
        ..wish()
    };
    let (claude, own) = (client("claude"), file("claude"));
    let plan = plan::adopt(open.as_bytes(), claude, own, &bold).unwrap();
    assert!(plan.changes());
    let back = release("claude", plan.new_bytes()).unwrap();
    assert_eq!(text(&back), open);
    let here = r#"{"mcpServers":{"t":{"type":"http","url":"http://localhost/mcp"}}}"#;
    assert!(adopt("claude", here.as_bytes()).unwrap().changes());
    let shy = Adopt {
        remote: RemoteEntries::Leave,
        ..wish()
    };
    assert!(
        !plan::adopt(here.as_bytes(), claude, own, &shy)
            .unwrap()
            .changes()
    );
}
