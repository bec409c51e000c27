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
        let root = who.pid;
        tree.reap(&mut |pid, status, usage| {
            // Once it has ended, the number may be anybody's.
            if pid == root && exit.is_none() {
                if let Some(container) = container {
                    container.command_ended(status);
                }
                *exit = Some(Ended { status, usage });
            }
            if !seen.is_empty() {
                seen.insert(pid);
            }
        });
        if exit.is_some() && !self.relay.exit_told() {
            if let Some(stdout) = stdout {
                stdout.look_again();
            }
            self.relay.server_ended(self.now);
            self.stderr.look_again();
        }
    }

    /// All that the dead server wrote has been passed on: the link is told of its end.
    pub(super) fn tell_exit(&mut self) {
        let Some((pid, ended)) = self.exit() else {
            return;
        };
        let holders = self
            .server
            .as_ref()
            .map_or(Holders::Nobody, Running::holders);
        let tree_empty = self.tree_is_empty();
        self.tell_exit_with(pid, ended, holders, tree_empty);
    }

    fn exit(&self) -> Option<(i32, Ended)> {
        let server = self.server.as_ref()?;
        Some((server.who.pid, server.exit?))
    }

    fn tell_exit_with(&mut self, pid: i32, ended: Ended, holders: Holders, tree_empty: bool) {
        let Ended { status, usage } = ended;
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
    }

    /// Until when the container's part of the kill rung is waited for.
    pub(super) fn kill_due(&self) -> Option<Moment> {
        self.server.as_ref()?.container.as_ref()?.due()
    }

    /// While the tree is being stopped: goes on with the kill rung, and tells when no process is left.
    pub(super) fn look_at_tree(&mut self) {
        self.go_on_killing();
        let stopping = self.relay.link().descending();
        if stopping && self.relay.exit_told() && self.tree_is_empty() {
            self.end_tree();
        }
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
        let ended = server.tree.kill(confirm, &mut |pid, status, usage| {
            if pid == root && exit.is_none() {
                exit = Some(Ended { status, usage });
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
        if let Some((pid, ended)) = self.exit().filter(|_| !self.relay.exit_told()) {
            self.tell_exit_with(pid, ended, Holders::Nobody, true);
        }
        self.handle(Input::TreeEmpty { ended: count, left });
    }

    /// How the link stood when the server ended; who was there, if nobody says why it did.
    fn at_the_end(&mut self, pid: i32, status: Status, out_of_memory: Option<OutOfMemory>) {
        self.frames.at_death = Some(self.standing());
        let unasked = !self.relay.link().sent(status) && out_of_memory.is_none();
        if unasked && verdict::sent_by_somebody(status) {
            self.unexplained(Part::Server, pid);
        }
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
        oom::verdict(status, self.relay.link().sent(status), leaf, machine)
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
}
