//! One server of a lease: its keeper's file in the lease's directory.
//!
//! The keeper makes and locks it before it starts a server, and writes into it what became of the server. The lock is free
//! when the keeper is dead, however it died; then a file without an outcome says that somebody must look for the tree.

use std::fs::File;
use std::io::{self, Seek, Write};

use mainstay_core::event::Seen;
use mainstay_core::ids::{Identity, LinkId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::place::{NEW, Place, open_small, parse, write_new};

/// What a keeper says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// The keeper.
    pub keeper: Identity,
    /// The guard at that time.
    pub guard: Identity,
    /// The shim.
    pub shim: Identity,
    /// The longest time that the stop ladder may take.
    pub ladder_ms: u64,
    /// What became of the server, once that is known.
    #[serde(default)]
    pub outcome: Option<Outcome>,
}

/// What became of a server when its lease ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The server process; none if there was none.
    pub pid: Option<i32>,
    /// How many processes were ended.
    pub ended: u32,
    /// Who is still there.
    pub left: Vec<Seen>,
    /// How long that took.
    pub ms: u64,
}

/// The file as its keeper holds it.
#[derive(Debug)]
pub struct Member {
    file: File,
    tenant: Tenant,
}

impl Member {
    /// Shows a keeper in a lease. Whether the lease is open must be asked after this.
    pub fn enter(place: &Place, tenant: Tenant) -> io::Result<Self> {
        let name = tenant.id.to_string();
        let new = format!("{NEW}{name}");
        let file = write_new(place.directory(), &new, &tenant)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // A killed predecessor's file goes with this.
        place.directory().rename(&new, &name)?;
        Ok(Self { file, tenant })
    }

    /// Writes what became of the server. A torn writing is as good as none.
    pub fn tell(&mut self, outcome: Outcome) -> io::Result<()> {
        self.tenant.outcome = Some(outcome);
        let text = serde_json::to_vec(&self.tenant)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)
    }

    /// The last act in a lease that is over. If somebody waits for what became of the server, that is left; else the last
    /// one to leave takes the directory away.
    pub fn finish(mut self, place: &Place, outcome: Outcome) {
        drop(self.tell(outcome));
        let _turn = place.turn();
        if place.awaited() {
            // From here on nobody is in it, for whoever has the next turn.
            drop(self);
            return;
        }
        self.leave(place);
        place.remove_if_done();
    }

    /// Leaves a lease that goes on.
    pub fn leave(self, place: &Place) {
        let name = self.tenant.id.to_string();
        place.directory().remove(&name).ok();
    }
}

/// The file as a visitor sees it. It can be read even after it was removed.
#[derive(Debug)]
pub struct Visit {
    /// The link.
    pub id: LinkId,
    file: File,
}

impl Visit {
    /// Everybody who was ever shown in a lease and has not left.
    pub fn all(place: &Place) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for name in place.directory().names()? {
            let Ok(id) = name.parse() else { continue };
            match open_small(place.directory(), &name) {
                Ok(file) => found.push(Self { id, file }),
                Err(error) if no_member(&error) => {}
                // Whoever cannot be looked at (no descriptors left) must not be taken for nobody.
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|visit| visit.id);
        Ok(found)
    }

    /// What it says, if it says what it should.
    pub fn tenant(&self) -> Option<Tenant> {
        let mut file = &self.file;
        file.rewind().ok()?;
        parse(file)
    }

    /// Whether its keeper lives.
    pub fn held(&self) -> bool {
        let free = flock(&self.file, FlockOperation::NonBlockingLockShared).is_ok();
        if free {
            flock(&self.file, FlockOperation::Unlock).ok();
        }
        !free
    }

    /// Whether its keeper has said what became of its server, and is gone.
    pub fn done(&self) -> bool {
        !self.held() && self.tenant().is_some_and(|tenant| tenant.outcome.is_some())
    }

    /// Takes the file away.
    pub fn remove(&self, place: &Place) {
        place.directory().remove(&self.id.to_string()).ok();
    }
}

/// It has left meanwhile, or it is nothing that a keeper would make.
fn no_member(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData
    )
}
