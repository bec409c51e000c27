//! Servers that are kept for a client whose shim was killed, and how the client's next start finds them.
//!
//! A keeper that keeps a server listens on a socket in one directory. The name of the socket has configuration, client and
//! link. The directory exists only while there is such a socket, so any other start costs one failed `open`. A new start
//! (the newcomer) that finds sockets reads the first line of its client before it starts anything. A handshake takes the
//! warm server over. A probe is answered and nothing more. With any other line, the newcomer starts its own server, and
//! gives it what was read.
//!
//! Invariants: one newcomer takes a warm server. Until the keeper confirms it, the newcomer owns its pipes; from then on
//! only the keeper does. Bytes that were read are never lost.

mod packets;
mod reattach;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use mainstay_os::packet_socket::PacketListener;
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_store::cache::Configuration;
use mainstay_store::paths::Paths;

use crate::plan::Plan;

pub use packets::{ANSWER_BYTES, Hello, PACKET_BYTES, Request, answer, no_answer};
pub use reattach::{AttachedLink, Search, find_warm_server, write_to_client};

/// How often the socket is tried to be made while other processes remove the directory.
const TRIES: u32 = 8;

/// Opens the socket of a link for this client.
pub fn open(plan: &Plan, owner: Identity) -> io::Result<PacketListener> {
    let name = format!("{}{}", prefix(plan, owner), plan.id);
    let warm = plan.paths.warm();
    let mut tries = 0;
    loop {
        let opened = warm.make().and_then(|directory| {
            // A killed earlier keeper of this link may have left it.
            directory.remove(&name).ok();
            PacketListener::open(directory.as_fd(), &name)
        });
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

/// Removes the sockets of a link, and the directory with the last socket.
pub fn close(paths: &Paths, link: LinkId) {
    remove(paths, |of| of == link);
}

/// Removes the sockets that killed keepers have left.
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
    // This fails as long as another keeper has a socket in it.
    warm.remove_empty().ok();
}

/// The name of the sockets for one configuration of one client, up to the link.
fn prefix(plan: &Plan, owner: Identity) -> String {
    let mut argv = plan.command.argv.clone();
    // Without the program, so that no file counts: whether the code has changed is checked when the server is handed over.
    argv.insert(0, OsString::new());
    // Options of `run` count, too: a server with other options is another server.
    argv.push(
        format!(
            "{:?}",
            (
                &plan.name,
                &plan.limits,
                plan.policy,
                &plan.watch,
                plan.cache,
                &plan.wish,
                &plan.origin.realm,
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
