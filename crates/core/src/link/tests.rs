//! The link's decisions, told as short stories.
//! guards: Every end of a link answers everything in flight once and gives the exit status of the server.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

mod batch;
mod early;
mod fast_path;
mod fresh;
mod full;
mod launcher;
mod life;
mod linger;
mod long;

use mainstay_protocol::event::{Cause, Rung, Status, Usage};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::message::frame::{Fed, Scanner};
use mainstay_protocol::message::inflight::Slot;
use mainstay_protocol::message::lists::Which;

use super::*;
use crate::record::Head;
use crate::record::replay_log::{Board, EntryKind, ReplayLog};
use crate::server::stop::Step;

/// A link with its record on the heap and the time in milliseconds.
struct World {
    link: Link<'static>,
    ms: u64,
}

type Memory = (Box<Head>, Box<[u8]>, Box<[Slot]>, Board, Box<[u8]>);

fn memory() -> &'static mut Memory {
    Box::leak(Box::new((
        Box::default(),
        vec![0; 4096].into(),
        vec![Slot::free(); 16].into(),
        Board::new(),
        vec![0; 8192].into(),
    )))
}

impl World {
    fn over(memory: &'static mut Memory, lost: Option<Lost>) -> Self {
        Self::with(Limits::default(), Policy::default(), memory, lost)
    }

    fn with(
        limits: Limits,
        policy: Policy,
        memory: &'static mut Memory,
        lost: Option<Lost>,
    ) -> Self {
        let mut world = Self::made(limits, policy, memory);
        world.link.begin(Moment(0), lost);
        world
    }

    /// A link that has not begun.
    fn made(limits: Limits, policy: Policy, memory: &'static mut Memory) -> Self {
        let record = Record {
            head: &mut memory.0,
            opening: &mut memory.1,
            slots: &mut memory.2,
            board: &memory.3,
            replay_log: &mut memory.4,
        };
        let about = About {
            link: LinkId(7),
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
            listed: true,
        };
        Self {
            link: Link::new(about, limits, policy, record, Remembered::default()),
            ms: 0,
        }
    }

    /// A link whose server is up.
    fn up() -> Self {
        let mut world = Self::over(memory(), None);
        assert_eq!(world.drain(), ["spawn"]);
        world.input(Input::Started);
        assert_eq!(world.drain(), [""; 0]);
        world
    }

    fn now(&self) -> Moment {
        Moment(0).after_ms(self.ms)
    }

    fn input(&mut self, input: Input) {
        let now = self.now();
        self.link.handle(now, input);
    }

    fn client(&mut self, line: &str) -> Route {
        let now = self.now();
        shown(
            line,
            |link, frame, line| link.client_line(now, frame, line),
            &mut self.link,
        )
    }

    fn server(&mut self, line: &str) -> Route {
        let route = self.undelivered(line);
        self.link.delivered_to(u64::MAX);
        route
    }

    /// A line from the server that is routed and not yet written.
    fn undelivered(&mut self, line: &str) -> Route {
        let now = self.now();
        shown(
            line,
            |link, frame, line| {
                link.server_wrote(now);
                link.server_line(now, frame, line)
            },
            &mut self.link,
        )
    }

    fn exits(&mut self, status: Status, tree_empty: bool) {
        self.input(Input::Exited(exited(status, false, tree_empty)));
    }

    /// The old tree is confirmed gone.
    fn empty(&mut self) {
        self.input(Input::TreeEmpty {
            ended: 1,
            left: vec![],
        });
    }

    /// The next generation starts and answers the replayed opening, our n-th request.
    fn greets_again(&mut self, n: &str) {
        self.input(Input::Started);
        assert!(self.drain()[0].contains("initialize"));
        assert_eq!(
            self.server(&greeting(&format!("\"ms:own:00000007:{n}\""), "1")),
            Route::Consumed
        );
    }

    /// A link whose client and server have met.
    fn met(limits: Limits, policy: Policy) -> Self {
        let mut world = Self::with(limits, policy, memory(), None);
        world.input(Input::Started);
        world.client(INITIALIZE);
        world.server(&greeting("1", "1"));
        world.client(INITIALIZED);
        world.drain();
        world
    }

    /// It dies of itself, and the next one is there.
    fn dies_and_returns(&mut self, n: &str) -> Vec<String> {
        self.exits(CRASH, true);
        let mut told = self.drain();
        self.empty();
        told.extend(self.drain());
        if told.last().is_none_or(|last| last != "spawn") {
            assert_eq!(self.wait(), Reason::Respawn);
            assert_eq!(self.drain(), ["spawn"]);
        }
        self.greets_again(n);
        told
    }

