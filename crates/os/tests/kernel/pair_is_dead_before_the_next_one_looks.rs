//! A killed process closes its descriptors before it is dead. The shim waits for the death: until then the old keeper
//! would count as the living owner of its tree, and the next guard would spare that tree.
//! guards: The next guard starts only when the old guard and keeper are dead, so it does not spare their tree.

use std::os::fd::OwnedFd;

use mainstay_core::record::Phase;
use mainstay_os::channel::Word;
use mainstay_os::guard::{Keeping, Roles};
use mainstay_os::identity::{self, Handle};
use mainstay_os::record::Region;
use mainstay_os::role;
use mainstay_os::shim::{self, Detach, Ending};
use mainstay_protocol::ids::{Identity, Tag};

use crate::common::{alone, tag};
use rustix::event::{Timespec, poll};
use rustix::process::Signal;

/// How long the first keeper takes to die.
const DYING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
const DEAD: u8 = 40;
const ALIVE: u8 = 41;

struct Slow<'r> {
    region: &'r Region,
}

impl Roles for Slow<'_> {
    fn prepare(&mut self) {}

    fn adopt(&mut self, _: Vec<OwnedFd>) {}

    fn keeper(&mut self, keeping: Keeping<'_>) -> u8 {
        let Keeping {
            parts,
            to_shim,
            guard,
            takeover,
            ..
        } = keeping;
        let me = identity::me().unwrap();
        if takeover {
            let alive = parts.notes.lost_ended != 0;
            parts.record.head.set_phase(Phase::Finished);
            to_shim.say(Word::Finished {
                code: if alive { ALIVE } else { DEAD },
            });
            return 0;
        }
        parts.notes.set_lost_pid(me.pid);
        // The guard's own message may not have been sent yet when it is killed.
        to_shim.say(Word::Here { guard, keeper: me });
        Handle::open(guard).unwrap().signal(Signal::KILL).unwrap();
        role::close_all_but(&mut []);
        poll(&mut [], Some(&DYING)).unwrap();
        1
    }

    fn answer_ms(&self) -> u64 {
        60_000
    }

    fn sweep(&mut self) {}

    fn tag(&self, keeper: Identity) -> Tag {
        Tag {
            owner: keeper,
            ..tag()
        }
    }

    /// In the next guard: whether the old keeper is still there.
    fn end_strays(&mut self) -> u32 {
        identity::of(self.region.notes().lost_pid()).map_or(0, |who| identity::alive(who).into())
    }
}

#[test]
fn next_guard_starts_after_a_slow_death() {
    alone(this_test!("next_guard_starts_after_a_slow_death"), || {
        let region = Region::create().unwrap();
        let mut roles = Slow { region: &region };
        let ending = shim::run(&region, Detach::No, &mut roles).unwrap();
        assert_eq!(ending, Ending::Code(DEAD));
    });
}
