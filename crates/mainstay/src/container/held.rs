//! The container of one generation, from its start to its end, without ever waiting for its engine.
//!
//! An engine may take seconds to answer. So a process of ours, a fork that is a member of the tree like any other, talks to
//! it, and its exit code says what became of the container.

use mainstay_core::clock::Moment;
use mainstay_core::event::{Seen, Status};
use mainstay_os::role::{self, Errand};
use mainstay_os::title;

use super::engine::{self, Fate, How};
use super::note::Note;

/// The codes with which an engine's `run` speaks of itself, or of a container that it may not have started: 125 also if
/// it has lost its daemon.
const OF_THE_ENGINE: std::ops::RangeInclusive<i32> = 125..=127;

/// What an errand says of a container that is gone.
const GONE: u8 = 0;

/// A container and how far its end has come.
#[derive(Debug)]
pub struct Held {
    note: Note,
    state: State,
    /// Who is at it, in the states that say so.
    errand: Option<Errand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has said that it is over.
    Up,
    /// An errand asks it to stop.
    Stopping,
    /// An errand kills it, and has time until then.
    Killing { until: Moment },
    /// The kill is through; now it is the tree's turn.
    Killed(Fate),
    /// What became of it is known.
    Over(Fate),
}

impl Held {
    /// The container of a generation that was just started.
    pub fn new(note: Note) -> Self {
        Self {
            note,
            state: State::Up,
            errand: None,
        }
    }

    /// The engine's own command has ended: unless it speaks of itself, it says that the container has ended, too.
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
            // The rest of the tree is still to be killed.
            self.state = State::Killed(Fate::Gone);
        }
    }

    /// Has it asked to stop within so many seconds.
    pub fn stop(&mut self, seconds: u64, within_ms: u64) {
        if self.state == State::Up && self.send(How::Stop { seconds }, within_ms) {
            self.state = State::Stopping;
        }
    }

    /// Has it killed, unless it is over; whether that is to be waited for.
    pub fn kill(&mut self, now: Moment, within_ms: u64) -> bool {
        match self.state {
            State::Up | State::Stopping => {}
            State::Killing { .. } => return true,
            State::Killed(_) | State::Over(_) => return false,
        }
        // Without an id there is nothing to be killed yet but the engine's command, and that is the tree's turn.
        if !self.send(How::Kill, within_ms) {
            return false;
        }
        let until = now.after_ms(within_ms);
        self.state = State::Killing { until };
        true
    }

    /// Somebody of ours has ended: perhaps the errand.
    pub fn look(&mut self) {
        if let Some(code) = self.errand.as_ref().and_then(Errand::over) {
            self.errand = None;
            self.errand_over(if code == Some(GONE) {
                Fate::Gone
            } else {
                Fate::Left
            });
        }
    }

    fn errand_over(&mut self, fate: Fate) {
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

    /// Until when the kill is waited for.
    pub fn due(&self) -> Option<Moment> {
        match self.state {
            State::Killing { until } => Some(until),
            State::Up | State::Stopping | State::Killed(_) | State::Over(_) => None,
        }
    }

    /// Whether the kill has come to its end, or takes too long; it is told once.
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

    /// Whether there is nothing to wait for: it is gone, or the engine has been asked all that it can be.
    pub fn is_over(&self) -> bool {
        match self.state {
            State::Over(_) => true,
            State::Up | State::Stopping | State::Killing { .. } | State::Killed(_) => false,
        }
    }

    /// Everybody else of the tree is gone; the container, if nobody says that it is.
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
            self.note.strike_out();
        }
    }

    /// Sends somebody to the engine; whether anybody went.
    fn send(&mut self, how: How, within_ms: u64) -> bool {
        let Some(id) = self.note.id() else {
            return false;
        };
        let note = &self.note;
        let errand = role::send(|| {
            title::set(c"mcp-errand");
            match engine::end(note, &id, how, within_ms) {
                Fate::Gone => GONE,
                Fate::Left => 1,
            }
        });
        self.errand = errand.ok();
        self.errand.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Container;
    use super::*;
    use crate::scratch::Scratch;
    use mainstay_os::identity;
    use std::ffi::OsString;

    fn held(home: &Scratch, id: &str) -> Held {
        let argv = ["docker", "run", "img"].map(OsString::from);
        let (container, _) = Container::of(&argv, home.path(), 1).unwrap();
        let me = identity::me().unwrap();
        let note = Note::write(&home.location(), 1, &container, me, "/".into(), &[]).unwrap();
        std::fs::write(home.path().join("cid-1"), id).unwrap();
        Held::new(note)
    }

    fn owed(home: &Scratch) -> usize {
        super::super::note::all(&home.location()).len()
    }

    #[test]
    fn the_engines_command_speaks_of_the_container_or_of_itself() {
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
            assert_eq!(owed(&home), usize::from(!over), "{id} {status}");
            let left = (!over).then(|| Seen::container(id));
            assert_eq!(held.left(), left, "{id} {status}");
        }
    }

    #[test]
    fn a_stop_that_fails_leaves_it_to_the_kill() {
        for (fate, over) in [(Fate::Gone, true), (Fate::Left, false)] {
            let home = Scratch::new();
            let mut held = held(&home, "4f5e");
            held.state = State::Stopping;
            held.look();
            assert_eq!(held.state, State::Stopping, "nobody has come back");
            held.errand_over(fate);
            assert_eq!((held.is_over(), owed(&home) == 0), (over, over));
        }
    }

    #[test]
    fn a_kill_is_through_when_its_errand_the_command_or_the_time_says_so() {
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
                held.errand_over(fate);
            }
            assert!(held.kill_is_through(now) && !held.kill_is_through(now));
            assert!(held.is_over());
            assert_eq!((held.left().is_none(), owed(&home) == 0), (gone, gone));
        }
        let home = Scratch::new();
        let mut held = held(&home, "4f5e");
        held.state = State::Killing { until };
        held.command_ended(Status::Code(137));
        assert!(held.kill_is_through(Moment(0)));
        assert_eq!((held.left(), owed(&home)), (None, 0));
    }
}
