//! The relay: carries the bytes of one client and one server, line by line, and settles what a dead server leaves behind.
//!
//! The shell around it owns descriptors and processes. It calls [`Relay::turn`] while bytes can move, reports what
//! happened with [`Relay::handle`], does what [`Relay::next`] asks for, and sleeps until [`Relay::wake_at`]. The design
//! is on the page `docs/design/relay.md`.
//!
//! Invariants: our own lines are written only between two lines of a peer; an output is performed before the next line is shown to the
//! link; what is noted in the record is true for a successor at every kill point; after [`Output::Finish`] there is no output.

mod flow;
mod lane;
mod routing;
mod shell;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Lost, What};
use mainstay_protocol::frames::Side;
use mainstay_protocol::limits::{self, Limits};
use mainstay_protocol::message::frame::Begun;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::policy::Policy;

pub use shell::{Read, Shell, Sight, Wrote};

use crate::link::{self, About, Holders, Input, Link};
use crate::record::Record;
use crate::record::inbox::Inbox;
use crate::server::stop::Step;
use lane::Lane;

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Start the next generation; answer with [`Input::Started`] or [`Input::StartFailed`].
    Spawn,
    /// Say this on the client's stderr.
    Say(String),
    /// A step of the stop ladder.
    Stop(Step),
    /// Measure the processor time of the tree; answer with [`Input::Measured`].
    Measure,
    /// Release the client's pipes.
    DropClient,
    /// Release the client's pipes, and let a client that comes back find this link.
    Linger,
    /// Let no client find this link.
    LingerOver,
    /// Write this event.
    Tell(What),
    /// The client's lines have ended; answer with [`Input::ClientEof`], or with a stop if the client itself is gone.
    ClientEnded,
    /// The client reads no more; the link knows it. Close the pipe.
    ClientDeaf,
    /// Close the server's stdin: everything for it is written, or no process reads it.
    CloseServerStdin,
    /// The server reads no more. If its process has ended, report that with [`Relay::server_ended`], else stop it.
    ServerDeaf,
    /// The server's stdout has ended and all of it is routed; answer with [`Input::StdoutClosed`].
    ServerStdoutEnded,
    /// Everything that the ended server wrote has been forwarded, or it took too long; answer with [`Input::Exited`].
    ExitDue,
    /// Everything is done: exit with this code once [`Relay::is_done`].
    Finish(u8),
}

/// Our side of the client's pipes.
#[derive(Debug)]
struct ClientEnds {
    /// We read its lines.
    reads: bool,
    /// We write to it.
    writes: bool,
    /// The pipes are released once everything is written.
    releasing: bool,
    /// Until when a server may leave the client's last bytes unread.
    unread_until: Option<Moment>,
}

/// Our side of the server's pipes, and how far its end has come.
#[derive(Debug)]
struct ServerEnds {
    stdin: Stdin,
    /// We read its lines.
    reads: bool,
    exit: Exit,
    /// When it counts as deaf: it has closed its stdin and left something unread. A server that is about to exit does the same, and its
    /// exit is to be known first.
    deaf_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stdin {
    Open,
    /// To be closed once all that is routed has been written.
    Closing,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Running,
    /// The process has ended, and the link is not told yet.
    Ended {
        at: Moment,
    },
    Told,
}

/// Lines of our own that wait to be written.
#[derive(Debug, Default)]
struct Ours {
    to_client: VecDeque<u8>,
    /// The client has a part of the first of these lines.
    torn: bool,
    /// The client has half of a line whose rest will not come: a newline goes before everything else.
    newline: bool,
    /// Lines that were written to the client so far.
    written: u64,
    to_server: VecDeque<u8>,
}

impl Ours {
    /// True if nothing waits for the client.
    fn client_has_all(&self) -> bool {
        self.to_client.is_empty() && !self.newline
    }

    /// Drops everything that waits for the client.
    fn void_for_client(&mut self) {
        self.written += self.to_client.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.to_client.clear();
        (self.torn, self.newline) = (false, false);
    }

    /// The client has taken this many bytes of our lines.
    fn taken(&mut self, len: usize) {
        for byte in self.to_client.drain(..len) {
            self.written += u64::from(byte == b'\n');
            self.torn = byte != b'\n';
        }
    }

