//! Clients connect and disconnect at any byte. Afterwards `serve` holds exactly what it held before.
//! guards: A client of `serve` that disconnects at any byte leaves nothing behind.

use crate::support::front::{Front, call, request};
use mainstay_testkit::wait::until;
use serde_json::json;

const LINKS: &str = "mainstay_links";
const DESCRIPTORS: &str = "mainstay_descriptors";

/// A whole request of a session, or an opening.
fn whole(session: Option<&str>) -> Vec<u8> {
    let body = match session {
        None => request(0, "initialize", &json!({"protocolVersion": "2025-11-25"})),
        Some(_) => call(9, "sleep", &json!({"ms": 600_000})),
    };
    let body = serde_json::to_string(&body).unwrap();
    let named = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{named}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[test]
fn connections_cut_after_any_number_of_bytes_leave_nothing() {
    let front = Front::start(&[], &[]);
    assert_eq!(front.session().delete().status, 200);
    front.metric_is(LINKS, 0);
    front.metric_is("mainstay_connections_open", 1);
    let before = front.metric(DESCRIPTORS);
    for round in 0..12 {
        let session = front.session();
        for bytes in [whole(None), whole(Some(&session.id))] {
            // From one byte to all of them, so that each part of a request is cut once.
            let cut = (bytes.len() * (round + 1) / 12).max(1);
            let mut connection = front.connect();
            connection.raw(&bytes[..cut]);
            connection.drop_it();
        }
        let mut news = session.news(None);
        if round % 2 == 0 {
            news.head();
        }
        news.drop_it();
        if round % 3 == 0 {
            assert_eq!(session.delete().status, 200);
        }
    }
    front.limit("session_ttl = \"1s\"");
    front.metric_is("mainstay_sessions_open", 0);
    front.metric_is(LINKS, 0);
    front.metric_is("mainstay_connections_open", 1);
    // The connection of the earlier metrics request may still be closing.
    until(&format!("{before} descriptors, as before"), || {
        (front.metric(DESCRIPTORS) <= before).then_some(())
    });
    front.finish();
}
