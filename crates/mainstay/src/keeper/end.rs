//! Ends: of the server, of its tree, and what must be passed on before each is told.

use mainstay_core::clock::Moment;
use mainstay_core::event::{OutOfMemory, Part, Status};
use mainstay_core::link::{Exited, Holders, Input};
use mainstay_core::server::oom::{self, Kills};
use mainstay_core::verdict;
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use mainstay_os::measure::oom_kills_of_the_machine;
use mainstay_os::tree::Tree;

use super::server::{Ended, Running};
use super::{Keeper, STEPS};
use crate::container::held::Held;

impl Keeper<'_> {
    /// Somebody of ours has ended: the server, whose end is noted, an errand, a side guard.
    pub(super) fn reap(&mut self) {
        self.unguarded |= self.side_guard.as_ref().is_some_and(Handle::ended);
        let Some(server) = &mut self.server else {
            Tree::below_us().reap(&mut |_, _, _| {});
            return;
        };
        let Running {
            who,
            tree,
            exit,
            seen,
            stdout,
            container,
            ..
        } = server;
        if let Some(container) = container {
            container.look();
        }
        let (root, now) = (who.pid, self.now);
        tree.reap(&mut |pid, status, usage| {
            // Once it has ended, the number may be anybody's.
            if pid == root && exit.is_none() {
                if let Some(container) = container {
                    container.command_ended(status);
                }
                *exit = Some(Ended {
                    status,
                    usage,
                    at: now,
                    told: false,
                });
            }
            if !seen.is_empty() {
                seen.insert(pid);
            }
        });
        if exit.is_some_and(|ended| !ended.told) {
            if let Some(stdout) = stdout {
                stdout.look_again();
            }
            self.down.look_again();
            self.stderr.look_again();
        }
    }

    /// Once all that the dead server wrote has been passed on, the link is told of its end; then of the empty tree.
    pub(super) fn tell_exit(&mut self) {
        let read = |server: &Running| server.stdout.is_none();
        let dry = self.server.as_ref().is_some_and(read)
            || (self.down.dry() && self.to_client.is_empty())
            || self.client_out.is_none();
        let due = self.exit_due().is_some_and(|at| self.now >= at);
        let Some(server) = &mut self.server else {
            return;
        };
        if let Some(ended) = &mut server.exit
            && !ended.told
            && (dry || due)
        {
            ended.told = true;
            let Ended { status, usage, .. } = *ended;
            let holders = server.holders();
            let pid = server.who.pid;
            let tree_empty = self.tree_is_empty();
            if holders == Holders::Nobody {
                self.end_torn_line();
                self.give_unread();
            }
            // It may have said them after the last look at its stderr.
            self.drain_last_words();
            let stderr_tail = self.stderr.tail();
            let out_of_memory = self.out_of_memory(status);
            self.at_the_end(pid, status, out_of_memory);
            self.handle(Input::Exited(Exited {
                pid,
                status,
                usage,
                stderr_tail,
                out_of_memory,
                holders,
                tree_empty,
            }));
            if holders != Holders::Nobody && self.link.descending() {
                // Whoever is left of its tree speaks for nobody: what it had half said is settled now.
                self.end_torn_line();
            }
        }
        self.go_on_killing();
        self.tell_empty();
    }

    /// When the end of the server is told, though more may come: somebody who is left of its tree may go on writing, and is not
    /// waited for. A client that takes its time to read what the dead server wrote is, unless it is being stopped.
    pub(super) fn exit_due(&self) -> Option<Moment> {
        let ended = self.server.as_ref()?.exit.filter(|ended| !ended.told)?;
        let passed_on = self.down.flushed() && !self.down.lines_wait() && self.to_client.is_empty();
        (passed_on || self.link.descending())
            .then(|| ended.at.after_ms(self.plan.limits.grace_term_ms))
    }

    /// Until when the container's part of the kill rung is waited for.
    pub(super) fn kill_due(&self) -> Option<Moment> {
        self.server.as_ref()?.container.as_ref()?.due()
    }

    /// While the tree is being stopped: is anybody left?
    pub(super) fn tell_empty(&mut self) {
        let stopping = self.link.descending();
        if stopping && self.exit_told() && self.tree_is_empty() {
            self.end_tree();
        }
    }

    /// Whether the link knows of the server's end: whoever holds its pipes now has served on after it, or is a helper.
    pub(super) fn exit_told(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.exit.is_some_and(|ended| ended.told))
    }

    pub(super) fn tree_is_empty(&self) -> bool {
        self.server.as_ref().is_none_or(|server| {
            let container = server.container.as_ref();
            container.is_none_or(Held::is_over) && server.tree.members().is_empty()
        })
    }

    /// The kill rung: the container first, by its engine, and then the tree, which that errand belongs to.
    pub(super) fn kill(&mut self) {
        let confirm = self.plan.limits.kill_confirm_ms;
        let container = self.server.as_mut().and_then(|it| it.container.as_mut());
        if !container.is_some_and(|container| container.kill(self.now, confirm)) {
            self.end_tree();
        }
    }

    /// Goes on with the kill rung once the container's part of it is through.
    fn go_on_killing(&mut self) {
        let container = self.server.as_mut().and_then(|it| it.container.as_mut());
        if container.is_some_and(|container| container.kill_is_through(self.now)) {
            self.end_tree();
        }
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
        self.unguarded |= self.side_guard.as_ref().is_some_and(Handle::ended);
        let before = server.seen.len() as u32;
        let mut left = ended.left;
        let count = before.max(ended.count).saturating_sub(left.len() as u32);
        left.extend(server.container.as_mut().and_then(Held::left));
        self.now = clock::now();
        self.drain_last_words();
        self.tell_last_exit();
        // Whoever served on after the server's own end is gone, too, and may have left something unread.
        self.end_torn_line();
        self.give_unread();
        self.handle(Input::TreeEmpty { ended: count, left });
    }

    /// After the kill rung: the server's end, if the link does not know it yet.
    pub(super) fn tell_last_exit(&mut self) {
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
        self.end_torn_line();
        self.give_unread();
        let stderr_tail = self.stderr.tail();
        let out_of_memory = self.out_of_memory(status);
        self.at_the_end(pid, status, out_of_memory);
        let gone = Exited {
            pid,
            status,
            usage,
            stderr_tail,
            out_of_memory,
            holders: Holders::Nobody,
            tree_empty: true,
        };
        self.handle(Input::Exited(gone));
    }

    /// How the link stood when the server ended; who was there, if nobody says why it did.
    fn at_the_end(&mut self, pid: i32, status: Status, out_of_memory: Option<OutOfMemory>) {
        self.frames.at_death = Some(self.standing());
        let unasked = !self.link.sent(status) && out_of_memory.is_none();
        if unasked && verdict::sent_by_somebody(status) {
            self.unexplained(Part::Server, pid);
        }
    }

    /// What the server has not read, and nobody else can read any more, is taken back.
    pub(super) fn take_unread(&mut self) {
        let Some(rest) = self.server.as_mut().and_then(Running::take_unread) else {
            return;
        };
        // What a client that is gone had sent is nobody's wish any more.
        let foreign = rest.len().saturating_sub(self.sent);
        self.unread.extend_from_slice(&rest[foreign..]);
        self.take_unsent();
    }

    /// So is what was not even written: lines of the client's, then those that went our way.
    fn take_unsent(&mut self) {
        self.unread.extend_from_slice(self.up.unsent());
        if self.up.mid_line() {
            // Of a line whose end is still to come the beginning is nobody's: our own lines waited for that end.
            let lines = self.unread.iter().rposition(|&byte| byte == b'\n');
            self.unread.truncate(lines.map_or(0, |last| last + 1));
        }
        self.unread.extend(self.to_server.drain(..));
        self.up.discard_routed();
    }

    /// What the dead server has not read is the link's again, before it hears of the death.
    pub(super) fn give_unread(&mut self) {
        self.take_unread();
        self.take_unsent();
        let unread = std::mem::take(&mut self.unread);
        self.link.unread(whole_lines(&unread));
    }

    /// Whether memory had run out when the server was killed, by the counters of its leaf or of the machine.
    fn out_of_memory(&self, status: Status) -> Option<OutOfMemory> {
        let server = self.server.as_ref()?;
        let (leaf, machine) = server.oom_kills;
        let leaf = Kills {
            before: leaf,
            now: server.tree.oom_kills(),
        };
        let machine = Kills {
            before: machine,
            now: oom_kills_of_the_machine(),
        };
        oom::verdict(status, self.link.sent(status), leaf, machine)
    }

    /// What a killed server still had in its pipes.
    pub(super) fn drain_last_words(&mut self) {
        // Whoever wrote it is dead, so this ends with the pipe; a survivor of the kill may go on writing.
        for _ in 0..STEPS {
            if !self.stderr.poll() {
                break;
            }
        }
    }

    /// The server died in the middle of a line that the client has half of.
    pub(super) fn end_torn_line(&mut self) {
        let torn = self.down.mid_line();
        self.down.forget_partial();
        if torn {
            // Lines of ours may be waiting for the end of this one already.
            self.to_client.push_front(b'\n');
            self.ours_torn = true;
        }
    }
}

/// What the server has read the beginning of is no message: of a line of JSON no rest is JSON too.
fn whole_lines(unread: &[u8]) -> &[u8] {
    let end = unread.iter().position(|&byte| byte == b'\n');
    let (first, others) = unread.split_at(end.map_or(unread.len(), |end| end + 1));
    match serde_json::from_slice::<serde::de::IgnoredAny>(first) {
        Ok(_) => unread,
        Err(_) => others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
