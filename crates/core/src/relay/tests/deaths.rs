//! The end of a server, and of the whole link.
//! guards: What a dead server wrote reaches the client before its end counts, and what it has not read goes to the next server.

use alloc::string::ToString;
use alloc::vec::Vec;

use mainstay_protocol::event::Cause;
use mainstay_protocol::limits::EXITING_MS;
use serde_json::json;

use super::super::Output;
use super::stage::{
    ENDLESS, Memory, START, Stage, answer, dying, long_request, request, second_generation,
    with_a_question,
};
use crate::link::{Holders, Input};

#[test]
fn what_a_dead_server_wrote_reaches_a_slow_client_before_the_exit_is_due() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    stage.server_says(&answer(5));
    stage.relay.server_ended(stage.now);
    stage.pipes.client_room = Some(10);
    assert_eq!(stage.run(), []);
    assert_eq!(stage.after_ms(60_000), [], "the client takes its time");
    assert!(!stage.relay.exit_told());
    stage.pipes.client_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::ExitDue]);
    assert_eq!(stage.at_client(), answer(5));
    assert!(stage.relay.exit_told());
    assert_eq!(stage.run(), [], "it is told once");
}

#[test]
fn the_exit_of_a_silent_server_is_due_at_once() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), [], "it is told once");
}

#[test]
fn a_process_that_writes_on_after_the_server_delays_the_exit_by_its_grace_only() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.endless = true;
    stage.relay.server_ended(stage.now);
    let turns = |stage: &mut Stage<'_>| {
        for _ in 0..20 {
            stage.relay.turn(stage.now, &mut stage.pipes);
        }
        stage.relay.next()
    };
    assert_eq!(turns(&mut stage), None);
    assert_eq!(stage.relay.wake_at(), Some(START.after_ms(3_000)));
    stage.now = START.after_ms(2_999);
    assert_eq!(turns(&mut stage), None);
    stage.now = START.after_ms(3_000);
    assert_eq!(turns(&mut stage), Some(Output::ExitDue));
    assert!(stage.at_client().starts_with(ENDLESS));
}

#[test]
fn a_server_that_leaves_its_stdin_unread_is_deaf_after_the_time_of_an_exit() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.left_unread = true;
    assert_eq!(stage.run(), []);
    assert_eq!(stage.relay.wake_at(), Some(START.after_ms(EXITING_MS)));
    assert_eq!(stage.after_ms(EXITING_MS - 1), []);
    stage.pipes.left_unread = false;
    assert_eq!(stage.after_ms(EXITING_MS), [], "it reads again");
    stage.pipes.left_unread = true;
    assert_eq!(stage.run(), []);
    assert_eq!(stage.after_ms(EXITING_MS - 1), []);
    let asked = stage.after_ms(1);
    assert_eq!(asked, [Output::CloseServerStdin, Output::ServerDeaf]);
}

#[test]
fn lines_that_a_dead_server_has_not_read_go_to_the_next_one() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let (read, unread) = (request(5, "tools/list"), request(6, "tools/list"));
    stage.client_says(&read);
    stage.client_says(&unread);
    stage.run();
    assert_eq!(stage.at_server(), read.clone() + &unread);
    // The reader is gone when the next line comes.
    let (unsent, later) = (request(7, "tools/list"), request(8, "tools/list"));
    stage.pipes.server_room = None;
    stage.pipes.unread = Some([&read[read.len() - 4..], &unread].concat().into_bytes());
    stage.client_says(&unsent);
    let asked = stage.run();
    assert_eq!(asked, [Output::CloseServerStdin, Output::ServerDeaf]);
    stage.relay.server_ended(stage.now);
    stage.client_says(&later);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.exited();
    let told = alloc::format!("unread {unread}{unsent}");
    assert!(
        stage.pipes.sights.contains(&told),
        "{:?}",
        stage.pipes.sights
    );
}

