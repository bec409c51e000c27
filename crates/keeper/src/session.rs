//! What a guard gets from the application: how a keeper is started, and how a tree is ended that is not below the guard.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use mainstay_os::channel::Channel;
use mainstay_os::guard::{self, Keeping, Roles};
use mainstay_os::identity::Handle;
use mainstay_os::record::Region;
use mainstay_os::role;
use mainstay_protocol::ids::{Identity, Tag};
use mainstay_protocol::limits::KEEPER_ANSWER_MS;
use mainstay_store::registry::entry::Entry;

use super::plan::Plan;
use crate::leftovers;

/// One link's roles.
pub struct Session<'p> {
    plan: &'p Plan,
    entry: Option<Entry>,
    /// The descriptors that the keeper has lent for the entry, until the entry is needed.
    lent: Vec<OwnedFd>,
}

impl<'p> Session<'p> {
    /// The roles of this plan.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            entry: None,
            lent: Vec::new(),
        }
    }

    fn entry(&mut self) -> Option<&Entry> {
        if self.entry.is_none() && !self.lent.is_empty() {
            let lent = std::mem::take(&mut self.lent);
            self.entry = Entry::adopt(&self.plan.paths, self.plan.id, lent);
        }
        self.entry.as_ref()
    }
}

impl Roles for Session<'_> {
    fn prepare(&mut self) {
        self.entry = take_entry(self.plan);
    }

    fn adopt(&mut self, lent: Vec<OwnedFd>) {
        // A keeper that has no entry lends none: what an earlier one has lent still holds the lock.
        if self.entry.is_none() && !lent.is_empty() {
            self.lent = lent;
        }
    }

    fn keeper(&mut self, keeping: Keeping<'_>) -> u8 {
        let plan = self.plan;
        crate::keeper::keep(plan, self.entry(), keeping)
    }

    fn tag(&self, keeper: Identity) -> Tag {
        self.plan.tag(keeper)
    }

    fn answer_ms(&self) -> u64 {
        self.plan.limits.kill_confirm_ms + KEEPER_ANSWER_MS
    }

    fn end_strays(&mut self) -> u32 {
        let plan = self.plan;
        leftovers::end_link(plan, self.entry())
    }

    fn sweep(&mut self) {
        leftovers::sweep(self.plan);
    }
}

/// The link's directory with its lock. Without it the server runs all the same; it is only not listed.
pub(super) fn take_entry(plan: &Plan) -> Option<Entry> {
    plan.paths.run().make().ok()?;
    Entry::take(&plan.paths, plan.id).ok()
}

/// Starts a side guard: a handle on it, and our end of its channel.
pub(super) fn start_side_guard(
    plan: &Plan,
    entry: Option<&Entry>,
    region: &Region,
    to_shim: &Channel,
    keeper: Identity,
) -> Option<(Handle, Channel)> {
    let (mine, theirs) = Channel::pair().ok()?;
    let to_shim = to_shim.try_clone().ok()?;
    let mut kept: Vec<RawFd> = vec![theirs.as_raw_fd(), to_shim.as_raw_fd()];
    kept.extend(region.file().map(|file| file.as_raw_fd()));
    if let Some(entry) = entry {
        kept.extend(entry.fds());
    }
    let side_guard = role::start_held(|| {
        // This is a fork of a keeper in the middle of its loop: nothing of that loop may be used, and the copies of the
        // server's pipes must be closed.
        role::close_all_but(&mut kept);
        let mut session = Session {
            plan,
            entry: entry.and_then(|entry| entry.try_clone().ok()),
            lent: Vec::new(),
        };
        guard::run_beside(region, to_shim, keeper, &theirs, &mut session)
    })
    .ok()?;
    Some((side_guard, mine))
}
