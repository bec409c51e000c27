//! Whose links are meant: those of the user behind `sudo`, else our own.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use mainstay_os::assume::{self, User};

use crate::exit::Exit;
use crate::paths::{DIRECTORY_MODE, Paths};
use crate::report::{Report, plain};

/// A user's home, and the rights that count in it.
#[derive(Clone, Debug)]
pub struct Home {
    /// Where things are.
    pub paths: Paths,
    /// Whose they are.
    pub user: User,
}

impl Home {
    /// The home of the user who asked for us, with the directories that we watch and write to.
    pub fn find() -> Result<Self, Report> {
        let home = Self::named()?;
        if home.user != User::me() {
            assume::drop_groups().map_err(|error| {
                Report::new(Exit::Failed, "cannot give up root's groups").because(plain(&error))
            })?;
        }
        let made = home.user.with(|| {
            [home.paths.run(), home.paths.events()]
                .iter()
                .try_for_each(|path| {
                    DirBuilder::new()
                        .recursive(true)
                        .mode(DIRECTORY_MODE)
                        .create(path)
                })
        });
        made.map_err(|error| {
            let state = home.paths.state();
            Report::new(Exit::State, format!("cannot use {}", state.display()))
                .because(plain(&error))
                .hint("events are written there with your rights, not with root's")
        })?;
        Ok(home)
    }

    /// The same, with nothing made.
    pub fn named() -> Result<Self, Report> {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        let me = User::me();
        let Some(uid) = number("SUDO_UID").filter(|&uid| uid != me.uid && me.uid == 0) else {
            return Ok(Self {
                paths: Paths::find()?,
                user: me,
            });
        };
        // With `sudo -E` HOME is still the user's; else it is root's, and the passwd file knows better.
        let kept = env::var_os("HOME").map(PathBuf::from);
        let kept = kept.filter(|home| fs::metadata(home).is_ok_and(|meta| meta.uid() == uid));
        let paths = match kept {
            Some(home) => Paths::below(home)?,
            None => Paths::of_uid(uid)?,
        };
        let gid = number("SUDO_GID").or_else(|| {
            let meta = fs::metadata(paths.home()).ok()?;
            Some(meta.gid())
        });
        Ok(Self {
            paths,
            user: User {
                uid,
                gid: gid.unwrap_or(uid),
            },
        })
    }
}
