//! The home directory that `trace-signals` works in: under `sudo`, that of the user who called `sudo`.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use mainstay_os::assume::{self, User};
use mainstay_report::{Exit, Report, plain};
use mainstay_store::paths::Paths;

/// A user's directories, and the user whose rights are used for them.
#[derive(Clone, Debug)]
pub struct Home {
    pub paths: Paths,
    pub user: User,
}

impl Home {
    /// Finds the home of the calling user, and creates the directories that `trace-signals` watches and writes to.
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

    /// Finds the home of the calling user, and creates nothing.
    pub fn named() -> Result<Self, Report> {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        let me = User::me();
        let Some(uid) = number("SUDO_UID").filter(|&uid| uid != me.uid && me.uid == 0) else {
            return Ok(Self {
                paths: Paths::find()?,
                user: me,
            });
        };
        // With `sudo -E`, HOME is the user's. Otherwise it is root's, and the passwd file has the user's.
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
