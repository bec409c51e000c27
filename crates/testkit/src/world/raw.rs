//! Any bytes as a story: what both sides write, and what happens in between. For the fuzzer, and for plain tests.
//!
//! A byte says what happens next. Some events take the bytes that follow. The client and the server of such a story understand
//! nothing, so only the promises for any bytes are checked: nothing panics, nothing is busy without end, one generation lives at
//! a time, and the end comes in its time.

use mainstay_core::link::Input;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Lost, RestartReason, Status};
use mainstay_protocol::kill_point::set_fuse;
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::{Policy, Retry};

use super::dice::Dice;
use super::outside::{Halt, Manners, Outside, broken};
use super::pipe::Pipe;
use super::shell::{Memory, OwnMemory, Plan, Shell, until_killed};
use super::watch::Watch;

/// Whole lines, so that a story need not find them by chance.
const PHRASES: [&str; 16] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}"#,
    r#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":"ms:own:00000007:1","result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#,
    r#"{"jsonrpc":"2.0","id":"ms:own:00000007:2","error":{"code":1}}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#,
    r#"{"jsonrpc":"2.0","id":"ms:2:1","result":{}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3},"notifications":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":4,"method":"ping"},{"jsonrpc":"2.0","id":5,"method":"tools/list"}]"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"logging/setLevel","params":{"level":"info"}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
];

/// How long the end may take, all in all.
const END_MS: u64 = 300_000;

/// Runs the story of these bytes. Returns the broken promise.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let mut tale = Tale::new(bytes);
    let mut memory = Memory::new(16);
    let mut lost = None;
    loop {
        let plan = tale.plan.clone();
        let mut own = OwnMemory::default();
        let mut shell = Shell::new(&plan, &mut memory, &mut own);
        let lost_before = lost.take();
        let life = until_killed(|| {
            shell.begin(lost_before, &mut tale.outside)?;
            tale.keep(&mut shell)
        });
        match life {
            Ok(()) => return Ok(()),
            Err(Halt::Broken(what)) => return Err(what),
            Err(Halt::Killed) => {
                tale.outside.end_tree_of_killed_keeper();
                tale.outside.watch.keeper_killed(shell.link().word());
                if !memory.ending() {
                    tale.outside.watch.forget_end();
                }
                if memory.finished() {
                    return Ok(());
                }
                lost = Some(Lost {
                    pid: 1,
                    status: None,
                    ended: 0,
                    settled: 0,
                    successor: None,
                });
            }
        }
    }
}

struct Tale<'b> {
    outside: Outside,
    plan: Plan,
    bytes: &'b [u8],
    ends_at: Option<Moment>,
}

