//! The container of one generation, from its start to its end. The keeper never waits for the engine.
//!
//! An engine may take seconds to answer. So a helper process (a fork, and a member of the tree) calls it, and the exit code of
//! the helper says whether the container has ended.

use mainstay_os::role::{self, HelperProcess};
use mainstay_os::title;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Seen, Status};

use super::engine::{self, Fate, How};
use super::note::Note;

/// Exit codes of `run` that are errors of the engine itself, or of a container that may not have started. 125 is also used
/// if the engine lost its daemon.
const OF_THE_ENGINE: std::ops::RangeInclusive<i32> = 125..=127;

/// Exit code of a helper if the container has ended.
const GONE: u8 = 0;

/// A container, with the progress of its end.
#[derive(Debug)]
pub struct RunningContainer {
    note: Note,
    state: State,
    /// The helper, in the states in which one runs.
    helper: Option<HelperProcess>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not known to have ended.
    Up,
    /// A helper asks it to stop.
    Stopping,
    /// A helper kills it, until this time at most.
    Killing { until: Moment },
    /// The kill has been tried; next the rest of the tree is killed.
    Killed(Fate),
    /// The end is known.
    Over(Fate),
}

impl RunningContainer {
    /// The container of a generation that was just started.
    pub fn new(note: Note) -> Self {
        Self {
            note,
            state: State::Up,
            helper: None,
        }
    }

    /// The command of the engine has ended. Unless its exit code is an error of the engine itself, the container has ended, too.
    pub fn command_ended(&mut self, status: Status) {
        let of_the_container = match status {
            Status::Code(code) => !OF_THE_ENGINE.contains(&code),
            Status::Signal { .. } => false,
        };
        if !of_the_container && self.note.id().is_some() {
            return;
        }
        let killing = self.due().is_some();
        self.over(Fate::Gone);
        if killing {
            // The rest of the tree must still be killed.
            self.state = State::Killed(Fate::Gone);
        }
    }

    /// Starts a helper that asks it to stop within this number of seconds.
    pub fn stop(&mut self, seconds: u64, within_ms: u64) {
        if self.state == State::Up && self.send(How::Stop { seconds }, within_ms) {
            self.state = State::Stopping;
        }
    }

    /// Starts a helper that kills it, unless it has ended. True if the helper must be waited for.
    pub fn kill(&mut self, now: Moment, within_ms: u64) -> bool {
        match self.state {
            State::Up | State::Stopping => {}
            State::Killing { .. } => return true,
            State::Killed(_) | State::Over(_) => return false,
        }
        // Without an id there is only the command of the engine, which is killed with the tree.
        if !self.send(How::Kill, within_ms) {
            return false;
        }
        let until = now.after_ms(within_ms);
        self.state = State::Killing { until };
        true
    }

    /// A child of ours has ended; checks whether it was the helper.
    pub fn look(&mut self) {
        if let Some(code) = self.helper.as_ref().and_then(HelperProcess::over) {
            self.helper = None;
            self.helper_ended(if code == Some(GONE) {
                Fate::Gone
            } else {
                Fate::Left
            });
        }
    }

    fn helper_ended(&mut self, fate: Fate) {
        match (self.state, fate) {
            (State::Stopping, Fate::Gone) => self.over(Fate::Gone),
            (State::Stopping, Fate::Left) => self.state = State::Up,
            (State::Killing { .. }, fate) => {
                self.over(fate);
                self.state = State::Killed(fate);
            }
            (State::Up | State::Killed(_) | State::Over(_), _) => {}
        }
    }

    /// When the wait for the kill ends.
    pub fn due(&self) -> Option<Moment> {
        match self.state {
            State::Killing { until } => Some(until),
            State::Up | State::Stopping | State::Killed(_) | State::Over(_) => None,
        }
    }

    /// True, once, if the kill is done or takes too long.
    pub fn kill_is_through(&mut self, now: Moment) -> bool {
        match self.state {
            State::Killed(fate) => self.state = State::Over(fate),
            State::Killing { until } if now >= until => self.over(Fate::Left),
            State::Up | State::Stopping | State::Killing { .. } | State::Over(_) => {
                return false;
            }
        }
        true
    }

    /// True if there is nothing to wait for: it has ended, or all calls to the engine were made.
    pub fn is_over(&self) -> bool {
        match self.state {
            State::Over(_) => true,
            State::Up | State::Stopping | State::Killing { .. } | State::Killed(_) => false,
        }
    }