    /// How many lines the client has. A line that lacks nothing but its newline counts: the newline follows in any case, from us or from a
    /// successor.
    fn delivered(&self) -> u64 {
        self.written + u64::from(self.torn && self.to_client.front() == Some(&b'\n'))
    }
}

/// One client, one server, and the bytes between them.
#[derive(Debug)]
pub struct Relay<'a> {
    link: Link<'a>,
    /// From the client to the server.
    up: Lane<'a>,
    /// From the server to the client.
    down: Lane<'a>,
    ours: Ours,
    client: ClientEnds,
    server: Option<ServerEnds>,
    /// Bytes that went into the server's stdin since this client is here.
    sent: usize,
    /// Lines that a server which reads no more has not read.
    unread: Vec<u8>,
    outputs: VecDeque<Output>,
    /// All is done; until when a client that does not read is waited for.
    finished: Option<Moment>,
    grace_eof_ms: u64,
    grace_term_ms: u64,
    /// Our own lines for a server that does not read: beyond this nothing more of it is routed.
    owed_max: usize,
}

impl<'a> Relay<'a> {
    /// A relay over this record, which may be a killed keeper's, and over a buffer of our own for the server's lines.
    pub fn new(
        about: About,
        limits: Limits,
        policy: Policy,
        record: Record<'a>,
        inbox: Inbox<'a>,
        own: &'a mut [u8],
    ) -> Self {
        // More than lines of the client that waited for it: those it gets whether it reads them or not.
        let owed_max = limits.held_bytes as usize + limits::HELD_LINE_BYTES;
        let (grace_eof_ms, grace_term_ms) = (limits.grace_eof_ms, limits.grace_term_ms);
        let mut relay = Self {
            link: Link::new(about, limits, policy, record, Remembered::default()),
            up: Lane::recorded(inbox),
            down: Lane::own(own),
            ours: Ours::default(),
            client: ClientEnds {
                reads: true,
                writes: true,
                releasing: false,
                unread_until: None,
            },
            server: None,
            sent: 0,
            unread: Vec::new(),
            outputs: VecDeque::new(),
            finished: None,
            grace_eof_ms,
            grace_term_ms,
            owed_max,
        };
        if relay.link.mid_line().to_client() {
            // A line to the client was torn by our predecessor's death.
            relay.ours.newline = true;
        }
        relay
    }

    /// What the client has sent and no keeper has routed, and what is known of its first line if the beginning of that is gone.
    pub fn unrouted(&self) -> (&[u8], Option<Begun>) {
        self.up.fresh()
    }

    /// Begins, or goes on where a killed keeper stopped.
    pub fn begin(&mut self, now: Moment, lost: Option<Lost>, shell: &mut impl Shell) {
        if lost.is_some() {
            let (lines, within_a_line) = self.up.fresh();
            self.link.never_sent(lines, within_a_line);
        }
        self.link.begin(now, lost);
        self.absorb(now, shell);
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Moment, input: Input, shell: &mut impl Shell) {
        match &input {
            Input::Started => {
                self.new_generation();
                self.server = Some(ServerEnds {
                    stdin: Stdin::Open,
                    reads: true,
                    exit: Exit::Running,
                    deaf_at: None,
                });
            }
            Input::StartFailed { .. } => {
                // It may be refused before it was tried.
                self.outputs.retain(|output| *output != Output::Spawn);
                self.new_generation();
            }
            Input::Exited(exited) => {
                if let Some(server) = &mut self.server {
                    server.exit = Exit::Told;
                }
                if exited.holders == Holders::None {
                    self.settle_bytes_of_the_dead(now, shell);
                }
            }
            // A process that served on after the server's own end is gone too, and may have left something unread.
            Input::TreeEmpty { .. } => self.settle_bytes_of_the_dead(now, shell),
            Input::StdoutClosed { .. }
            | Input::ClientEof
            | Input::Stop(_)
            | Input::Newcomer { .. }
            | Input::Reattached
            | Input::Renew(_)
            | Input::Check
            | Input::Measured { .. }
            | Input::Tick => {}
        }
        let exited = matches!(input, Input::Exited(_));
        self.link.handle(now, input);
        if exited && self.link.descending() {
            // What is left of the tree serves no more: what it had half said is settled now.
            self.end_torn_line();
        }
        self.absorb(now, shell);
    }

