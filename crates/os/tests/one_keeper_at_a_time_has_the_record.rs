//! Guard and keeper are dead, but one of them had just started an heir, a keeper or a side guard, which has not said that it is
//! there. It holds the shim's channel, and the shim waits for its word: a second pair would work on the same record.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;

use common::{alone, tag};
use mainstay_core::ids::{Identity, Tag};
use mainstay_core::record::Phase;
use mainstay_os::channel::Word;
use mainstay_os::guard::{Keeping, Roles};
use mainstay_os::identity::Handle;
use mainstay_os::record::Region;
use mainstay_os::role;
use mainstay_os::shim::{self, Detach, Ending};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, wait};

/// How long the heir looks out for another keeper before it says a word.
const LOOK_OUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};
/// By then something is wrong with the test.
const HANG_STOP_MS: u64 = 60_000;
const ALONE: u8 = 40;
const NOT_ALONE: u8 = 41;

/// The first keeper kills its guard and itself and leaves an heir; a second one would say so.
struct Bereft {
    second: (PipeReader, PipeWriter),
}

impl Roles for Bereft {
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
            let alone = poll(&mut fds, Some(&LOOK_OUT)).unwrap() == 0;
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
fn an_heir_that_has_not_spoken_yet_is_waited_for() {
    alone("an_heir_that_has_not_spoken_yet_is_waited_for", || {
        let region = Region::create().unwrap();
        let mut roles = Bereft {
            second: std::io::pipe().unwrap(),
        };
        let ending = shim::run(&region, Detach::No, &mut roles).unwrap();
        assert_eq!(ending, Ending::Code(ALONE));
        // The heir is our child by now, and on its way out.
        while wait(WaitOptions::empty()).is_ok() {}
    });
}
