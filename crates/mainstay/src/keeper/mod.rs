//! The keeper: the only place that awaits for a link.
//!
//! One thread, one task, one loop: see what is ready, tell the link, do what it asks. Everything that waits is a
//! descriptor or a deadline; nothing here decides what depends on order or time.
//!
//! Invariants: while it lives, the keeper is the only one that reaps the tree; it never blocks but in the kill rung,
//! which is bounded; it ends with code 0 only after the record says that all is done.

pub mod control;
mod perform;
pub mod plan;
mod port;
mod pump;
mod server;
pub mod session;
mod stderr;
mod watch;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, ClientMoved, Lost, Signal, StderrDropped, Teardown, What};
use mainstay_core::ids::Identity;
use mainstay_core::link::{Exited, Input, Link, Route};
use mainstay_os::channel::{Channel, Heard, Word};
use mainstay_os::guard::Keeping;
use mainstay_os::record::Region;
use mainstay_os::signals::{ENDING, Signals};
use mainstay_os::{census, clock, holder, identity};
use tokio::time::Sleep;

use crate::ledger::append::Ledger;
use crate::registry::entry::Entry;
use control::Control;
use plan::Plan;
use port::{Port, Way};
use pump::{Pump, Show};
use server::{Ended, Running};
use stderr::Stderr;
use watch::{Watched, Watcher};

/// The members of a tree are noted this long after its start, and after activity.
const NOTE_FIRST_MS: u64 = 1_000;
const NOTE_AGAIN_MS: u64 = 5_000;

/// Runs a keeper's life; the exit code of its process.
pub fn keep(plan: &Plan, entry: Option<&Entry>, keeping: Keeping<'_>) -> u8 {
    mainstay_os::signals::ignore_pipe();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(_) => return mainstay_os::guard::LOST,
    };
    let entered = runtime.enter();
    let Ok(mut keeper) = Keeper::new(plan, entry, keeping) else {
        return mainstay_os::guard::LOST;
    };
    drop(entered);
    // A side guard is forked between two turns: a fork within one would carry the runtime's marks with it.
    while let Turn::GuardLost = runtime.block_on(poll_fn(|cx| keeper.poll(cx))) {
        keeper.guard_lost();
    }
    keeper.leave();
    0
}

/// Why the loop was left.
enum Turn {
    /// A side guard must be set.
    GuardLost,
    /// All is done.
    Done,
}

/// One link's keeper.
struct Keeper<'p> {
    plan: &'p Plan,
    entry: Option<&'p Entry>,
    region: &'p Region,
    me: Identity,
    link: Link<'static>,
    ledger: Ledger,
    client_in: Option<Port>,
    client_out: Option<Port>,
    stderr: Stderr,
    /// From the client to the server.
    up: Pump,
    /// From the server to the client.
    down: Pump,
    /// Lines of ours to the client and to the server.
    to_client: VecDeque<u8>,
    to_server: VecDeque<u8>,
    server: Option<Running>,
    /// The state that the card shows.
    shown: &'static str,
    stdin_closing: bool,
    releasing: bool,
    signals: Watched<Signals>,
    to_shim: Watched<Channel>,
    to_guard: Channel,
    watcher: Watcher,
    side_guard: Option<i32>,
    /// The guard, or the side guard, is gone.
    unguarded: bool,
    client: Option<Identity>,
    control: Control,
    timer: Pin<Box<Sleep>>,
    /// When the members are to be noted.
    note_at: Option<Moment>,
    noted_at: Moment,
    /// Waits for the first end of the client's input to be told.
    eof_told: bool,
    teardown: Option<Teardown>,
    finished: Option<u8>,
    /// Until when a client that does not read is waited for.
    patience: Option<Moment>,
    now: Moment,
}

