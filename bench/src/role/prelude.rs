//! The first acts of a measured server: it reports its birth, and opens what its whole tree must hold.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;

use mainstay_os::clock;
use rustix::fs::{Mode, OFlags, open};

/// The name of the notification with which a server says hello.
pub const HELLO: &str = "notifications/hello";

pub struct Prelude;

impl Prelude {
    /// Does what the first words ask for, and returns the words that are left.
    ///
    /// - `--hello`: a notification with the time, on stdout.
    /// - `--birth FIFO`: the time, into the FIFO.
    /// - `--hold FIFO`: this process and all processes that it forks hold its write end. The path is removed, so that a later
    ///   generation does not hold it.
    pub fn play(words: &[OsString]) -> io::Result<Vec<OsString>> {
        let born = clock::now().0;
        let mut words = words.iter();
        let mut rest = Vec::new();
        while let Some(word) = words.next() {
            let mut path = || words.next().ok_or(io::ErrorKind::InvalidInput);
            match word.to_str() {
                Some("--hello") => {
                    let line = format!(
                        r#"{{"jsonrpc":"2.0","method":"{HELLO}","params":{{"ns":{born}}}}}"#
                    );
                    rustix::io::write(rustix::stdio::stdout(), format!("{line}\n").as_bytes())?;
                }
                Some("--birth") => {
                    let mut fifo = File::options().write(true).open(path()?)?;
                    fifo.write_all(&born.to_ne_bytes())?;
                }
                Some("--hold") => {
                    let path = path()?;
                    // A later generation finds nothing to hold, and needs nothing.
                    if let Ok(fifo) = open(path, OFlags::WRONLY, Mode::empty()) {
                        fs::remove_file(path)?;
                        // Held for as long as this process lives, also after an exec.
                        let _held = fifo.into_raw_fd();
                    }
                }
                Some(_) | None => rest.push(word.clone()),
            }
        }
        Ok(rest)
    }
}
