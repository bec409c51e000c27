//! A request that the client cancels is over at once for `serve`, whether or not its server answers later.
//! guards: A cancelled request is answered at once and takes no place.

use crate::support::front::{Front, call};
use mainstay_testkit::wait::until;
use serde_json::json;

#[test]
fn a_cancelled_request_takes_no_place() {
    let front = Front::start(&["--requests-max", "3", "--sse-keep-alive", "100ms"], &[]);
    let session = front.session();
    for id in 1..=8 {
        let mut waiting = session.asking(&call(id, "sleep", &json!({"ms": 600_000})));
        // Every second request has become a stream by then. For one in four, the client disconnects first.
        let streams = id % 2 == 0;
        if streams {
            assert_eq!(
                waiting.head().header("content-type"),
                Some("text/event-stream")
            );
        }
        let asked = u64::try_from(id).unwrap() + 1;
        front.metric_is("mainstay_requests_total{era=\"legacy\"}", asked);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}});
        if id % 4 == 0 {
            waiting.drop_it();
            assert_eq!(session.post(&cancel).status, 202);
            continue;
        }
        assert_eq!(session.post(&cancel).status, 202);
        let answer = if streams {
            waiting.message()
        } else {
            waiting.answer().last()
        };
        assert_eq!(
            (&answer["id"], &answer["error"]["message"]),
            (&json!(id), &json!("the client cancelled the request"))
        );
    }
    until("the server hears of each, in the client's words", || {
        let heard = session.heard();
        let cancelled = heard
            .iter()
            .filter(|line| line.contains("notifications/cancelled") && line.contains("enough"));
        (cancelled.count() == 8).then_some(())
    });
    front.finish();
}
