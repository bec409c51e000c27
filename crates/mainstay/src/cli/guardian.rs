//! `mainstay guardian`: started by the systemd user manager, not by users.

use mainstay_os::tier::guardian;
use mainstay_report::{Exit, Report};

/// Ends process trees whose keeper and guard were killed, until no tree is left to watch.
pub fn guardian() -> Result<Exit, Report> {
    guardian::run()
        .map(|()| Exit::Ok)
        .map_err(|problem| Report::new(Exit::Failed, "the guardian failed").because(problem))
}
