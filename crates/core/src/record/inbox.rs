//! Bytes from the client that survive a killed keeper, with the marks that say how far each has come.
//!
//! The marks are written twice: one copy is in force while the other is written, and one store switches between them. So a successor sees
//! either the old marks or the new ones.
//!
//! Invariants:
//! - Free space is zero. JSON text holds no NUL, so bytes that the kernel had delivered when the keeper was killed, before it could move the
//!   mark, are found by [`Inbox::recover`].
//! - Any board and any bytes are safe to read.
//! - That a line is half routed is published together with the marks: else a successor would take its rest for a line.

use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use mainstay_protocol::message::frame::Begun;

use mainstay_protocol::kill_point::kill_point;

/// Where the bytes in a buffer stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// First byte that the sink does not have yet.
    pub start: u32,
    /// First byte whose line has not been routed yet.
    pub routed: u32,
    /// End of what was read.
    pub end: u32,
    /// What is not routed begins with the rest of a line whose beginning is gone, and was this.
    pub within_a_line: Option<Begun>,
}

impl Marks {
    /// True if they are in order and lie within a buffer of this length.
    pub fn fit(self, len: usize) -> bool {
        self.start <= self.routed && self.routed <= self.end && self.end as usize <= len
    }
}

/// The marks as they lie in the record.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Board {
    in_force: AtomicU32,
    /// Not 0: bytes beyond the end are stale, not fresh.
    stale: AtomicU32,
    marks: [[AtomicU32; 4]; 2],
}

impl Board {
    /// Nothing was read.
    pub const fn new() -> Self {
        Self {
            in_force: AtomicU32::new(0),
            stale: AtomicU32::new(0),
            marks: [const { [const { AtomicU32::new(0) }; 4] }; 2],
        }
    }

    /// Puts new marks in force, all at once.
    fn mark(&self, marks: Marks) {
        let Marks {
            start,
            routed,
            end,
            within_a_line,
        } = marks;
        let within_a_line = match within_a_line {
            None => 0,
            Some(Begun::Unknown) => 1,
            Some(Begun::Asks) => 2,
            Some(Begun::Answers) => 3,
        };
        let words = [start, routed, end, within_a_line];
        let other = 1 - (self.in_force.load(Ordering::Relaxed) & 1);
        for (place, word) in self.marks[other as usize].iter().zip(words) {
            kill_point();
            place.store(word, Ordering::Relaxed);
        }
        kill_point();
        self.in_force.store(other, Ordering::Release);
        // What is written to the bytes from now on must not be seen before these marks.
        compiler_fence(Ordering::SeqCst);
    }

    fn marks(&self) -> Marks {
        let at = (self.in_force.load(Ordering::Acquire) & 1) as usize;
        let [start, routed, end, within_a_line] = self.marks[at]
            .each_ref()
            .map(|mark| mark.load(Ordering::Relaxed));
        Marks {
            start,
            routed,
            end,
            within_a_line: match within_a_line {
                0 => None,
                2 => Some(Begun::Asks),
                3 => Some(Begun::Answers),
                _ => Some(Begun::Unknown),
            },
        }
    }
}

/// The bytes, lent to one keeper.
#[derive(Debug)]
pub struct Inbox<'a> {
    bytes: &'a mut [u8],
    board: &'a Board,
}

impl<'a> Inbox<'a> {
    /// Over this memory, which may be a killed keeper's.
    pub fn over(board: &'a Board, bytes: &'a mut [u8]) -> Self {
        Self { bytes, board }
    }

