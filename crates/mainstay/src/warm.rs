//! Servers that are kept for a client whose shim was killed, and how the client's next start finds them.
//!
//! Whoever lingers opens a door in one directory, named by configuration, client and link. The directory is there only
//! while somebody lingers, so that any other start costs one vain `open`. A newcomer that finds doors reads its client's
//! first line before it starts anything: an opening takes the warm server over, a probe is answered and nothing more, and
//! anything else starts a server of its own, with what was read.
//!
//! Invariants: a door is taken by one newcomer; until its keeper has said so the newcomer still owns its pipes, and after
//! that only the keeper does; what was read is never lost.

mod guest;
mod word;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use mainstay_core::ids::{Identity, LinkId};
use mainstay_os::door::Door;

use crate::keeper::plan::Plan;
use crate::paths::Paths;
use crate::recollection::Configuration;

pub use guest::{Meeting, Welcome, meet, write_to_client};
pub use word::{ANSWER_BYTES, Hello, PACKET_BYTES, Request, answer, no_answer};

/// How often a door is tried to be made while others take the directory away.
const TRIES: u32 = 8;

/// Opens the door of a link for this client.
pub fn open(plan: &Plan, owner: Identity) -> io::Result<Door> {
    let name = format!("{}{}", prefix(plan, owner), plan.id);
    let warm = plan.paths.warm();
    let mut tries = 0;
    loop {
        let opened = warm.make().and_then(|directory| {
            // An earlier keeper of this link, killed, may have left it.
            directory.remove(&name).ok();
            Door::open(directory.as_fd(), &name)
        });
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// Takes the doors of a link away, and the directory with the last one.
pub fn close(paths: &Paths, link: LinkId) {
    remove(paths, |of| of == link);
}

/// Takes away what killed keepers have left: doors of links that are not there any more.
pub fn sweep(paths: &Paths) {
    let Ok(run) = paths.run().open() else { return };
    remove(paths, |link| !run.has(&link.to_string()));
}

fn remove(paths: &Paths, unwanted: impl Fn(LinkId) -> bool) {
    let warm = paths.warm();
    let Ok(directory) = warm.open() else {
        return;
    };
    for name in directory.names().unwrap_or_default() {
        let link = name.rsplit('-').next().and_then(|link| link.parse().ok());
        if link.is_none_or(&unwanted) {
            directory.remove(&name).ok();
        }
    }
    // Refused as long as another link lingers.
    warm.remove_empty().ok();
}

/// The name of all doors for one configuration of one client, up to the link.
fn prefix(plan: &Plan, owner: Identity) -> String {
    let mut argv = plan.argv.clone();
    // No program, so that no file counts: whether the code is still the same is judged when the server is handed over.
    argv.insert(0, OsString::new());
    // Whatever else was chosen for this server: with another choice it is another one.
    argv.push(
        format!(
            "{:?}",
            (
                &plan.name,
                &plan.limits,
                plan.policy,
                &plan.watch,
                plan.record,
                &plan.wish,
                &plan.realm,
                plan.linger
            )
        )
        .into(),
    );
    let cwd = plan.directory();
    let env = plan.env_c(&plan.tag(owner));
    let key = Configuration {
        argv: &argv,
        cwd: Path::new(&cwd),
        env: &env,
    }
    .key();
    format!("{key}-{}-{}-", owner.pid, owner.start)
}
