//! A client in its own process, so that it can be killed: it starts a command, opens the session, reports that it is ready, and
//! waits.

use std::ffi::OsString;
use std::io;
use std::process::{Command, Stdio};

use mainstay_testkit::client::{Carrier, ends};
use mainstay_testkit::wait::{HANG_STOP, idle};

/// Runs until it is killed.
pub fn hold(words: &[OsString]) -> io::Result<()> {
    let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (mut wire, stdin, stdout) = ends(Carrier::Pipes)?;
    #[expect(clippy::disallowed_methods, reason = "a client starts a server")]
    let child = Command::new(program)
        .args(words)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::inherit())
        .spawn()?;
    wire.initialize()?;
    rustix::io::write(rustix::stdio::stdout(), b"ready\n")?;
    loop {
        idle(HANG_STOP);
        // Both stay open for as long as we live.
        let _held = (&wire, &child);
    }
}
