//! Which processes are inspected next, and when.
//!
//! The proc connector names single processes. A scan covers every process that is not watched. A list covers only new pids; it
//! replaces the connector where the kernel does not offer one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use mainstay_protocol::limits::{
    WATCH_LIST_MS as LIST_MS, WATCH_LOOK_MS as LOOK_MS, WATCH_SCAN_MS as SCAN_MS,
};

/// How often a fork that has not called `exec` yet is inspected.
const FORK_TRIES: u32 = 40;

/// A pass over the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// Inspects every process that is not watched.
    Scan,
    /// Inspects only pids that the last pass did not find.
    List,
}

/// The processes that are due, and the times of the next passes.
#[derive(Debug)]
pub struct Schedule {
    /// Pids to inspect next.
    due: BTreeSet<i32>,
    /// Forks that have not called `exec` yet, and how often they were inspected.
    forks: BTreeMap<i32, u32>,
    /// The pids of the last survey.
    listed: HashSet<i32>,
    scan_at: u64,
    scanned_ms: u64,
    list_at: u64,
    look_at: u64,
}

impl Schedule {
    /// A scan is due at once.
    pub fn new(now: u64) -> Self {
        Self {
            due: BTreeSet::new(),
            forks: BTreeMap::new(),
            listed: HashSet::new(),
            scan_at: now,
            scanned_ms: now,
            list_at: now,
            look_at: now,
        }
    }

    /// The process has called `exec`.
    pub fn ran(&mut self, pid: i32) {
        self.due.insert(pid);
    }

    /// The process has ended.
    pub fn ended(&mut self, pid: i32) {
        self.due.remove(&pid);
        self.forks.remove(&pid);
    }

    /// The kernel has lost messages, so the next scan comes earlier. Many losses in a row must not cause many scans.
    pub fn overrun(&mut self) {
        self.scan_at = self.scan_at.min(self.scanned_ms + LIST_MS);
    }

    /// The survey that is due. `lists`: there is no connector, so new pids are found by lists.
    pub fn survey(&self, now: u64, lists: bool) -> Option<Survey> {
        if now >= self.scan_at {
            Some(Survey::Scan)
        } else {
            (lists && now >= self.list_at).then_some(Survey::List)
        }
    }

    /// Notes the pids that a survey has found. `watched`, for a scan: pids whose ends will be seen, so they are still the same
    /// processes.
    pub fn surveyed(&mut self, now: u64, survey: Survey, pids: Vec<i32>, watched: &HashSet<i32>) {
        let wanted = |pid: &i32| match survey {
            Survey::Scan => !watched.contains(pid),
            Survey::List => !self.listed.contains(pid),
        };
        self.due
            .extend(pids.iter().copied().filter(|pid| wanted(pid)));
        if survey == Survey::Scan {
            self.scan_at = now + SCAN_MS;
            self.scanned_ms = now;
        }
        self.list_at = now + LIST_MS;
        self.listed = pids.into_iter().collect();
    }

    /// Whether the last survey has found this pid.
    pub fn lists(&self, pid: i32) -> bool {
        self.listed.contains(&pid)
    }

    /// How many pids the last survey has found.
    pub fn listed(&self) -> usize {
        self.listed.len()
    }

    /// The pids to inspect now, if it is time: at once after a scan, otherwise with a pause after the last inspection.
    pub fn take(&mut self, now: u64, scanned: bool) -> Option<Looks> {
        let early = !scanned && now < self.look_at;
        if early || (self.due.is_empty() && self.forks.is_empty()) {
            return None;
        }
        self.look_at = now + LOOK_MS;
        let mut pids = std::mem::take(&mut self.due);
        let forks = std::mem::take(&mut self.forks);
        pids.extend(forks.keys().copied());
        pids.remove(&(std::process::id() as i32));
        Some(Looks { pids, forks })
    }

    /// Schedules one more inspection of a fork that has not called `exec` yet, up to `FORK_TRIES`.
    pub fn look_again(&mut self, pid: i32, looks: &Looks) {
        let tries = looks.forks.get(&pid).copied().unwrap_or(0) + 1;
        if tries < FORK_TRIES {
            self.forks.insert(pid, tries);
        }
    }

    /// The next time something is due, if the connector reports nothing before.
    pub fn next(&self, lists: bool) -> u64 {
        let mut next = self.scan_at;
        if lists {
            next = next.min(self.list_at);
        }
        if !self.due.is_empty() || !self.forks.is_empty() {
            next = next.min(self.look_at);
        }
        next
    }

    /// When the next scan is due.
    #[cfg(test)]
    pub fn scan_at(&self) -> u64 {
        self.scan_at
    }

    /// Only scans, no lists.
    #[cfg(test)]
    pub fn never_list(&mut self) {
        self.list_at = u64::MAX;
    }
}

/// The pids of one inspection.
#[derive(Debug)]
pub struct Looks {
    pub pids: BTreeSet<i32>,
    /// Those that were forks, and how often they were inspected.
    forks: BTreeMap<i32, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pids(looks: Option<Looks>) -> Vec<i32> {
        looks.map_or_else(Vec::new, |looks| looks.pids.into_iter().collect())
    }

    #[test]
    fn a_scan_skips_watched_pids_and_a_list_skips_known_ones() {
        let mut schedule = Schedule::new(0);
        assert_eq!(schedule.survey(0, false), Some(Survey::Scan));
        schedule.surveyed(0, Survey::Scan, vec![-1, -2, -3], &[-2].into());
        assert_eq!(pids(schedule.take(0, true)), [-3, -1]);
        assert_eq!(schedule.survey(LIST_MS, false), None, "no lists");
        assert_eq!(schedule.survey(LIST_MS, true), Some(Survey::List));
        schedule.surveyed(LIST_MS, Survey::List, vec![-3, -4], &HashSet::new());
        assert_eq!(pids(schedule.take(LIST_MS, false)), [-4]);
        assert!(schedule.lists(-3) && !schedule.lists(-1));
        assert_eq!(schedule.listed(), 2);
        assert_eq!(schedule.survey(SCAN_MS, true), Some(Survey::Scan));
    }

    #[test]
    fn a_fork_is_inspected_a_limited_number_of_times_with_pauses() {
        let mut schedule = Schedule::new(0);
        schedule.surveyed(0, Survey::Scan, Vec::new(), &HashSet::new());
        schedule.ran(-1);
        let mut now = 0;
        for _ in 0..FORK_TRIES {
            let looks = schedule.take(now, false).unwrap();
            assert!(looks.pids.contains(&-1));
            schedule.look_again(-1, &looks);
            assert!(schedule.take(now, false).is_none(), "not at once");
            now += LOOK_MS;
        }
        assert!(schedule.take(now, false).is_none(), "given up");
        schedule.ran(-2);
        schedule.ended(-2);
        assert!(schedule.take(now, false).is_none(), "it has ended");
    }
}