    /// The whole buffer.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The whole buffer.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        kill_point();
        self.bytes
    }

    /// Puts bytes that were read before there was a keeper in front.
    pub fn preload(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.bytes.len());
        self.bytes[..len].copy_from_slice(&bytes[..len]);
        self.mark(Marks {
            end: len as u32,
            ..Marks::default()
        });
    }

    /// Puts new marks in force, all at once.
    pub fn mark(&mut self, marks: Marks) {
        debug_assert!(marks.fit(self.bytes.len()), "marks out of order: {marks:?}");
        self.board.mark(marks);
    }

    /// The bytes were copied to the front (source and copy do not overlap) and used to reach to `old_end`: puts the new marks in force and
    /// clears what is stale.
    pub fn moved(&mut self, marks: Marks, old_end: usize) {
        kill_point();
        self.board.stale.store(1, Ordering::Relaxed);
        self.mark(marks);
        if let Some(stale) = self.bytes.get_mut(marks.end as usize..old_end) {
            let (first, second) = stale.split_at_mut(stale.len() / 2);
            kill_point();
            first.fill(0);
            kill_point();
            second.fill(0);
        }
        kill_point();
        // Release: the bytes are cleared before.
        self.board.stale.store(0, Ordering::Release);
    }

    /// What a killed keeper left, including bytes that came with its last `read`.
    pub fn recover(&mut self) -> Marks {
        let mut marks = self.board.marks();
        if !marks.fit(self.bytes.len()) {
            marks = Marks::default();
        }
        let free = &mut self.bytes[marks.end as usize..];
        if self.board.stale.load(Ordering::Relaxed) != 0 {
            free.fill(0);
        }
        marks.end += free.iter().position(|&b| b == 0).unwrap_or(free.len()) as u32;
        self.mark(marks);
        kill_point();
        // Last: until the marks are in force, a successor of ours must judge the bytes beyond the end as we did.
        self.board.stale.store(0, Ordering::Release);
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_the_fatal_read_are_found() {
        let board = Board::new();
        let mut memory = [0; 32];
        let mut first = Inbox::over(&board, &mut memory);
        first.bytes_mut()[..6].copy_from_slice(b"{}\n{}\n");
        first.mark(Marks {
            start: 0,
            routed: 3,
            end: 3,
            within_a_line: Some(Begun::Asks),
        });
        let mut next = Inbox::over(&board, &mut memory);
        assert_eq!(
            next.recover(),
            Marks {
                start: 0,
                routed: 3,
                end: 6,
                within_a_line: Some(Begun::Asks),
            }
        );
        next.moved(Marks::default(), 6);
        assert_eq!(Inbox::over(&board, &mut memory).recover(), Marks::default());
    }

    #[test]
    fn a_successor_that_is_killed_while_it_recovers_loses_nothing() {
        extern crate std;

        use mainstay_protocol::kill_point::{Killed, set_fuse};
        use std::panic::{self, AssertUnwindSafe};

        for point in 0.. {
            let board = Board::new();
            let mut memory = [0; 32];
            // Two lines came with the read in which the first keeper was killed.
            memory[..6].copy_from_slice(b"{}\n{}\n");
            let lived = panic::catch_unwind(AssertUnwindSafe(|| {
                set_fuse(Some(point));
                Inbox::over(&board, &mut memory).recover();
                set_fuse(None);
            }));
            let marks = Inbox::over(&board, &mut memory).recover();
            assert_eq!(marks.end, 6, "at kill point {point}");
            let Err(end) = lived else {
                assert!(point > 4, "{point} kill points");
                return;
            };
            assert!(end.is::<Killed>(), "at kill point {point}");
        }
    }

    #[test]
    fn bytes_that_are_stale_are_not_read_again() {
        let board = Board::new();
        let mut memory = *b"{\"id\":1}\n{\"id\":2}\n";
        // A keeper that was killed between the new marks and the clearing of the old bytes.
        board.stale.store(1, Ordering::Relaxed);
        assert_eq!(Inbox::over(&board, &mut memory).recover(), Marks::default());
        assert!(memory.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn bytes_that_were_read_before_are_there() {
        let board = Board::new();
        let mut memory = [0; 16];
        Inbox::over(&board, &mut memory).preload(b"{}\n{\0");
        let mut inbox = Inbox::over(&board, &mut memory);
        let marks = inbox.recover();
        assert_eq!((marks.start, marks.routed, marks.end), (0, 0, 5));
        assert_eq!(&inbox.bytes()[..5], b"{}\n{\0");
    }

    #[test]
    fn marks_that_make_no_sense_are_none() {
        let board = Board::new();
        board.marks[0][0].store(9, Ordering::Relaxed);
        let mut memory = [0; 8];
        assert_eq!(Inbox::over(&board, &mut memory).recover(), Marks::default());
    }
}
