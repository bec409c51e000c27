//! A keeper in a process of its own, to be killed: it starts a tree, prints its members, and waits.

use std::path::PathBuf;

use mainstay_os::identity::{self, Handle};
use mainstay_os::tier::Choice;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::{Running, Server, exact};

/// The name by which a copy of the test program knows that it is the keeper.
pub const NAME: &str = "keeper-under-test";

/// Whether this process was started under that name.
pub fn started_as(name: &str) -> bool {
    std::env::args().next().as_deref() == Some(name)
}

/// The keeper's own side: starts a server of ten processes, prints them, and waits to be killed.
pub fn keep(server: &Server, choice: Choice) -> ! {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let mut running = server.start_in(choice).unwrap();
    assert_eq!(running.line(), "ready");
    let Identity { pid, start } = running.spawned.who;
    println!("\nroot {pid} {start}");
    if let Some(leaf) = running.spawned.tree.leaf() {
        println!("leaf {}", leaf.display());
    }
    for member in running.spawned.tree.members() {
        println!("member {} {}", member.pid, member.start);
    }
    println!("end");
    loop {
        rustix::event::pause();
    }
}

/// The keeper's tree, as it printed it.
pub struct Told {
    pub leaf: PathBuf,
    pub root: Identity,
    pub members: Vec<Identity>,
}

/// The shell command that becomes the keeper, by running the test of this full name.
pub fn command(test: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    format!(
        "exec -a {NAME} {} --exact {} --nocapture --test-threads=1",
        exe.display(),
        exact(test)
    )
}

/// Starts a command that is or starts a keeper, and reads what it prints.
pub fn start(argv: &[&str]) -> (Running, Told) {
    let mut running = Server::new(argv).start().unwrap();
    let who = |pid: &str, start: &str| Identity {
        pid: pid.parse().unwrap(),
        start: start.parse().unwrap(),
    };
    let mut told = Told {
        leaf: PathBuf::new(),
        root: running.spawned.who,
        members: Vec::new(),
    };
    loop {
        let line = running.line();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["leaf", path] => told.leaf = path.into(),
            ["root", pid, start] => told.root = who(pid, start),
            ["member", pid, start] => told.members.push(who(pid, start)),
            ["end"] => break,
            _ => assert!(identity::alive(running.spawned.who), "it ended: {line}"),
        }
    }
    assert_eq!(told.members.len(), 10);
    assert!(told.members.iter().all(|&who| identity::alive(who)));
    (running, told)
}

/// Kills exactly this process.
pub fn kill(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::KILL).unwrap();
}

/// Waits until a process has ended; false if it lives longer than this.
pub fn ends(who: Identity, seconds: i64) -> bool {
    let Ok(handle) = Handle::open(who) else {
        return true;
    };
    let mut fds = [PollFd::new(&handle, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&timeout)) == Ok(1)
}