impl<'b> Tale<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        let mut dice = Dice::new(0);
        let (first, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        let bit = |n: u8| first & (1 << n) != 0;
        let limits = Limits {
            opening_ms: 1_000,
            restart_budget: if bit(0) { 5 } else { 2 },
            restart_probe_ms: 1_000,
            instant_opening_ms: 100,
            hibernate_ms: if bit(1) { 500 } else { 0 },
            probe_idle_ms: if bit(2) { 500 } else { 0 },
            probe_wait_ms: 100,
            call_deadline_ms: if bit(3) { 700 } else { 0 },
            held_messages: 2,
            ..Limits::default()
        };
        let policy = Policy {
            retry: dice.pick(&Retry::ALL),
            lazy: bit(4),
            advertise: bit(5),
        };
        let remembered = if bit(6) {
            super::chance::remembered()
        } else {
            Remembered::default()
        };
        let mut watch = Watch::new(&limits, policy);
        watch.lenient = true;
        let outside = Outside {
            now: Moment(1_000_000),
            from_client: Pipe::new(usize::MAX),
            to_client: Pipe::new(if bit(7) { 64 } else { 65_536 }),
            attachment: 1,
            process: None,
            manners: Manners {
                others: u32::from(bit(5)),
                ..Manners::default()
            },
            start_fails: 0,
            bulky: false,
            calls_mostly: false,
            watched: bit(2),
            broken: None,
            watch,
            trace: None,
            dice,
        };
        Self {
            outside,
            plan: Plan {
                limits,
                policy,
                remembered,
            },
            bytes,
            ends_at: None,
        }
    }

    fn keep(&mut self, shell: &mut Shell<'_>) -> Result<(), Halt> {
        while !shell.turn(&mut self.outside)? {
            if let Some(what) = self.byte() {
                self.happen(shell, what)?;
                continue;
            }
            let ends_at = *self
                .ends_at
                .get_or_insert(self.outside.now.after_ms(END_MS));
            self.outside.from_client.writer_gone = true;
            self.outside.to_client.read(usize::MAX);
            if self.outside.now >= ends_at {
                return broken("the end does not come");
            }
            self.outside.now = match shell.wake_at() {
                Some(at) => at.max(self.outside.now.after_ms(1)),
                None => self.outside.now.after_ms(1_000),
            };
        }
        Ok(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// As many of the following bytes as the next one says.
    fn some(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte().unwrap_or_default()).min(self.bytes.len());
        let (some, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        some.to_vec()
    }

    /// A whole line that makes sense, or one that is too long for any buffer.
    fn phrase(&mut self) -> Vec<u8> {
        let which = usize::from(self.byte().unwrap_or_default());
        let Some(phrase) = PHRASES.get(which % (PHRASES.len() + 1)) else {
            let mut long = br#"{"jsonrpc":"2.0","id":7,"method":"x","params":""#.to_vec();
            long.resize(140_000, b'x');
            long.extend_from_slice(b"\"}\n");
            return long;
        };
        format!("{phrase}\n").into_bytes()
    }

    fn happen(&mut self, shell: &mut Shell<'_>, what: u8) -> Result<(), Halt> {
        match what % 16 {
            0 | 1 => {
                let bytes = self.some();
                self.client(&bytes);
            }
            2..5 => {
                let bytes = self.phrase();
                self.client(&bytes);
            }
            5 => {
                let bytes = self.some();
                self.server(&bytes);
            }
            6..9 => {
                let bytes = self.phrase();
                self.server(&bytes);
            }
            9 => {
                let ms = u64::from(self.byte().unwrap_or_default()) * 20;
                self.outside.now = self.outside.now.after_ms(ms);
                // The keeper was not woken meanwhile.
                self.outside.watch.late(ms);
            }
            10 => {
                if let Some(process) = &mut self.outside.process {
                    process.end(Status::Code(i32::from(what & 16)), self.outside.now);
                }
            }
            11 => set_fuse(Some(u32::from(self.byte().unwrap_or_default()))),
            12 => {
                self.outside.to_client.read(usize::MAX);
            }
            13 => {
                let fails = self.outside.start_fails;
                self.outside.start_fails = 1_000 - fails;
            }
            14 if what & 16 == 0 => {
                shell.tell(&mut self.outside, Input::Renew(RestartReason::Asked))?;
            }
            14 => self.strike(shell, what)?,
            _ if what & 16 == 0 => self.outside.from_client.writer_gone = true,
            _ => shell.tell(&mut self.outside, Input::Stop(Cause::Asked))?,
        }
        Ok(())
    }

    /// The shim gets a signal or is killed, or a client comes back.
    fn strike(&mut self, shell: &mut Shell<'_>, what: u8) -> Result<(), Halt> {
        if shell.takes_in() {
            self.outside.from_client = Pipe::new(usize::MAX);
            self.outside.to_client = Pipe::new(65_536);
            self.outside.watch.client_returns();
            return shell.reattach(&mut self.outside);
        }
        let cause = if what & 32 == 0 {
            Cause::ShimKilled
        } else {
            Cause::ShimSignal { number: 15 }
        };
        shell.tell(&mut self.outside, Input::Stop(cause))
    }

    fn client(&mut self, bytes: &[u8]) {
        if !self.outside.from_client.writer_gone {
            // If the keeper has stopped reading, the bytes are lost.
            self.outside.from_client.write(bytes).ok();
        }
    }

    fn server(&mut self, bytes: &[u8]) {
        if let Some(process) = &mut self.outside.process {
            process.stdin.read(usize::MAX);
            if process.serves() {
                // Bytes that do not fit are not written.
                process.stdout.write(bytes).ok();
            }
        }
    }
}
