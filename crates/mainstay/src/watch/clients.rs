//! The one client that is watched, until its end.

use mainstay_core::ids::Identity;
use mainstay_os::identity::Handle;
use mainstay_os::{census, ended};

use super::line::{Happened, Line};
use super::wake::Wakes;
use super::{age_ms, now_ms, now_text};

/// The client, if only one is watched.
#[derive(Debug, Default)]
pub struct Clients {
    command: Vec<String>,
    gone_ms: Option<u64>,
}

impl Clients {
    /// Waits for this one's end.
    pub fn watch(&mut self, who: Identity, wakes: &mut Wakes) {
        self.command = mainstay_core::redact::words(&census::cmdline(who.pid));
        match Handle::open(who) {
            Ok(handle) => wakes.watch_client(who, handle.into_fd()),
            Err(_) => self.gone_ms = Some(now_ms()),
        }
    }

    /// It has ended: what is told of it.
    pub fn ended(&mut self, who: Identity, wakes: &mut Wakes) -> Option<Line> {
        if self.gone_ms.is_some() {
            return None;
        }
        self.gone_ms = Some(now_ms());
        let fd = wakes.forget_client();
        let status = fd.and_then(|fd| ended::status(&fd, who));
        Some(Line {
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

    /// When a server that is still there counts as left; none while the client lives.
    pub fn left_at(&self, after_ms: u64) -> Option<u64> {
        self.gone_ms.map(|gone| gone + after_ms)
    }
}
