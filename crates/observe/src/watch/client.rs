//! The client process of `mainstay watch PID`, until it ends.

use mainstay_os::identity::Handle;
use mainstay_os::{census, ended};
use mainstay_protocol::ids::Identity;

use super::line::{Happened, WatchLine};
use super::wakeups::Wakeups;
use super::{age_ms, now_ms, now_text};

/// The client process, if `watch` was given one.
#[derive(Debug, Default)]
pub struct WatchedClient {
    command: Vec<String>,
    gone_ms: Option<u64>,
}

impl WatchedClient {
    /// Waits for the end of this process.
    pub fn watch(&mut self, who: Identity, wakeups: &mut Wakeups) {
        self.command = mainstay_protocol::redact::words(&census::cmdline(who.pid));
        match Handle::open(who) {
            Ok(handle) => wakeups.watch_client(who, handle.into_fd()),
            Err(_) => self.gone_ms = Some(now_ms()),
        }
    }

    /// The client has ended: returns the line to print.
    pub fn ended(&mut self, who: Identity, wakeups: &mut Wakeups) -> Option<WatchLine> {
        if self.gone_ms.is_some() {
            return None;
        }
        self.gone_ms = Some(now_ms());
        let fd = wakeups.unwatch_client();
        let status = fd.and_then(|fd| ended::status(&fd, who));
        Some(WatchLine {
            at: now_text(),
            what: Happened::ClientGone,
            who,
            command: self.command.clone(),
            client: None,
            stdin: "",
            stdout: "",
            age_ms: age_ms(who),
            rss_kib: 0,
            launchers: Vec::new(),
            launcher: false,
            from: None,
            ours: None,
            status,
            unknown: None,
            sender: None,
        })
    }

    /// From when on a server that still runs counts as left behind; none while the client lives.
    pub fn left_at(&self, after_ms: u64) -> Option<u64> {
        self.gone_ms.map(|gone| gone + after_ms)
    }
}
