//! The way out: balancers are told, what is in flight is answered, sessions end, servers go; a second signal cuts it short.

use std::rc::Rc;
use std::time::Duration;

use mainstay_http_core::serve::limits::STOP_MARGIN_MS;
use mainstay_os::signals::Signals;
use mainstay_protocol::limits::Limits;
use mainstay_report::talk;
use tokio::io::unix::AsyncFd;

use super::front::Front;
use super::{Either, next_signal, race};

/// Stops because of this signal; how many servers had not ended when the time was up.
pub async fn stop(front: &Rc<Front>, signals: &AsyncFd<Signals>, number: i32) -> u32 {
    // SIGINT comes from a person at a terminal, who does not want to wait.
    let delay_ms = if number == libc::SIGTERM {
        front.limits().drain_delay_ms
    } else {
        0
    };
    front.stop(delay_ms);
    let polite = async {
        // Whatever is not answered in its time is answered by us.
        let closing = || front.closing().then_some(());
        front.bell.until(closing).await;
        let ladder = Limits::default();
        let ladder = ladder.grace_eof_ms + ladder.grace_term_ms + ladder.kill_confirm_ms;
        let wait = Duration::from_millis(ladder + STOP_MARGIN_MS);
        let gone = || (front.links() + front.connections() + front.unclosed() == 0).then_some(());
        drop(tokio::time::timeout(wait, front.bell.until(gone)).await);
    };
    match race(polite, again(signals)).await {
        Either::One(()) => {
            let unclosed = front.unclosed();
            if unclosed > 0 {
                talk(&format!(
                    "warning: {unclosed} session{} upstream could not be closed in time; the next start of mainstay, or `mainstay sessions close`, tries again\n",
                    if unclosed == 1 { "" } else { "s" },
                ));
            }
            (front.links() + unclosed) as u32
        }
        // The keepers see us go and do the rest by themselves.
        Either::Other(()) => 0,
    }
}

async fn again(signals: &AsyncFd<Signals>) {
    while next_signal(signals).await == libc::SIGHUP {}
}
