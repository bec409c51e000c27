//! A relay between two scripted pipes, and the clock.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Status, Usage};
use mainstay_protocol::frames::Side;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::{Limits, WHOLE_LINE_BYTES};
use mainstay_protocol::message::frame::Frame;
use mainstay_protocol::message::inflight::Slot;
use mainstay_protocol::policy::Policy;
use serde_json::json;

use super::super::shell::{Read, Shell, Sight, Wrote};
use super::super::{Output, Relay};
use crate::link::{About, Exited, Holders, Input};
use crate::record::inbox::{self, Inbox};
use crate::record::{Head, Record, replay_log};

pub(super) const START: Moment = Moment(1_000_000);
pub(super) const ROOM: usize = 2 * WHOLE_LINE_BYTES;

/// The record and the buffers of one keeper.
pub(super) struct Memory {
    pub(super) head: Head,
    pub(super) opening: Vec<u8>,
    pub(super) slots: Vec<Slot>,
    pub(super) board: replay_log::Board,
    pub(super) replay_log: Vec<u8>,
    pub(super) marks: inbox::Board,
    pub(super) inbox: Vec<u8>,
    pub(super) own: Vec<u8>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            head: Head::default(),
            opening: vec![0; WHOLE_LINE_BYTES],
            slots: vec![Slot::free(); 16],
            board: replay_log::Board::new(),
            replay_log: vec![0; 8192],
            marks: inbox::Board::new(),
            inbox: vec![0; ROOM],
            own: vec![0; ROOM],
        }
    }
}

/// The pipes as the test sets them.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is the answer to one question of the relay, set by a test"
)]
pub(super) struct Pipes {
    pub(super) from_client: VecDeque<u8>,
    pub(super) client_ended: bool,
    pub(super) to_client: Vec<u8>,
    /// How many bytes the client's pipe still takes; none if its reader is gone.
    pub(super) client_room: Option<usize>,
    pub(super) hung_up: bool,
    pub(super) from_server: VecDeque<u8>,
    pub(super) server_ended: bool,
    /// The server's stdout never runs dry.
    pub(super) endless: bool,
    pub(super) to_server: Vec<u8>,
    /// The same for the server's stdin.
    pub(super) server_room: Option<usize>,
    pub(super) left_unread: bool,
    pub(super) unread: Option<Vec<u8>>,
    pub(super) may_speak: bool,
    /// How many bytes a read brings at most.
    pub(super) read_most: usize,
    pub(super) sights: Vec<String>,
}

pub(super) const ENDLESS: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n";

fn take(from: &mut VecDeque<u8>, ended: bool, most: usize, into: &mut [u8]) -> Read {
    let len = from.len().min(into.len()).min(most);
    if len > 0 {
        for (place, byte) in into.iter_mut().zip(from.drain(..len)) {
            *place = byte;
        }
        return Read::Bytes(len);
    }
    if ended { Read::End } else { Read::Nothing }
}

fn give(to: &mut Vec<u8>, room: &mut Option<usize>, bytes: &[u8]) -> Wrote {
    let Some(room) = room else {
        return Wrote::Broken;
    };
    let len = bytes.len().min(*room);
    if len == 0 {
        return Wrote::Full;
    }
    *room -= len;
    to.extend(&bytes[..len]);
    Wrote::Took(len)
}

impl Shell for Pipes {
    fn read_client(&mut self, into: &mut [u8]) -> Read {
        let most = self.read_most;
        take(&mut self.from_client, self.client_ended, most, into)
    }

    fn read_server(&mut self, into: &mut [u8]) -> Read {
        if self.endless {
            self.from_server.extend(ENDLESS.bytes());
        }
        let most = self.read_most;
        take(&mut self.from_server, self.server_ended, most, into)
    }

    fn write_client(&mut self, bytes: &[u8]) -> Wrote {
        give(&mut self.to_client, &mut self.client_room, bytes)
    }

    fn write_server(&mut self, bytes: &[u8]) -> Wrote {
        give(&mut self.to_server, &mut self.server_room, bytes)
    }

    fn client_may_speak(&self) -> bool {
        self.may_speak
    }

    fn client_hung_up(&self) -> bool {
        self.hung_up
    }

