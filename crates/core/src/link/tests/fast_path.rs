//! Calls and answers that pass in a run leave the link as if each had been looked at by itself.
//! guards: The fast path leaves the link in the same state as routing each line by itself.

use mainstay_protocol::event::RestartReason;
use mainstay_protocol::message::frame::Id;
use mainstay_protocol::policy::Retry;

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Client(Line),
    Server(Line),
    Delivered,
    Written,
    Later(u64),
    Died,
    Gone,
    Started,
    Changed,
    ShimKilled,
    Reattached,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    /// A call, or its result, as most peers write it.
    Usual(u32),
    /// The same with the id last.
    Odd(u32),
    Error(u32),
    /// A call of the modern era, or a result that tells of a task.
    Modern(u32),
    List(u32),
    Listed(u32),
    Cancelled(u32),
    Opening,
    Opened(u32),
    OwnAnswer(u32),
    Initialized,
    Question,
}

impl Line {
    fn text(self, client: bool) -> String {
        match (self, client) {
            (Self::Usual(id), true) => call(id, ""),
            (Self::Modern(id), true) => call(id, META),
            (Self::Modern(id), false) => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"t","status":"working"}}}}}}"#
            ),
            (Self::Odd(id), true) => {
                format!(r#"{{"jsonrpc":"2.0","method":"tools/call","id":{id}}}"#)
            }
            (Self::List(id) | Self::Listed(id), true) => ask(id, "tools/list"),
            (Self::Opening, true) => INITIALIZE.into(),
            (Self::Usual(id) | Self::List(id), false) => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
            }
            (Self::Listed(id), false) => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"t","annotations":{{"readOnlyHint":true}}}}]}}}}"#
                )
            }
            (Self::Odd(id), false) => format!(r#"{{"jsonrpc":"2.0","result":{{}},"id":{id}}}"#),
            (Self::Error(id), _) => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}"#)
            }
            (Self::Cancelled(id), _) => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            ),
            (Self::Opening, false) => greeting("1", "1"),
            (Self::Opened(n) | Self::OwnAnswer(n), _) => {
                greeting(&format!("\"ms:own:00000007:{n}\""), "1")
            }
            (Self::Initialized, _) => INITIALIZED.into(),
            (Self::Question, _) => ask(9, "roots/list"),
        }
    }
}

const META: &str = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;

fn call(id: u32, meta: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"{meta}}}}}"#)
}

/// One of two worlds in which the same happens.
struct Twin {
    world: World,
    runs: bool,
    /// Bytes of the server's lines so far.
    passed: u64,
}

impl Twin {
    fn new(limits: Limits, policy: Policy, start: Start, runs: bool) -> Self {
        // Small: it is written out after each step.
        let memory = Box::leak(Box::new((
            Box::default(),
            vec![0; 128].into(),
            vec![Slot::free(); 6].into(),
            Board::new(),
            vec![0; 2048].into(),
        )));
        let mut world = World::with(limits, policy, memory, None);
        world.input(Input::Started);
        if !matches!(start, Start::Nothing | Start::Unopened | Start::Changed) {
            world.client(INITIALIZE);
            world.server(&greeting("1", "1"));
            world.client(INITIALIZED);
        }
        let mut twin = Self {
            world,
            runs,
            passed: 0,
        };
        for &step in start.steps() {
            twin.does(step);
        }
        twin
    }

    fn line(&mut self, line: Line, client: bool) -> Route {
        let (now, text) = (self.world.now(), line.text(client));
        let whole = format!("{text}\n");
        let link = &mut self.world.link;
        let begin = self.passed;
        if !client {
            link.server_wrote(now);
            self.passed += whole.len() as u64;
            link.line_ends_at(self.passed);
        }
        let mut shown = 0;
        let used = match (self.runs, client) {
            (false, _) => 0,
            (true, true) => link.calls(now, whole.as_bytes(), |_| shown += 1),
            (true, false) => link.results(now, whole.as_bytes(), begin, |_| shown += 1),
        };
        if used > 0 {
            assert_eq!((used, shown), (whole.len(), 1));
            return Route::Pass;
        }
        if client {
            self.world.client(&text)
        } else {
            self.world.undelivered(&text)
        }
    }

    /// Everything that can be seen of it afterwards.
    fn does(&mut self, step: Step) -> (Option<Route>, Vec<String>, String) {
        let mut route = None;
        let world = &mut self.world;
        match step {
            Step::Client(line) => route = Some(self.line(line, true)),
            Step::Server(line) => route = Some(self.line(line, false)),
            Step::Delivered => world.link.delivered_to(u64::MAX),
            Step::Written => {
                world.link.written_to(u64::MAX);
                world.link.delivered_to(u64::MAX);
            }
            Step::Later(ms) => {
                world.ms += ms;
                world.input(Input::Tick);
            }
            Step::Died => world.exits(CRASH, false),
            Step::Gone => world.empty(),
            Step::Started => world.input(Input::Started),
            Step::Changed => world.input(Input::Renew(RestartReason::Changed { path: "p".into() })),
            Step::ShimKilled => world.input(Input::Stop(Cause::ShimKilled)),
            Step::Reattached => world.input(Input::Reattached),
        }
        let outputs = self.world.drain();
        (route, outputs, format!("{:?}", self.world.link))
    }
}

/// What has happened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Met,
    Nothing,
    /// Nothing but a call of the modern era, of which the server has died.
    Unopened,
    /// The client has gone, and may come back.
    Away,
    /// The client is not the first of this generation.
    Reattached,
    /// The generation is new, because a file has changed, and was asked nothing yet.
    Changed,
    /// A call has been given up, and its answer may come.
    Late,
    /// The lists are known.
    Listed,
}

