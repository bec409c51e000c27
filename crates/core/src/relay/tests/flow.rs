//! Bytes that move, wait or stay.
//! guards: A peer that does not read is waited for no longer than its limit, and no byte waits for a wake that does not come.

use mainstay_protocol::event::Cause;

use super::super::Output;
use super::stage::{
    ENDLESS, Memory, ROOM, START, Stage, answer, long_request, request, with_a_question,
};
use crate::link::Input;
use crate::record::Attached;

#[test]
fn a_client_that_left_behind_a_full_buffer_has_ended_after_the_grace_of_a_server_that_does_not_read()
 {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.server_room = Some(0);
    let (begin, end) = long_request(5);
    stage.client_says(&begin);
    stage.client_says(&end);
    stage.client_says(&"x".repeat(200_000));
    assert_eq!(stage.run(), []);
    assert_eq!(stage.after_ms(10_000), [], "the client is still there");
    stage.pipes.hung_up = true;
    assert_eq!(stage.run(), []);
    let since = stage.now;
    assert_eq!(stage.relay.wake_at(), Some(since.after_ms(2_000)));
    assert_eq!(stage.after_ms(1_999), []);
    // As long as the server takes something, it is only slow.
    stage.pipes.server_room = Some(1);
    assert_eq!(stage.after_ms(1), []);
    assert_eq!(stage.run(), []);
    assert_eq!(stage.after_ms(1_999), []);
    assert_eq!(stage.after_ms(1), [Output::ClientEnded]);
    assert_eq!(stage.run(), [], "it is told once");
}

#[test]
fn the_end_of_a_client_is_told_once_all_its_lines_are_shown() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let last = request(5, "x/y");
    stage.client_says(&last[..last.len() - 1]);
    stage.pipes.client_ended = true;
    assert!(!stage.relay.client_ended());
    assert_eq!(stage.run(), [Output::ClientEnded]);
    assert!(stage.relay.client_ended());
    assert_eq!(stage.at_server(), last, "with its newline");
    assert!(stage.relay.server_has_all());
}

#[test]
fn a_client_that_may_not_speak_yet_waits() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.may_speak = false;
    stage.client_says(&request(5, "x/y"));
    assert_eq!(stage.run(), []);
    assert_eq!(stage.at_server(), "");
    stage.pipes.may_speak = true;
    assert_eq!(stage.run(), []);
    assert_eq!(stage.at_server(), request(5, "x/y"));
}

#[test]
fn a_client_whose_pipe_is_broken_is_deaf() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    assert!(stage.relay.writes());
    stage.client_says(&request(5, "x/y"));
    stage.run();
    stage.pipes.client_room = None;
    stage.server_says(&answer(5));
    let asked = stage.run();
    assert_eq!(asked.first(), Some(&Output::ClientDeaf));
    assert!(!stage.relay.writes());
    assert!(stage.relay.flushed(), "nothing is kept for it");
}

#[test]
fn the_shell_sees_a_long_line_begin_and_end() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let (begin, end) = long_request(5);
    stage.client_says(&begin);
    stage.run();
    assert_eq!(stage.pipes.sights, ["begins Client Pass"]);
    stage.client_says(&end);
    stage.run();
    assert_eq!(
        stage.pipes.sights,
        ["begins Client Pass", "ends Client true"]
    );
    assert_eq!(stage.at_server(), begin + &end);
}

#[test]
fn what_waits_is_told() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.client_says(&(request(5, "x/y") + "{\"half"));
    stage.pipes.server_room = Some(3);
    stage.run();
    let (bytes, within_a_line) = stage.relay.unrouted();
    assert_eq!((bytes, within_a_line), (&b"{\"half"[..], None));
    stage.pipes.client_room = Some(0);
    stage.server_says(ENDLESS);
    stage.server_says("{\"ha");
    stage.run();
    let to_server = request(5, "x/y").len() - 3;
    let to_client = ENDLESS.len();
    assert_eq!(
        stage.relay.told(),
        alloc::format!(
            "ready: 1 in flight; 6 bytes from the client, {to_server} to the server and 0 of ours; 4 bytes from the server, \
             {to_client} to the client and 0 of ours"
        )
    );
    assert!(stage.relay.spare().0.is_none() && stage.relay.spare().1.is_none());
}

#[test]
fn buffers_without_bytes_are_spare() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let (up, down) = stage.relay.spare();
    assert_eq!(up.map(|bytes| bytes.len()), Some(ROOM));
    assert_eq!(down.map(|bytes| bytes.len()), Some(ROOM));
}

#[test]
fn lines_that_come_in_small_pieces_arrive_without_a_further_wake() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.read_most = 5;
    stage.client_says(&request(5, "x/y"));
    stage.run();
    assert_eq!(stage.at_server(), request(5, "x/y"));
    stage.server_says(&answer(5));
    stage.run();
    assert_eq!(stage.at_client(), answer(5));
}