    fn server_left_unread(&self) -> bool {
        self.left_unread
    }

    fn take_unread(&mut self) -> Option<Vec<u8>> {
        self.unread.take()
    }

    fn watched(&self) -> bool {
        true
    }

    fn passed(&mut self, _: Moment, _: Side, _: &Frame<'_>) {
        panic!("all is watched");
    }

    fn saw(&mut self, _: Moment, _: u32, sight: Sight<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.sights.push(match sight {
            Sight::LongBegins { from, route, .. } => alloc::format!("begins {from:?} {route:?}"),
            Sight::LongEnds { from, passed, .. } => alloc::format!("ends {from:?} {passed}"),
            Sight::Unread(lines) => alloc::format!("unread {}", text(lines)),
            Sight::Releasing => "releasing".to_string(),
            Sight::Line { .. }
            | Sight::Ours { .. }
            | Sight::Settled
            | Sight::TornAtServer
            | Sight::Delivered
            | Sight::OursDelivered => return,
        });
    }
}

/// A relay, its pipes, and the clock.
pub(super) struct Stage<'a> {
    pub(super) relay: Relay<'a>,
    pub(super) pipes: Pipes,
    pub(super) now: Moment,
}

impl<'a> Stage<'a> {
    /// Before the first generation is started.
    pub(super) fn new(memory: &'a mut Memory) -> Self {
        let record = Record {
            head: &mut memory.head,
            opening: &mut memory.opening,
            slots: &mut memory.slots,
            board: &memory.board,
            replay_log: &mut memory.replay_log,
        };
        let about = About {
            link: LinkId(7),
            name: "s".into(),
            argv: vec!["srv".into()],
            cwd: "/".into(),
            listed: true,
        };
        let mut stage = Self {
            relay: Relay::new(
                about,
                limits(),
                Policy::default(),
                record,
                Inbox::over(&memory.marks, &mut memory.inbox),
                &mut memory.own,
            ),
            pipes: Pipes {
                from_client: VecDeque::new(),
                client_ended: false,
                to_client: Vec::new(),
                client_room: Some(usize::MAX),
                hung_up: false,
                from_server: VecDeque::new(),
                server_ended: false,
                endless: false,
                to_server: Vec::new(),
                server_room: Some(usize::MAX),
                left_unread: false,
                unread: None,
                may_speak: true,
                read_most: usize::MAX,
                sights: Vec::new(),
            },
            now: START,
        };
        stage.relay.begin(START, None, &mut stage.pipes);
        stage
    }

    /// A session that is open.
    pub(super) fn opened(memory: &'a mut Memory) -> Self {
        let mut stage = Self::new(memory);
        assert_eq!(stage.run(), [Output::Spawn]);
        stage.handle(Input::Started);
        stage.client_says(&request(1, "initialize"));
        assert_eq!(stage.run(), []);
        stage.server_says(&answer(1));
        assert_eq!(stage.run(), []);
        stage.client_says("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        assert_eq!(stage.run(), []);
        stage.pipes.to_client.clear();
        stage.pipes.to_server.clear();
        stage
    }

    pub(super) fn handle(&mut self, input: Input) {
        self.relay.handle(self.now, input, &mut self.pipes);
    }

    /// Turns until nothing moves; what the shell was asked for, less what it would say or write down.
    pub(super) fn run(&mut self) -> Vec<Output> {
        let mut asked = Vec::new();
        for _ in 0..10_000 {
            let before = asked.len();
            while let Some(output) = self.relay.next() {
                if !matches!(output, Output::Tell(_) | Output::Say(_)) {
                    asked.push(output);
                }
            }
            // The shell answers it before it goes on.
            if asked.contains(&Output::ExitDue) {
                return asked;
            }
            if !self.relay.turn(self.now, &mut self.pipes) && asked.len() == before {
                return asked;
            }
        }
        panic!("it moves without end: {}", self.relay.told());
    }

    pub(super) fn after_ms(&mut self, ms: u64) -> Vec<Output> {
        self.now = self.now.after_ms(ms);
        self.run()
    }

    pub(super) fn client_says(&mut self, text: &str) {
        self.pipes.from_client.extend(text.bytes());
    }

    pub(super) fn server_says(&mut self, text: &str) {
        self.pipes.from_server.extend(text.bytes());
    }

    pub(super) fn at_client(&self) -> String {
        String::from_utf8_lossy(&self.pipes.to_client).into_owned()
    }

    pub(super) fn at_server(&self) -> String {
        String::from_utf8_lossy(&self.pipes.to_server).into_owned()
    }

    /// The server process has ended and the link hears of it.
    pub(super) fn exited(&mut self) {
        self.exited_with(Holders::None, true);
    }

    pub(super) fn exited_with(&mut self, holders: Holders, tree_empty: bool) {
        self.handle(Input::Exited(Exited {
            pid: 9,
            status: Status::Code(1),
            usage: Usage {
                user_ms: 0,
                system_ms: 0,
                max_rss_kib: 0,
            },
            stderr_tail: Vec::new(),
            out_of_memory: None,
            holders,
            tree_empty,
        }));
    }
}

fn limits() -> Limits {
    Limits {
        grace_eof_ms: 2_000,
        grace_term_ms: 3_000,
        probe_idle_ms: 0,
        ..Limits::default()
    }
}

pub(super) fn request(id: u64, method: &str) -> String {
    let params = match method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }),
        _ => json!({}),
    };
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n"
}

