//! guards: A keeper may be killed at any store into shared memory: its successor finds every line that was not routed.

mod deaths;
mod flow;
mod one_lane;
mod stage;

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

    use mainstay_protocol::kill_point::{Killed, kill_point, set_fuse};
    use mainstay_protocol::limits::WHOLE_LINE_BYTES;

    use super::super::lane::{Lane, Part, Router};
    use super::super::shell::{Read, Wrote};
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
                while let Some(Wrote::Took(_)) = lane.write(|bytes| {
                    let most = WRITES[self.writes % WRITES.len()];
                    self.writes += 1;
                    if most == 0 {
                        return Wrote::Full;
                    }
                    let len = most.min(bytes.len());
                    self.written += len;
                    kill_point();
                    Wrote::Took(len)
                }) {}
            }
        }
    }

    impl Router for World {
        fn pass(&mut self, _: &[u8], _: u64) -> usize {
            0
        }

        fn route(&mut self, part: Part<'_>, _: u64) -> Route {
            let Part::Line(_, bytes) = part else {
                panic!("every line is held whole: {part:?}");
            };
            let end = self.shown + bytes.len();
            assert_eq!(&self.stream[self.shown..end], bytes, "the next line");
            let what = bytes["{\"jsonrpc\":\"2.0\",\"method\":\"".len()];
            if what == b'h' && self.held < 2 {
                self.held += 1;
                return Route::Later;
            }
            self.held = 0;
            self.shown = end;
            match what {
                b'd' => Route::Consumed,
                b'i' => Route::Replaced,
                _ => {
                    let before = self.forwarded.last().map_or(0, |&(end, _)| end);
                    self.forwarded.push((before + bytes.len(), end));
                    Route::Pass
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
                world.keep(Lane::recorded(inbox));
                set_fuse(None);
            }));
            let Err(end) = lived else {
                assert!(point > 150, "{point} kill points");
                return;
            };
            assert!(end.is::<Killed>(), "at kill point {point}");
            let lane = Lane::recorded(Inbox::over(&board, &mut memory));
            let (fresh, _) = lane.fresh();
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

/// How much of a long line is routed before its end has come.
mod long_line {
    use alloc::vec;
    use alloc::vec::Vec;

    use mainstay_protocol::limits::WHOLE_LINE_BYTES;
    use mainstay_protocol::message::frame::TAIL_BYTES;

    use super::super::lane::{Lane, Part, Router};
    use super::super::shell::{Read, Wrote};
    use crate::link::Route;
    use crate::record::inbox::{Board, Inbox};

    const ROOM: usize = 2 * WHOLE_LINE_BYTES;

    struct PassesAll;

    impl Router for PassesAll {
        fn pass(&mut self, _: &[u8], _: u64) -> usize {
            0
        }

        fn route(&mut self, _: Part<'_>, _: u64) -> Route {
            Route::Pass
        }
    }

    /// A line whose id is not known before its end.
    const ID_LAST: [&[u8]; 2] = [br#"{"method":"x","params":{"pad":""#, br#""},"id":3}"#];
    const ID_FIRST: [&[u8]; 2] = [br#"{"id":3,"method":"x","params":{"pad":""#, br#""}}"#];

    /// How many bytes wait unrouted once these have been read and all that was routed has been written.
    fn unrouted(lane: &mut Lane<'_>, bytes: &[u8]) -> usize {
        lane.fill(|into| {
            into[..bytes.len()].copy_from_slice(bytes);
            Read::Bytes(bytes.len())
        });
        lane.route(&mut PassesAll);
        while lane.write(|bytes| Wrote::Took(bytes.len())).is_some() {}
        lane.waiting().1
    }

    /// The same for a line of more than 64 KiB without its newline.
    fn unrouted_of(lane: &mut Lane<'_>, [begin, end]: [&[u8]; 2]) -> usize {
        let mut line = begin.to_vec();
        line.resize(WHOLE_LINE_BYTES, b'x');
        line.extend(end);
        unrouted(lane, &line)
    }

    #[test]
    fn the_end_waits_until_the_id_is_known_and_at_the_client_until_the_line_ends() {
        for (line, to_server, to_client) in
            [(ID_LAST, TAIL_BYTES, TAIL_BYTES), (ID_FIRST, 0, TAIL_BYTES)]
        {
            let (board, mut memory): (Board, Vec<u8>) = (Board::new(), vec![0; ROOM]);
            let mut up = Lane::recorded(Inbox::over(&board, &mut memory));
            assert_eq!(unrouted_of(&mut up, line), to_server);
            let mut memory = vec![0; ROOM];
            let mut down = Lane::own(&mut memory);
            assert_eq!(unrouted_of(&mut down, line), to_client);
            for lane in [&mut up, &mut down] {
                assert_eq!(unrouted(lane, b"\n"), 0);
            }
        }
    }

    #[test]
    fn a_server_gets_all_of_a_last_line_without_newline_and_a_client_does_not() {
        let (board, mut memory): (Board, Vec<u8>) = (Board::new(), vec![0; ROOM]);
        let mut up = Lane::recorded(Inbox::over(&board, &mut memory));
        let mut memory = vec![0; ROOM];
        let mut down = Lane::own(&mut memory);
        for (lane, left) in [(&mut up, 0), (&mut down, TAIL_BYTES)] {
            unrouted_of(lane, ID_LAST);
            lane.fill(|_| Read::End);
            lane.finish(&mut PassesAll);
            assert_eq!(lane.waiting().1, left);
        }
    }
}

/// A keeper that is killed while a line of 150 KB is on its way, in either direction, and its successor.
mod taken_over {
    extern crate std;

    use alloc::string::{String, ToString};
    use alloc::vec;
    use alloc::vec::Vec;
    use std::panic::{self, AssertUnwindSafe};

    use mainstay_protocol::clock::Moment;
    use mainstay_protocol::event::Lost;
    use mainstay_protocol::frames::Side;
    use mainstay_protocol::ids::LinkId;
    use mainstay_protocol::kill_point::{Killed, kill_point, set_fuse};
    use mainstay_protocol::limits::{Limits, WHOLE_LINE_BYTES};
    use mainstay_protocol::message::frame::Frame;
    use mainstay_protocol::message::inflight::Slot;
    use mainstay_protocol::policy::Policy;
    use serde_json::{Value, json};

    use super::super::shell::{Read, Shell, Sight, Wrote};
    use super::super::{Output, Relay};
    use crate::link::{About, Input};
    use crate::record::inbox::{self, Inbox};
    use crate::record::{Head, Record, replay_log};

    const LONG: usize = 150_000;

    /// The memory that survives a keeper.
    struct Memory {
        head: Head,
        opening: Vec<u8>,
        slots: Vec<Slot>,
        board: replay_log::Board,
        replay_log: Vec<u8>,
        marks: inbox::Board,
        inbox: Vec<u8>,
    }

    /// The client, and the server of this generation.
    #[derive(Default)]
    struct Peers {
        /// What the client has written and the keeper has not read.
        from_client: Vec<u8>,
        to_client: Vec<u8>,
        /// What the server has read, and how much of it was answered.
        to_server: Vec<u8>,
        answered: usize,
        from_server: Vec<u8>,
    }

    fn take(from: &mut Vec<u8>, into: &mut [u8]) -> Read {
        let len = from.len().min(into.len());
        if len == 0 {
            return Read::Nothing;
        }
        into[..len].copy_from_slice(&from[..len]);
        from.drain(..len);
        kill_point();
        Read::Bytes(len)
    }

    impl Peers {
        /// The server answers every request that it has whole.
        fn serve(&mut self) {
            while let Some(len) = self.to_server[self.answered..]
                .iter()
                .position(|&b| b == b'\n')
            {
                let line = &self.to_server[self.answered..][..len];
                self.answered += len + 1;
                let message: Value =
                    serde_json::from_slice(line).expect("the server hears whole lines");
                let id = &message["id"];
                let result = match message["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "serverInfo": {"name": "s", "version": "1"},
                    }),
                    Some("x/long") => json!({"pad": "x".repeat(LONG)}),
                    _ => json!({}),
                };
                if !id.is_null() {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                    self.from_server.extend(answer.to_string().into_bytes());
                    self.from_server.push(b'\n');
                }
            }
        }

        /// How often the client has an answer to this.
        fn answers(&self, id: u64) -> usize {
            let lines = self.to_client.split(|&b| b == b'\n');
            let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            messages.filter(|message| message["id"] == id).count()
        }
    }

    impl Shell for Peers {
        fn read_client(&mut self, into: &mut [u8]) -> Read {
            take(&mut self.from_client, into)
        }

        fn read_server(&mut self, into: &mut [u8]) -> Read {
            take(&mut self.from_server, into)
        }

        fn write_client(&mut self, bytes: &[u8]) -> Wrote {
            // A pipe takes a part of a long line.
            let len = bytes.len().min(40_000);
            self.to_client.extend(&bytes[..len]);
            kill_point();
            Wrote::Took(len)
        }

        fn write_server(&mut self, bytes: &[u8]) -> Wrote {
            self.to_server.extend(bytes);
            kill_point();
            Wrote::Took(bytes.len())
        }

        fn client_may_speak(&self) -> bool {
            true
        }

        fn client_hung_up(&self) -> bool {
            false
        }

        fn server_left_unread(&self) -> bool {
            false
        }

        fn take_unread(&mut self) -> Option<Vec<u8>> {
            None
        }

        fn watched(&self) -> bool {
            false
        }

        fn passed(&mut self, _: Moment, _: Side, _: &Frame<'_>) {}

        fn saw(&mut self, _: Moment, _: u32, _: Sight<'_>) {}
    }

    /// One keeper, until nothing moves.
    fn keep(memory: &mut Memory, peers: &mut Peers, lost: Option<Lost>) {
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
        let mut own = vec![0; 2 * WHOLE_LINE_BYTES];
        let now = Moment(0).after_ms(1);
        let mut relay = Relay::new(
            about,
            Limits::default(),
            Policy::default(),
            record,
            Inbox::over(&memory.marks, &mut memory.inbox),
            &mut own,
        );
        relay.begin(now, lost, peers);
        loop {
            while let Some(output) = relay.next() {
                if output == Output::Spawn {
                    (peers.to_server, peers.from_server, peers.answered) = Default::default();
                    relay.handle(now, Input::Started, peers);
                }
            }
            let again = relay.turn(now, peers);
            peers.serve();
            if !again && peers.from_server.is_empty() {
                return;
            }
        }
    }

    fn request(id: u64, method: &str) -> String {
        let params = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }),
            _ => json!({}),
        };
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        message.to_string() + "\n"
    }

    /// What the client has written when the keeper is killed, at each kill point; what it writes then; the requests among both.
    fn at_every_kill_point(before: &str, after: &str, requests: &[u64]) {
        for point in 0.. {
            let mut memory = Memory {
                head: Head::default(),
                opening: vec![0; WHOLE_LINE_BYTES],
                slots: vec![Slot::free(); 16],
                board: replay_log::Board::new(),
                replay_log: vec![0; 8192],
                marks: inbox::Board::new(),
                inbox: vec![0; 2 * WHOLE_LINE_BYTES],
            };
            let mut peers = Peers::default();
            let initialized = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
            for bytes in [&request(1, "initialize"), initialized, before] {
                peers.from_client.extend(bytes.bytes());
            }
            let lived = panic::catch_unwind(AssertUnwindSafe(|| {
                set_fuse(Some(point));
                keep(&mut memory, &mut peers, None);
                // Killed when nothing moves.
                set_fuse(None);
            }));
            let had: Vec<usize> = requests.iter().map(|&id| peers.answers(id)).collect();
            peers.from_client.extend(after.bytes());
            let lost = Lost {
                pid: 1,
                status: None,
                ended: 0,
                settled: 0,
                successor: Some(2),
            };
            keep(&mut memory, &mut peers, Some(lost));
            for (&id, had) in requests.iter().zip(had) {
                // Whether the last answer was written before the kill, a keeper that is killed right there has not noted.
                let count = peers.answers(id);
                assert!(
                    count == 1 || (count == 2 && had == 1),
                    "at kill point {point}: {count} answers to {id}, {had} of the first keeper"
                );
            }
            let lines = peers
                .to_client
                .split(|&b| b == b'\n')
                .filter(|line| !line.is_empty());
            let torn = lines.filter(|line| serde_json::from_slice::<Value>(line).is_err());
            assert!(
                torn.count() <= 1,
                "at kill point {point}: one line was torn"
            );
            let Err(end) = lived else {
                assert!(point > 50, "{point} kill points");
                return;
            };
            assert!(end.is::<Killed>(), "at kill point {point}");
        }
    }

    #[test]
    fn half_of_a_short_line_is_joined_to_its_rest() {
        let line = request(3, "x/y");
        let (half, rest) = line.split_at(20);
        at_every_kill_point(
            &(request(2, "ping") + half),
            &(rest.to_string() + &request(4, "ping")),
            &[1, 2, 3, 4],
        );
    }

    #[test]
    fn half_of_a_long_line_with_its_id_first() {
        let pad = "x".repeat(LONG);
        let half = alloc::format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x/y\",\"params\":{{\"pad\":\"{pad}"
        );
        at_every_kill_point(
            &half,
            &("yyy\"}}\n".to_string() + &request(4, "ping")),
            &[1, 3, 4],
        );
    }

    #[test]
    fn half_of_a_long_line_with_its_id_last() {
        let pad = "x".repeat(LONG);
        let half = alloc::format!("{{\"params\":{{\"pad\":\"{pad}");
        let rest = "yyy\"},\"jsonrpc\":\"2.0\",\"method\":\"x/y\",\"id\":3}\n".to_string();
        at_every_kill_point(&half, &(rest + &request(4, "ping")), &[1, 3, 4]);
    }

    /// A long line that comes in two pieces, cut at each of these places of its end.
    fn cut_within_its_end(begin: &str, end: &str) {
        let pad = "x".repeat(LONG);
        let id = end.find("\"id\"").expect("it has an id");
        for cut in [id, id + 2, id + 5, id + 6, id + 7, end.len() - 1, end.len()] {
            let (first, rest) = end.split_at(cut);
            let rest = rest.to_string() + "\n" + &request(4, "ping");
            at_every_kill_point(&[begin, &pad, first].concat(), &rest, &[1, 317, 4]);
        }
    }

    #[test]
    fn a_long_line_that_is_cut_within_the_id_at_its_end() {
        cut_within_its_end(
            r#"{"jsonrpc":"2.0","method":"x/y","params":{"pad":""#,
            r#""},"id":317}"#,
        );
    }

    #[test]
    fn a_long_line_that_is_cut_between_method_and_id_at_its_end() {
        cut_within_its_end(
            r#"{"jsonrpc":"2.0","params":{"pad":""#,
            r#""},"method":"x/y","id":317}"#,
        );
    }

    #[test]
    fn a_long_line_that_is_cut_between_id_and_method_at_its_end() {
        cut_within_its_end(
            r#"{"jsonrpc":"2.0","params":{"pad":""#,
            r#""},"id":317,"method":"x/y"}"#,
        );
    }

    #[test]
    fn a_long_answer() {
        at_every_kill_point(&request(3, "x/long"), &request(4, "ping"), &[1, 3, 4]);
    }
}