    fn wait(&mut self) -> Reason {
        let (at, reason) = self.link.wake_at().expect("nothing to wait for");
        self.ms = at.0 / 1_000_000;
        self.input(Input::Tick);
        reason
    }

    /// The outputs as words: answers by their id, events by their name.
    fn drain(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.link.next())
            .map(|output| told(&output))
            .collect()
    }
}

fn shown(
    line: &str,
    route: impl FnOnce(
        &mut Link<'static>,
        &mainstay_protocol::message::frame::Frame<'_>,
        &[u8],
    ) -> Route,
    link: &mut Link<'static>,
) -> Route {
    let line = format!("{line}\n");
    let mut scanner = Scanner::new();
    assert_eq!(
        scanner.feed(line.as_bytes()),
        Fed::Line { used: line.len() }
    );
    route(link, &scanner.frame(), line.as_bytes())
}

fn exited(status: Status, served_on: bool, tree_empty: bool) -> Exited {
    let holders = if served_on {
        Holders::Others { written: None }
    } else {
        Holders::None
    };
    Exited {
        pid: 7,
        status,
        usage: Usage::default(),
        stderr_tail: vec!["last words".into()],
        out_of_memory: None,
        holders,
        tree_empty,
    }
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec())
            .unwrap()
            .trim_end()
            .to_string()
    };
    match output {
        Output::Spawn => "spawn".into(),
        Output::ToClient(line) => {
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            let form = if value.get("error").is_some() {
                "error"
            } else {
                "result"
            };
            match value["method"].as_str() {
                Some(method) => format!("to client {method}"),
                None => format!("{form} for {}", value["id"]),
            }
        }
        Output::ToServer(line) => format!("to server {}", text(line)),
        Output::Say(_) => "say".into(),
        Output::Measure => "measure".into(),
        Output::Stop(Step::CloseStdin) => "close stdin".into(),
        Output::Stop(Step::Terminate) => "terminate".into(),
        Output::Stop(Step::Kill) => "kill".into(),
        Output::ReleaseClient => "release client".into(),
        Output::DropClient => "drop client".into(),
        Output::Linger => "linger".into(),
        Output::LingerOver => "linger over".into(),
        Output::Tell(what) => format!("tell {}", what.name()),
        Output::Finish(code) => format!("finish {code}"),
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":1}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

const CRASH: Status = Status::Signal {
    number: 11,
    core: true,
};

/// The answer to an opening, by a server of this version that announces changed tools.
fn greeting(id: &str, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":true}}}}}}}}"#
    )
}

