//! claude-code #56456: clients that never send DELETE. With mainstay in front of the server, no session stays open.
//! guards: Sessions whose clients never send DELETE end by idle time or by the session limit.

use crate::support::front::{self, Front};

#[test]
fn idle_sessions_end() {
    let front = Front::start(&[], &[]);
    for _ in 0..20 {
        drop(front.session());
    }
    // The limit is set only now, so that no session ends before, however long that took.
    front.limit("session_ttl = \"1s\"");
    front.metric_is("mainstay_sessions_closed_total{cause=\"idle\"}", 20);
    front.metric_is("mainstay_sessions_open", 0);
    front.metric_is("mainstay_links", 0);
    front.finish();
}

#[test]
fn never_more_sessions_than_allowed() {
    let front = Front::start(&["--session-cap", "3"], &[]);
    let sessions: Vec<_> = (0..8).map(|_| front.session()).collect();
    assert_eq!(front.metric("mainstay_sessions_open"), 3);
    assert_eq!(
        front.metric("mainstay_sessions_closed_total{cause=\"evicted\"}"),
        5
    );
    for old in &sessions[..5] {
        assert_eq!(old.delete().status, 404, "the oldest made room");
    }
    // Sessions in use are not evicted.
    let news: Vec<_> = sessions[5..]
        .iter()
        .map(|session| {
            let mut news = session.news(None);
            assert_eq!(news.head().status, 200);
            news
        })
        .collect();
    let mut connection = front.connect();
    connection.post(
        &[],
        &front::request(0, "initialize", &serde_json::json!({})),
    );
    let refused = connection.answer();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(news);
    front.metric_is("mainstay_links", 3);
    front.finish();
}