impl<'p> Keeper<'p> {
    fn new(plan: &'p Plan, entry: Option<&'p Entry>, keeping: Keeping<'p>) -> io::Result<Self> {
        let Keeping {
            region,
            parts,
            to_shim,
            to_guard,
            guard,
            takeover,
        } = keeping;
        let me = identity::me()?;
        let signals = [&ENDING[..], &[libc::SIGCHLD]].concat();
        let mid_line = parts.record.head.client_mid_line != 0;
        let lost = takeover.then(|| {
            let (pid, status) = parts.notes.lost().unwrap_or_default();
            Lost {
                pid,
                status,
                ended: parts.notes.lost_ended,
                settled: 0,
                successor: Some(me.pid),
            }
        });
        let limits = plan.limits.clone();
        let client_err = Port::of_client(standard(2), Way::Out).ok();
        let mut keeper = Self {
            plan,
            entry,
            region,
            me,
            link: Link::new(plan.about(), limits.clone(), parts.record),
            ledger: Ledger::open(&plan.paths),
            client_in: Some(Port::of_client(standard(0), Way::In)?),
            client_out: Some(Port::of_client(standard(1), Way::Out)?),
            stderr: Stderr::new(
                client_err,
                limits.stderr_tail_lines,
                limits.stderr_tail_bytes,
            ),
            up: Pump::recorded(parts.inbox, mid_line),
            down: Pump::own(),
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
            server: None,
            shown: "",
            stdin_closing: false,
            releasing: false,
            signals: Watched::new(Signals::open(&signals)?)?,
            to_shim: Watched::new(to_shim)?,
            to_guard,
            watcher: Watcher::new(plan.shim, guard, plan.client.as_ref().map(|seen| seen.who)),
            side_guard: None,
            unguarded: false,
            client: plan.client.as_ref().map(|seen| seen.who),
            control: Control::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            note_at: None,
            noted_at: Moment(0),
            eof_told: false,
            teardown: None,
            finished: None,
            patience: None,
            now: clock::now(),
        };
        if keeper.link.mid_line().to_client() {
            // A line to the client was torn by our predecessor's death.
            keeper.to_client.push_back(b'\n');
            keeper.link.mid_line().set_to_client(false);
        }
        keeper.link.begin(keeper.now, lost);
        Ok(keeper)
    }

    /// One turn: everything that is ready is handled, then all wakers are set.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        loop {
            self.now = clock::now();
            self.perform(cx);
            let mut again = self.pump_down(cx);
            again |= self.pump_up(cx);
            self.stderr.poll(cx);
            again |= self.poll_signals(cx);
            again |= self.poll_shim(cx);
            again |= self.poll_watcher(cx);
            again |= self.poll_control(cx);
            self.tell_exit();
            again |= self.perform(cx);
            if self.shown != self.link.word() {
                self.write_card();
            }
            if self.done() {
                return Poll::Ready(Turn::Done);
            }
            if std::mem::take(&mut self.unguarded) {
                return Poll::Ready(Turn::GuardLost);
            }
            again |= self.poll_timer(cx);
            if !again {
                return Poll::Pending;
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.link.handle(self.now, input);
    }