fn ask(id: u32, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

#[test]
fn a_polite_session_ends_with_the_servers_own_code() {
    let mut world = World::up();
    assert_eq!(world.client(INITIALIZE), Route::Pass);
    assert_eq!(world.link.word(), "opening");
    assert_eq!(world.server(&answer("1")), Route::Pass);
    assert_eq!(world.link.word(), "ready");
    world.input(Input::ClientEof);
    assert_eq!(world.drain(), ["close stdin"]);
    world.exits(Status::Code(3), true);
    assert_eq!(world.drain(), ["tell exit", "release client"]);
    world.input(Input::TreeEmpty {
        ended: 1,
        left: vec![],
    });
    assert_eq!(world.drain(), ["tell teardown", "finish 3"]);
    assert_eq!(world.link.wake_at(), None);
}

#[test]
fn the_answer_to_another_mainstays_own_request_is_passed_on() {
    let mut world = World::met(Limits::default(), Policy::default());
    for id in ["ms:own:1", "ms:own:00000008:1"] {
        let ask = ask(2, "ping").replace(":2,", &format!(":\"{id}\","));
        assert_eq!(world.client(&ask), Route::Pass);
        assert_eq!(world.server(&answer(&format!("\"{id}\""))), Route::Pass);
        assert_eq!(world.link.in_flight(), 0);
    }
    assert_eq!(
        world.server(&answer("\"ms:own:00000007:1\"")),
        Route::Consumed,
        "ours, and lost"
    );
}

#[test]
fn answers_that_are_owed_at_eof_are_waited_for() {
    let mut world = World::up();
    world.client(&ask(1, "tools/call"));
    world.input(Input::ClientEof);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(world.server(&answer("1")), Route::Pass);
    assert_eq!(world.drain(), ["close stdin"]);
}

#[test]
fn requests_before_and_after_mainstay_stop_are_answered_with_that_reason() {
    let mut world = World::up();
    world.client(&ask(1, "tools/call"));
    world.input(Input::Stop(Cause::Asked));
    world.client(&ask(2, "tools/list"));
    world.exits(Status::Code(0), true);
    world.input(Input::TreeEmpty {
        ended: 1,
        left: vec![],
    });
    let lines = core::iter::from_fn(|| world.link.next()).filter_map(|output| match output {
        Output::ToClient(line) => String::from_utf8(line).ok(),
        Output::Spawn
        | Output::ToServer(_)
        | Output::Say(_)
        | Output::Stop(_)
        | Output::Measure
        | Output::ReleaseClient
        | Output::DropClient
        | Output::Linger
        | Output::LingerOver
        | Output::Tell(_)
        | Output::Finish(_) => None,
    });
    let told: String = lines.collect();
    assert_eq!(
        told.matches("was ended by `mainstay stop`").count(),
        2,
        "{told}"
    );
}

#[test]
fn a_deaf_server_is_killed_in_the_end_and_its_death_is_passed_on() {
    let mut world = World::up();
    world.input(Input::Stop(Cause::ClientGone));
    assert_eq!(world.drain(), ["close stdin", "drop client"]);
    assert_eq!(
        (world.wait(), world.drain()),
        (Reason::Rung, vec!["terminate".into()])
    );
    assert_eq!(
        (world.wait(), world.drain()),
        (Reason::Rung, vec!["kill".into()])
    );
    world.exits(
        Status::Signal {
            number: 9,
            core: false,
        },
        true,
    );
    world.input(Input::TreeEmpty {
        ended: 1,
        left: vec![],
    });
    assert_eq!(world.drain(), ["tell exit", "tell teardown", "finish 137"]);
}

#[test]
fn a_process_that_survives_sigkill_is_named_and_the_link_ends() {
    let mut world = World::up();
    world.input(Input::Stop(Cause::ClientGone));
    world.wait();
    world.wait();
    world.drain();
    world.input(Input::TreeEmpty {
        ended: 0,
        left: vec![],
    });
    assert_eq!(world.drain(), ["tell teardown", "finish 137"]);
}

#[test]
fn a_death_in_mid_call_answers_everything_in_flight_once() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(&answer("1"));
    world.client(&ask(2, "tools/call"));
    world.client(&ask(3, "tools/list"));
    world.exits(CRASH, false);
    // The call is answered, the list is asked for again: it only reads.
    assert_eq!(world.drain(), ["result for 2", "tell exit", "terminate"]);
    world.empty();
    assert_eq!(world.drain(), ["tell teardown", "spawn"]);
    assert_eq!(world.client(&ask(4, "ping")), Route::Later);
    world.greets_again("1");
    let resent = format!("to server {}", ask(3, "tools/list"));
    assert_eq!(world.drain(), [resent, "tell ready".into()]);
    assert_eq!(world.client(&ask(4, "ping")), Route::Pass);
    assert_eq!(world.server(&answer("3")), Route::Pass);
    assert_eq!(world.link.generation(), 2);
}

#[test]
fn a_failed_start_is_explained_to_the_probe_and_to_the_opening() {
    let mut world = World::over(memory(), None);
    world.drain();
    let (problem, hint) = ("not found".into(), "install it".into());
    world.input(Input::StartFailed {
        problem,
        hint,
        code: 127,
    });
    assert_eq!(world.drain(), ["say", "tell start_failed"]);
    assert_eq!(world.client(&ask(0, "server/discover")), Route::Replaced);
    assert_eq!(world.drain(), ["error for 0"]);
    assert_eq!(world.client(INITIALIZE), Route::Replaced);
    assert_eq!(
        world.drain(),
        ["error for 1", "release client", "finish 127"]
    );
}

#[test]
fn a_failed_start_without_requests_ends_by_itself() {
    let mut world = World::over(memory(), None);
    world.input(Input::StartFailed {
        problem: String::new(),
        hint: String::new(),
        code: 126,
    });
    world.drain();
    assert_eq!(world.wait(), Reason::Explained);
    assert_eq!(world.drain(), ["release client", "finish 126"]);
}

