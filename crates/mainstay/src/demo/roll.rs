//! The roll call: every process of a scene says who it is, so that all of them are known by pid and start time.
//!
//! A datagram socket in the stage's directory. All of a scene's processes have that directory as theirs, so its short
//! name reaches it from everywhere, also from a daemon that has no variable and no ancestor of ours.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use mainstay_core::clock::Moment;
use mainstay_os::identity::{self, Handle};

use super::watch::{Trouble, Watch};

/// The socket's name in the stage's directory.
const SOCKET: &str = "roll";
/// The longest word that is heard.
const WORD_BYTES: usize = 256;

/// Says on the roll who this process is.
pub fn present(party: &str, part: &str) -> io::Result<()> {
    let word = format!("{party} {part} {}", std::process::id());
    UnixDatagram::unbound()?.send_to(word.as_bytes(), SOCKET)?;
    Ok(())
}

/// Somebody who has said who it is.
#[derive(Debug)]
pub struct Present {
    /// Whose part it plays.
    pub party: String,
    /// Which part.
    pub part: String,
    /// Who it is.
    pub handle: Handle,
}

/// The roll of one stage.
#[derive(Debug)]
pub struct Roll {
    socket: UnixDatagram,
    present: Vec<Present>,
}

impl Roll {
    /// Opens the roll in this directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        // Through the directory's descriptor: a socket path has 108 bytes at most.
        let handle = std::fs::File::open(directory)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&handle);
        let socket = UnixDatagram::bind(format!("/proc/self/fd/{fd}/{SOCKET}"))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            present: Vec::new(),
        })
    }

    /// Listens until enough have said who they are.
    pub fn until(
        &mut self,
        watch: &Watch,
        what: &str,
        limit: Moment,
        enough: impl Fn(&[Present]) -> bool,
    ) -> Result<(), Trouble> {
        loop {
            self.hear()?;
            if enough(&self.present) {
                return Ok(());
            }
            if watch.wait(&[self.socket.as_fd()], limit)? == [false] {
                let here = self.present.len();
                return Err(Trouble::Failed(format!(
                    "{what} did not come up ({here} processes did)"
                )));
            }
        }
    }

    /// Takes from the roll whoever plays for such a party.
    pub fn take(&mut self, of: impl Fn(&str) -> bool) -> Vec<Present> {
        let (taken, kept) = self
            .present
            .drain(..)
            .partition(|present| of(&present.party));
        self.present = kept;
        taken
    }

    /// Forgets everybody, also those who have not been heard yet: their scene is over.
    pub fn clear(&mut self) {
        let mut word = [0u8; WORD_BYTES];
        while self.socket.recv(&mut word).is_ok() {}
        self.present.clear();
    }

    fn hear(&mut self) -> Result<(), Trouble> {
        let mut word = [0u8; WORD_BYTES];
        loop {
            let len = match self.socket.recv(&mut word) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let text = String::from_utf8_lossy(&word[..len]).into_owned();
            let mut words = text.split(' ');
            if let (Some(party), Some(part), Some(Ok(pid))) =
                (words.next(), words.next(), words.next().map(str::parse))
            {
                self.present.push(Present {
                    party: party.into(),
                    part: part.into(),
                    handle: identity::of(pid).and_then(Handle::open)?,
                });
            }
        }
    }
}