#[test]
fn what_a_former_client_sent_is_not_given_back() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let sent = request(5, "tools/list");
    stage.client_says(&sent);
    stage.run();
    stage.relay.server_ended(stage.now);
    stage.run();
    // More is in the pipe than this client has sent since it is here: the opening counts, so all that may be before it is foreign.
    let foreign = request(99, "x/of-another-client");
    let opening = request(1, "initialize")
        + "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
    stage.pipes.unread = Some((foreign + &opening + &sent).into_bytes());
    stage.exited();
    let told = alloc::format!("unread {opening}{sent}");
    assert!(
        stage.pipes.sights.contains(&told),
        "{:?}",
        stage.pipes.sights
    );
}

#[test]
fn a_stopped_server_gets_what_waits_for_it_before_its_stdin_is_closed() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.server_room = Some(3);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    assert!(!stage.relay.server_has_all());
    stage.handle(Input::Stop(Cause::ClientGone));
    let asked = stage.run();
    assert!(asked.iter().any(|output| matches!(output, Output::Stop(_))));
    assert!(!asked.contains(&Output::CloseServerStdin), "{asked:?}");
    stage.pipes.server_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::CloseServerStdin]);
    assert_eq!(stage.at_server(), request(5, "x/y"));
}

#[test]
fn after_the_end_a_client_that_does_not_read_is_waited_for_as_long_as_a_server() {
    for reads in [true, false] {
        let mut memory = Memory::new();
        let mut stage = Stage::opened(&mut memory);
        stage.client_says(&request(5, "x/y"));
        stage.run();
        stage.pipes.client_room = Some(5);
        stage.handle(Input::Stop(Cause::Asked));
        stage.run();
        stage.relay.server_ended(stage.now);
        stage.after_ms(10);
        stage.exited();
        stage.handle(Input::TreeEmpty {
            ended: 1,
            left: Vec::new(),
        });
        let asked = stage.run();
        assert!(matches!(asked[..], [.., Output::Finish(_)]), "{asked:?}");
        let until = stage.now.after_ms(3_000);
        assert!(!stage.relay.flushed() && !stage.relay.is_done(stage.now));
        assert_eq!(stage.relay.wake_at(), Some(until));
        if reads {
            stage.pipes.client_room = Some(usize::MAX);
            assert_eq!(stage.run(), []);
            assert!(stage.relay.flushed() && stage.relay.is_done(stage.now));
            assert_eq!(stage.at_client().lines().count(), 1, "the answer is ours");
        } else {
            assert!(!stage.relay.is_done(START.after_ms(3_009)));
            assert!(stage.relay.is_done(until));
        }
    }
}

#[test]
fn what_the_client_says_after_a_death_is_for_the_next_server() {
    let mut memory = Memory::new();
    let mut stage = dying(&mut memory);
    let later = request(7, "x/y");
    stage.client_says(&later);
    assert_eq!(stage.run(), []);
    assert_eq!(stage.relay.unrouted().0, later.as_bytes());
    stage.pipes.client_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::ExitDue]);
    assert_eq!(stage.relay.unrouted().0, later.as_bytes());
}

#[test]
fn the_end_of_a_client_waits_for_the_end_of_a_dead_server() {
    let mut memory = Memory::new();
    let mut stage = dying(&mut memory);
    stage.pipes.client_ended = true;
    assert_eq!(stage.run(), []);
    stage.pipes.client_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.exited();
    assert!(stage.run().contains(&Output::ClientEnded));
}

#[test]
fn unread_lines_are_given_back_at_the_end_of_stdout_only_if_the_exit_is_told() {
    for told in [true, false] {
        let mut memory = Memory::new();
        let mut stage = Stage::opened(&mut memory);
        stage.client_says(&request(5, "tools/list"));
        stage.run();
        if told {
            stage.relay.server_ended(stage.now);
            assert_eq!(stage.run(), [Output::ExitDue]);
            stage.exited_with(Holders::Others { written: None }, false);
            stage.run();
        }
        stage.pipes.sights.clear();
        stage.pipes.unread = Some(request(5, "tools/list").into_bytes());
        stage.pipes.server_ended = true;
        let asked = stage.run();
        assert!(asked.contains(&Output::ServerStdoutEnded), "{asked:?}");
        let unread = alloc::format!("unread {}", request(5, "tools/list"));
        assert_eq!(stage.pipes.sights.contains(&unread), told);
    }
}

