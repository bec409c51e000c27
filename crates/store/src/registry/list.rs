//! Lists all links of this user, alive or dead.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use mainstay_os::clock;
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::limits;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;

use super::card::Card;
use super::entry::{CARD, LOCK, MEMBERS};
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// The largest card or member file that is read.
pub(super) const FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Between two looks for a link that is not listed yet.
const LOOK_MS: u32 = 10;

/// One link's directory as a visitor sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The link.
    pub id: LinkId,
    /// Its directory.
    pub path: Location,
    /// Its card with the members; none if it has not been written yet or cannot be read.
    pub card: Option<Card>,
    /// Whether guard or keeper lives, by the lock.
    pub alive: bool,
}

impl Listed {
    /// Whether guard or keeper lives now, by the lock.
    pub fn lives(&self) -> bool {
        self.path.open().is_ok_and(|directory| held(&directory))
    }
}

/// The card of a link that is known to run. A link is listed a moment after its client could speak to its server
/// (`limits::INTRODUCE_MS`), so one that is not there is looked for again, for as long as it `lives`.
pub fn find_card(
    paths: &Paths,
    wanted: impl Fn(&Card) -> bool,
    lives: impl Fn() -> bool,
) -> io::Result<Option<Card>> {
    let until = clock::now().after_ms(limits::LISTED_MS);
    loop {
        let mut cards = list(paths)?.into_iter().filter_map(|listed| listed.card);
        let found = cards.find(|card| wanted(card));
        if found.is_some() || !lives() || clock::now() >= until {
            return Ok(found);
        }
        clock::nap(LOOK_MS);
    }
}

/// All links, by name and then by id.
pub fn list(paths: &Paths) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    for (id, path) in directories(paths)? {
        let directory = match path.open() {
            Ok(directory) => directory,
            Err(error) if is_no_link(&error) => continue,
            Err(error) => return Err(error),
        };
        found.push(Listed {
            id,
            alive: held(&directory),
            card: read_card(&directory),
            path,
        });
    }
    found.sort_by(|a, b| {
        let name = |listed: &Listed| listed.card.as_ref().map(|card| card.name.clone());
        (name(a), a.id).cmp(&(name(b), b.id))
    });
    Ok(found)
}

/// It went away while we looked, or it is nothing that a keeper would make.
pub(super) fn is_no_link(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidData
    )
}

/// Every directory that has a link's id as its name.
pub(super) fn directories(paths: &Paths) -> io::Result<Vec<(LinkId, Location)>> {
    let run = paths.run();
    let names = run.names()?;
    let link = |name: &String| Some((name.parse().ok()?, run.join(name)));
    Ok(names.iter().filter_map(link).collect())
}

/// Whether its owners hold the lock. A visitor's lock is shared, so that two visitors do not take each other for owners.
fn held(directory: &Directory) -> bool {
    matches!(
        lock(directory, FlockOperation::NonBlockingLockShared),
        Ok(None)
    )
}

/// Takes a dead link's lock; none if its owners live. Held until the file is dropped.
pub(super) fn take(directory: &Directory) -> io::Result<Option<File>> {
    lock(directory, FlockOperation::NonBlockingLockExclusive)
}

fn lock(directory: &Directory, how: FlockOperation) -> io::Result<Option<File>> {
    let file = directory.open_to_write(LOCK)?;
    match flock(&file, how) {
        // Its directory was removed before we had the lock; by now another one may have the name.
        Ok(()) if file.metadata()?.nlink() == 0 => Err(io::ErrorKind::NotFound.into()),
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The card with its members.
pub fn read_card(directory: &Directory) -> Option<Card> {
    let mut card: Card = read(directory, CARD)?;
    if let Some(members) = read::<Vec<Identity>>(directory, MEMBERS) {
        card.members = members;
    }
    Some(card)
}

fn read<T: DeserializeOwned>(directory: &Directory, name: &str) -> Option<T> {
    serde_json::from_slice(&directory.read(name, FILE_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::card::samples;
    use crate::registry::entry::Entry;
    use crate::scratch::Scratch;
    use std::fs;

    #[test]
    fn the_lock_tells_the_living_from_the_dead() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let b = Entry::create(&paths, LinkId(1)).unwrap();
        b.write(&samples::card(1, "b")).unwrap();
        let a = Entry::create(&paths, LinkId(2)).unwrap();
        a.write(&samples::card(2, "a")).unwrap();
        let who = mainstay_os::identity::me().unwrap();
        a.members(&[who]).unwrap();
        // A copy of the description, as guard and keeper have it after a fork.
        let inherited = b.lock().try_clone_to_owned().unwrap();
        drop((a, b));

        let seen = |listed: &Listed| (listed.card.clone().unwrap().name, listed.alive);
        let listed = list(&paths).unwrap();
        let seen_now: Vec<_> = listed.iter().map(seen).collect();
        assert_eq!(seen_now, [("a".into(), false), ("b".into(), true)]);
        assert_eq!(listed[0].card.as_ref().unwrap().members, [who]);

        drop(inherited);
        assert!(!list(&paths).unwrap()[1].alive);
    }

    #[test]
    fn half_made_and_foreign_directories_are_no_links() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        for name in [".new-00000001", "notes", "0000000g"] {
            fs::create_dir(paths.run().join(name)).unwrap();
        }
        fs::create_dir(paths.run().join("00000003")).unwrap();
        fs::write(paths.run().join("00000003").join(CARD), b"{\"v\":1,").unwrap();
        let listed = list(&paths).unwrap();
        assert_eq!(listed.len(), 1);
        assert!(listed[0].card.is_none() && !listed[0].alive);
    }
}
