//! One lane: what it says of the bytes in it.
//! guards: A lane counts as passed on only when its source has nothing more and its sink has every line.

use alloc::vec;
use alloc::vec::Vec;

use mainstay_protocol::limits::WHOLE_LINE_BYTES;

use super::super::lane::{Lane, Part, Router};
use super::super::shell::{Read, Wrote};
use crate::link::Route;
use crate::record::inbox::{Board, Inbox};

const ROOM: usize = 2 * WHOLE_LINE_BYTES;

/// Decides by the method of a line. Keeps each line that it was shown.
#[derive(Default)]
struct ByMethod {
    shown: Vec<Vec<u8>>,
}

impl Router for ByMethod {
    fn pass(&mut self, _: &[u8], _: u64) -> usize {
        0
    }

    fn route(&mut self, part: Part<'_>, _: u64) -> Route {
        let Part::Line(frame, bytes) = part else {
            return Route::Pass;
        };
        self.shown.push(bytes.to_vec());
        match frame.method.as_deref() {
            Some("later") => Route::Later,
            Some("replaced") => Route::Replaced,
            _ => Route::Pass,
        }
    }
}

fn line(method: &str) -> Vec<u8> {
    alloc::format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n").into_bytes()
}

fn lines(methods: &[&str]) -> Vec<u8> {
    methods.iter().flat_map(|method| line(method)).collect()
}

fn read(lane: &mut Lane<'_>, bytes: &[u8]) {
    let read = lane.fill(|into| {
        into[..bytes.len()].copy_from_slice(bytes);
        Read::Bytes(bytes.len())
    });
    assert!(read, "there is room");
}

fn run_dry(lane: &mut Lane<'_>) {
    assert!(!lane.fill(|_| Read::Nothing));
}

fn end(lane: &mut Lane<'_>) {
    assert!(lane.fill(|_| Read::End));
}

/// The sink takes this many bytes.
fn write(lane: &mut Lane<'_>, len: usize) {
    assert_eq!(
        lane.write(|_| Wrote::Took(len)),
        Some(Wrote::Took(len)),
        "something waits for the sink"
    );
}

fn write_all(lane: &mut Lane<'_>) {
    while lane.write(|bytes| Wrote::Took(bytes.len())).is_some() {}
}

#[test]
fn it_is_dry_when_the_source_has_nothing_more_and_the_sink_has_every_line() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    let mut router = ByMethod::default();
    assert!(!lane.dry(), "the source was not asked yet");
    run_dry(&mut lane);
    assert!(lane.dry());
    lane.look_again();
    assert!(!lane.dry(), "the source is to be asked once more");
    run_dry(&mut lane);
    read(&mut lane, &lines(&["a", "replaced", "b"]));
    assert!(!lane.dry(), "the source may have more");
    run_dry(&mut lane);
    lane.route(&mut router);
    assert!(!lane.dry(), "the sink has nothing of the first line");
    write_all(&mut lane);
    assert!(lane.flushed() && lane.lines_wait());
    assert!(!lane.dry(), "the last line was not shown");
    lane.route(&mut router);
    assert!(!lane.dry() && !lane.lines_wait());
    write_all(&mut lane);
    assert!(lane.dry());
    end(&mut lane);
    assert!(lane.dry() && lane.ended());
    lane.look_again();
    assert!(lane.ended(), "an end is an end");
}

#[test]
fn a_line_that_is_held_waits_to_be_shown_again_and_not_to_be_shown() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    assert!(!lane.holds() && !lane.lines_wait());
    read(&mut lane, &lines(&["later"]));
    assert!(!lane.holds() && lane.lines_wait());
    lane.route(&mut ByMethod::default());
    assert!(lane.holds() && !lane.lines_wait());
}

#[test]
fn reading_stops_when_the_buffer_is_full_or_half_a_line_size_waits_for_the_sink() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    let begin = br#"{"jsonrpc":"2.0","method":"x","params":{"pad":""#;
    let mut long = begin.to_vec();
    long.resize(WHOLE_LINE_BYTES / 2 - 4, b'x');
    long.extend(b"\"}}\n");
    read(&mut lane, &long[..long.len() - 1]);
    lane.route(&mut ByMethod::default());
    assert!(!lane.full(), "nothing is routed");
    read(&mut lane, b"\n");
    lane.route(&mut ByMethod::default());
    assert_eq!(lane.waiting(), (WHOLE_LINE_BYTES / 2, 0));
    assert!(lane.full(), "the sink has enough to take");
    assert!(!lane.fill(|_| panic!("nothing is read")));
    write(&mut lane, 1);
    assert!(!lane.full());

    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    read(&mut lane, &vec![b'x'; ROOM - 1]);
    assert!(!lane.full());
    read(&mut lane, b"x");
    assert!(lane.full(), "there is no room");
}

#[test]
fn what_waits_is_counted_from_the_first_byte_that_the_sink_lacks() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    let (first, rest) = (line("a"), &line("b")[..5]);
    read(&mut lane, &[&first, rest].concat());
    lane.route(&mut ByMethod::default());
    assert_eq!(lane.waiting(), (first.len(), rest.len()));
    assert!(!lane.torn());
    write(&mut lane, 3);
    assert_eq!(lane.waiting(), (first.len() - 3, rest.len()));
    assert!(lane.torn(), "the sink has a part of a line");
    assert_eq!(lane.delivered(), 3);
    write(&mut lane, first.len() - 4);
    assert_eq!(lane.unsent(), b"\n");
    assert_eq!(
        lane.delivered(),
        first.len() as u64,
        "only the newline is missing"
    );
    write(&mut lane, 1);
    assert_eq!(lane.waiting(), (0, rest.len()));
    assert!(!lane.torn());
    assert_eq!(lane.delivered(), first.len() as u64);
}