    /// Server → client, and our own lines between.
    fn pump_down(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            let mut step = false;
            if let Some(stdout) = self
                .server
                .as_ref()
                .and_then(|server| server.stdout.as_ref())
            {
                // A broken pipe on our reading side is an end like any other.
                step |= self.down.fill(stdout, cx).unwrap_or(true);
            }
            let Self {
                down,
                link,
                now,
                to_client,
                ..
            } = self;
            // Our own lines wait for the end of the line that is on its way, and nothing new is routed before them.
            if to_client.is_empty() || down.mid_line() {
                step |= down.route(&mut |show| route_down(link, *now, show));
            }
            step |= self.write_client(cx);
            let mid_line = self.down.mid_line();
            if self.link.mid_line().to_client() != mid_line {
                self.link.mid_line().set_to_client(mid_line);
            }
            moved |= step;
            if !step {
                break;
            }
        }
        if self.down.ended()
            && let Some(server) = &mut self.server
            && server.stdout.take().is_some()
        {
            let Self {
                down, link, now, ..
            } = self;
            down.finish(&mut |show| route_down(link, *now, show));
            self.write_client(cx);
            let tree_empty = self.tree_is_empty();
            self.handle(Input::StdoutClosed { tree_empty });
            moved = true;
        }
        if moved && self.note_at.is_none() {
            self.note_at = Some(self.noted_at.after_ms(NOTE_AGAIN_MS));
        }
        moved
    }

    /// Writes what is routed, then our own lines.
    fn write_client(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(out) = &self.client_out else {
            self.down.discard_routed();
            self.to_client.clear();
            return false;
        };
        let mut moved = false;
        let mut result = self.down.drain(out, cx).map(|drained| moved |= drained);
        while result.is_ok()
            && self.down.flushed()
            && !self.down.mid_line()
            && !self.to_client.is_empty()
        {
            match out.poll_write(cx, self.to_client.make_contiguous()) {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) => {
                    self.to_client.drain(..len);
                    moved = true;
                    if self.to_client.is_empty() {
                        self.link.written();
                    }
                }
                Poll::Ready(Err(error)) => result = Err(error),
            }
        }
        if result.is_err() {
            // Nobody reads our stdout any more.
            self.client_out = None;
            self.handle(Input::Stop(Cause::ClientDeaf));
            return true;
        }
        moved
    }

    /// Client → server.
    fn pump_up(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            let mut step = false;
            if let Some(client) = &self.client_in {
                step |= self.up.fill(client, cx).unwrap_or(true);
            }
            let Self { up, link, now, .. } = self;
            step |= up.route(&mut |show| route_up(link, *now, show));
            if up.ended() && !self.eof_told {
                up.finish(&mut |show| route_up(link, *now, show));
            }
            step |= self.write_server(cx);
            let mid_line = self.up.mid_line();
            if self.link.mid_line().from_client() != mid_line {
                self.link.mid_line().set_from_client(mid_line);
            }
            moved |= step;
            if !step {
                break;
            }
        }
        // A server that does not read must not hide that the client has left.
        let hung_up = self.up.full()
            && self
                .client_in
                .as_ref()
                .is_some_and(|client| client.poll_hung_up(cx));
        if (self.up.ended() && !self.up.holds() || hung_up) && !self.eof_told {
            self.eof_told = true;
            self.client_in = None;
            let gone = self.client.is_some_and(|client| !identity::alive(client));
            self.handle(if gone {
                Input::Stop(Cause::ClientGone)
            } else {
                Input::ClientEof
            });
            moved = true;
        }
        moved
    }

    fn write_server(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(server) = &mut self.server else {
            return false;
        };
        let Some(stdin) = &server.stdin else {
            self.up.discard_routed();
            self.to_server.clear();
            return false;
        };
        let mut moved = false;
        let mut broken = false;
        while !self.to_server.is_empty() {
            match stdin.poll_write(cx, self.to_server.make_contiguous()) {
                Poll::Pending => return moved,
                Poll::Ready(Ok(len)) => {
                    self.to_server.drain(..len);
                    moved = true;
                }
                Poll::Ready(Err(_)) => {
                    broken = true;
                    break;
                }
            }
        }
        match self.up.drain(stdin, cx) {
            Ok(drained) => moved |= drained,
            Err(_) => broken = true,
        }
        if broken || (self.stdin_closing && self.up.flushed() && self.to_server.is_empty()) {
            server.stdin = None;
        }
        if broken {
            // It reads no more, so it can serve no more; its own end, if that is what it is, comes first.
            if !self.stdin_closing && server.exit.is_none() {
                self.reap();
                if self
                    .server
                    .as_ref()
                    .is_some_and(|server| server.exit.is_none())
                {
                    self.handle(Input::Stop(Cause::ServerExit));
                }
            }
            return true;
        }
        moved
    }

    fn poll_signals(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.signals.poll_ready(cx) {
            match self.signals.get().read() {
                Ok(Some(received)) => {
                    any = true;
                    if received.number == libc::SIGCHLD {
                        self.reap();
                    } else {
                        self.handle(Input::Stop(Cause::KeeperSignal {
                            number: received.number,
                        }));
                    }
                }
                Ok(None) | Err(_) => self.signals.clear(),
            }
        }
        any
    }

    /// Reaps whoever has ended; the server's own end is noted, and the tree is looked at if it is being stopped.
    fn reap(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        let Running {
            who,
            tree,
            exit,
            seen,
            ..
        } = server;
        let (root, now) = (who.pid, self.now);
        let mut side_guard_died = false;
        let side_guard = self.side_guard;
        tree.reap(&mut |pid, status, usage| {
            if pid == root {
                *exit = Some(Ended {
                    status,
                    usage,
                    at: now,
                    told: false,
                });
            } else if Some(pid) == side_guard {
                side_guard_died = true;
            }
            if !seen.is_empty() {
                seen.insert(pid);
            }
        });
        self.unguarded |= side_guard_died;
    }

    /// Once all that the dead server wrote has been passed on, the link is told of its end; then of the empty tree.
    fn tell_exit(&mut self) {
        let dry = self.down.ended() || self.down.dry() || self.client_out.is_none();
        let grace = self.plan.limits.grace_term_ms;
        let Some(server) = &mut self.server else {
            return;
        };
        if let Some(ended) = &mut server.exit
            && !ended.told
            && (dry || self.now >= ended.at.after_ms(grace))
        {
            ended.told = true;
            let Ended { status, usage, .. } = *ended;
            let served_on = server.stdout.is_some() && server.stdin_has_readers();
            let pid = server.who.pid;
            let tree_empty = self.tree_is_empty();
            if !served_on {
                self.down.forget_partial();
                self.end_torn_line();
            }
            let stderr_tail = self.stderr.tail();
            self.handle(Input::Exited(Exited {
                pid,
                status,
                usage,
                stderr_tail,
                served_on,
                tree_empty,
            }));
        }
        self.tell_empty();
    }

    /// While the tree is being stopped: is anybody left?
    fn tell_empty(&mut self) {
        let stopping = matches!(self.link.word(), "stopping" | "failed");
        let told = self
            .server
            .as_ref()
            .is_some_and(|server| server.exit.is_some_and(|ended| ended.told));
        if stopping && told && self.tree_is_empty() {
            self.end_tree();
        }
    }

    fn tree_is_empty(&self) -> bool {
        self.server
            .as_ref()
            .is_none_or(|server| server.tree.members().is_empty())
    }

    /// Kills whatever is left of the tree, confirms, and tells.
    fn end_tree(&mut self) {
        let confirm = self.plan.limits.kill_confirm_ms;
        let Some(server) = &mut self.server else {
            return;
        };
        let root = server.who.pid;
        let mut exit = server.exit;
        let now = self.now;
        if let Some(kill) = server.container_to_kill() {
            run_to_its_end(&kill, confirm);
        }
        let ended = server.tree.kill(confirm, &mut |pid, status, usage| {
            if pid == root && exit.is_none() {
                exit = Some(Ended {
                    status,
                    usage,
                    at: now,
                    told: false,
                });
            }
        });
        server.exit = exit;
        let before = server.seen.len() as u32;
        let left = ended.left;
        let count = before.max(ended.count).saturating_sub(left.len() as u32);
        self.now = clock::now();
        self.drain_last_words();
        self.tell_last_exit();
        self.handle(Input::TreeEmpty { ended: count, left });
    }

    /// After the kill rung: the server's end, if the link does not know it yet.
    fn tell_last_exit(&mut self) {
        let Some(Running {
            who,
            exit: Some(ended),
            ..
        }) = &mut self.server
        else {
            return;
        };
        if ended.told {
            return;
        }
        ended.told = true;
        let (pid, Ended { status, usage, .. }) = (who.pid, *ended);
        self.down.forget_partial();
        self.end_torn_line();
        let stderr_tail = self.stderr.tail();
        let gone = Exited {
            pid,
            status,
            usage,
            stderr_tail,
            served_on: false,
            tree_empty: true,
        };
        self.handle(Input::Exited(gone));
    }

    /// What a killed server still had in its pipes.
    fn drain_last_words(&mut self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.stderr.poll(&mut cx);
    }

    /// The server died in the middle of a line that the client has half of.
    fn end_torn_line(&mut self) {
        if self.link.mid_line().to_client() {
            self.to_client.push_back(b'\n');
            self.link.mid_line().set_to_client(false);
        }
    }

    fn poll_shim(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.to_shim.poll_ready(cx) {
            match self.to_shim.get().hear() {
                Heard::Word(Word::Signalled(received)) => {
                    any = true;
                    let comm = census::stat(received.pid).ok().map(|stat| stat.comm);
                    self.tell(What::Signal(Signal {
                        number: received.number,
                        code: received.code,
                        sender: received.pid,
                        uid: received.uid,
                        comm,
                    }));
                    self.handle(Input::Stop(Cause::ShimSignal {
                        number: received.number,
                    }));
                }
                Heard::Word(Word::Here { .. } | Word::Finished { .. } | Word::Release) => {}
                Heard::Nothing => self.to_shim.clear(),
                Heard::Closed => {
                    // The shim's death itself is told by its pidfd.
                    self.to_shim.close();
                    break;
                }
            }
        }
        any
    }

    fn poll_watcher(&mut self, cx: &mut Context<'_>) -> bool {
        let dead = self.watcher.poll(cx);
        if dead.shim {
            // Its last word may still be in the channel.
            self.poll_shim(cx);
            self.handle(Input::Stop(Cause::ShimKilled));
        }
        self.unguarded |= dead.guard;
        if dead.client {
            self.client_lost();
        }
        dead.shim || dead.guard || dead.client
    }

    /// Who started us is gone. Is somebody else the client?
    fn client_lost(&mut self) {
        let Some(from) = self.client else { return };
        let heir = self
            .client_in
            .as_ref()
            .and_then(|port| holder::heir(port, from, &self.plan.ancestors));
        match heir {
            Some(to) => {
                self.client = Some(to.who);
                self.watcher.watch_client(to.who);
                self.tell(What::ClientMoved(ClientMoved { from, to }));
            }
            None if self.client_in.is_some() => self.handle(Input::Stop(Cause::ClientGone)),
            // EOF was first.
            None => {}
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        if let Some((at, _)) = self.link.wake_at()
            && self.now >= at
        {
            self.handle(Input::Tick);
            any = true;
        }
        if self.note_at.is_some_and(|at| self.now >= at) {
            self.note_members();
        }
        if let Some(bytes) = self.stderr.dropped() {
            self.tell(What::StderrDropped(StderrDropped { bytes }));
        }
        let exit_due = self.server.as_ref().and_then(|server| {
            let ended = server.exit.filter(|ended| !ended.told)?;
            Some(ended.at.after_ms(self.plan.limits.grace_term_ms))
        });
        let due = [
            self.link.wake_at().map(|(at, _)| at),
            self.note_at,
            exit_due,
            self.patience,
        ];
        if let Some(at) = due.into_iter().flatten().min() {
            let wait = Duration::from_nanos(at - self.now);
            #[expect(
                clippy::disallowed_methods,
                reason = "tokio's timer speaks only Instant; decisions use os::clock"
            )]
            let deadline = tokio::time::Instant::now() + wait;
            if self.timer.deadline() != deadline {
                self.timer.as_mut().reset(deadline);
            }
            any |= self.timer.as_mut().poll(cx).is_ready();
        }
        any
    }

    fn note_members(&mut self) {
        self.note_at = None;
        self.noted_at = self.now;
        if let (Some(server), Some(entry)) = (&self.server, self.entry) {
            let members: Vec<Identity> = server
                .tree
                .members()
                .iter()
                .map(mainstay_os::census::Stat::who)
                .collect();
            // Best effort: without it only the sweep after a double kill sees less.
            drop(entry.members(&members));
        }
    }

    fn tell(&mut self, what: What) {
        self.ledger.record(self.plan.id, &self.plan.name, what);
    }

    /// Whether all is done and the client has what it should have.
    fn done(&mut self) -> bool {
        if self.finished.is_none() {
            return false;
        }
        let flushed =
            self.client_out.is_none() || (self.down.flushed() && self.to_client.is_empty());
        let grace = self.plan.limits.grace_term_ms;
        let until = *self.patience.get_or_insert(self.now.after_ms(grace));
        flushed || self.now >= until
    }
}

