//! A FIFO in which servers report their birth: the time of the first instruction of their `main`, by their own clock.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::place::Place;
use crate::role;

pub struct Cradle {
    path: PathBuf,
    births: File,
}

impl Cradle {
    /// Makes the FIFO of this place.
    pub fn make(place: &Place<'_>) -> io::Result<Self> {
        let path = place.path("births");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Opened for both directions, so that it never ends and never blocks a server's open.
        let births = File::options().read(true).write(true).open(&path)?;
        Ok(Self { path, births })
    }

    /// A server that reports its births here and has, with all that it starts, this many processes.
    pub fn server(&self, place: &Place<'_>, size: usize) -> Vec<OsString> {
        let birth = [OsString::from("--birth"), self.path.clone().into()];
        let mut words = Vec::new();
        if size == 1 {
            words.push(OsString::from(role::SERVE));
            words.extend(birth);
        } else {
            let members = (size - 1).to_string();
            words.push(OsString::from(role::GROW));
            words.extend(birth);
            words.extend(["--mark", place.mark(), "--tree", &members].map(OsString::from));
        }
        place.ours(words)
    }

    /// Waits for the next birth.
    pub fn born(&mut self) -> io::Result<u64> {
        let mut ns = [0; 8];
        self.births.read_exact(&mut ns)?;
        Ok(u64::from_ne_bytes(ns))
    }
}
