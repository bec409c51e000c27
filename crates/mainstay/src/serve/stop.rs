//! The way out: what is in flight is answered, sessions end, servers go; a second signal cuts it short.

use std::rc::Rc;
use std::time::Duration;

use mainstay_core::limits::Limits;
use mainstay_core::serve::limits::STOP_MARGIN_MS;
use mainstay_core::serve::sessions::Over;
use mainstay_os::signals::Signals;
use tokio::io::unix::AsyncFd;

use super::front::Front;
use super::{Either, next_signal, race};
use crate::report::talk;

/// Stops; how many servers had not ended when the time was up.
pub async fn stop(front: &Rc<Front>, signals: &AsyncFd<Signals>) -> u32 {
    front.stop();
    let polite = async {
        let wait = Duration::from_millis(front.limits().stop_wait_ms);
        // Whatever is not answered by then is answered by us.
        drop(tokio::time::timeout(wait, front.bell.until(|| idle(front))).await);
        for modern in front.moderns() {
            modern.end(front, "serve stops");
        }
        for key in front.keys() {
            front.end_session(key, Over::Shutdown);
        }
        front.close();
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

/// Whether nobody waits for an answer; those who only listen never stop.
fn idle(front: &Front) -> Option<()> {
    let sessions = front
        .sessions()
        .iter()
        .all(|session| !session.is_waited_for());
    let moderns = front
        .moderns()
        .iter()
        .all(|modern| modern.in_flight() == modern.listening());
    (sessions && moderns && front.passing() == 0).then_some(())
}

async fn again(signals: &AsyncFd<Signals>) {
    while next_signal(signals).await == libc::SIGHUP {}
}