impl Start {
    fn steps(self) -> &'static [Step] {
        use self::Line::{List, Listed, Modern, Opening, Usual};
        use self::Step::{Client, Delivered, Server};
        match self {
            Self::Met | Self::Nothing => &[],
            Self::Away => &[Client(Usual(2)), Step::ShimKilled],
            Self::Unopened => &[
                Client(Modern(2)),
                Step::Died,
                Step::Gone,
                Step::Later(2_000),
                Step::Started,
            ],
            Self::Reattached => &[
                Client(Usual(2)),
                Step::ShimKilled,
                Step::Reattached,
                Client(Opening),
                Step::Written,
            ],
            Self::Changed => &[
                Client(Modern(2)),
                Server(Usual(2)),
                Delivered,
                Step::Changed,
                Step::Died,
                Step::Gone,
                Step::Started,
            ],
            Self::Late => &[Client(Usual(2)), Step::Later(DEADLINE_MS), Step::Written],
            Self::Listed => &[Client(List(2)), Server(Listed(2)), Delivered],
        }
    }
}

const DEADLINE_MS: u64 = 100;

fn line() -> impl Strategy<Value = Line> {
    let id = 2..6_u32;
    prop_oneof![
        12 => id.clone().prop_map(Line::Usual),
        2 => id.clone().prop_map(Line::Odd),
        1 => id.clone().prop_map(Line::Error),
        2 => id.clone().prop_map(Line::Modern),
        1 => id.clone().prop_map(Line::List),
        1 => id.clone().prop_map(Line::Listed),
        1 => id.prop_map(Line::Cancelled),
        1 => Just(Line::Opening),
        1 => (0..4_u32).prop_map(Line::Opened),
        1 => (0..4_u32).prop_map(Line::OwnAnswer),
        1 => Just(Line::Initialized),
        1 => Just(Line::Question),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => line().prop_map(Step::Client),
        20 => line().prop_map(Step::Server),
        8 => Just(Step::Delivered),
        4 => Just(Step::Written),
        4 => prop_oneof![Just(1), Just(100), Just(2_000), Just(700_000)].prop_map(Step::Later),
        1 => Just(Step::Died),
        2 => Just(Step::Gone),
        3 => Just(Step::Started),
        1 => Just(Step::Changed),
        1 => Just(Step::ShimKilled),
        2 => Just(Step::Reattached),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_run_is_what_its_lines_are(
        steps in proptest::collection::vec(step(), 0..40),
        start in prop_oneof![
            Just(Start::Met),
            Just(Start::Nothing),
            Just(Start::Away),
            Just(Start::Unopened),
            Just(Start::Reattached),
            Just(Start::Changed),
            Just(Start::Late),
            Just(Start::Listed),
        ],
        (hibernates, advertise) in any::<(bool, bool)>(),
        retry in prop_oneof![Just(Retry::Never), Just(Retry::Safe), Just(Retry::Annotated)],
    ) {
        let limits = Limits {
            hibernate_ms: if hibernates { 600_000 } else { 0 },
            call_deadline_ms: if start == Start::Late { DEADLINE_MS } else { 0 },
            ..Limits::default()
        };
        let policy = Policy { retry, advertise, ..Policy::default() };
        let mut one_by_one = Twin::new(limits.clone(), policy, start, false);
        let mut in_runs = Twin::new(limits, policy, start, true);
        let usual = [Step::Client(Line::Usual(3)), Step::Server(Line::Usual(3))];
        for step in usual.into_iter().chain(steps) {
            let (one, run) = (one_by_one.does(step), in_runs.does(step));
            prop_assert_eq!(one.0, run.0, "{:?}", step);
            prop_assert_eq!(one.1, run.1, "{:?}", step);
            prop_assert!(one.2 == run.2, "the link is another one after {:?}", step);
        }
    }
}

#[test]
fn a_run_ends_at_the_first_line_that_is_no_call() {
    let mut world = World::met(Limits::default(), Policy::default());
    let now = world.now();
    let lines = |lines: &[String]| lines.join("\n") + "\n";
    let asked = lines(&[ask(2, "tools/call"), ask(3, "tools/call"), ask(4, "ping")]);
    let calls = lines(&[ask(2, "tools/call"), ask(3, "tools/call")]).len();
    let mut ids = Vec::new();
    let used = world.link.calls(now, asked.as_bytes(), |frame| {
        let Id::Token(id) = frame.id else {
            panic!("a call has an id")
        };
        ids.push(id.to_vec());
    });
    assert_eq!((used, ids), (calls, vec![b"2".to_vec(), b"3".to_vec()]));
    let result = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    // An answer without a question, or a second answer, does not pass on the fast path.
    let answers = lines(&[result(3), result(3), result(2)]);
    let mut seen = 0;
    let used = world
        .link
        .results(now, answers.as_bytes(), 0, |_| seen += 1);
    assert_eq!((used, seen), (lines(&[result(3)]).len(), 1));
    // Half a line is none.
    assert_eq!(world.link.results(now, result(2).as_bytes(), 0, |_| ()), 0);
}

#[test]
fn a_full_table_ends_the_run() {
    let mut world = World::met(Limits::default(), Policy::default());
    let now = world.now();
    let calls: String = (2..40).map(|id| ask(id, "tools/call") + "\n").collect();
    let mut passed = 0;
    let used = world.link.calls(now, calls.as_bytes(), |_| passed += 1);
    assert_eq!(passed, 16, "as many as there are slots");
    assert!(used < calls.len());
    assert_eq!(world.client(&ask(18, "tools/call")), Route::Later);
}
