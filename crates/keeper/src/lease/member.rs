//! One server of a lease: its keeper's file in the lease's directory.
//!
//! The keeper makes and locks the file before it starts a server, and writes the outcome into it. The lock is free when the
//! keeper is dead. A file with a free lock and without an outcome means that its tree may still live and must be searched.

use std::fs::File;
use std::io::{self, Seek, Write};

use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{Identity, LinkId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::directory::{LeaseDirectory, NEW, open_small, parse, write_new};

/// What a keeper writes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Its link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// The keeper.
    pub keeper: Identity,
    /// Its guard when the file was written.
    pub guard: Identity,
    /// The shim.
    pub shim: Identity,
    /// The longest time that the stop ladder may take.
    pub ladder_ms: u64,
    /// How the server ended, once that is known.
    #[serde(default)]
    pub outcome: Option<ServerOutcome>,
}

/// How a server ended with its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOutcome {
    /// The server process; none if none was running.
    pub pid: Option<i32>,
    /// How many processes were ended.
    pub ended: u32,
    /// The processes that are left.
    pub left: Vec<Seen>,
    /// How long the end took, in milliseconds.
    pub ms: u64,
}

/// The file, held by its keeper.
#[derive(Debug)]
pub struct Member {
    file: File,
    info: MemberInfo,
}

impl Member {
    /// Enters a lease. The caller must check after this whether the lease is open.
    pub fn enter(place: &LeaseDirectory, info: MemberInfo) -> io::Result<Self> {
        let name = info.id.to_string();
        let new = format!("{NEW}{name}");
        let file = write_new(place.directory(), &new, &info)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // This replaces the file of a killed predecessor.
        place.directory().rename(&new, &name)?;
        Ok(Self { file, info })
    }

    /// Writes the outcome. A partial write counts as none.
    pub fn tell(&mut self, outcome: ServerOutcome) -> io::Result<()> {
        self.info.outcome = Some(outcome);
        let text = serde_json::to_vec(&self.info)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)
    }

    /// Leaves a lease that is over. If a closing process waits for the outcome, the file stays; else the last keeper to leave
    /// removes the directory.
    pub fn finish(mut self, place: &LeaseDirectory, outcome: ServerOutcome) {
        drop(self.tell(outcome));
        let _turn = place.turn();
        if place.awaited() {
            // Unlocked before the turn ends, so that the next process sees no member here.
            drop(self);
            return;
        }
        self.leave(place);
        place.remove_if_done();
    }

    /// Leaves a lease that stays open.
    pub fn leave(self, place: &LeaseDirectory) {
        let name = self.info.id.to_string();
        place.directory().remove(&name).ok();
    }
}

/// The file, opened by another process. It can be read even after it was removed.
#[derive(Debug)]
pub struct MemberFile {
    /// The link.
    pub id: LinkId,
    file: File,
}

impl MemberFile {
    /// All members that have entered a lease and not left it.
    pub fn all(place: &LeaseDirectory) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for name in place.directory().names()? {
            let Ok(id) = name.parse() else { continue };
            match open_small(place.directory(), &name) {
                Ok(file) => found.push(Self { id, file }),
                Err(error) if no_member(&error) => {}
                // An error (such as no free descriptor) must not look like a lease without members.
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|file| file.id);
        Ok(found)
    }

    /// The contents, if they are valid.
    pub fn info(&self) -> Option<MemberInfo> {
        let mut file = &self.file;
        file.rewind().ok()?;
        parse(file)
    }

    /// True if its keeper lives.
    pub fn held(&self) -> bool {
        let free = flock(&self.file, FlockOperation::NonBlockingLockShared).is_ok();
        if free {
            flock(&self.file, FlockOperation::Unlock).ok();
        }
        !free
    }

    /// True if its keeper has written the outcome and is gone.
    pub fn done(&self) -> bool {
        !self.held() && self.info().is_some_and(|info| info.outcome.is_some())
    }

    /// Removes the file.
    pub fn remove(&self, place: &LeaseDirectory) {
        place.directory().remove(&self.id.to_string()).ok();
    }
}

/// True if the member has left in the meantime, or if the file was not made by a keeper.
fn no_member(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData
    )
}
