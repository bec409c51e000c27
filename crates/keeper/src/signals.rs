//! Signals to the keeper and to the shim: received, and judged by their senders.

use std::io;

use mainstay_core::senders::{Meaning, Senders};
use mainstay_os::notice;
use mainstay_os::sender::Look;
use mainstay_os::signals::{ENDING, Received, Signals};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Part, Signal};

use super::sender::{self, Around};
use super::watched::Watched;

/// The signals that reach the keeper, and what is known about the senders of all signals.
pub struct SignalInbox {
    signals: Watched<Signals>,
    /// Strangers that have signalled the keeper.
    of_keeper: Senders,
    /// Strangers that have signalled the shim.
    of_shim: Senders,
}

impl SignalInbox {
    /// From now on the signals are read here.
    pub fn open() -> io::Result<Self> {
        let numbers = [&ENDING[..], &[libc::SIGCHLD, notice::SIGNAL]].concat();
        Ok(Self {
            signals: Watched::new(Signals::open(&numbers)?)?,
            of_keeper: Senders::default(),
            of_shim: Senders::default(),
        })
    }

    pub fn next(&mut self) -> Option<Received> {
        while self.signals.poll_ready() {
            match self.signals.get().read() {
                Ok(Some(received)) => return Some(received),
                Ok(None) | Err(_) => self.signals.clear(),
            }
        }
        None
    }

    /// What a signal to this part means, with the event that describes it.
    pub fn judge(
        &mut self,
        now: Moment,
        to: Part,
        received: Received,
        seen: &[u8],
        around: &Around<'_>,
    ) -> (Meaning, Signal) {
        let mut signal = sender::signal(to, received, Look::of(seen), around);
        let near = |pid: i32| {
            let mut all = around.client.iter().chain(around.above);
            all.any(|who| who.pid == pid)
        };
        let senders = match to {
            Part::Keeper => &mut self.of_keeper,
            Part::Shim | Part::Client | Part::Server => &mut self.of_shim,
        };
        let meaning = senders.judge(now, &signal, near);
        if let Meaning::Ignore { count } = meaning {
            signal.ignored = Some(count);
        }
        (meaning, signal)
    }
}
