//! The outcome of an action for the user, in a few ordered words.

use std::fmt;

/// Whether processes of the server are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Some are.
    Some,
    /// None is.
    Nothing,
}

/// What became of the call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InFlight {
    /// The client waits on.
    Silence,
    /// The client sees the end of its connection.
    Lost,
    /// The client gets an error as an answer.
    Error,
    /// It is answered.
    Answer,
}

/// Whether the next call works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// It does not.
    Fails,
    /// It does.
    Works,
}

/// Which version of an edited server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The one before the edit.
    Old,
    /// The edited one.
    New,
}

/// All that the page records about an action. Later variants of each are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub in_flight: Option<InFlight>,
    pub next: Option<Next>,
    pub code: Option<Code>,
    pub left: Option<Left>,
}

/// The words for the worst outcome of each. The page uses them to say what need not be waited for.
pub const LEFT: &str = "processes left";
pub const FAILS: &str = "next call fails";
pub const SILENCE: &str = "call never answered";

impl Outcome {
    /// True if any part is worse than in the other outcome.
    pub fn worse_than(self, other: Self) -> bool {
        self.in_flight < other.in_flight
            || self.next < other.next
            || self.code < other.code
            || self.left < other.left
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight.map(|it| match it {
            InFlight::Silence => SILENCE,
            InFlight::Lost => "call lost with the connection",
            InFlight::Error => "call gets an error",
            InFlight::Answer => "call answered",
        });
        let next = self.next.map(|it| match it {
            Next::Fails => FAILS,
            Next::Works => "next call works",
        });
        let code = self.code.map(|it| match it {
            Code::Old => "old code",
            Code::New => "new code",
        });
        let left = self.left.map(|it| match it {
            Left::Some => LEFT,
            Left::Nothing => "nothing left",
        });
        let words: Vec<&str> = [in_flight, next, code, left]
            .into_iter()
            .flatten()
            .collect();
        f.write_str(&words.join(", "))
    }
}