    /// The next thing to do.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is drained like one, but outputs come and go"
    )]
    pub fn next(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to be woken if nothing happens.
    pub fn wake_at(&self) -> Option<Moment> {
        let deaf = self.server.as_ref().and_then(|server| server.deaf_at);
        let link = self.link.wake_at().map(|(at, _)| at);
        let all = [
            link,
            self.exit_due(),
            deaf,
            self.client.unread_until,
            self.finished,
        ];
        all.into_iter().flatten().min()
    }

    /// The server process has ended; what it wrote may still be in its pipe.
    pub fn server_ended(&mut self, now: Moment) {
        if let Some(server) = &mut self.server
            && server.exit == Exit::Running
        {
            server.exit = Exit::Ended { at: now };
        }
        self.down.look_again();
    }

    /// Another client is there, in the place of the one that was let go. `read`: what another process has read of its bytes.
    pub fn reattach(&mut self, now: Moment, read: &[u8], shell: &mut impl Shell) {
        self.client = ClientEnds {
            reads: true,
            writes: true,
            releasing: false,
            unread_until: None,
        };
        self.down.sink_lost();
        self.ours.void_for_client();
        // What the former client had sent is void: a server that is replaced may never take it, and what comes now would wait behind it.
        self.sent = 0;
        self.up.discard_routed();
        self.ours.to_server.clear();
        self.up.source_lost();
        self.handle(now, Input::Reattached, shell);
        self.up.preload(read);
    }

    /// True once all is done and the client has what it is to have, or does not read.
    pub fn is_done(&self, now: Moment) -> bool {
        self.finished
            .is_some_and(|until| self.flushed() || now >= until)
    }

    /// True if all that the client is to have has been written.
    pub fn flushed(&self) -> bool {
        !self.client.writes || (self.down.flushed() && self.ours.client_has_all())
    }

    /// True if all that the server is to have has been written.
    pub fn server_has_all(&self) -> bool {
        self.up.flushed() && self.ours.to_server.is_empty()
    }

    /// True if the client's lines have ended.
    pub fn client_ended(&self) -> bool {
        self.up.ended()
    }

    /// True if we write to a client.
    pub fn writes(&self) -> bool {
        self.client.writes
    }

    /// True if the link knows of the end of the server process: a process that holds its pipes now has served on after it, or is a helper.
    pub fn exit_told(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.exit == Exit::Told)
    }

    /// The link, for views.
    pub fn link(&self) -> &Link<'a> {
        &self.link
    }

    /// How long the server is kept for a client that comes back.
    pub fn set_linger(&mut self, ms: u64) {
        self.link.set_linger(ms);
    }

    /// Lends what an earlier session of this configuration saw.
    pub fn recall(&mut self, remembered: Remembered) {
        self.link.recall(remembered);
    }

    /// What was learned is written down.
    pub fn remembered_written(&mut self) {
        self.link.remembered_written();
    }

    /// The buffers that are empty, whose memory may be given back until it is needed again: in the record, and of our own.
    pub fn spare(&mut self) -> (Option<&mut [u8]>, Option<&mut [u8]>) {
        (self.up.spare(), self.down.spare())
    }

    /// What waits here, for people.
    pub fn told(&self) -> String {
        let ((to_server, unrouted), (to_client, from_server)) =
            (self.up.waiting(), self.down.waiting());
        alloc::format!(
            "{}: {} in flight; {unrouted} bytes from the client, {to_server} to the server and {} of ours; {from_server} bytes from the \
             server, {to_client} to the client and {} of ours{}",
            self.link.word(),
            self.link.in_flight(),
            self.ours.to_server.len(),
            self.ours.to_client.len(),
            if self.down.mid_line() {
                " (mid-line)"
            } else {
                ""
            }
        )
    }

    /// Takes what the link asks for: its lines are queued, the rest is the shell's to do.
    fn absorb(&mut self, now: Moment, shell: &mut impl Shell) {
        if !self.link.has_output() {
            return;
        }
        let generation = self.link.generation();
        while let Some(output) = self.link.next() {
            debug_assert!(
                self.finished.is_none(),
                "an output after the last: {output:?}"
            );
            let for_the_shell = match output {
                link::Output::ToClient(line) => {
                    let to = Side::Client;
                    shell.saw(now, generation, Sight::Ours { to, line: &line });
                    self.ours.to_client.extend(line);
                    continue;
                }
                link::Output::ToServer(line) => {
                    let to = Side::Server;
                    shell.saw(now, generation, Sight::Ours { to, line: &line });
                    self.ours.to_server.extend(line);
                    continue;
                }
                link::Output::ReleaseClient => {
                    self.client.releasing = true;
                    shell.saw(now, generation, Sight::Releasing);
                    continue;
                }
                link::Output::DropClient => {
                    self.drop_client();
                    continue;
                }
                link::Output::Linger => {
                    if self.up.mid_line() {
                        shell.saw(now, generation, Sight::TornAtServer);
                    }
                    self.let_go_of_client();
                    Output::Linger
                }
                link::Output::Stop(step) => {
                    if let Some(server) = &mut self.server
                        && server.stdin == Stdin::Open
                    {
                        server.stdin = Stdin::Closing;
                    }
                    Output::Stop(step)
                }
                link::Output::Finish(code) => {
                    self.finished = Some(now.after_ms(self.grace_term_ms));
                    Output::Finish(code)
                }
                link::Output::Spawn => Output::Spawn,
                link::Output::Say(text) => Output::Say(text),
                link::Output::Measure => Output::Measure,
                link::Output::LingerOver => Output::LingerOver,
                link::Output::Tell(what) => Output::Tell(what),
            };
            self.outputs.push_back(for_the_shell);
        }
        shell.saw(now, generation, Sight::Settled);
        self.release_client();
    }

    /// A client that is to be let go has all that was for it. After the last output the shell lets go of everything.
    fn release_client(&mut self) {
        if self.client.releasing && self.finished.is_none() && self.flushed() {
            self.drop_client();
        }
    }

    fn drop_client(&mut self) {
        self.client_is_gone();
        self.outputs.push_back(Output::DropClient);
    }

    /// The client's pipes are let go while the server is kept.
    fn let_go_of_client(&mut self) {
        if self.up.mid_line() {
            // The server has half of a line whose rest will never come.
            self.ours.to_server.push_front(b'\n');
        }
        self.up.forget_partial();
        self.down.sink_lost();
        self.client_is_gone();
    }

    fn client_is_gone(&mut self) {
        self.client = ClientEnds {
            reads: false,
            writes: false,
            releasing: false,
            unread_until: None,
        };
        self.ours.void_for_client();
        self.down.discard_routed();
    }

    /// What was meant for the last generation, or half said by it, is void.
    fn new_generation(&mut self) {
        self.up.sink_lost();
        self.ours.to_server.clear();
        self.sent = 0;
        self.unread.clear();
        self.down.source_lost();
        self.server = None;
    }

    /// The server can neither write nor read any more: half a line at the client is ended, and what the server has not read is the link's
    /// again. Before the link hears of the death.
    fn settle_bytes_of_the_dead(&mut self, now: Moment, shell: &mut impl Shell) {
        self.end_torn_line();
        self.give_unread(now, shell);
        // The rest of a line whose beginning it had is for no server.
        self.up.sink_lost();
    }

    /// The server died in the middle of a line that the client has half of.
    fn end_torn_line(&mut self) {
        let torn = self.down.mid_line();
        self.down.forget_partial();
        if torn {
            // Lines of ours may be waiting for the end of this one already.
            self.ours.newline = true;
        }
    }

    /// Takes back the lines that the server has not read and that no process can read now.
    fn take_unread(&mut self, shell: &mut impl Shell) {
        let Some(rest) = shell.take_unread() else {
            return;
        };
        // A former client's lines are no wish of this one.
        let foreign = rest.len().saturating_sub(self.sent);
        self.unread.extend_from_slice(&rest[foreign..]);
        self.take_unsent();
    }

    /// So is what was not even written: lines of the client, then our own.
    fn take_unsent(&mut self) {
        self.unread.extend_from_slice(self.up.unsent());
        if self.up.mid_line() {
            // The end of a long line is still to come. Its beginning is void; our own lines waited for that end.
            let lines = self.unread.iter().rposition(|&byte| byte == b'\n');
            self.unread.truncate(lines.map_or(0, |last| last + 1));
        }
        self.unread.extend(self.ours.to_server.drain(..));
        self.up.discard_routed();
    }

    fn give_unread(&mut self, now: Moment, shell: &mut impl Shell) {
        self.take_unread(shell);
        self.take_unsent();
        let unread = core::mem::take(&mut self.unread);
        let lines = whole_lines(&unread);
        shell.saw(now, self.link.generation(), Sight::Unread(lines));
        self.link.unread(lines);
    }

    /// When the end of the server is told, though more may come: a process that is left of its tree may go on writing, and is not waited
    /// for. A client that takes its time to read what the dead server wrote is waited for, unless the server is being stopped.
    fn exit_due(&self) -> Option<Moment> {
        let Exit::Ended { at } = self.server.as_ref()?.exit else {
            return None;
        };
        let passed_on =
            self.down.flushed() && !self.down.lines_wait() && self.ours.client_has_all();
        (passed_on || self.link.descending()).then(|| at.after_ms(self.grace_term_ms))
    }
}

/// Drops a first line that was read in part: the rest of a JSON line is never valid JSON.
fn whole_lines(unread: &[u8]) -> &[u8] {
    let end = unread.iter().position(|&byte| byte == b'\n');
    let (first, others) = unread.split_at(end.map_or(unread.len(), |end| end + 1));
    match serde_json::from_slice::<serde::de::IgnoredAny>(first) {
        Ok(_) => unread,
        Err(_) => others,
    }
}