#[test]
fn a_server_that_dies_of_the_probe_is_a_legacy_one_and_gets_the_opening_too() {
    let mut world = World::up();
    world.client(&ask(0, "server/discover"));
    world.exits(Status::Code(1), true);
    let Some(Output::ToClient(line)) = world.link.next() else {
        panic!("no answer")
    };
    assert!(String::from_utf8(line).unwrap().contains("-32601"));
    assert_eq!(world.drain(), ["tell exit"]);
    world.empty();
    assert_eq!(world.drain(), ["spawn"]);
    world.input(Input::Started);
    world.drain();
    assert_eq!(world.client(INITIALIZE), Route::Pass);
    assert_eq!(world.server(&greeting("1", "1")), Route::Pass);
    assert!(world.link.remembered().is_legacy());
}

#[test]
fn an_opening_that_kills_every_generation_is_explained_after_the_third() {
    let mut world = World::up();
    world.client(INITIALIZE);
    for _ in 0..2 {
        world.exits(Status::Code(1), true);
        assert_eq!(world.drain(), ["tell exit"]);
        world.empty();
        if world.drain().is_empty() {
            assert_eq!(world.wait(), Reason::Respawn);
            assert_eq!(world.drain(), ["spawn"]);
        }
        world.input(Input::Started);
        assert_eq!(world.drain()[0], format!("to server {INITIALIZE}"));
    }
    world.exits(Status::Code(1), true);
    assert_eq!(world.drain(), ["error for 1", "tell exit"]);
    assert_eq!(world.wait(), Reason::Explained);
    assert_eq!(world.drain(), ["release client", "finish 1"]);
}

#[test]
fn a_request_to_a_server_that_is_leaving_waits_for_its_status() {
    let mut world = World::up();
    world.input(Input::StdoutClosed { tree_empty: false });
    assert_eq!(world.drain(), ["close stdin"]);
    assert_eq!(world.client(INITIALIZE), Route::Later);
    world.exits(Status::Code(3), true);
    assert_eq!(world.drain(), ["tell exit"]);
    assert_eq!(world.client(INITIALIZE), Route::Replaced);
    assert_eq!(world.drain(), ["error for 1"]);
    world.input(Input::TreeEmpty {
        ended: 1,
        left: vec![],
    });
    assert_eq!(
        world.drain(),
        ["tell teardown", "release client", "finish 3"]
    );
}

#[test]
fn junk_is_dropped_and_reported_once_per_power_of_ten_and_at_the_end() {
    let mut world = World::up();
    let mut told = Vec::new();
    let mut look = |world: &mut World| {
        while let Some(output) = world.link.next() {
            if let Output::Tell(What::Junk(junk)) = output {
                told.push((junk.lines, junk.sample));
            }
        }
    };
    assert_eq!(world.server("Server listening on stdio"), Route::Consumed);
    for _ in 0..24 {
        assert_eq!(world.server("a line of its log"), Route::Consumed);
    }
    assert_eq!(world.server(""), Route::Consumed);
    assert_eq!(world.client("not json either"), Route::Pass);
    look(&mut world);
    world.exits(CRASH, true);
    look(&mut world);
    let first = "Server listening on stdio";
    assert_eq!(told, [1, 10, 25].map(|lines| (lines, first.to_string())));
}

#[test]
fn a_log_line_that_begins_like_a_batch_is_junk() {
    let mut world = World::up();
    world.client(INITIALIZE);
    for line in [
        "[INFO] starting",
        "[2026-11-17 12:00:00] listening",
        "[]",
        "[{oops",
    ] {
        assert_eq!(world.server(line), Route::Consumed, "{line}");
    }
    assert_eq!(world.drain(), ["tell junk"]);
    assert_eq!(world.wait(), Reason::OpeningSilent, "it has said nothing");
    assert_eq!(world.client("[INFO] a client may say it"), Route::Pass);
}

