//! A child that is no server: a keeper's shim of our own, with pipes, in a group of its own.
//!
//! A front that holds thousands of pipes raises its own limit of descriptors; what it starts gets the limit that the
//! user gave, because some servers still count descriptors with `select`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};

/// How many descriptors this process may have, and how many it was given at its start.
#[derive(Clone, Debug)]
pub struct Descriptors {
    given: Rlimit,
}

impl Descriptors {
    /// As many as the hard limit allows, from now on.
    pub fn raise() -> Self {
        let given = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: given.maximum,
            maximum: given.maximum,
        };
        // Where it is refused, fewer sessions fit; each that does not is told so.
        setrlimit(Resource::Nofile, most).ok();
        Self { given }
    }
}

/// A started child.
#[derive(Debug)]
pub struct Piped {
    /// The process; it must be reaped.
    pub child: Child,
    /// Readable when it has ended.
    pub ended: OwnedFd,
    /// Its stdin.
    pub to: OwnedFd,
    /// Its stdout.
    pub from: OwnedFd,
}

/// Starts a command with pipes, stderr as ours, in a group of its own: a signal from the terminal is for us to act on.
pub fn piped(mut command: Command, descriptors: &Descriptors) -> io::Result<Piped> {
    let given = descriptors.given;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    // SAFETY: between fork and exec only `setrlimit` is called, a plain system call on a value that was copied before.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, given)?)) };
    let mut child = command.spawn()?;
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK);
    let pipes = child.stdin.take().zip(child.stdout.take());
    match (ended, pipes) {
        (Ok(ended), Some((to, from))) => Ok(Piped {
            child,
            ended,
            to: to.into(),
            from: from.into(),
        }),
        (ended, _) => {
            // Without its pipes it ends by itself; it was started a moment ago and is still our child.
            drop(child.kill());
            drop(child.wait());
            Err(ended
                .err()
                .map_or_else(|| io::Error::other("no pipes"), io::Error::from))
        }
    }
}
