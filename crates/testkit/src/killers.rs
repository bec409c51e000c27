//! How real clients kill servers, and kills that no client does.
//!
//! The gaps between signals are part of a client's habit. A process that is already gone is not signalled again.

use std::time::Duration;

use mainstay_os::census;
use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::wait::{idle, poll_for, span, until};
use crate::wire::Wire;

/// How a client ends a server that it started: to leave, to disable it or to connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Habit {
    /// Claude Code: SIGINT, SIGTERM, SIGKILL to the process, and no EOF.
    Claude,
    /// Codex: EOF and SIGTERM to the group, 2 s later SIGKILL to the group.
    Codex,
    /// Copilot CLI: SIGTERM to the whole tree, 2 ms later SIGKILL.
    Copilot,
    /// The TypeScript SDK and most others: EOF, 2 s later SIGTERM, 2 s later SIGKILL.
    Sdk,
}

impl Habit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Copilot, Self::Sdk];

    /// The name as an argument.
    pub fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Copilot => "copilot",
            Self::Sdk => "sdk",
        }
    }

    /// Ends the process that was started. The calling process is the sender of the signals, so the client must call this.
    pub fn end(self, shim: Identity, wire: &mut Wire) {
        match self {
            Self::Claude => claude(shim),
            Self::Copilot => copilot(shim),
            Self::Codex => {
                let group = Pid::from_raw(shim.pid).expect("a pid is not 0");
                wire.close_write();
                kill_process_group(group, Signal::TERM).ok();
                if !ends_within(shim, PATIENCE) {
                    kill_process_group(group, Signal::KILL).ok();
                }
            }
            Self::Sdk => {
                wire.close_write();
                for signal in [Signal::TERM, Signal::KILL] {
                    if ends_within(shim, PATIENCE) {
                        return;
                    }
                    if let Ok(handle) = Handle::open(shim) {
                        send(&handle, signal);
                    }
                }
            }
        }
    }
}

/// How long these clients wait between two steps.
const PATIENCE: Duration = Duration::from_secs(2);

fn ends_within(who: Identity, time: Duration) -> bool {
    let Ok(handle) = Handle::open(who) else {
        return true;
    };
    let mut fds = [PollFd::new(&handle, PollFlags::IN)];
    poll_for(&mut fds, span(time));
    handle.ended()
}

/// Claude Code: SIGINT, after 0.1 s SIGTERM, after another 0.4 s SIGKILL, to the one process it started.
pub fn claude(shim: Identity) {
    let Ok(handle) = Handle::open(shim) else {
        return;
    };
    for (signal, gap_ms) in [(Signal::INT, 100), (Signal::TERM, 400), (Signal::KILL, 0)] {
        if handle.ended() {
            return;
        }
        send(&handle, signal);
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        poll_for(&mut fds, span(Duration::from_millis(gap_ms)));
    }
}

/// Copilot CLI: walks the tree by parent pids, leaves first. SIGTERM to each, 2 ms later SIGKILL to each.
pub fn copilot(shim: Identity) {
    let mut tree = census::descendants(shim.pid);
    tree.reverse();
    let handles: Vec<Handle> = tree
        .iter()
        .map(census::Stat::who)
        .chain([shim])
        .filter_map(|who| Handle::open(who).ok())
        .collect();
    send_all(&handles, Signal::TERM);
    idle(Duration::from_millis(2));
    send_all(&handles, Signal::KILL);
}

/// Codex: the same to the process group. The shim must lead its own group.
pub fn codex(shim: Identity) {
    let Ok(handle) = Handle::open(shim) else {
        return;
    };
    let group = Pid::from_raw(shim.pid).expect("a pid is not 0");
    kill_process_group(group, Signal::TERM).ok();
    idle(Duration::from_millis(2));
    // As long as the leader exists, even as a zombie of its client, the number belongs to this group.
    if census::stat(handle.who.pid).is_ok_and(|stat| stat.who() == shim) {
        kill_process_group(group, Signal::KILL).ok();
    }
}

/// SIGKILL to one process, or to several at once: all are stopped first, so that none can react to the death of another.
pub fn at_once(victims: &[Identity]) {
    let handles: Vec<Handle> = victims
        .iter()
        .filter_map(|&who| Handle::open(who).ok())
        .collect();
    if handles.len() > 1 {
        send_all(&handles, Signal::STOP);
        until("the victims stand still", || {
            handles
                .iter()
                .all(|handle| {
                    census::stat(handle.who.pid)
                        .map_or(true, |stat| matches!(stat.state, b'T' | b't' | b'Z' | b'X'))
                })
                .then_some(())
        });
    }
    send_all(&handles, Signal::KILL);
}

fn send_all(handles: &[Handle], signal: Signal) {
    for handle in handles {
        send(handle, signal);
    }
}

/// Sends through the handle. A victim that is already gone is fine.
fn send(handle: &Handle, signal: Signal) {
    handle.signal(signal).ok();
}
