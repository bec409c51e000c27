//! Guard and keeper are dead, but one of them had just started a successor (a keeper or a side guard) that has not
//! reported itself yet. It holds the shim's channel, and the shim waits for its message, because a second pair would
//! work on the same record.
//! guards: At most one keeper works on a record: the shim waits for a successor that has not reported itself yet.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;

use mainstay_core::record::Phase;
use mainstay_os::channel::Word;
use mainstay_os::guard::{Keeping, Roles};
use mainstay_os::identity::Handle;
use mainstay_os::record::Region;
use mainstay_os::role;
use mainstay_os::shim::{self, Detach, Ending};
use mainstay_protocol::ids::{Identity, Tag};

use crate::common::{alone, tag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, wait};

/// How long the successor watches for another keeper before it sends a message.
const WATCH_FOR: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};
/// After this time the test has failed.
const HANG_STOP_MS: u64 = 60_000;
const ALONE: u8 = 40;
const NOT_ALONE: u8 = 41;

/// The first keeper kills its guard and itself and leaves a successor; a second keeper would report itself.
struct DyingPair {
    second: (PipeReader, PipeWriter),
}

impl Roles for DyingPair {
    fn prepare(&mut self) {}

    fn adopt(&mut self, _: Vec<OwnedFd>) {}

    fn keeper(&mut self, keeping: Keeping<'_>) -> u8 {
        let Keeping {
            me,
            parts,
            to_shim,
            guard,
            takeover,
            ..
        } = keeping;
        if takeover {
            self.second.1.write_all(b"2").unwrap();
            return 0;
        }
        let (guard, me) = (Handle::open(guard).unwrap(), Handle::open(me).unwrap());
        role::start(|| {
            assert!(guard.wait_ended(HANG_STOP_MS) && me.wait_ended(HANG_STOP_MS));
            let mut fds = [PollFd::new(&self.second.0, PollFlags::IN)];
            let alone = poll(&mut fds, Some(&WATCH_FOR)).unwrap() == 0;
            parts.record.head.set_phase(Phase::Finished);
            let code = if alone { ALONE } else { NOT_ALONE };
            to_shim.say(Word::Finished { code });
            0
        })
        .unwrap();
        guard.signal(Signal::KILL).unwrap();
        me.signal(Signal::KILL).unwrap();
        1
    }

    fn answer_ms(&self) -> u64 {
        HANG_STOP_MS
    }

    fn sweep(&mut self) {}

    fn tag(&self, keeper: Identity) -> Tag {
        Tag {
            owner: keeper,
            ..tag()
        }
    }

    fn end_strays(&mut self) -> u32 {
        0
    }
}

#[test]
fn silent_successor_of_a_dead_pair_is_waited_for() {
    alone(
        this_test!("silent_successor_of_a_dead_pair_is_waited_for"),
        || {
            let region = Region::create().unwrap();
            let mut roles = DyingPair {
                second: std::io::pipe().unwrap(),
            };
            let ending = shim::run(&region, Detach::No, &mut roles).unwrap();
            assert_eq!(ending, Ending::Code(ALONE));
            // The successor is our child by now, and exiting.
            while wait(WaitOptions::empty()).is_ok() {}
        },
    );
}
