//! The way out: what is in flight is answered, sessions end, servers go; a second signal cuts it short.

use std::rc::Rc;
use std::time::Duration;

use mainstay_core::limits::Limits;
use mainstay_core::serve::limits::STOP_MARGIN_MS;
use mainstay_os::signals::Signals;
use tokio::io::unix::AsyncFd;

use super::front::Front;
use super::{Either, next_signal, race};
use crate::report::talk;

/// Stops; how many servers had not ended when the time was up.
pub async fn stop(front: &Rc<Front>, signals: &AsyncFd<Signals>) -> u32 {
    front.stop();
    let polite = async {
        // Whatever is not answered in its time is answered by us.
        let closing = || front.closing().then_some(());
        front.bell.until(closing).await;
        let ladder = Limits::default();
        let ladder = ladder.grace_eof_ms + ladder.grace_term_ms + ladder.kill_confirm_ms;
        let wait = Duration::from_millis(ladder + STOP_MARGIN_MS);
        let gone = || (front.links() + front.connections() + front.owed() == 0).then_some(());
        drop(tokio::time::timeout(wait, front.bell.until(gone)).await);
    };
    match race(polite, again(signals)).await {
        Either::One(()) => {
            let owed = front.owed();
            if owed > 0 {
                talk(&format!(
                    "warning: {owed} session{} upstream could not be ended in time; the next start of mainstay, or `mainstay debts pay`, tries again\n",
                    if owed == 1 { "" } else { "s" },
                ));
            }
            (front.links() + owed) as u32
        }
        // The keepers see us go and do the rest by themselves.
        Either::Other(()) => 0,
    }
}

async fn again(signals: &AsyncFd<Signals>) {
    while next_signal(signals).await == libc::SIGHUP {}
}
