//! Ends of the process that we started: a launcher's, a server's, or that of a command that is none.
//! guards: A launcher that exits while its server goes on is not the end of the server.

use mainstay_protocol::limits::OPENING_TRIES;

use super::*;

#[test]
fn a_launcher_may_leave_while_others_serve_on() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.input(Input::Exited(exited(Status::Code(0), true, false)));
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.server(&answer("1")), Route::Pass);
    world.input(Input::StdoutClosed { tree_empty: true });
    assert_eq!(world.drain(), ["tell exit"]);
    world.empty();
    assert_eq!(world.drain(), ["spawn"]);
}

#[test]
fn the_death_of_the_serving_process_is_followed_by_a_restart_even_if_a_helper_keeps_its_stdout() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(&greeting("1", "1"));
    world.input(Input::Exited(exited(Status::Code(0), true, false)));
    assert_eq!(world.drain(), [""; 0]);
    // No process reads what we write.
    world.client(&ask(2, "tools/call"));
    world.input(Input::Stop(Cause::ServerExit));
    assert_eq!(world.drain(), ["close stdin"]);
    world.empty();
    assert_eq!(
        world.drain(),
        ["result for 2", "tell exit", "tell teardown", "spawn"]
    );
}

#[test]
fn a_process_that_wrote_less_than_the_client_got_is_not_the_server() {
    let said = greeting("1", "1").len() as u64 + 1;
    for (written, serves) in [
        (None, true),
        (Some(said), true),
        (Some(said - 1), false),
        (Some(0), false),
    ] {
        let mut world = World::up();
        world.client(INITIALIZE);
        // Before the first message any process may be the server; a line that is no message may be the launcher's.
        let holders = Holders::Others { written };
        let launcher = || {
            Input::Exited(Exited {
                holders,
                ..exited(Status::Code(0), true, false)
            })
        };
        world.server("> server@1.0.0 start");
        world.server(&greeting("1", "1"));
        world.drain();
        world.client(&ask(2, "tools/call"));
        world.input(launcher());
        if serves {
            assert_eq!(world.drain(), [""; 0], "{written:?}");
            assert_eq!(world.server(&answer("2")), Route::Pass);
        } else {
            assert_eq!(
                world.drain(),
                ["result for 2", "tell exit", "terminate"],
                "{written:?}"
            );
            world.empty();
            assert_eq!(world.drain(), ["tell teardown", "spawn"]);
        }
        let mut early = World::up();
        early.client(INITIALIZE);
        early.server("> server@1.0.0 start");
        early.drain();
        early.input(launcher());
        assert_eq!(early.drain(), [""; 0]);
    }
}

#[test]
fn a_launcher_that_left_early_still_gives_its_status_when_the_link_is_stopped() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.input(Input::Exited(exited(Status::Code(0), true, false)));
    world.input(Input::ClientEof);
    // The process that serves on owes the answer, and ends without it.
    assert_eq!(world.drain(), [""; 0]);
    world.input(Input::StdoutClosed { tree_empty: true });
    assert_eq!(
        world.drain(),
        ["error for 1", "tell exit", "release client"]
    );
    world.input(Input::TreeEmpty {
        ended: 2,
        left: vec![],
    });
    assert_eq!(world.drain(), ["tell teardown", "finish 0"]);
}

#[test]
fn followers_that_only_the_kill_ends_leave_no_request_unanswered() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.input(Input::Exited(exited(Status::Code(0), true, false)));
    world.input(Input::Stop(Cause::Asked));
    world.input(Input::TreeEmpty {
        ended: 2,
        left: vec![],
    });
    assert_eq!(
        world.drain(),
        [
            "close stdin",
            "error for 1",
            "tell exit",
            "release client",
            "tell teardown",
            "finish 0"
        ]
    );
}

#[test]
fn a_launcher_that_fails_takes_the_server_with_it() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(&answer("1"));
    world.input(Input::Exited(exited(Status::Code(1), true, false)));
    assert_eq!(world.drain(), ["tell exit", "terminate"]);
    world.empty();
    assert_eq!(world.drain(), ["tell teardown", "spawn"]);
}

#[test]
fn a_command_that_ends_before_the_first_request_gives_its_status_unless_it_was_killed() {
    const KILLED: Status = Status::Signal {
        number: 9,
        core: false,
    };
    // Its stdout ends before it does, or is read to its end after it.
    for first in [true, false] {
        let ends = |world: &mut World, status: Status| {
            if first {
                world.input(Input::StdoutClosed { tree_empty: false });
            }
            world.exits(status, true);
            world.empty();
            world.drain()
        };
        for status in [Status::Code(0), Status::Code(3), CRASH] {
            let mut world = World::up();
            let told = ends(&mut world, status);
            assert!(!told.contains(&"spawn".into()), "{status}: {told:?}");
            assert_eq!(told.iter().filter(|what| *what == "tell exit").count(), 1);
            if !status.success() {
                assert_eq!(world.wait(), Reason::Explained);
            }
            let told = [told, world.drain()].concat();
            let finish = format!("finish {}", status.exit_code());
            assert_eq!(told.last(), Some(&finish), "{told:?}");
        }
        let mut world = World::up();
        for again in 0..OPENING_TRIES - 1 {
            let mut told = ends(&mut world, KILLED);
            if again > 0 {
                assert_eq!(world.wait(), Reason::Respawn);
                told.extend(world.drain());
            }
            assert_eq!(told.last().unwrap(), "spawn", "{told:?}");
            world.input(Input::Started);
        }
        let told = ends(&mut world, KILLED);
        assert!(!told.contains(&"spawn".into()), "{told:?}");
        assert_eq!(world.wait(), Reason::Explained);
        assert_eq!(world.drain().last().unwrap(), "finish 137");
    }
    // One that closes its end and has to be killed was ended by us.
    let mut world = World::up();
    world.input(Input::StdoutClosed { tree_empty: false });
    assert_eq!(world.wait(), Reason::Rung);
    assert_eq!(world.wait(), Reason::Rung);
    world.exits(KILLED, true);
    world.empty();
    let told = world.drain();
    assert!(!told.contains(&"spawn".into()), "{told:?}");
}
