//! The modern era: headers instead of a session.
//! guards: Requests of the modern era carry their headers and no session id.

use super::*;

fn modern(id: u32, method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    )
}

#[test]
fn modern_requests_carry_their_headers_and_no_session() {
    let mut play = Play::new(Retry::Safe);
    let discover = play.ask(&modern(1, "server/discover", ""));
    assert_eq!(
        play.header(discover, headers::METHOD),
        Some("server/discover")
    );
    assert_eq!(play.header(discover, headers::VERSION), Some("2026-07-28"));
    play.head(discover, 200, Content::Json, Some("never"));
    play.body(discover, &result(1));
    play.line(&modern(3, "tools/list", ""));
    let unmarked = r#"{"id":3,"result":{"tools":[{"name":"t","inputSchema":{}}]}}"#;
    play.json(play.last(), unmarked);
    let request = play.ask(&modern(
        2,
        "tools/call",
        r#""name":"t","arguments":{"a":"x"},"#,
    ));
    assert_eq!(play.header(request, headers::NAME), Some("t"));
    assert_eq!(play.header(request, headers::SESSION), None);
    let mismatch = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"x"}}"#;
    play.status(request, 400, mismatch);
    let refresh = play.last();
    assert_eq!(play.method(refresh), "tools/list");
    assert_eq!(play.header(refresh, headers::VERSION), Some("2026-07-28"));
    play.json(
        refresh,
        r#"{"id":"x","result":{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}}"#,
    );
    let again = play.last();
    assert_eq!(play.header(again, "mcp-param-a"), Some("x"));
    play.status(again, 400, mismatch);
    assert_eq!(play.said, [result(1), unmarked.into(), mismatch.into()]);
    play.give(Input::Eof);
    assert!(play.done, "there is nothing to close");
}

#[test]
fn a_modern_call_waits_for_a_tool_list_that_the_client_did_not_ask_for() {
    let called = |play: &mut Play, id: u32| {
        let name = r#""name":"t","arguments":{"a":"x"},"#;
        play.line(&modern(id, "tools/call", name));
        play.last()
    };
    // The bridge before this one may have shown it to the client.
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    assert_eq!(play.method(list), "tools/list");
    play.json(
        list,
        r#"{"id":"x","result":{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}}"#,
    );
    let call = play.last();
    assert_eq!(play.method(call), "tools/call");
    assert_eq!(play.header(call, "mcp-param-a"), Some("x"));
    play.json(call, &result(1));
    let next = called(&mut play, 2);
    assert_eq!(play.method(next), "tools/call", "it is known now");
    assert_eq!(play.said, [result(1)]);
    // A server that has none is called all the same, and one whose call was taken back meanwhile is not.
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    play.json(list, r#"{"id":"x","error":{"code":-32601,"message":"no"}}"#);
    assert_eq!(play.method(play.last()), "tools/call");
    let mut play = Play::new(Retry::Safe);
    let list = called(&mut play, 1);
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    play.json(list, r#"{"id":"x","result":{"tools":[]}}"#);
    assert_eq!(play.last(), list, "nothing was sent");
    assert!(play.said.is_empty());
}

#[test]
fn a_modern_cancel_is_the_end_of_the_stream_and_a_legacy_one_a_message() {
    let mut play = Play::new(Retry::Safe);
    let request = play.ask(&modern(1, "prompts/get", r#""name":"t","#));
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(play.closed, [request]);
    assert_eq!(play.last(), request);
    let mut play = Play::open(Retry::Safe);
    let request = play.ask(&call(1));
    play.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(play.method(play.last()), "notifications/cancelled");
    play.json(request, &result(1));
    assert!(play.said.is_empty(), "no request waits for it");
}
