//! The unruly server: a small MCP stdio server that misbehaves as its flags say.
//!
//! It knows nothing of mainstay. All processes that it makes carry the mark in their arguments or short name, are in place before
//! the server answers anything, and expire by themselves.

mod breed;
mod flags;
mod hold;
mod serve;
mod tools;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

pub use flags::{FlagError, Flags};
pub use tools::{notification, numbered};

use crate::fork::{expire_after, ignore};
use crate::wait::{idle, poll_for, span, until};
use breed::Breed;

/// After this many seconds no process made here is alive.
const EXPIRE_S: u32 = 300;

/// Runs the server with the arguments after the program name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let flags = match Flags::parse(args) {
        Ok(flags) => flags,
        Err(error) => {
            complain(&format!("unruly: {error}"));
            return ExitCode::from(2);
        }
    };
    expire_after(EXPIRE_S);
    name_ourselves(&flags.mark);
    if flags.ignore_term || flags.tree > 0 {
        ignore(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    }
    if let [program, args @ ..] = flags.start_and_idle.as_slice() {
        #[expect(clippy::disallowed_methods, reason = "a bad init starts one process")]
        let started = Command::new(program).args(args).spawn();
        if let Err(error) = started {
            complain(&format!(
                "unruly: cannot start {}: {error}",
                program.display()
            ));
            return ExitCode::from(71);
        }
        linger();
    }
    if flags.role_idle {
        linger();
    }
    if flags.launcher > 0 {
        return launch(&flags);
    }
    let flags = match counted(&flags) {
        Ok(flags) => flags,
        Err(error) => {
            complain(&format!("unruly: {error}"));
            return ExitCode::from(2);
        }
    };
    match live(&flags) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&format!("unruly: {error}"));
            ExitCode::from(70)
        }
    }
}

/// The flags of this generation, if generations are counted.
fn counted(flags: &Flags) -> io::Result<Flags> {
    let Some(file) = &flags.generations else {
        return Ok(flags.clone());
    };
    let mut count = fs::File::options().create(true).append(true).open(file)?;
    count.write_all(b".")?;
    let generation = count.metadata()?.len() as u32;
    let flags = flags.in_generation(generation);
    flags.map_err(|error| io::Error::other(error.to_string()))
}

fn live(flags: &Flags) -> io::Result<u8> {
    if let Some(line) = &flags.stderr {
        complain(line);
    }
    if flags.keep_fds {
        complain(&format!("fds {:?}", tools::open_fds()));
    }
    flood(flags.stderr_flood)?;
    if let Some(file) = &flags.start_when {
        until(&format!("a file {}", file.display()), || {
            file.exists().then_some(())
        });
    }
    if flags.exit_after_start {
        return Ok(flags.exit_code.unwrap_or(1));
    }
    Breed::of(flags).make_all()?;
    serve::serve(flags)?;
    if let Some(time) = flags.slow_exit {
        idle(time);
    }
    if let Some(file) = &flags.marker {
        fs::write(file, "saved")?;
    }
    Ok(flags.exit_code.unwrap_or(0))
}

/// Plays npx: starts the next one and waits for it.
fn launch(flags: &Flags) -> ExitCode {
    let status = std::env::current_exe().and_then(|program| {
        #[expect(
            clippy::disallowed_methods,
            reason = "a launcher starts a process: that is its part"
        )]
        let mut next = Command::new(program);
        next.args(flags.relaunch(flags.launcher - 1)).status()
    });
    match status {
        Ok(status) => ExitCode::from(match (status.code(), status.signal()) {
            (Some(code), _) => code as u8,
            (None, signal) => 128 + signal.unwrap_or(0) as u8,
        }),
        Err(error) => {
            complain(&format!("unruly: cannot start the next one: {error}"));
            ExitCode::from(71)
        }
    }
}

/// Lives on, reading nothing, until it is killed.
fn linger() -> ! {
    loop {
        poll_for(&mut [], span(std::time::Duration::from_hours(1)));
    }
}

/// The short name carries the mark too, because a zombie has nothing else.
fn name_ourselves(mark: &str) {
    let name = std::ffi::CString::new(format!("u-{mark}")).unwrap_or_default();
    rustix::thread::set_name(&name).ok();
}

/// Writes a line to stderr; a closed stderr is no reason to stop.
fn complain(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// Writes that many bytes of lines to stderr.
fn flood(bytes: u64) -> io::Result<()> {
    const LINE: &[u8; 64] = b"unruly: a line which only fills a buffer, sixty-four bytes long\n";
    let mut left = bytes as usize;
    while left > 0 {
        let part = left.min(LINE.len());
        io::stderr().write_all(&LINE[LINE.len() - part..])?;
        left -= part;
    }
    Ok(())
}
