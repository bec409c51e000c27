//! Commands that no keeper keeps: a shim of our own, with pipes, in a group of its own; a short errand; and the server itself in our
//! place, where there is no room for a keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::descriptors;

/// What we changed for ourselves is as it was given, for this command: the limit of descriptors, and SIGXFSZ.
pub fn as_given(command: &mut Command) {
    let reset = || {
        descriptors::as_given();
        // SAFETY: SIG_DFL is a valid disposition for SIGXFSZ.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: between fork and exec there are only those system calls, on values that were copied before.
    unsafe { command.pre_exec(reset) };
}

/// Becomes this command, with our standard descriptors and no signal blocked. Comes back only if it cannot be executed.
pub fn replace_us(mut command: Command) -> io::Error {
    as_given(&mut command);
    command.exec()
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
pub fn piped(mut command: Command) -> io::Result<Piped> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    as_given(&mut command);
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