pub(super) fn answer(id: u64) -> String {
    let result = match id {
        1 => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "serverInfo": {"name": "s", "version": "1"},
        }),
        _ => json!({}),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string() + "\n"
}

/// The beginning of a line of 100,000 bytes, and its end.
pub(super) fn long_request(id: u64) -> (String, String) {
    let begin = alloc::format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"x/y\",\"params\":{{\"pad\":\"{}",
        "x".repeat(100_000)
    );
    (begin, "\"}}\n".to_string())
}

/// A server that has ended, whose stdin is closed and whose last answer the client has not read: the link does not know yet.
pub(super) fn dying(memory: &mut Memory) -> Stage<'_> {
    let mut stage = Stage::opened(memory);
    stage.client_says(&request(5, "x/y"));
    stage.run();
    stage.server_says(&answer(5));
    (stage.pipes.client_room, stage.pipes.server_room) = (Some(0), None);
    stage.client_says(&request(6, "tools/list"));
    let asked = stage.run();
    assert_eq!(asked, [Output::CloseServerStdin, Output::ServerDeaf]);
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), []);
    stage
}

/// The second generation of a session, and what it was told before the client's lines.
pub(super) fn second_generation(memory: &mut Memory) -> (Stage<'_>, String) {
    let mut stage = Stage::opened(memory);
    stage.relay.server_ended(stage.now);
    assert_eq!(stage.run(), [Output::ExitDue]);
    stage.exited();
    stage.handle(Input::TreeEmpty {
        ended: 1,
        left: Vec::new(),
    });
    let mut asked = stage.run();
    if !asked.contains(&Output::Spawn) {
        let ms = stage.relay.wake_at().map(|at| at.ms_since(stage.now));
        stage.now = stage.now.after_ms(ms.unwrap_or_default());
        stage.handle(Input::Tick);
        asked = stage.run();
    }
    assert!(asked.contains(&Output::Spawn), "{asked:?}");
    stage.handle(Input::Started);
    stage.run();
    let replayed = stage.at_server();
    assert_eq!(replayed.lines().count(), 1, "the opening");
    (stage, replayed)
}

/// A line of ours waits for a client that does not read: a question of the second generation, which gets an id of ours.
pub(super) fn with_a_question(memory: &mut Memory) -> Stage<'_> {
    let (mut stage, replayed) = second_generation(memory);
    let replayed: serde_json::Value = serde_json::from_str(&replayed).expect("one line");
    let mut greeting: serde_json::Value = serde_json::from_str(&answer(1)).expect("one line");
    greeting["id"] = replayed["id"].clone();
    stage.server_says(&(greeting.to_string() + "\n"));
    stage.run();
    stage.pipes.client_room = Some(0);
    stage.server_says(&request(1, "sampling/createMessage"));
    stage.run();
    let told = stage.relay.told();
    assert!(!told.ends_with(" and 0 of ours"), "{told}");
    stage
}