#[test]
fn a_long_answer_is_answered_wherever_its_id_is() {
    let text = "x".repeat(5_000);
    let mut world = World::up();
    world.client(&ask(1, "tools/call"));
    let line = format!(r#"{{"result":{{"a":"{text}"}},"id":1,"more":{{}}}}"#);
    assert_eq!(world.server(&line), Route::Pass);
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn an_unasked_end_lets_go_of_the_client_at_once() {
    for cause in [
        Cause::ShimSignal { number: 15 },
        Cause::ShimKilled,
        Cause::KeeperSignal { number: 1 },
    ] {
        let mut world = World::up();
        world.client(&ask(1, "tools/call"));
        world.input(Input::Stop(cause));
        assert_eq!(world.drain(), ["close stdin", "drop client"]);
        assert_eq!(world.server(&answer("1")), Route::Consumed);
    }
}

#[test]
fn a_second_cause_ends_the_drain() {
    let mut world = World::up();
    world.client(&ask(1, "tools/call"));
    world.input(Input::ClientEof);
    world.input(Input::Stop(Cause::ShimKilled));
    assert_eq!(world.drain(), ["close stdin", "drop client"]);
}

#[test]
fn a_silent_opening_is_explained_and_its_late_answer_swallowed() {
    let mut world = World::up();
    world.client(INITIALIZE);
    assert_eq!(world.wait(), Reason::OpeningSilent);
    assert_eq!(world.drain(), ["tell opening_silent", "error for 1"]);
    assert_eq!(world.server(&answer("1")), Route::Consumed);
    assert_eq!(world.link.wake_at(), None);
}

#[test]
fn junk_begins_the_time_of_the_opening_anew_and_does_not_end_it() {
    let mut world = World::up();
    let opening = Limits::default().opening_ms;
    world.client(INITIALIZE);
    for line in ["fetching 1/3", "", "fetching 2/3"] {
        world.ms += opening - 1;
        world.input(Input::Tick);
        world.undelivered(line);
    }
    world.drain();
    // A part of a line counts, too.
    world.ms += opening - 1;
    let now = world.now();
    world.link.server_wrote(now);
    world.input(Input::Tick);
    assert_eq!(world.drain(), [""; 0]);
    assert_eq!(
        world.link.wake_at(),
        Some((now.after_ms(opening), Reason::OpeningSilent))
    );
    assert_eq!(world.wait(), Reason::OpeningSilent);
    assert_eq!(world.drain(), ["tell opening_silent", "error for 1"]);
}

#[test]
fn a_message_ends_it() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    assert_eq!(world.link.wake_at(), None);
}

#[test]
fn a_swallowed_answer_leaves_its_place_in_the_table() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.wait();
    assert_eq!(world.link.exchange.requests().late_answers(), 1);
    world.server(&answer("1"));
    assert_eq!(world.link.exchange.requests().late_answers(), 0);
}

