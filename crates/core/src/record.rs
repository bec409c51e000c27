//! What a new keeper must know to go on where a killed one stopped.
//!
//! Plain data in memory that guard and keeper share. Every bit pattern is safe to read, because the writer may have
//! been killed between any two stores; what must be consistent is published by one store at the end.

/// Changes with the meaning of any part of the record: two programs with different numbers cannot share one.
pub const LAYOUT: u32 = 2;

pub mod inbox;
pub(crate) mod long_ids;
pub mod replay_log;

use mainstay_protocol::message::inflight::Slot;

/// How far a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing was started yet.
    Fresh,
    /// A server is or should be up.
    Serving,
    /// The stop ladder has begun: a successor only finishes it.
    Stopping,
    /// Everything is done: the keeper's end is not a loss.
    Finished,
}

/// The fixed part of the record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    phase: u8,
    /// Not 0: a line to the client has been written in part.
    pub server_mid_line: u8,
    /// Not 0: the client has sent `notifications/initialized`.
    pub initialized: u8,
    /// Not 0: the client has the answer to its `initialize`.
    pub greeted: u8,
    /// Not 0: the modern era.
    pub modern: u8,
    /// Not 0: the client has asked something.
    pub spoken: u8,
    /// Not 0: the client has had an answer of the server's.
    pub served: u8,
    /// Generations started so far.
    pub generation: u32,
    /// Bytes of [`Record::opening`] that hold the client's `initialize` line.
    pub opening_len: u32,
    attachment: u8,
}

/// Whose pipes a link holds, as far as a successor must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// A client's, which has opened or will.
    Yes,
    /// No client's: the server is kept for a client that may come back.
    No,
    /// Those of a client that came back, and has not opened again yet.
    Again,
}

impl Head {
    /// How far it has come.
    pub fn phase(&self) -> Phase {
        match self.phase {
            1 => Phase::Serving,
            2 => Phase::Stopping,
            3 => Phase::Finished,
            // Anything else was never written by us.
            _ => Phase::Fresh,
        }
    }

    /// Whose pipes it holds.
    pub fn attached(&self) -> Attached {
        match self.attachment {
            1 => Attached::No,
            2 => Attached::Again,
            _ => Attached::Yes,
        }
    }

    /// Notes whose pipes it holds.
    pub fn set_attached(&mut self, attached: Attached) {
        self.attachment = match attached {
            Attached::Yes => 0,
            Attached::No => 1,
            Attached::Again => 2,
        };
    }

    /// Notes how far it has come.
    pub fn set_phase(&mut self, phase: Phase) {
        debug_assert!(
            phase >= self.phase(),
            "a link does not go back to an earlier phase"
        );
        self.phase = match phase {
            Phase::Fresh => 0,
            Phase::Serving => 1,
            Phase::Stopping => 2,
            Phase::Finished => 3,
        };
    }
}

/// The record, as lent to a link.
#[derive(Debug)]
pub struct Record<'a> {
    /// The fixed part.
    pub head: &'a mut Head,
    /// Room for the client's opening line.
    pub opening: &'a mut [u8],
    /// Requests in flight.
    pub slots: &'a mut [Slot],
    /// How far the replay log is written.
    pub board: &'a replay_log::Board,
    /// What the next generation must be told.
    pub replay_log: &'a mut [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_reads_the_phase_and_the_attachment_that_were_noted() {
        let mut head = Head::default();
        assert_eq!(
            (head.phase(), head.attached()),
            (Phase::Fresh, Attached::Yes)
        );
        for phase in [
            Phase::Fresh,
            Phase::Serving,
            Phase::Stopping,
            Phase::Finished,
        ] {
            head.set_phase(phase);
            assert_eq!(head.phase(), phase);
        }
        for attached in [Attached::No, Attached::Again, Attached::Yes] {
            head.set_attached(attached);
            assert_eq!(head.attached(), attached);
        }
    }
}