#[test]
fn what_a_living_server_has_not_read_yet_stays_in_its_pipe() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.unread = Some(Vec::new());
    stage.client_says(&request(5, "x/y"));
    assert_eq!(stage.run(), []);
    assert!(stage.pipes.unread.is_some(), "nothing was taken back");
}

#[test]
fn a_stopped_server_that_closes_its_stdin_is_not_called_deaf() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.pipes.server_room = Some(3);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    stage.handle(Input::Stop(Cause::ClientGone));
    stage.run();
    stage.pipes.server_room = None;
    assert_eq!(stage.run(), [Output::CloseServerStdin]);
}

#[test]
fn of_a_long_line_that_a_dead_server_has_not_read_nothing_is_given_back() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    let whole = request(5, "tools/list");
    stage.pipes.server_room = Some(0);
    stage.client_says(&whole);
    stage.client_says(&long_request(6).0);
    stage.run();
    stage.pipes.server_room = None;
    stage.pipes.unread = Some(Vec::new());
    stage.run();
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.exited();
    let told = alloc::format!("unread {whole}");
    assert!(
        stage.pipes.sights.contains(&told),
        "{:?}",
        stage.pipes.sights
    );
}

#[test]
fn a_start_that_is_refused_before_it_was_tried_is_not_asked_for() {
    let mut memory = Memory::new();
    let mut stage = Stage::new(&mut memory);
    stage.handle(Input::StartFailed {
        problem: "no".into(),
        hint: "mend it".into(),
        code: 127,
    });
    let asked = stage.run();
    assert!(!asked.contains(&Output::Spawn), "{asked:?}");
}

#[test]
fn what_we_said_to_a_server_that_has_not_read_it_is_no_foreign_line() {
    let mut memory = Memory::new();
    let (mut stage, replayed) = second_generation(&mut memory);
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.pipes.unread = Some(replayed.clone().into_bytes());
    stage.exited();
    let told = alloc::format!("unread {replayed}");
    assert!(
        stage.pipes.sights.contains(&told),
        "{:?}",
        stage.pipes.sights
    );
}

#[test]
fn a_line_that_is_half_written_when_a_stop_begins_is_not_cut() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    let long = json!({"jsonrpc": "2.0", "id": 5, "result": {"pad": "x".repeat(100_000)}});
    let long = long.to_string() + "\n";
    let (begin, end) = long.split_at(90_000);
    stage.server_says(begin);
    stage.run();
    stage.handle(Input::Stop(Cause::Asked));
    stage.run();
    stage.handle(Input::Tick);
    stage.server_says(end);
    stage.run();
    assert!(stage.at_client() == long, "the client has the whole line");
}

#[test]
fn the_end_of_stdout_is_told_when_the_client_has_our_lines_before_it() {
    let mut memory = Memory::new();
    let mut stage = with_a_question(&mut memory);
    stage.pipes.server_ended = true;
    assert_eq!(stage.run(), []);
    stage.pipes.client_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::ServerStdoutEnded]);
    assert_eq!(stage.at_client().lines().count(), 1);
}

#[test]
fn a_client_is_let_go_when_it_has_its_last_answer() {
    let mut memory = Memory::new();
    let mut stage = Stage::opened(&mut memory);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    stage.pipes.client_room = Some(5);
    stage.handle(Input::Stop(Cause::Asked));
    stage.run();
    stage.relay.server_ended(stage.now);
    stage.run();
    // A process of its tree is left.
    stage.exited_with(Holders::None, false);
    let asked = stage.run();
    assert!(!asked.contains(&Output::DropClient), "{asked:?}");
    stage.pipes.client_room = Some(usize::MAX);
    assert_eq!(stage.run(), [Output::DropClient]);
    assert_eq!(stage.at_client().lines().count(), 1);
}