/// Runs an engine's command and waits for its end, but not for ever.
fn run_to_its_end(argv: &[std::ffi::OsString], within_ms: u64) {
    if let Some(pid) = crate::container::start(argv)
        && let Ok(handle) = identity::of(pid).and_then(identity::Handle::open)
    {
        handle.wait_ended(within_ms);
    }
}

fn route_down(link: &mut Link<'_>, now: Moment, show: Show<'_>) -> Route {
    match show {
        Show::Line(frame, line) => link.server_line(now, frame, line),
        Show::Cut(frame) => link.server_known(frame),
        Show::Known(_) => Route::Forward,
        Show::CutEnd(frame) => link.server_line(now, frame, b""),
        Show::DropEnd(_) => {
            link.junk(b"(a long line)");
            Route::Drop
        }
    }
}

fn route_up(link: &mut Link<'_>, now: Moment, show: Show<'_>) -> Route {
    match show {
        Show::Line(frame, line) => link.client_line(now, frame, line),
        Show::Cut(_) => link.client_cut(),
        Show::Known(frame) => {
            link.client_known(now, frame);
            Route::Forward
        }
        Show::CutEnd(_) => Route::Forward,
        Show::DropEnd(frame) => link.client_line(now, frame, b""),
    }
}

/// One of the three descriptors that every process has.
fn standard(fd: i32) -> BorrowedFd<'static> {
    mainstay_os::role::standard(fd)
}