    /// Called when the rest of the tree is gone. Returns the container, unless its end is known.
    pub fn left(&mut self) -> Option<Seen> {
        let id = self.note.id();
        match self.state {
            State::Killed(Fate::Gone) | State::Over(Fate::Gone) => return None,
            State::Up | State::Stopping if id.is_none() => self.over(Fate::Gone),
            State::Up
            | State::Stopping
            | State::Killing { .. }
            | State::Killed(Fate::Left)
            | State::Over(Fate::Left) => self.over(Fate::Left),
        }
        id.map(|id| Seen::container(&id))
    }

    fn over(&mut self, fate: Fate) {
        self.state = State::Over(fate);
        if fate == Fate::Gone {
            self.note.remove();
        }
    }

    /// Starts a helper that calls the engine. False if it could not be started.
    fn send(&mut self, how: How, within_ms: u64) -> bool {
        let Some(id) = self.note.id() else {
            return false;
        };
        let note = &self.note;
        let helper = role::start_helper(|| {
            title::set(c"mcp-helper");
            match engine::end(note, &id, how, within_ms) {
                Fate::Gone => GONE,
                Fate::Left => 1,
            }
        });
        self.helper = helper.ok();
        self.helper.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Container;
    use super::*;
    use mainstay_os::identity;
    use mainstay_store::scratch::Scratch;
    use std::ffi::OsString;

    fn held(home: &Scratch, id: &str) -> RunningContainer {
        let argv = ["docker", "run", "img"].map(OsString::from);
        let (container, _) = Container::of(&argv, home.path(), 1).unwrap();
        let me = identity::me().unwrap();
        let note = Note::write(&home.location(), 1, &container, me, "/".into(), &[]).unwrap();
        std::fs::write(home.path().join("cid-1"), id).unwrap();
        RunningContainer::new(note)
    }

    fn notes_left(home: &Scratch) -> usize {
        super::super::note::all(&home.location()).len()
    }

    #[test]
    fn the_exit_code_of_run_is_of_the_container_or_of_the_engine() {
        let killed = Status::Signal {
            number: 9,
            core: false,
        };
        for (id, status, over) in [
            ("4f5e", Status::Code(0), true),
            ("4f5e", Status::Code(1), true),
            ("4f5e", Status::Code(137), true),
            ("4f5e", Status::Code(125), false),
            ("4f5e", Status::Code(126), false),
            ("4f5e", Status::Code(127), false),
            ("4f5e", killed, false),
            // It never had one.
            ("", Status::Code(125), true),
            ("", killed, true),
        ] {
            let home = Scratch::new();
            let mut held = held(&home, id);
            held.command_ended(status);
            assert_eq!(held.is_over(), over, "{id} {status}");
            assert_eq!(notes_left(&home), usize::from(!over), "{id} {status}");
            let left = (!over).then(|| Seen::container(id));
            assert_eq!(held.left(), left, "{id} {status}");
        }
    }

    #[test]
    fn a_failed_stop_is_followed_by_the_kill() {
        for (fate, over) in [(Fate::Gone, true), (Fate::Left, false)] {
            let home = Scratch::new();
            let mut held = held(&home, "4f5e");
            held.state = State::Stopping;
            held.look();
            assert_eq!(held.state, State::Stopping, "the helper has not exited");
            held.helper_ended(fate);
            assert_eq!((held.is_over(), notes_left(&home) == 0), (over, over));
        }
    }

    #[test]
    fn the_kill_ends_with_its_helper_the_command_or_the_time_limit() {
        let until = Moment(0).after_ms(1_000);
        for (news, gone) in [
            (Some(Fate::Gone), true),
            (Some(Fate::Left), false),
            (None, false),
        ] {
            let home = Scratch::new();
            let mut held = held(&home, "4f5e");
            held.state = State::Killing { until };
            assert_eq!(held.due(), Some(until));
            assert!(!held.kill_is_through(Moment(0)));
            let now = if news.is_some() { Moment(0) } else { until };
            if let Some(fate) = news {
                held.helper_ended(fate);
            }
            assert!(held.kill_is_through(now) && !held.kill_is_through(now));
            assert!(held.is_over());
            assert_eq!(
                (held.left().is_none(), notes_left(&home) == 0),
                (gone, gone)
            );
        }
        let home = Scratch::new();
        let mut held = held(&home, "4f5e");
        held.state = State::Killing { until };
        held.command_ended(Status::Code(137));
        assert!(held.kill_is_through(Moment(0)));
        assert_eq!((held.left(), notes_left(&home)), (None, 0));
    }
}
