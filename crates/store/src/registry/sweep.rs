//! Finds what dead links left. The caller ends it, then removes the directory.
//!
//! The directory is removed last, because it says which processes must be ended: first the caller ends them, then it calls
//! [`Dead::remove`]. Until then we hold the lock of the dead link, so that no other sweep takes it.

use std::fs::File;
use std::io;

use mainstay_os::{clock, identity};
use mainstay_protocol::ids::{Identity, LinkId, Realm, Tag};
use mainstay_protocol::limits::ENTRY_KEPT_DAYS;
use mainstay_protocol::time::DAY_MS;

use super::card::Card;
use super::entry::{self, LOCK, NEW};
use super::list::{directories, read_card, take};
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// A link whose owners are all dead.
#[derive(Debug)]
pub struct Dead {
    /// The link.
    pub id: LinkId,
    /// Its card, if one was written.
    pub card: Option<Card>,
    /// The tag of its tree, if it had one.
    pub tag: Option<Tag>,
    /// The tree as last recorded, if its pids have their meaning here.
    pub members: Vec<Identity>,
    path: Location,
    _lock: File,
}

impl Dead {
    /// Its directory.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// Removes the directory: nothing of the link is left.
    pub fn remove(self) -> io::Result<()> {
        entry::remove(&self.path)
    }
}

/// All links of this user whose lock is free and whose own processes are dead.
pub fn sweep_dead(paths: &Paths) -> io::Result<Vec<Dead>> {
    remove_half_made(paths)?;
    let here = identity::realm()?;
    let mut found = Vec::new();
    for (id, path) in directories(paths)? {
        found.extend(take_dead(id, path, &here));
    }
    Ok(found)
}

/// What one link's directory is for a process that wants to end what is left of the link.
#[derive(Debug)]
pub enum Remains {
    /// There is no directory.
    Gone,
    /// Another process has the lock: a guard or keeper that lives or is just being killed, another sweep, or a visitor.
    Held,
    /// Its owners are dead, and the lock is ours.
    Dead(Box<Dead>),
}

/// One link of this user; no lock of another link is touched.
pub fn remains(paths: &Paths, id: LinkId) -> io::Result<Remains> {
    let here = identity::realm()?;
    let path = paths.run().join(id.to_string());
    Ok(match take_dead(id, path.clone(), &here) {
        Some(dead) => Remains::Dead(Box::new(dead)),
        None if path.is_there() => Remains::Held,
        None => Remains::Gone,
    })
}

/// A dead link's directory with its lock; none if the link is alive, if another process sweeps it, or if it is not ours.
fn take_dead(id: LinkId, path: Location, here: &Realm) -> Option<Dead> {
    let directory = path.open().ok()?;
    let lock = claim(&directory)?;
    let card = read_card(&directory);
    let members = match &card {
        Some(card) => match judge(card, here, &directory) {
            Judgement::Spare => return None,
            Judgement::Here => card.members.clone(),
            Judgement::Elsewhere => Vec::new(),
        },
        None => Vec::new(),
    };
    Some(Dead {
        id,
        tag: card.as_ref().and_then(Card::tag),
        card,
        members,
        path,
        _lock: lock,
    })
}

/// The lock of a dead link. A directory that has lost its lock file gets a new one: a successor may be about to make the
/// directory again, and what is taken away without a lock might be that one.
fn claim(directory: &Directory) -> Option<File> {
    match take(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result.ok().flatten(),
    }
    directory.create(LOCK).ok()?;
    take(directory).ok().flatten()
}

enum Judgement {
    /// A process of it may live.
    Spare,
    /// Dead, and its members' pids mean the same here.
    Here,
    /// Dead, and its members' pids mean nothing here.
    Elsewhere,
}

fn judge(card: &Card, here: &Realm, directory: &Directory) -> Judgement {
    if card.realm == *here {
        // The lock is free, so guard and keeper should be dead; a living one is spared all the same.
        let own = [&card.guard, &card.keeper];
        let lives = own
            .into_iter()
            .flatten()
            .any(|seen| identity::alive(seen.who));
        return if lives {
            Judgement::Spare
        } else {
            Judgement::Here
        };
    }
    if card.realm.boot != here.boot {
        // The machine was started again, so none of its processes can live.
        return Judgement::Elsewhere;
    }
    // Another pid or time namespace (a container that shares our home). A process there can sweep it; from here, it is removed
    // only if it was unused for a long time.
    let found = directory.look_at_itself();
    match found.map(|found| clock::wall_ms().saturating_sub(found.changed_ms)) {
        Ok(age_ms) if age_ms > ENTRY_KEPT_DAYS * DAY_MS => Judgement::Elsewhere,
        Ok(_) | Err(_) => Judgement::Spare,
    }
}

