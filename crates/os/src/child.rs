//! Commands that run without a keeper: a shim of our own, with pipes and in a process group of its own; a short
//! command; and the server itself in place of this process, where a keeper cannot run.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::identity::{self, Handle};
use crate::{descriptors, turn};

/// Restores for this command what we changed for ourselves: the limit of descriptors, and SIGXFSZ.
pub fn as_given(command: &mut Command) {
    let reset = || {
        descriptors::restore_limit();
        // SAFETY: SIG_DFL is a valid disposition for SIGXFSZ.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: between fork and exec there are only those system calls, on values that were copied before.
    unsafe { command.pre_exec(reset) };
}

/// Executes this command in place of this process, with our standard descriptors and no signal blocked. Returns only
/// if it cannot be executed.
pub fn replace_us(mut command: Command) -> io::Error {
    as_given(&mut command);
    command.exec()
}

/// Runs a short command without input and output in a process group of its own. When it has ended, or after this time,
/// the whole group is killed. True if it ended in time with code 0.
pub fn run_within(mut command: Command, ms: u64) -> io::Result<bool> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    turn::as_usual_in(&mut command);
    as_given(&mut command);
    let mut child = command.spawn()?;
    let handle = identity::of(child.id() as i32).and_then(Handle::open);
    let in_time = handle.is_ok_and(|handle| handle.wait_ended(ms));
    // It is our child and not reaped yet, so no other group can have its number.
    kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
    let status = child.wait()?;
    Ok(in_time && status.success())
}

/// A child with pipes on stdin and stdout.
#[derive(Debug)]
pub struct Piped {
    /// The caller must reap it.
    pub child: Child,
    /// A pidfd: readable when the child has ended.
    pub ended: OwnedFd,
    /// Its stdin.
    pub to: OwnedFd,
    /// Its stdout.
    pub from: OwnedFd,
}

/// Starts a command with pipes and our stderr. It gets a group of its own, because we decide what a signal from the
/// terminal means.
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
            // Without its pipes it would end by itself. It was started a moment ago and is still our child.
            drop(child.kill());
            drop(child.wait());
            Err(ended
                .err()
                .map_or_else(|| io::Error::other("no pipes"), io::Error::from))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child_lock;
    use std::io::Read;

    /// A shell whose processes hold this pipe until they end.
    #[expect(clippy::disallowed_methods, reason = "a command to be ended")]
    fn shell(script: &str) -> (Command, std::fs::File) {
        let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let keep_open = move || {
            std::mem::forget(rustix::io::dup(&theirs)?);
            Ok(())
        };
        // SAFETY: between fork and exec there is only that system call.
        unsafe { command.pre_exec(keep_open) };
        (command, ours.into())
    }

    #[test]
    fn a_short_command_and_all_its_processes_end_in_time() {
        let _lock = child_lock::with_children();
        for (script, ms, held) in [
            ("exit 0", 60_000, true),
            ("exit 3", 60_000, false),
            ("sleep 1000 & exit 0", 60_000, true),
            ("sleep 1000; exit 0", 1, false),
        ] {
            let (command, mut open) = shell(script);
            assert_eq!(run_within(command, ms).unwrap(), held, "{script}");
            // The pipe ends with the last process that holds it.
            assert_eq!(open.read(&mut [0]).unwrap(), 0, "{script}");
        }
    }
}
