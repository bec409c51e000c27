//! The census: proof that a test left no process behind.
//!
//! Every process of a test carries the test's mark: in its arguments (the unruly server and all that it makes, also with an empty
//! environment), in its environment (`MAINSTAY_TEST`, which our own shim, guard and keeper inherit), or in its short name. Every
//! process with the mark counts, whatever its parent, group, session or cgroup. Zombies are not alive and are counted separately.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use mainstay_os::census::{self, Stat};
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::wait::{Deadline, HANG_STOP, poll_for, until};

/// The variable that carries the mark.
pub const MARK_VARIABLE: &str = "MAINSTAY_TEST";

/// How many scans may be disturbed by processes that start and exit before an empty scan is believed anyway. A fork-and-exit
/// chain can hide from one scan, but not from this many in a row.
const SPOILT_SCANS: usize = 200;

/// The processes of one test. Dropping it asserts that there are none, and ends them in any case.
#[derive(Debug)]
pub struct Census {
    mark: String,
    spared: RefCell<Vec<Identity>>,
    /// Zombies that earlier scans have found.
    met: RefCell<BTreeSet<Identity>>,
}

/// One scan of the process table.
#[derive(Debug, Default)]
struct Scan {
    living: Vec<Stat>,
    zombies: Vec<Stat>,
    /// A listed process had ended before its mark could be read, or a process of ours has only just ended. It may have had a
    /// child that the list does not contain yet.
    spoilt: bool,
}

impl Census {
    /// A census with a fresh mark.
    #[expect(
        clippy::new_without_default,
        reason = "a mark is random: two are never alike"
    )]
    pub fn new() -> Self {
        let mut random = [0u8; 6];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random bytes");
        let mark = random.iter().fold(String::new(), |mut mark, byte| {
            write!(mark, "{byte:02x}").expect("a string takes everything");
            mark
        });
        Self {
            mark,
            spared: RefCell::default(),
            met: RefCell::default(),
        }
    }

    /// The mark: twelve hexadecimal digits.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Leaves a process out of the count: a client that the test keeps on purpose.
    pub fn spare(&self, who: Identity) {
        self.spared.borrow_mut().push(who);
    }

    /// All living processes with the mark.
    pub fn living(&self) -> Vec<Stat> {
        self.look(|_| true)
    }

    /// All living processes whose short name has the mark, except these: the members of an unruly server's tree.
    pub fn members_beside(&self, known: &[Identity]) -> Vec<Stat> {
        self.look(|stat| stat.comm.contains(&self.mark) && !known.contains(&stat.who()))
    }

    fn look(&self, counts: impl Fn(&Stat) -> bool) -> Vec<Stat> {
        for _ in 0..SPOILT_SCANS {
            let mut scan = self.scan();
            scan.living.retain(&counts);
            if !scan.living.is_empty() || !scan.spoilt {
                return scan.living;
            }
        }
        Vec::new()
    }

    /// All processes with the mark that wait to be reaped. Only members of the unruly server are found: a zombie has neither
    /// arguments nor environment, but it still has its short name.
    pub fn zombies(&self) -> Vec<Stat> {
        self.scan().zombies
    }

    /// Waits until no sweep of a start is running, because it would do the work of the next one.
    pub fn wait_swept(&self) {
        until("no sweep runs", || {
            let sweeps = |stat: &Stat| stat.comm == "mcp-sweep";
            (!self.living().iter().any(sweeps)).then_some(())
        });
    }

    /// Waits until no process is left. Panics with a list of those that are.
    pub fn assert_empty(&self) {
        self.assert_empty_within(HANG_STOP);
    }

    /// Waits for the ends of the living processes until none is left. `limit` only stops a hang.
    pub fn assert_empty_within(&self, limit: Duration) {
        let left = self.wait_empty(limit);
        assert!(left.is_empty(), "{}", self.describe(&left));
    }

    /// Waits until no process is left or the hang stop is reached. Returns those that are left.
    pub fn wait_empty(&self, limit: Duration) -> Vec<Stat> {
        let end = Deadline::after(limit);
        loop {
            let living = self.living();
            if living.is_empty() || end.passed() {
                return living;
            }
            wait_gone(&living, end);
        }
    }

    /// One line for each process: pid, parent, state, age, and command line.
    pub fn describe(&self, who: &[Stat]) -> String {
        let mut text = format!("{} still alive with mark {}:", who.len(), self.mark);
        for stat in who.iter().take(40) {
            write!(
                text,
                "\n  pid {} ppid {} sid {} state {} age {} ms comm {} cmdline {:?}",
                stat.pid,
                stat.ppid,
                stat.session,
                char::from(stat.state),
                age_ms(stat),
                stat.comm,
                census::cmdline(stat.pid).join(" "),
            )
            .expect("a string takes everything");
        }
        text
    }

    /// Ends all processes with the mark, spared or not.
    pub fn end_all(&self) {
        self.spared.borrow_mut().clear();
        let end = Deadline::after(HANG_STOP);
        loop {
            let living = self.living();
            if living.is_empty() || end.passed() {
                return;
            }
            for stat in &living {
                if let Ok(handle) = Handle::open(stat.who()) {
                    handle.signal(Signal::KILL).ok();
                }
            }
            wait_gone(&living, Deadline::after(Duration::from_secs(1)));
        }
    }

    fn scan(&self) -> Scan {
        let mut scan = Scan::default();
        let me = std::process::id() as i32;
        let entry = format!("{MARK_VARIABLE}={}", self.mark);
        // The newest first, while the list is fresh, because a fork-and-exit chain is there.
        for pid in census::pids()
            .expect("/proc can be listed")
            .into_iter()
            .rev()
        {
            let Ok(stat) = census::stat(pid) else {
                scan.spoilt = true;
                continue;
            };
            if pid == me || self.spared.borrow().contains(&stat.who()) {
                continue;
            }
            let named = stat.comm.contains(&self.mark);
            if stat.dead() {
                if named {
                    scan.spoilt |= self.met.borrow_mut().insert(stat.who());
                    scan.zombies.push(stat);
                }
            } else if named || holds(pid, "cmdline", &self.mark) || holds(pid, "environ", &entry) {
                scan.living.push(stat);
            } else if census::stat(pid).map_or(true, |stat| stat.dead()) {
                scan.spoilt = true;
            }
        }
        scan
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        let left = if thread::panicking() {
            Vec::new()
        } else {
            self.spared.borrow_mut().clear();
            self.wait_empty(HANG_STOP)
        };
        let told = self.describe(&left);
        self.end_all();
        assert!(left.is_empty(), "{told}");
    }
}

/// Waits until each of these has ended, or the hang stop is reached.
pub fn wait_gone(who: &[Stat], end: Deadline) {
    let mut handles: Vec<Handle> = who
        .iter()
        .filter_map(|stat| Handle::open(stat.who()).ok())
        .collect();
    while !handles.is_empty() && !end.passed() {
        let mut fds: Vec<PollFd<'_>> = handles
            .iter()
            .map(|handle| PollFd::new(handle, PollFlags::IN))
            .collect();
        poll_for(&mut fds, end.left());
        handles.retain(|handle| !handle.ended());
    }
}

fn holds(pid: i32, file: &str, text: &str) -> bool {
    fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

fn age_ms(stat: &Stat) -> u64 {
    let born_ms = stat.start * 1_000 / rustix::param::clock_ticks_per_second();
    clock::since_boot_ms().saturating_sub(born_ms)
}
