use super::whole_lines;

#[test]
fn a_line_that_was_read_in_part_is_not_given_back() {
    for (unread, whole) in [
        ("", ""),
        ("{\"id\":1}\n{\"id\":2}\n", "{\"id\":1}\n{\"id\":2}\n"),
        ("\"id\":1}\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("{\"b\":1}}\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("}\n", ""),
        ("\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("rest without end", ""),
    ] {
        assert_eq!(whole_lines(unread.as_bytes()), whole.as_bytes(), "{unread}");
    }
}

/// Where a keeper is killed, the client's lines are with it or with its successor.
mod killed {
    extern crate std;

    use alloc::vec;
    use alloc::vec::Vec;
    use std::panic::{self, AssertUnwindSafe};

    use super::super::lane::{Lane, Part, Router};
    use super::super::shell::{Read, Wrote};
    use crate::kill_point::{Killed, kill_point, set_fuse};
    use crate::limits::WHOLE_LINE_BYTES;
    use crate::link::Route;
    use crate::record::inbox::{Board, Inbox};

    /// Lines of all sizes that are held whole. The number is the length of a member; the letter says what becomes of the line.
    const LINES: [(char, usize); 14] = [
        ('f', 9_000),
        ('f', 60_000),
        ('d', 10),
        ('f', 10),
        ('h', 20_000),
        ('d', 30_000),
        ('f', 2_000),
        ('i', 100),
        ('f', 50_000),
        ('d', 60_000),
        ('f', 10),
        ('h', 10),
        ('i', 5_000),
        ('f', 40_000),
    ];
    /// How much each read brings at most, and how much each write takes at most; 0: the sink is full.
    const READS: [usize; 5] = [66_000, 70_000, 5, 30_000, 12_345];
    const WRITES: [usize; 7] = [usize::MAX, 1_000, 0, 20_000, usize::MAX, 0, 10];

    /// What is outside of the keeper, and what its router was shown.
    struct World {
        stream: Vec<u8>,
        /// Bytes of the stream that a read has brought.
        read: usize,
        /// The end of the last line that was shown and not held.
        shown: usize,
        /// The ends of the lines that are to be forwarded: among all that the sink gets, and in the stream.
        forwarded: Vec<(usize, usize)>,
        written: usize,
        reads: usize,
        writes: usize,
        held: usize,
    }

    impl World {
        fn new() -> Self {
            let line = |(what, len): (char, usize)| {
                let pad = "x".repeat(len);
                alloc::format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"{what}\",\"params\":\"{pad}\"}}\n"
                )
            };
            Self {
                stream: LINES
                    .into_iter()
                    .flat_map(|of| line(of).into_bytes())
                    .collect(),
                read: 0,
                shown: 0,
                forwarded: Vec::new(),
                written: 0,
                reads: 0,
                writes: 0,
                held: 0,
            }
        }

        /// The end of the last line of which the sink has something.
        fn begun_at_sink(&self) -> usize {
            let mut before = 0;
            let begun = self.forwarded.iter().take_while(|&&(end, _)| {
                let begun = before < self.written;
                before = end;
                begun
            });
            begun.last().map_or(0, |&(_, end)| end)
        }

        /// One keeper, to the end of the stream.
        fn keep(&mut self, mut lane: Lane<'_>) {
            while self.shown < self.stream.len() || !lane.flushed() {
                lane.fill(|into| {
                    let most = READS[self.reads % READS.len()].min(into.len());
                    let bytes = &self.stream[self.read..];
                    let len = most.min(bytes.len());
                    if len == 0 {
                        return Read::Nothing;
                    }
                    self.reads += 1;
                    into[..len].copy_from_slice(&bytes[..len]);
                    self.read += len;
                    kill_point();
                    Read::Bytes(len)
                });
                lane.route(self);
                lane.drain(|bytes| {
                    let most = WRITES[self.writes % WRITES.len()];
                    self.writes += 1;
                    if most == 0 {
                        return Wrote::Full;
                    }
                    let len = most.min(bytes.len());
                    self.written += len;
                    kill_point();
                    Wrote::Took(len)
                });
            }
        }
    }

    impl Router for World {
        fn pass(&mut self, _: &[u8]) -> usize {
            0
        }

        fn route(&mut self, part: Part<'_>) -> Route {
            let Part::Line(_, bytes) = part else {
                panic!("every line is held whole: {part:?}");
            };
            let end = self.shown + bytes.len();
            assert_eq!(&self.stream[self.shown..end], bytes, "the next line");
            let what = bytes["{\"jsonrpc\":\"2.0\",\"method\":\"".len()];
            if what == b'h' && self.held < 2 {
                self.held += 1;
                return Route::Hold;
            }
            self.held = 0;
            self.shown = end;
            match what {
                b'd' => Route::Drop,
                b'i' => Route::Instead,
                _ => {
                    let before = self.forwarded.last().map_or(0, |&(end, _)| end);
                    self.forwarded.push((before + bytes.len(), end));
                    Route::Forward
                }
            }
        }
    }

    #[test]
    fn at_every_kill_point_a_successor_finds_the_lines_that_were_not_routed() {
        for point in 0.. {
            let (board, mut memory) = (Board::new(), vec![0; 2 * WHOLE_LINE_BYTES]);
            let mut world = World::new();
            let lived = panic::catch_unwind(AssertUnwindSafe(|| {
                set_fuse(Some(point));
                let inbox = Inbox::over(&board, &mut memory);
                world.keep(Lane::recorded(inbox, false));
                set_fuse(None);
            }));
            let Err(end) = lived else {
                assert!(point > 150, "{point} kill points");
                return;
            };
            assert!(end.is::<Killed>(), "at kill point {point}");
            let lane = Lane::recorded(Inbox::over(&board, &mut memory), false);
            let fresh = lane.fresh();
            let from = world.read - fresh.len();
            assert!(
                *fresh == world.stream[from..world.read],
                "at kill point {point}: what was read"
            );
            assert!(
                from == 0 || world.stream[from - 1] == b'\n',
                "at kill point {point}: a line begins"
            );
            assert!(
                from <= world.shown,
                "at kill point {point}: every line before was shown"
            );
            assert!(
                from >= world.begun_at_sink(),
                "at kill point {point}: the sink gets no line twice"
            );
            // The successor is shown the rest.
            world.shown = from;
            (world.held, world.written) = (0, 0);
            world.forwarded.clear();
            world.keep(lane);
        }
    }
}
