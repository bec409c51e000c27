//! The flow of bytes: both directions, and our own lines between those of the peers.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Cause;
use mainstay_protocol::limits::EXITING_MS;

use super::routing::{From, Routing};
use super::shell::{Shell, Sight, Wrote};
use super::{Exit, Output, Relay, Stdin};
use crate::link::Input;

/// Steps of one direction before the other has its turn.
const STEPS: u32 = 32;
/// Lines of ours that may wait for a client that does not read, before nothing more is read from it.
const TO_CLIENT_BYTES: usize = 256 * 1024;

impl Relay<'_> {
    /// Moves every byte that can move; true if more may move at once, or an output waits. Outputs come before bytes.
    pub fn turn(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        if !self.outputs.is_empty() {
            return true;
        }
        if self.finished.is_some() {
            // The server is gone, and nothing that the client says is answered.
            return self.write_client(now, shell);
        }
        let mut again = self.relay_server_lines(now, shell);
        if !self.outputs.is_empty() {
            return true;
        }
        if shell.client_may_speak() {
            again |= self.relay_client_lines(now, shell);
        }
        // Answers of our own to what the client has just asked.
        if self.outputs.is_empty() && !self.ours.client_has_all() {
            again |= self.write_client(now, shell);
        }
        self.release_client();
        if self.outputs.is_empty() {
            // Not before: what the client has said or ended by now comes before the end of the server.
            self.look_for_exit(now);
        }
        again || !self.outputs.is_empty()
    }

    /// Server → client, until nothing moves; true if more may move at once.
    fn relay_server_lines(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        let mut step = true;
        let mut steps = 0;
        while step && steps < STEPS {
            step = false;
            steps += 1;
            if self.server.as_ref().is_some_and(|server| server.reads)
                && self.down.fill(|into| shell.read_server(into))
            {
                self.link.server_wrote(now);
                step = true;
            }
            // Our own lines wait for the end of the line that is on its way, and nothing new is routed before them; nor while a server
            // that does not read is owed more than it may be.
            let turn = self.ours.client_has_all() || self.down.mid_line();
            if turn && self.ours.to_server.len() <= self.owed_max {
                step |= self.down.route(&mut Routing {
                    link: &mut self.link,
                    shell,
                    now,
                    from: From::Server,
                });
            }
            // What goes in the place of a line goes out before the lines that follow it.
            self.absorb(now, shell);
            if !self.outputs.is_empty() {
                return true;
            }
            step |= self.write_client(now, shell);
            if !self.outputs.is_empty() {
                return true;
            }
        }
        self.look_for_stdout_end(now, shell) || step
    }

    /// What waits behind lines of ours is routed in its turn, and the end comes after it. Lines of ours that wait behind half a line wait
    /// for nothing but this end.
    fn look_for_stdout_end(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        let through = self.down.ended()
            && !self.down.lines_wait()
            && (self.ours.client_has_all() || self.down.mid_line() || !self.client.writes);
        let Some(server) = self
            .server
            .as_mut()
            .filter(|server| through && server.reads)
        else {
            return false;
        };
        server.reads = false;
        let told = server.exit == Exit::Told;
        self.down.finish(&mut Routing {
            link: &mut self.link,
            shell,
            now,
            from: From::Server,
        });
        self.absorb(now, shell);
        self.write_client(now, shell);
        // The server's stdin is about to be closed, and with it goes what the server has not read.
        self.take_unread(shell);
        if told {
            self.give_unread(now, shell);
        }
        self.outputs.push_back(Output::ServerStdoutEnded);
        true
    }

    /// Writes what is routed, then our own lines.
    fn write_client(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        if !self.client.writes {
            self.down.discard_routed();
            self.ours.void_for_client();
            self.link.delivered_to(self.down.delivered());
            self.link.written_to(self.ours.delivered());
            return false;
        }
        if !self.flushed() {
            // Noted before it is so: a successor then writes a newline too many, which harms less than half a line.
            self.link.mid_line().set_to_client(true);
        }
        let (mut moved, mut broken) = (false, false);
        // After each write it is noted what the client has: a successor answers the rest.
        while let Some(wrote) = self.down.write(|bytes| shell.write_client(bytes)) {
            match wrote {
                Wrote::Full => break,
                Wrote::Took(_) => {
                    moved = true;
                    self.link.delivered_to(self.down.delivered());
                    shell.saw(now, self.link.generation(), Sight::Delivered);
                }
                Wrote::Broken => {
                    broken = true;
                    break;
                }
            }
        }
        while !broken && self.down.flushed() && !self.down.mid_line() && !self.ours.client_has_all()
        {
            let newline = self.ours.newline;
            let bytes = if newline {
                b"\n"
            } else {
                &*self.ours.to_client.make_contiguous()
            };
            match shell.write_client(bytes) {
                Wrote::Full => break,
                Wrote::Took(_) if newline => {
                    self.ours.newline = false;
                    moved = true;
                }
                Wrote::Took(len) => {
                    self.ours.taken(len);
                    moved = true;
                    self.link.written_to(self.ours.delivered());
                    shell.saw(now, self.link.generation(), Sight::OursDelivered);
                }
                Wrote::Broken => broken = true,
            }
        }
        let mid_line =
            self.down.mid_line() || self.down.torn() || self.ours.torn || self.ours.newline;
        if self.link.mid_line().to_client() != mid_line {
            self.link.mid_line().set_to_client(mid_line);
        }
        if broken {
            self.client.writes = false;
            if self.finished.is_some() {
                return false;
            }
            self.outputs.push_back(Output::ClientDeaf);
            self.handle(now, Input::Stop(Cause::ClientDeaf), shell);
            return true;
        }
        moved
    }

    /// Client → server, until nothing moves; true if more may move at once.
    fn relay_client_lines(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        let mut moved = false;
        let mut step = true;
        let mut steps = 0;
        while step && steps < STEPS {
            step = false;
            steps += 1;
            if self.client.reads {
                step |= self.up.fill(|into| shell.read_client(into));
            }
            let turn =
                !self.reads_no_more() && (self.ours.to_server.is_empty() || self.up.mid_line());
            let mut routing = Routing {
                link: &mut self.link,
                shell,
                now,
                from: From::Client,
            };
            if turn && self.ours.to_client.len() < TO_CLIENT_BYTES {
                step |= self.up.route(&mut routing);
            }
            if turn && self.up.ended() && self.client.reads {
                self.up.finish(&mut routing);
            }
            self.absorb(now, shell);
            if !self.outputs.is_empty() {
                return true;
            }
            step |= self.write_server(now, shell);
            if !self.outputs.is_empty() {
                return true;
            }
            moved |= step;
        }
        let ended = self.up.ended() && !self.waits();
        if self.client.reads && (ended || self.left_unread(now, moved, shell)) {
            self.client.reads = false;
            self.client.unread_until = None;
            self.outputs.push_back(Output::ClientEnded);
            return true;
        }
        // A buffer that has just become full, or an end behind a line that waits: whether the client has left is asked when nothing moves.
        step || moved && (self.up.full() || self.up.ended() && self.waits())
    }

    /// True if the server is dead and the link does not know it yet: what the client says now is for the next one.
    fn reads_no_more(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| {
            server.stdin == Stdin::Closed && matches!(server.exit, Exit::Ended { .. })
        }) && !self.link.descending()
    }

    /// True if a line waits before the end of the client's: to be shown, to be shown again, for the end of a line of ours, or for the end
    /// of a dead server to be told.
    fn waits(&self) -> bool {
        self.up.holds()
            || self.up.lines_wait()
            || self.reads_no_more()
            || !(self.ours.to_server.is_empty() || self.up.mid_line())
    }

    /// True if a client has left behind a full buffer, or behind a line that waits for the next generation: its EOF cannot be reached
    /// before a server that does not read. As long as something is taken the server is only slow; if nothing is for its grace, that must
    /// not hide the EOF. While no server is up because we wait ourselves, that proves nothing: the next generation answers what was asked,
    /// or it is given up and we do.
    fn left_unread(&mut self, now: Moment, moved: bool, shell: &impl Shell) -> bool {
        let left = (self.up.ended() && self.waits()) || (self.up.full() && shell.client_hung_up());
        if moved || !left || self.link.awaits_generation() {
            self.client.unread_until = None;
            return false;
        }
        let until = now.after_ms(self.grace_eof_ms);
        now >= *self.client.unread_until.get_or_insert(until)
    }

    /// Writes what is routed to the server, then our own lines.
    fn write_server(&mut self, now: Moment, shell: &mut impl Shell) -> bool {
        if self.reads_no_more() {
            // These bytes are taken back when the end is reported.
            return false;
        }
        let Some(server) = &mut self.server else {
            return false;
        };
        if server.stdin == Stdin::Closed {
            self.up.discard_routed();
            self.ours.to_server.clear();
            return false;
        }
        let closing = server.stdin == Stdin::Closing;
        let deaf = server.is_deaf(now, shell);
        let (mut moved, mut broken) = (false, deaf);
        while let Some(wrote) = self.up.write(|bytes| shell.write_server(bytes)) {
            match wrote {
                Wrote::Full => break,
                Wrote::Took(len) => {
                    self.sent += len;
                    moved = true;
                }
                Wrote::Broken => {
                    broken = true;
                    break;
                }
            }
        }
        // Our own lines go between two lines of the client.
        while !broken && self.up.flushed() && !self.up.mid_line() && !self.ours.to_server.is_empty()
        {
            match shell.write_server(self.ours.to_server.make_contiguous()) {
                Wrote::Full => return moved,
                Wrote::Took(len) => {
                    self.sent += len;
                    self.ours.to_server.drain(..len);
                    moved = true;
                }
                Wrote::Broken => broken = true,
            }
        }
        if broken && !closing {
            self.take_unread(shell);
        }
        if broken || (closing && self.server_has_all()) {
            if let Some(server) = &mut self.server {
                server.stdin = Stdin::Closed;
                server.deaf_at = None;
            }
            self.outputs.push_back(Output::CloseServerStdin);
            if broken && !closing {
                // The server reads no more, so it cannot serve. If it is exiting, its exit is reported first.
                self.outputs.push_back(Output::ServerDeaf);
            }
            return true;
        }
        moved
    }

    /// Once all that the dead server wrote has been passed on, its end is due to be told.
    fn look_for_exit(&mut self, now: Moment) {
        let due = self.exit_due().is_some_and(|at| now >= at);
        let passed_on = self.down.dry() && self.ours.client_has_all();
        let Some(server) = &mut self.server else {
            return;
        };
        let dry = !server.reads || passed_on || !self.client.writes;
        if matches!(server.exit, Exit::Ended { .. }) && (dry || due) {
            server.exit = Exit::Told;
            self.outputs.push_back(Output::ExitDue);
        }
    }
}

impl super::ServerEnds {
    /// True if it has closed its stdin, lives on and will never read what is there.
    fn is_deaf(&mut self, now: Moment, shell: &impl Shell) -> bool {
        if !shell.server_left_unread() {
            self.deaf_at = None;
            return false;
        }
        now >= *self.deaf_at.get_or_insert(now.after_ms(EXITING_MS))
    }
}