#[test]
fn a_long_answer_to_our_own_greeting_is_not_the_clients() {
    let mut first = World::up();
    first.client(INITIALIZE);
    first.server(&answer("1"));
    let mut next = World::over(snapshot(&first), Some(lost()));
    next.input(Input::Started);
    let line = answer(r#""ms:own:00000007:1""#);
    let mut scanner = Scanner::new();
    scanner.feed(line.as_bytes());
    assert_eq!(
        next.link.server_known(scanner.begun().as_ref()),
        Route::Gather
    );
    // It may also come to light only at its end.
    assert_eq!(next.link.server_known(None), Route::Gather);
}

#[test]
fn a_server_that_spoke_once_may_take_its_time() {
    let mut world = World::up();
    world.client(INITIALIZE);
    world.server(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#);
    assert_eq!(world.link.wake_at(), None);
}

#[test]
fn a_cancelled_request_is_owed_nothing() {
    let mut world = World::up();
    world.client(&ask(5, "tools/call"));
    world
        .client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    assert_eq!(world.link.in_flight(), 0);
    assert_eq!(world.server(&answer("5")), Route::Pass);
}

#[test]
fn each_member_of_a_batch_is_owed_its_answer() {
    let mut world = World::up();
    world.client(&format!("[{},{}]", ask(1, "ping"), ask(2, "ping")));
    assert_eq!(world.link.in_flight(), 2);
    world.server(&format!("[{},{}]", answer("2"), answer("1")));
    assert_eq!(world.link.in_flight(), 0);
}

#[test]
fn requests_beyond_the_table_wait_their_turn() {
    let mut world = World::up();
    for id in 0..16 {
        assert_eq!(world.client(&ask(id, "ping")), Route::Pass);
    }
    assert_eq!(world.client(&ask(16, "ping")), Route::Later);
    world.server(&answer("0"));
    assert_eq!(world.client(&ask(16, "ping")), Route::Pass);
}

fn lost() -> Lost {
    Lost {
        pid: 9,
        status: None,
        ended: 1,
        settled: 0,
        successor: Some(10),
    }
}

#[test]
fn a_new_keeper_greets_the_new_server_on_the_clients_behalf() {
    let mut first = World::over(memory(), None);
    first.input(Input::Started);
    first.client(INITIALIZE);
    first.server(&answer("1"));
    first.client(INITIALIZED);
    first.client(&ask(2, "tools/call"));
    let left_behind = snapshot(&first);
    let mut next = World::over(left_behind, Some(lost()));
    assert_eq!(next.drain(), ["result for 2", "tell keeper_lost", "spawn"]);
    assert_eq!(next.client(&ask(3, "ping")), Route::Later);
    next.input(Input::Started);
    let replay = INITIALIZE.replace(":1,", r#":"ms:own:00000007:1","#);
    assert_eq!(next.drain(), [format!("to server {replay}")]);
    assert_eq!(next.client(&ask(3, "ping")), Route::Later);
    assert_eq!(
        next.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
        Route::Consumed
    );
    assert_eq!(
        next.server(&answer(r#""ms:own:00000007:1""#)),
        Route::Consumed
    );
    assert_eq!(
        next.drain(),
        [format!("to server {INITIALIZED}"), "tell ready".into()]
    );
    assert_eq!(next.client(&ask(3, "ping")), Route::Pass);
    assert_eq!(next.link.generation(), 2);
}

#[test]
fn an_opening_in_flight_is_sent_again_as_it_was() {
    let mut first = World::over(memory(), None);
    first.input(Input::Started);
    first.client(INITIALIZE);
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(next.drain(), ["tell keeper_lost", "spawn"]);
    next.input(Input::Started);
    assert_eq!(
        next.drain(),
        [format!("to server {INITIALIZE}"), "tell ready".into()]
    );
    next.link.written_to(u64::MAX);
    next.link.delivered_to(u64::MAX);
    assert_eq!(next.link.in_flight(), 1);
    assert_eq!(next.server(&answer("1")), Route::Pass);
    assert_eq!(next.link.in_flight(), 0);
}

#[test]
fn an_answer_of_ours_is_owed_until_it_is_written() {
    let mut first = World::up();
    first.client(&ask(4, "tools/call"));
    first.exits(Status::Code(1), true);
    // Killed before the answer was written: the next keeper answers again.
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(next.drain()[0], "result for 4");
    // Killed after it: not again.
    first.link.written_to(u64::MAX);
    first.link.delivered_to(u64::MAX);
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(next.drain()[0], "tell keeper_lost");
}

#[test]
fn an_answer_of_the_servers_is_owed_until_it_is_written() {
    let mut first = World::up();
    first.client(&ask(4, "tools/call"));
    assert_eq!(first.undelivered(&answer("4")), Route::Pass);
    assert_eq!(first.link.in_flight(), 0);
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(next.drain()[0], "result for 4");
    first.link.delivered_to(u64::MAX);
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(next.drain()[0], "tell keeper_lost");
}

#[test]
fn a_keeper_lost_on_the_way_down_is_not_followed_by_a_new_server() {
    let mut first = World::up();
    first.input(Input::Stop(Cause::ShimKilled));
    let mut next = World::over(snapshot(&first), Some(lost()));
    assert_eq!(
        next.drain(),
        ["tell keeper_lost", "release client", "finish 137"]
    );
}

#[test]
fn the_teardown_says_what_was_needed() {
    let mut world = World::up();
    world.input(Input::ClientEof);
    world.exits(Status::Code(0), false);
    world.drain();
    world.ms = 20;
    world.input(Input::TreeEmpty {
        ended: 4,
        left: vec![],
    });
    let Some(Output::Tell(What::Teardown(told))) = world.link.next() else {
        panic!("no teardown")
    };
    assert_eq!(
        (told.cause, told.rungs),
        (Cause::ClientEof, vec![Rung::Eof, Rung::Term])
    );
    assert_eq!((told.ended, told.left.len(), told.ms), (4, 0, 20));
}

/// What a killed keeper's record holds.
fn snapshot(world: &World) -> &'static mut Memory {
    let link = &world.link;
    let slots = link.exchange.requests().slots().to_vec().into_boxed_slice();
    let (head, opening, log) = link.exchange.session().left_behind();
    let memory = Box::leak(Box::new((
        Box::new(head),
        opening.to_vec().into_boxed_slice(),
        slots,
        Board::new(),
        vec![0; 8192].into_boxed_slice(),
    )));
    let mut copy = ReplayLog::over(&memory.3, &mut memory.4);
    for kind in EntryKind::ALL {
        for (key, value) in log.each(kind) {
            assert!(copy.put(kind, key, value));
        }
    }
    memory
}