/// Directories whose maker died between making and showing them.
fn remove_half_made(paths: &Paths) -> io::Result<()> {
    let run = match paths.run().open() {
        Ok(run) => run,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in run.names()? {
        if !name.starts_with(NEW) {
            continue;
        }
        let Ok(directory) = run.open_directory(&name) else {
            continue;
        };
        match take(&directory) {
            Ok(Some(lock)) => {
                run.remove_all(&name).ok();
                drop(lock);
            }
            // Empty: its maker was killed before it had a lock, or begins anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                run.remove_empty(&name).ok();
            }
            Ok(None) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! guards: A process that reads the registry never prevents a takeover.

    use super::*;
    use crate::registry::card::samples;
    use crate::registry::entry::Entry;
    use crate::registry::list::list;
    use crate::scratch::Scratch;
    use mainstay_protocol::event::Seen;
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn gone() -> Identity {
        let me = identity::me().unwrap();
        Identity {
            start: me.start + 1,
            ..me
        }
    }

    fn leave(paths: &Paths, id: u32, change: impl FnOnce(&mut Card)) {
        let entry = Entry::create(paths, LinkId(id)).unwrap();
        let mut card = samples::card(id, "demo");
        card.keeper = Some(Seen {
            who: gone(),
            comm: "mainstay".into(),
        });
        change(&mut card);
        entry.write(&card).unwrap();
        entry.members(&[gone()]).unwrap();
    }

    #[test]
    fn dead_links_are_found_with_their_trees_and_then_removed() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        leave(&paths, 1, |_| {});
        let dead = sweep_dead(&paths).unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].members, [gone()]);
        let tag = dead[0].tag.clone().unwrap();
        assert_eq!((tag.owner, tag.link), (gone(), LinkId(1)));
        // While one sweep has it, another one leaves it alone.
        assert_eq!(sweep_dead(&paths).unwrap().len(), 0);
        for one in dead {
            one.remove().unwrap();
        }
        assert_eq!(list(&paths).unwrap().len(), 0);
    }

    #[test]
    fn living_and_doubtful_links_are_spared() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let held = Entry::create(&paths, LinkId(1)).unwrap();
        // The lock is free, but the guard lives.
        leave(&paths, 2, |card| {
            card.guard = samples::card(2, "x").keeper;
        });
        // A container that shares our home.
        leave(&paths, 3, |card| card.realm.pidns += 1);
        leave(&paths, 4, |card| card.realm.timens = Some(1));
        assert_eq!(sweep_dead(&paths).unwrap().len(), 0);
        drop(held);
        // It never wrote a card, so no tree of it is known.
        let dead = sweep_dead(&paths).unwrap();
        assert_eq!(dead.len(), 1);
        assert!(dead[0].card.is_none() && dead[0].tag.is_none());
    }

    #[test]
    fn after_a_reboot_the_recorded_pids_are_ignored() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        leave(&paths, 1, |card| card.realm.boot = "00000000".into());
        let dead = sweep_dead(&paths).unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].members, []);
    }

    #[test]
    fn readers_and_sweeps_never_keep_a_successor_out() {
        const ROUNDS: usize = 500;
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    list(&paths).unwrap();
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for dead in sweep_dead(&paths).unwrap() {
                            dead.remove().ok();
                        }
                    }
                });
            }
            // A panic here must not leave the other threads running for ever.
            let taken = std::panic::catch_unwind(|| {
                for round in 0..ROUNDS {
                    let entry = Entry::take(&paths, LinkId(7)).unwrap();
                    // Until there is a card, only the lock says that the owner lives.
                    entry.members(&[gone()]).unwrap();
                    let found = list(&paths).unwrap();
                    assert_eq!(found.len(), 1, "in round {round}");
                    assert!(found[0].alive, "in round {round}");
                }
            });
            done.store(true, Ordering::Relaxed);
            taken.unwrap();
        });
    }

    #[test]
    fn a_lock_in_a_removed_directory_does_not_count() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let entry = Entry::create(&paths, LinkId(7)).unwrap();
        let lost = entry.path().to_owned();
        fs::remove_file(lost.join(LOCK)).unwrap();
        // A sweep that finds no lock file makes one, to keep other sweeps out.
        let dead = sweep_dead(&paths).unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(
            Entry::try_take(&paths, LinkId(7)).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        for one in dead {
            one.remove().unwrap();
        }
        assert!(!lost.exists());
        Entry::try_take(&paths, LinkId(7)).unwrap();
    }

    #[test]
    fn half_made_directories_are_removed() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let half = paths.run().join(".new-00000009");
        for with_lock in [true, false] {
            fs::create_dir(&half).unwrap();
            if with_lock {
                fs::write(half.join("lock"), "").unwrap();
            }
            assert_eq!(sweep_dead(&paths).unwrap().len(), 0);
            assert!(!half.exists());
        }
    }
}
