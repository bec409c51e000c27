//! How the link becomes visible to other processes: its directory in the registry, its control socket, its card.
//!
//! To make a directory and three files takes longer than a small server takes to start, open and list its tools; on a busy
//! disk, several times as long. So at the start of a server everything that writes waits until the client has had time for its
//! opening exchange ([`INTRODUCE_MS`]). Then the steps are taken one at a time, and the messages that are ready pass between
//! two steps. This part says which step is next; the keeper takes it.
//!
//! Invariants: the record of earlier sessions is read before the client's first line, because it may answer that line; the card
//! comes last, so a link that is listed by its name can be asked, and its guard holds its lock; a keeper that is done, or whose
//! guard is gone, has taken all steps.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::INTRODUCE_MS;
use mainstay_store::registry::card::Card;
use mainstay_store::registry::entry::Entry;

use super::control::Control;
use super::plan::Plan;
use super::session;
use crate::container::note;

/// The link as other processes see it.
pub struct Listing {
    /// The link's directory: an earlier keeper's, or made once the server runs.
    entry: Option<Entry>,
    control: Control,
    /// The steps that are left for the server that was started last.
    startup: Option<Startup>,
    /// The state that the card shows.
    shown: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Startup {
    next: StartupStep,
    /// When the steps that write are due.
    writes_at: Moment,
}

/// What is done once a server was started, in this order.
#[derive(Clone, Copy, Debug)]
pub enum StartupStep {
    /// Read what earlier sessions of this configuration saw.
    Recall,
    /// Write the start event.
    TellStart,
    /// Make the link's directory.
    MakeEntry,
    /// Open the control socket in it.
    Listen,
    /// Tell the guard.
    TellGuard,
    /// Write the card.
    WriteCard,
}

impl Startup {
    fn due(&self) -> Moment {
        match self.next {
            StartupStep::Recall => Moment(0),
            StartupStep::TellStart
            | StartupStep::MakeEntry
            | StartupStep::Listen
            | StartupStep::TellGuard
            | StartupStep::WriteCard => self.writes_at,
        }
    }
}

impl StartupStep {
    fn following(self) -> Option<Self> {
        match self {
            Self::Recall => Some(Self::TellStart),
            Self::TellStart => Some(Self::MakeEntry),
            Self::MakeEntry => Some(Self::Listen),
            Self::Listen => Some(Self::TellGuard),
            Self::TellGuard => Some(Self::WriteCard),
            Self::WriteCard => None,
        }
    }
}

impl Listing {
    /// `entry`: the directory that an earlier keeper of this link made.
    pub fn new(entry: Option<Entry>) -> Self {
        Self {
            entry,
            control: Control::default(),
            startup: None,
            shown: "",
        }
    }

    /// A server was started: all steps are to be taken.
    pub fn begin(&mut self, now: Moment) {
        self.startup = Some(Startup {
            next: StartupStep::Recall,
            writes_at: now.after_ms(INTRODUCE_MS),
        });
    }

    /// Whether all steps are taken.
    pub fn is_complete(&self) -> bool {
        self.startup.is_none()
    }

    /// When the next step is due.
    pub fn due(&self) -> Option<Moment> {
        self.startup.as_ref().map(Startup::due)
    }

    /// The next step, if it is due. The caller takes it.
    pub fn step_due(&mut self, now: Moment) -> Option<StartupStep> {
        if self.startup?.due() > now {
            return None;
        }
        self.next_step()
    }

    /// The next step, due or not. The caller takes it.
    pub fn next_step(&mut self) -> Option<StartupStep> {
        let startup = self.startup?;
        let following = startup.next.following();
        self.startup = following.map(|next| Startup { next, ..startup });
        Some(startup.next)
    }

    pub fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }

    /// Makes the link's directory, unless it is there.
    pub fn make_entry(&mut self, plan: &Plan) {
        if self.entry.is_none() {
            self.entry = session::take_entry(plan);
        }
    }

    /// Makes the directory and the socket of a link whose directory was in use by a sweep when it was first wanted. True if
    /// they were missing and are there now.
    pub fn make_entry_late(&mut self, plan: &Plan) -> bool {
        if self.entry.is_some() {
            return false;
        }
        self.entry = Entry::try_take(&plan.paths, plan.id).ok();
        self.listen();
        self.entry.is_some()
    }

    /// Opens the control socket, unless it is open.
    pub fn listen(&mut self) {
        if let (Some(entry), false) = (&self.entry, self.control.listens()) {
            self.control.listen(entry);
        }
    }

    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// The state that the card shows.
    pub fn shown(&self) -> &'static str {
        self.shown
    }

    /// The card shows this state from now on. True if it must be written: there is a directory, and no startup step that would
    /// write it.
    pub fn show(&mut self, word: &'static str) -> bool {
        self.shown = word;
        self.entry.is_some() && self.is_complete()
    }

    pub fn write_card(&self, card: &Card) {
        debug_assert!(self.is_complete(), "the card comes last");
        if let Some(entry) = &self.entry {
            // Best effort: `ps` shows an older state.
            drop(entry.write(card));
        }
    }

    /// Writes down which processes the tree has.
    pub fn write_members(&self, members: &[Identity]) {
        if let Some(entry) = &self.entry {
            // Best effort: without it only the sweep after a double kill sees less.
            drop(entry.members(members));
        }
    }

    /// The link is done: its directory is emptied, unless a container is left that a sweep must find.
    pub fn remove(&self) {
        if let Some(entry) = &self.entry
            && note::all(entry.path()).is_empty()
        {
            drop(entry.clear());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_read_at_once_and_what_writes_waits_for_the_opening() {
        let mut listing = Listing::new(None);
        assert!(listing.is_complete() && listing.due().is_none());
        let start = Moment(0).after_ms(1_000);
        listing.begin(start);
        assert!(matches!(listing.step_due(start), Some(StartupStep::Recall)));
        assert!(listing.step_due(start).is_none());
        let written = start.after_ms(INTRODUCE_MS);
        assert_eq!(listing.due(), Some(written));
        assert!(matches!(
            listing.step_due(written),
            Some(StartupStep::TellStart)
        ));
        // A keeper that is done takes the others at once.
        let mut last = None;
        while let Some(step) = listing.next_step() {
            assert!(last.is_none(), "the card comes last");
            last = matches!(step, StartupStep::WriteCard).then_some(step);
        }
        assert!(last.is_some() && listing.is_complete());
    }

    #[test]
    fn the_card_is_not_written_while_steps_are_left_or_without_a_directory() {
        let mut listing = Listing::new(None);
        assert!(!listing.show("ready"), "no directory");
        assert_eq!(listing.shown(), "ready");
        let scratch = mainstay_store::scratch::Scratch::new();
        let entry = Entry::create(&scratch.paths(), mainstay_protocol::ids::LinkId(1)).unwrap();
        let mut listing = Listing::new(Some(entry));
        assert!(listing.show("ready"));
        listing.begin(Moment(0));
        assert!(!listing.show("starting"), "the last step writes it");
    }
}
