//! Whether a server died because memory had run out, judged by counters that the caller reads.
//!
//! SIGKILL alone proves nothing. A counter of the tree's own cgroup that rose is proof. The machine's counter is only a
//! hint, and none if we sent SIGKILL ourselves.

use mainstay_protocol::event::{OutOfMemory, Status};

/// A counter of kills for lack of memory: as it was before, and as it is now. None where it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kills {
    /// Before the server died.
    pub before: Option<u64>,
    /// Now.
    pub now: Option<u64>,
}

/// The verdict on a server that ended so. `ours`: we have sent that signal.
pub fn verdict(status: Status, ours: bool, leaf: Kills, machine: Kills) -> Option<OutOfMemory> {
    if !matches!(status, Status::Signal { number: 9, .. }) {
        return None;
    }
    match leaf.now {
        // A leaf begins with the server; the counter may be there only since it was given a limit.
        Some(now) => (now > leaf.before.unwrap_or(0)).then_some(OutOfMemory::Tree),
        None => (!ours && machine.before.is_some() && machine.now > machine.before)
            .then_some(OutOfMemory::Machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_blamed_on_memory_only_by_a_counter_that_rose() {
        const KILLED: Status = Status::Signal {
            number: 9,
            core: false,
        };
        let kills = |before, now| Kills { before, now };
        let none = kills(None, None);
        let tree = Some(OutOfMemory::Tree);
        let machine = Some(OutOfMemory::Machine);
        for (status, ours, leaf, whole, expected) in [
            (KILLED, false, kills(Some(0), Some(1)), none, tree),
            (KILLED, true, kills(Some(0), Some(1)), none, tree),
            // The controller came with the limit.
            (KILLED, false, kills(None, Some(2)), none, tree),
            (KILLED, false, kills(None, Some(0)), none, None),
            // The tree's own cgroup counted no kill: the machine has killed another process.
            (
                KILLED,
                false,
                kills(Some(0), Some(0)),
                kills(Some(3), Some(4)),
                None,
            ),
            (KILLED, false, none, kills(Some(3), Some(4)), machine),
            (KILLED, false, none, kills(Some(4), Some(4)), None),
            (KILLED, true, none, kills(Some(3), Some(4)), None),
            (KILLED, false, none, kills(None, Some(4)), None),
            (KILLED, false, none, none, None),
            // An end of its own, whatever the counters say.
            (
                Status::Code(137),
                false,
                kills(Some(0), Some(1)),
                none,
                None,
            ),
            (
                Status::Signal {
                    number: 15,
                    core: false,
                },
                false,
                none,
                kills(Some(3), Some(4)),
                None,
            ),
        ] {
            assert_eq!(
                verdict(status, ours, leaf, whole),
                expected,
                "{status} {ours} {leaf:?} {whole:?}"
            );
        }
    }
}
