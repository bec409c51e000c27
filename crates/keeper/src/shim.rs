//! The shim, the process that the client started: our channel to it, its end, and whether it may leave.

use std::io;

use mainstay_os::channel::{Channel, Heard, Word};
use mainstay_os::signals::Received;
use mainstay_protocol::ids::Identity;

use super::watched::{Death, DeathWatch, Watched};

/// The shim of one link; another process after the client came back.
pub struct Shim {
    who: Identity,
    channel: Watched<Channel>,
    death: DeathWatch,
    leaving: Leaving,
    /// The exit code that is sent to it at the end.
    code: u8,
}

/// A shim that was signalled stays until the keeper knows what the signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// It was signalled, and waits for the keeper's word.
    Waits,
    /// It knows that it may leave.
    Allowed,
}

impl Shim {
    pub fn new(who: Identity, channel: Channel) -> io::Result<Self> {
        Ok(Self {
            who,
            channel: Watched::new(channel)?,
            death: DeathWatch::Later(who),
            leaving: Leaving::No,
            code: 0,
        })
    }

    pub fn who(&self) -> Identity {
        self.who
    }

    pub fn channel(&self) -> &Channel {
        self.channel.get()
    }

    /// The next signal that the shim reports. What it saw of the sender is put into `seen`.
    pub fn next_signal(&mut self, seen: &mut Vec<u8>) -> Option<Received> {
        while self.channel.poll_ready() {
            match self.channel.get().hear_behind(seen) {
                Heard::Word(Word::Signalled(received)) => return Some(received),
                Heard::Word(
                    Word::Here { .. }
                    | Word::Finished { .. }
                    | Word::GaveUp
                    | Word::Leave
                    | Word::Stay
                    | Word::Release
                    | Word::Attach
                    | Word::Client(_)
                    | Word::Ask
                    | Word::Answer
                    | Word::Spawned,
                ) => {}
                Heard::Nothing => self.channel.clear(),
                // Its pidfd reports the death of the shim.
                Heard::Closed => self.channel.close(),
            }
        }
        None
    }

    pub fn poll_death(&mut self) -> Option<Death> {
        self.death.poll()
    }

    /// It was signalled, and ends by that once it is allowed to. True if it was signalled before.
    pub fn signalled(&mut self) -> bool {
        let before = self.was_signalled();
        if !before {
            self.leaving = Leaving::Waits;
        }
        before
    }

    pub fn was_signalled(&self) -> bool {
        self.leaving != Leaving::No
    }

    pub fn waits_to_leave(&self) -> bool {
        self.leaving == Leaving::Waits
    }

    /// It may end now.
    pub fn let_leave(&mut self) {
        self.leaving = Leaving::Allowed;
        self.channel.get().say(Word::Leave);
    }

    /// The signal was a stranger's: it stays.
    pub fn keep(&self) {
        self.channel.get().say(Word::Stay);
    }

    /// Nothing more is heard from it.
    pub fn close(&mut self) {
        self.channel.close();
    }

    /// The client has come back with another shim.
    pub fn replace(&mut self, who: Identity, channel: Watched<Channel>) {
        self.who = who;
        self.channel = channel;
        self.death = DeathWatch::on(who);
        self.leaving = Leaving::No;
    }

    /// Tells it which processes hold its server.
    pub fn welcome(&self, guard: Identity, keeper: Identity) {
        self.channel.get().say(Word::Here { guard, keeper });
    }

    /// The code that it is to end with.
    pub fn set_code(&mut self, code: u8) {
        self.code = code;
    }

    /// All is done: it may end with its code.
    pub fn finish(&self) {
        self.channel.get().say(Word::Finished { code: self.code });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready;

    #[test]
    fn a_signalled_shim_leaves_once_it_is_allowed_to() {
        ready::begin().unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let me = mainstay_os::identity::me().unwrap();
        let mut shim = Shim::new(me, ours).unwrap();
        assert!(!shim.waits_to_leave() && !shim.was_signalled());
        assert!(!shim.signalled(), "the first signal");
        assert!(shim.waits_to_leave());
        shim.let_leave();
        assert_eq!(theirs.hear(), Heard::Word(Word::Leave));
        assert!(shim.signalled(), "it was signalled before");
        assert!(!shim.waits_to_leave(), "it is told once");
        // Another shim has not been signalled.
        let (ours, theirs) = Channel::pair().unwrap();
        shim.replace(me, Watched::new(ours).unwrap());
        assert!(!shim.was_signalled());
        shim.set_code(7);
        shim.finish();
        assert_eq!(theirs.hear(), Heard::Word(Word::Finished { code: 7 }));
    }

    #[test]
    fn only_signals_are_heard_from_a_shim_until_its_channel_closes() {
        ready::begin().unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let me = mainstay_os::identity::me().unwrap();
        let mut shim = Shim::new(me, ours).unwrap();
        let received = Received {
            number: 15,
            code: 0,
            pid: 7,
            uid: 8,
        };
        theirs.say(Word::Ask);
        theirs.say_signalled(received, b"seen");
        drop(theirs);
        let mut seen = Vec::new();
        let heard = loop {
            match shim.next_signal(&mut seen) {
                Some(heard) => break heard,
                None => ready::wait(mainstay_protocol::clock::Moment(0), None).unwrap(),
            }
        };
        assert_eq!(heard, received);
        assert_eq!(seen, b"seen");
        assert!(shim.next_signal(&mut seen).is_none());
    }
}
