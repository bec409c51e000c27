//! Whose links are meant: those of the user behind `sudo`, else our own.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use mainstay_os::assume::{self, User};

use crate::exit::Exit;
use crate::paths::Paths;
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
            let made = [home.paths.run(), home.paths.events()];
            made.iter().try_for_each(|place| place.make().map(drop))
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
        let gid = number("SUDO_GID").or_else(|| {
            let meta = fs::metadata(kept.as_ref()?).ok()?;
            Some(meta.gid())
        });
        let user = User {
            uid,
            gid: gid.unwrap_or(uid),
        };
        let paths = user.with(|| Paths::of_user(kept, uid))?;
        Ok(Self { paths, user })
    }
}
