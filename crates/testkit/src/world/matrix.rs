//! Every state of the link, and the effect of each event on it: the table in `docs/reference/life-matrix.md`.

use std::fmt::Write;

use mainstay_core::link::{About, Exited, Holders, Input, Link, Output, Route};
use mainstay_core::server::stop::Step;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, LeaseEnded, RestartReason, Status, Usage};
use mainstay_protocol::lease::Over;
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::frame::Scanner;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::Policy;
use serde_json::Value;

use super::LINK;
use super::shell::Memory;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const OPENED: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}"#;

/// A state: its word, its meaning, and how it is reached.
struct State {
    word: &'static str,
    meaning: &'static str,
    reach: fn(&mut Driver<'_>),
}

const STATES: [State; 14] = [
    State {
        word: "starting",
        meaning: "the first generation is asked for",
        reach: |_| {},
    },
    State {
        word: "opening",
        meaning: "a server is up, and the client has had no answer yet; `initialize` is in flight",
        reach: |driver| {
            driver.input(Input::Started);
            driver.client(INITIALIZE);
        },
    },
    State {
        word: "ready",
        meaning: "client and server speak with each other; a `tools/call` is in flight",
        reach: |driver| {
            driver.open();
            driver.client(CALL);
        },
    },
    State {
        word: "doubtful",
        meaning: "an idle server has left a question of ours unanswered",
        reach: |driver| {
            driver.open();
            driver.until("doubtful");
        },
    },
    State {
        word: "draining",
        meaning: "a restart was asked for; a `tools/call` is in flight",
        reach: |driver| {
            driver.open();
            driver.client(CALL);
            driver.input(Input::Renew(RestartReason::Asked));
        },
    },
    State {
        word: "restarting",
        meaning: "a generation has died, and others of its tree are still there",
        reach: |driver| {
            driver.open();
            driver.input(exited(Status::Code(1), false));
        },
    },
    State {
        word: "waiting",
        meaning: "generations have died one after the other; the next one has to wait",
        reach: |driver| {
            driver.open();
            for _ in 0..3 {
                driver.die();
                if driver.link.word() == "starting" {
                    driver.input(Input::Started);
                }
            }
        },
    },
    State {
        word: "greeting",
        meaning: "the next generation is told what its predecessor knew; the replayed opening is unanswered",
        reach: |driver| {
            driver.open();
            driver.die();
            driver.until("starting");
            driver.input(Input::Started);
        },
    },
    State {
        word: "resting",
        meaning: "the server was idle for a while, and it was stopped",
        reach: |driver| {
            driver.open();
            driver.input(Input::Renew(RestartReason::Idle { ms: 1 }));
            driver.input(exited(Status::Code(0), true));
            driver.input(empty());
        },
    },
    State {
        word: "abandoned",
        meaning: "it has died too often",
        reach: |driver| {
            driver.open();
            for _ in 0..20 {
                match driver.link.word() {
                    "abandoned" => return,
                    "starting" => driver.input(Input::Started),
                    "waiting" => driver.tick(),
                    _ => driver.die(),
                }
            }
        },
    },
    State {
        word: "failed",
        meaning: "the first generation could not be started; every request is answered with the reason",
        reach: |driver| driver.input(start_failed()),
    },
    State {
        word: "lingering",
        meaning: "the shim was killed while the client lives, and the server is kept; a `tools/call` was in flight",
        reach: |driver| {
            driver.open();
            driver.client(CALL);
            driver.input(Input::Stop(Cause::ShimKilled));
        },
    },
    State {
        word: "stopping",
        meaning: "the client has left; a `tools/call` is in flight, and has its time",
        reach: |driver| {
            driver.open();
            driver.client(CALL);
            driver.input(Input::ClientEof);
        },
    },
    State {
        word: "gone",
        meaning: "all is done",
        reach: |driver| {
            driver.input(start_failed());
            driver.input(Input::ClientEof);
        },
    },
];

/// An event.
enum Event {
    Given(fn() -> Input),
    Client(&'static str),
    Server(&'static str),
    Time,
}

const EVENTS: [(&str, Event); 29] = [
    ("the server was started", Event::Given(|| Input::Started)),
    ("it could not be started", Event::Given(start_failed)),
    (
        "it ends, and its tree is empty",
        Event::Given(|| exited(Status::Code(1), true)),
    ),
    (
        "it ends, and others of its tree are there",
        Event::Given(|| exited(Status::Code(1), false)),
    ),
    (
        "it closes its stdout",
        Event::Given(|| Input::StdoutClosed { tree_empty: false }),
    ),
    (
        "it closes its stdin",
        Event::Given(|| Input::Stop(Cause::ServerExit)),
    ),
    ("the tree is empty", Event::Given(empty)),
    ("the client's EOF", Event::Given(|| Input::ClientEof)),
    (
        "the client is gone",
        Event::Given(|| Input::Stop(Cause::ClientGone)),
    ),
    (
        "the shim gets SIGTERM",
        Event::Given(|| Input::Stop(Cause::ShimSignal { number: 15 })),
    ),
    (
        "the shim is killed",
        Event::Given(|| Input::Stop(Cause::ShimKilled)),
    ),
    ("a stranger's signal", Event::Given(|| Input::Check)),
    ("a client comes back", Event::Given(|| Input::Reattached)),
    (
        "`mainstay stop`",
        Event::Given(|| Input::Stop(Cause::Asked)),
    ),
    ("its lease is over", Event::Given(lease_over)),
    (
        "`mainstay restart`",
        Event::Given(|| Input::Renew(RestartReason::Asked)),
    ),
    (
        "it was idle",
        Event::Given(|| Input::Renew(RestartReason::Idle { ms: 1 })),
    ),
    (
        "its processor time",
        Event::Given(|| Input::Measured {
            cpu_ms: 0,
            traced: false,
        }),
    ),
    ("the time that it waits for", Event::Time),
    (
        "client: `initialize`",
        Event::Client(r#"{"jsonrpc":"2.0","id":11,"method":"initialize","params":{}}"#),
    ),
    (
        "client: `tools/call`",
        Event::Client(r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"t"}}"#),
    ),
    (
        "client: a batch",
        Event::Client(
            r#"[{"jsonrpc":"2.0","id":13,"method":"ping"},{"jsonrpc":"2.0","id":14,"method":"ping"}]"#,
        ),
    ),
    (
        "client: takes its call back",
        Event::Client(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
        ),
    ),
    (
        "client: answers an unknown request",
        Event::Client(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#),
    ),
    (
        "server: answers the call",
        Event::Server(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
    ),
    (
        "server: answers an unknown request",
        Event::Server(r#"{"jsonrpc":"2.0","id":98,"result":{}}"#),
    ),
    (
        "server: asks the client",
        Event::Server(r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#),
    ),
    (
        "server: a notification",
        Event::Server(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#),
    ),
    ("server: no message", Event::Server("hello")),
];

/// The page.
pub fn page() -> String {
    let mut page = String::from(
        "# Life of a link: every state, every event\n\n\
         Each state is reached as it says; then one thing happens. What is done is told in the order of the outputs; `-` is nothing. \
         A line *goes on* as it came, *is dropped*, *waits* where it is, or something goes *instead*.\n",
    );
    for state in &STATES {
        // Writing into a String cannot fail.
        let State { word, meaning, .. } = state;
        write!(page, "\n## {word}\n\nReached: {meaning}.\n\n| what happens | then | what is done |\n|---|---|---|\n").ok();
        for (name, event) in &EVENTS {
            let (then, done) = cell(state, event);
            let then = if then == *word { "·" } else { then };
            writeln!(page, "| {name} | {then} | {done} |").ok();
        }
    }
    page
}

fn cell(state: &State, event: &Event) -> (&'static str, String) {
    let mut memory = Memory::new(64);
    let mut driver = Driver::new(&mut memory);
    (state.reach)(&mut driver);
    assert_eq!(driver.link.word(), state.word, "the way to this state");
    let mut done = match event {
        Event::Given(input) => {
            driver.input_only(input());
            Vec::new()
        }
        Event::Client(line) => vec![went(driver.line(line, true))],
        Event::Server(line) => vec![went(driver.line(line, false))],
        Event::Time => match driver.link.wake_at() {
            Some((at, _)) => {
                driver.now = at;
                driver.input_only(Input::Tick);
                Vec::new()
            }
            None => vec!["(it waits for none)".into()],
        },
    };
    while let Some(output) = driver.link.next() {
        done.push(told(&output));
    }
    if done.is_empty() {
        done.push("-".into());
    }
    (driver.link.word(), done.join(", "))
}

/// A link that is driven by hand.
struct Driver<'a> {
    link: Link<'a>,
    now: Moment,
}

impl<'a> Driver<'a> {
    fn new(memory: &'a mut Memory) -> Self {
        let about = About {
            link: LINK,
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
            listed: true,
        };
        let link = Link::new(
            about,
            Limits::default(),
            Policy::default(),
            memory.record(),
            Remembered::default(),
        );
        let mut driver = Self {
            link,
            now: Moment(1_000_000_000),
        };
        driver.link.begin(driver.now, None);
        driver.drain();
        driver
    }

    fn drain(&mut self) {
        while let Some(output) = self.link.next() {
            if output == Output::Measure {
                self.input_only(Input::Measured {
                    cpu_ms: 0,
                    traced: false,
                });
            }
        }
        self.link.written_to(u64::MAX);
        self.link.delivered_to(u64::MAX);
    }

    fn input_only(&mut self, input: Input) {
        self.link.handle(self.now, input);
    }

    fn input(&mut self, input: Input) {
        self.input_only(input);
        self.drain();
    }

    fn line(&mut self, line: &str, from_client: bool) -> Route {
        let line = format!("{line}\n");
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        let frame = scanner.frame();
        if from_client {
            self.link.client_line(self.now, &frame, line.as_bytes())
        } else {
            self.link.server_wrote(self.now);
            self.link.server_line(self.now, &frame, line.as_bytes())
        }
    }

    fn client(&mut self, line: &str) {
        self.line(line, true);
        self.drain();
    }

    /// Starts a server and opens the session.
    fn open(&mut self) {
        self.input(Input::Started);
        self.client(INITIALIZE);
        self.line(OPENED, false);
        self.link.delivered_to(u64::MAX);
        self.client(INITIALIZED);
    }

    /// The server dies, and its tree with it.
    fn die(&mut self) {
        self.input(exited(Status::Code(1), true));
        self.input(empty());
    }

    fn tick(&mut self) {
        if let Some((at, _)) = self.link.wake_at() {
            self.now = at;
            self.input(Input::Tick);
        }
    }

    /// Advances the time until the link has this state.
    fn until(&mut self, word: &str) {
        for _ in 0..20 {
            if self.link.word() == word {
                return;
            }
            self.tick();
        }
    }
}

fn start_failed() -> Input {
    Input::StartFailed {
        problem: "no such file".into(),
        hint: "install it".into(),
        code: 127,
    }
}

fn lease_over() -> Input {
    Input::Stop(Cause::LeaseEnded(LeaseEnded {
        lease: "l".into(),
        over: Over::Closed { by: None },
    }))
}

fn empty() -> Input {
    Input::TreeEmpty {
        ended: 1,
        left: Vec::new(),
    }
}

fn exited(status: Status, tree_empty: bool) -> Input {
    Input::Exited(Exited {
        pid: 7,
        status,
        usage: Usage::default(),
        stderr_tail: Vec::new(),
        out_of_memory: None,
        holders: Holders::None,
        tree_empty,
    })
}

fn went(route: Route) -> String {
    match route {
        Route::Pass => "goes on",
        Route::Consumed => "is dropped",
        Route::Later => "waits",
        Route::Replaced => "instead:",
        Route::Gather => "is gathered",
    }
    .into()
}

fn told(output: &Output) -> String {
    match output {
        Output::Spawn => "start the next generation".into(),
        Output::ToClient(line) => format!("to the client: {}", message(line)),
        Output::ToServer(line) => format!("to the server: {}", message(line)),
        Output::Say(_) => "say why on stderr".into(),
        Output::Stop(Step::CloseStdin) => "close its stdin".into(),
        Output::Stop(Step::Terminate) => "SIGTERM".into(),
        Output::Stop(Step::Kill) => "kill".into(),
        Output::Measure => "measure".into(),
        Output::ReleaseClient => "let the client go when all is written".into(),
        Output::DropClient => "let the client go at once".into(),
        Output::Linger => "let the client go at once and be found by it".into(),
        Output::LingerOver => "be found no more".into(),
        Output::Tell(what) => format!("event `{}`", what.name()),
        Output::Finish(code) => format!("leave with {code}"),
    }
}

fn message(line: &[u8]) -> String {
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    if let Some(method) = value["method"].as_str() {
        return format!("`{method}`");
    }
    let form = if value.get("error").is_some() || value["result"]["isError"] == Value::Bool(true) {
        "an error"
    } else {
        "an answer"
    };
    format!("{form} for {}", value["id"])
}
