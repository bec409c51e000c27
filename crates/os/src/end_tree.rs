//! Ends trees of processes that we did not start: SIGTERM, time, SIGKILL, each through a pidfd.
//!
//! The caller has proved that the tree may be ended and passes the proof, which is repeated before the first signal. Descendants are looked for on
//! every round, so a process that is forked meanwhile is ended, too. We, our ancestors and the trees of mainstay's links are spared, whatever the
//! caller says. The processes are not our children: their parents reap them.

use std::collections::BTreeMap;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use rustix::process::Signal;

use crate::identity::Handle;
use crate::sweep::{self, Outcome};
use crate::{census, clock, identity};

/// How long the processes may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// After SIGTERM.
    pub term_ms: u64,
    /// After SIGKILL.
    pub kill_ms: u64,
}

/// Ends these processes and all their descendants. None if the proof does not hold any more: then no process was signalled.
pub fn end_tree(
    roots: &[Identity],
    patience: Patience,
    proof: &mut dyn FnMut() -> bool,
) -> Option<Outcome> {
    let mut met: BTreeMap<Identity, Seen> = BTreeMap::new();
    let first = living(roots, &mut met);
    if !proof() {
        return None;
    }
    for handle in &first {
        // One that has ended meanwhile is what we want; one that refuses is named in the end.
        handle.signal(Signal::TERM).ok();
        handle.signal(Signal::CONT).ok();
    }
    wait(&first, clock::now().after_ms(patience.term_ms));
    drop(first);
    let deadline = clock::now().after_ms(patience.kill_ms);
    loop {
        let known: Vec<Identity> = met.keys().copied().collect();
        let left = living(&known, &mut met);
        let mut killed = 0;
        for handle in &left {
            killed += usize::from(handle.signal(Signal::KILL).is_ok());
        }
        if killed == 0 {
            break;
        }
        wait(&left, deadline);
        if clock::now() >= deadline {
            break;
        }
    }
    let (left, ended) = met
        .into_values()
        .partition(|seen| identity::alive(seen.who));
    Some(Outcome { ended, left })
}

/// Handles on those that live, and on their descendants.
fn living(roots: &[Identity], met: &mut BTreeMap<Identity, Seen>) -> Vec<Handle> {
    // Without knowing our ancestors we would not know which processes to spare.
    let Ok(spared) = sweep::spared() else {
        return Vec::new();
    };
    let mut members: BTreeMap<i32, Seen> = BTreeMap::new();
    for &who in roots {
        let stat = census::stat(who.pid).ok();
        let Some(stat) = stat.filter(|stat| stat.who() == who && !stat.dead()) else {
            continue;
        };
        if spared.contains(&who.pid) {
            continue;
        }
        members.insert(
            who.pid,
            Seen {
                who,
                comm: stat.comm,
            },
        );
        // What cannot be read now is found on the next round.
        sweep::below(who.pid, &spared, &mut members).ok();
    }
    let mut handles = Vec::new();
    for seen in members.into_values() {
        if let Ok(handle) = Handle::open(seen.who)
            && !handle.ended()
        {
            handles.push(handle);
            met.insert(seen.who, seen);
        }
    }
    handles
}

fn wait(handles: &[Handle], deadline: Moment) {
    for handle in handles {
        handle.wait_ended((deadline - clock::now()).div_ceil(1_000_000));
    }
}

#[cfg(test)]
mod tests {
    //! guards: A tree of others is signalled only while its proof holds, through pidfds, with processes that are forked meanwhile.

    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    const PATIENCE: Patience = Patience {
        term_ms: 100,
        kill_ms: 10_000,
    };

    #[expect(clippy::disallowed_methods, reason = "processes to end")]
    fn stubborn() -> (Child, Identity) {
        let script = "trap '' TERM; sleep 1000 & echo ready; wait";
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let who = identity::of(child.id() as i32).unwrap();
        (child, who)
    }

    #[test]
    fn a_tree_that_ignores_sigterm_is_killed_whole() {
        let _lock = crate::child_lock::with_children();
        let (mut child, who) = stubborn();
        let outcome = end_tree(&[who], PATIENCE, &mut || true).unwrap();
        assert_eq!(outcome.left, []);
        assert_eq!(outcome.ended.len(), 2, "{outcome:?}");
        child.wait().unwrap();
    }

    #[test]
    fn without_proof_no_process_is_signalled() {
        let _lock = crate::child_lock::with_children();
        let (mut child, who) = stubborn();
        assert!(end_tree(&[who], PATIENCE, &mut || false).is_none());
        assert!(identity::alive(who));
        let reused = Identity {
            start: who.start + 1,
            ..who
        };
        let outcome = end_tree(&[reused], PATIENCE, &mut || true).unwrap();
        assert_eq!(outcome, Outcome::default());
        assert!(identity::alive(who), "another process has that pid");
        let me = identity::me().unwrap();
        let outcome = end_tree(&[me], PATIENCE, &mut || true).unwrap();
        assert_eq!(outcome, Outcome::default(), "never the caller");
        end_tree(&[who], PATIENCE, &mut || true).unwrap();
        child.wait().unwrap();
    }
}