#[test]
fn an_empty_line_that_waits_does_not_count_as_delivered() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    read(&mut lane, b"\n");
    lane.route(&mut ByMethod::default());
    assert_eq!(lane.unsent(), b"\n");
    assert_eq!(lane.delivered(), 0);
}

#[test]
fn what_is_discarded_counts_as_gone() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    let first = line("a");
    read(&mut lane, &lines(&["a", "b"]));
    lane.route(&mut ByMethod::default());
    write(&mut lane, 3);
    assert!(lane.torn());
    lane.discard_routed();
    assert!(lane.flushed() && !lane.torn());
    assert_eq!(lane.delivered(), 2 * first.len() as u64);
}

#[test]
fn an_empty_buffer_is_spare_and_no_other() {
    let mut memory = vec![0; ROOM];
    let mut lane = Lane::own(&mut memory);
    assert_eq!(lane.spare().map(|bytes| bytes.len()), Some(ROOM));
    read(&mut lane, &line("a"));
    assert!(lane.spare().is_none());
    lane.route(&mut ByMethod::default());
    assert!(lane.spare().is_none());
    write_all(&mut lane);
    assert_eq!(lane.spare().map(|bytes| bytes.len()), Some(ROOM));
}

#[test]
fn bytes_that_another_process_has_read_come_before_the_next_read() {
    let (board, mut memory) = (Board::new(), vec![0; ROOM]);
    let mut lane = Lane::recorded(Inbox::over(&board, &mut memory));
    let mut router = ByMethod::default();
    let both = lines(&["a", "b"]);
    let (before, after) = both.split_at(line("a").len() + 5);
    // Behind bytes that are there already: half of a blank line.
    read(&mut lane, b" ");
    lane.preload(before);
    assert_eq!(lane.fresh().0, [b" ", before].concat());
    read(&mut lane, after);
    lane.route(&mut router);
    assert_eq!(router.shown, [[b" ", &*line("a")].concat(), line("b")]);
    // What does not fit is not taken at all.
    lane.preload(&vec![b'x'; ROOM]);
    assert_eq!(lane.waiting().1, 0);
}

#[test]
fn a_last_line_without_newline_is_shown_with_one_if_it_is_a_whole_message() {
    let last = line("a");
    let last = &last[..last.len() - 1];
    for (text, shown) in [(last, true), (&last[..10], false)] {
        let mut memory = vec![0; ROOM];
        let mut lane = Lane::own(&mut memory);
        let mut router = ByMethod::default();
        read(&mut lane, text);
        lane.route(&mut router);
        end(&mut lane);
        lane.finish(&mut router);
        assert_eq!(router.shown.len(), usize::from(shown));
        if shown {
            assert_eq!(router.shown[0], line("a"));
            assert_eq!(lane.unsent(), line("a"));
        } else {
            assert_eq!(lane.waiting(), (0, 0), "half a message is void");
        }
    }
}

#[test]
fn a_last_line_that_leaves_no_room_for_its_newline_is_void() {
    // Smaller than a line that goes on in pieces.
    let mut memory = vec![0; line("a").len() - 1];
    let mut lane = Lane::own(&mut memory);
    let mut router = ByMethod::default();
    let last = line("a");
    read(&mut lane, &last[..last.len() - 1]);
    lane.route(&mut router);
    end_of_full(&mut lane);
    lane.finish(&mut router);
    assert!(router.shown.is_empty());
    assert_eq!(lane.waiting(), (0, 0));
}

/// Nothing is read while the buffer is full, so the end comes with a reader that is gone.
fn end_of_full(lane: &mut Lane<'_>) {
    assert!(lane.full() && !lane.fill(|_| Read::End));
}

#[test]
fn a_last_line_waits_for_the_lines_before_it() {
    let last = line("b");
    let last = &last[..last.len() - 1];
    for (method, shown_before) in [("later", 1), ("replaced", 1)] {
        let mut memory = vec![0; ROOM];
        let mut lane = Lane::own(&mut memory);
        let mut router = ByMethod::default();
        let first = lines(&[method, "a"]);
        read(&mut lane, &[&first, last].concat());
        lane.route(&mut router);
        end(&mut lane);
        lane.finish(&mut router);
        assert_eq!(router.shown.len(), shown_before, "{method}");
        assert_eq!(
            lane.waiting().0 + lane.waiting().1,
            if method == "later" {
                first.len()
            } else {
                line("a").len()
            } + last.len(),
            "{method}: nothing is void"
        );
    }
}

#[test]
fn a_successor_sends_nothing_of_what_its_predecessor_had_routed() {
    let (board, mut memory) = (Board::new(), vec![0; ROOM]);
    let mut lane = Lane::recorded(Inbox::over(&board, &mut memory));
    read(&mut lane, &[line("a"), b"{".to_vec()].concat());
    lane.route(&mut ByMethod::default());
    assert!(!lane.flushed());
    let successor = Lane::recorded(Inbox::over(&board, &mut memory));
    assert!(successor.flushed());
    assert_eq!(successor.fresh().0, b"{");
}