#[test]
fn one_side_that_never_stops_leaves_the_other_its_turn() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let lines = ENDLESS.repeat(1_000);
    stage.pipes.read_most = ENDLESS.len();
    stage.client_says(&lines);
    stage.server_says(&lines);
    assert!(stage.relay.turn(stage.now, &mut stage.pipes));
    for arrived in [&stage.pipes.to_server, &stage.pipes.to_client] {
        assert!(!arrived.is_empty() && arrived.len() < lines.len());
    }
    stage.run();
    assert_eq!(stage.at_server(), lines);
    assert_eq!(stage.at_client(), lines);
}

#[test]
fn a_turn_says_that_more_may_move_for_each_side_alone() {
    let lines = ENDLESS.repeat(1_000);
    for client in [true, false] {
        let mut memory = Memory::new();
        let mut stage = Stage::opened(&mut memory);
        stage.pipes.read_most = ENDLESS.len();
        if client {
            stage.client_says(&lines);
        } else {
            stage.server_says(&lines);
        }
        assert!(stage.relay.turn(stage.now, &mut stage.pipes));
        stage.run();
        let arrived = stage.at_server() + &stage.at_client();
        assert_eq!(arrived, lines);
        assert!(!stage.relay.turn(stage.now, &mut stage.pipes));
    }
}

#[test]
fn what_waited_behind_a_full_pipe_arrives_when_it_has_room() {
    let lines = ENDLESS.repeat(10_000);
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    (stage.pipes.client_room, stage.pipes.server_room) = (Some(0), Some(0));
    stage.client_says(&lines);
    stage.server_says(&lines);
    stage.run();
    assert!(!stage.pipes.from_client.is_empty() && !stage.pipes.from_server.is_empty());
    stage.pipes.client_room = Some(usize::MAX);
    stage.run();
    assert_eq!(stage.at_client(), lines);
    stage.pipes.server_room = Some(usize::MAX);
    stage.run();
    assert_eq!(stage.at_server(), lines);
}

#[test]
fn the_grace_begins_with_the_buffer_that_a_client_fills_as_it_leaves() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    (stage.pipes.server_room, stage.pipes.hung_up) = (Some(0), true);
    stage.client_says(&"x".repeat(3 * ROOM));
    stage.client_says(&ENDLESS.repeat(10_000));
    stage.run();
    assert_eq!(stage.relay.wake_at(), Some(START.after_ms(2_000)));
    assert_eq!(stage.after_ms(2_000), [Output::ClientEnded]);
}

#[test]
fn the_end_of_a_client_waits_for_a_line_that_is_held() {
    let more = request(99, "x/y");
    for answered in [true, false] {
        let mut memory = Memory::new();
        let mut stage = Stage::opened(&mut memory);
        // As many as the table takes, and one more.
        for id in 10..26 {
            stage.client_says(&request(id, "x/y"));
        }
        stage.client_says(&more);
        assert_eq!(stage.run(), []);
        assert!(!stage.at_server().ends_with(&more));
        for _ in 0..2 {
            assert_eq!(stage.after_ms(10_000), [], "the client is still there");
        }
        stage.pipes.client_ended = true;
        assert_eq!(stage.run(), []);
        let until = stage.now.after_ms(2_000);
        assert_eq!(stage.relay.wake_at(), Some(until));
        if answered {
            stage.server_says(&answer(10));
            assert_eq!(stage.run(), [Output::ClientEnded]);
            assert!(stage.at_server().ends_with(&more));
        } else {
            assert_eq!(stage.after_ms(1_999), []);
            assert_eq!(stage.after_ms(1), [Output::ClientEnded]);
        }
    }
}

#[test]
fn a_client_that_comes_back_is_answered_from_the_bytes_that_were_read_before() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.relay.set_linger(60_000);
    stage.handle(Input::Stop(Cause::ShimKilled));
    assert!(stage.run().contains(&Output::Linger));
    assert!(!stage.relay.writes());
    let opening = request(1, "initialize");
    let (read, rest) = opening.split_at(20);
    stage
        .relay
        .reattach(stage.now, read.as_bytes(), &mut stage.pipes);
    assert!(stage.relay.writes());
    stage.client_says(rest);
    stage.run();
    assert_eq!(stage.at_client(), answer(1));
}

#[test]
fn the_answer_to_a_client_that_comes_back_is_not_counted_before_it_is_written() {
    for (room, noted) in [(1, Attached::Again), (usize::MAX, Attached::Yes)] {
        let mut memory = Memory::new();
        let mut stage = with_a_question(&mut memory);
        stage.handle(Input::Stop(Cause::ShimKilled));
        assert!(stage.run().contains(&Output::Linger));
        stage.relay.reattach(stage.now, b"", &mut stage.pipes);
        stage.pipes.client_room = Some(room);
        stage.client_says(&request(1, "initialize"));
        stage.run();
        assert!(stage.at_client().starts_with('{'));
        assert_eq!(memory.head.attached(), noted);
    }
}

#[test]
fn a_server_is_kept_only_for_the_time_that_was_set() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.relay.set_linger(0);
    stage.handle(Input::Stop(Cause::ShimKilled));
    let asked = stage.run();
    assert!(!asked.contains(&Output::Linger), "{asked:?}");
}
