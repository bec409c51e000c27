//! The processes of one started bridge, found by a variable that all of them carry, whatever their parents are.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mainstay_os::census::{self, Stat};
use mainstay_os::identity::Handle;
use mainstay_testkit::census::MARK_VARIABLE;
use mainstay_testkit::wait::{Deadline, idle};
use rustix::process::{Pid, Signal, kill_process};

use super::peer::Peer;
use crate::footprint;
use crate::place::Place;
use crate::role;

const VARIABLE: &str = "MAINSTAY_BENCH_BRIDGE";
/// How long ours has to end after SIGTERM.
const OURS_ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How long the others have. How they end is not measured.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);

/// The processes of one bridge, or of several of one kind.
pub struct Crew {
    peer: Peer,
    tag: String,
}

impl Crew {
    /// Without any process yet.
    pub fn new(peer: Peer, what: &str) -> Self {
        Self {
            peer,
            tag: format!("{peer:?}-{what}"),
        }
    }

    /// The peer's command with these words, as it is started.
    pub fn command(&self, place: &Place<'_>, words: Vec<OsString>) -> io::Result<Command> {
        self.marked(place, &argv(place, self.peer, words)?)
    }

    /// A command of this program, counted among them.
    pub fn marked(&self, place: &Place<'_>, argv: &[OsString]) -> io::Result<Command> {
        let mut command = place.command(argv)?;
        command.env(VARIABLE, &self.tag).stdin(Stdio::null());
        Ok(command)
    }

    /// The small stdio server as a bridge must start it. The words set the variables, because some bridges pass hardly any on.
    pub fn server(&self, place: &Place<'_>) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec!["/usr/bin/env".into()];
        argv.push(format!("{VARIABLE}={}", self.tag).into());
        argv.push(format!("{MARK_VARIABLE}={}", place.mark()).into());
        argv.extend(place.ours([role::PLAIN]));
        argv
    }

    /// The living processes.
    pub fn living(&self) -> Vec<Stat> {
        let mut all = census::all().unwrap_or_default();
        all.retain(|stat| {
            !stat.dead() && census::variable(stat.pid, VARIABLE).as_deref() == Some(&self.tag)
        });
        all
    }

    /// Memory of the bridge in KiB: of all its processes except the servers behind it.
    pub fn memory(&self) -> u64 {
        let mut living = self.living();
        // A witness has no memory but its keeper's.
        living.retain(|stat| stat.comm != "mcp-witness");
        let mut bridge: Vec<i32> = living.iter().map(|stat| stat.pid).collect();
        bridge.retain(|&pid| {
            let words = census::cmdline(pid);
            words.get(1).map(String::as_str) != Some(role::PLAIN)
        });
        footprint::alone(&bridge)
    }

    /// Sends SIGTERM and waits, then kills the processes that are left. Ours must stop by itself and leave no process.
    pub fn end(&self, place: &Place<'_>, mut child: Child) -> io::Result<()> {
        let mut stopped = child.try_wait()?.is_some();
        if !stopped {
            kill_process(Pid::from_child(&child), Signal::TERM)?;
            let end = Deadline::after(self.patience());
            while !stopped && !end.passed() {
                idle(LOOK);
                stopped = child.try_wait()?.is_some();
            }
        }
        if !stopped {
            child.kill()?;
            child.wait()?;
        }
        place.step();
        let none_left = self.end_all();
        if self.peer.is_ours() && !(stopped && none_left) {
            return Err(io::Error::other(format!(
                "mainstay was told to stop and did {}",
                if stopped { "leave a process" } else { "not" }
            )));
        }
        Ok(())
    }

    /// Kills the processes that are still there after a moment. Returns true if there was none.
    pub fn end_all(&self) -> bool {
        let end = Deadline::after(self.patience());
        let mut none_left = true;
        loop {
            let there = self.living();
            if there.is_empty() {
                return none_left;
            }
            if end.passed() {
                none_left = false;
                for stat in there {
                    if let Ok(handle) = Handle::open(stat.who()) {
                        // It does not matter if it has ended meanwhile.
                        handle.signal(Signal::KILL).ok();
                        handle.wait_ended(1_000);
                    }
                }
            }
            idle(LOOK);
        }
    }

    fn patience(&self) -> Duration {
        if self.peer.is_ours() {
            OURS_ENDS_WITHIN
        } else {
            ENDS_WITHIN
        }
    }
}

/// The peer's command with these words.
pub fn argv(place: &Place<'_>, peer: Peer, words: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let mut argv = match peer {
        Peer::Mainstay => vec![place.mainstay()],
        Peer::Old => vec![place.build(true).ok_or(io::ErrorKind::NotFound)?],
        Peer::Supergateway
        | Peer::ProxyNpm
        | Peer::ProxyPython
        | Peer::ProxyRust
        | Peer::Remote => peer.program().ok_or(io::ErrorKind::NotFound)?,
    };
    argv.extend(words);
    Ok(argv)
}
