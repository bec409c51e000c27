//! Closes the sessions of dead processes in a process of its own, beside a command that does something else.

use mainstay_os::{adopter, role, title};
use mainstay_store::config::Config;
use mainstay_store::paths::Paths;

use super::close::{self, CloseMode};
use super::{Keyring, is_due};

/// Starts a process that closes the sessions of dead processes, if there are any, so that the command does not wait for it.
/// For commands that start no server. The calling process may have only one thread, because this forks.
///
/// If init does not reap orphans, the process would stay as a zombie. Then the next `run`, `serve` or `sessions close`
/// closes the sessions instead.
pub fn close_in_background(paths: &Paths) {
    if !is_due(paths) || !adopter::judge(adopter::INIT).reaps {
        return;
    }
    let started = role::start_detached(|| {
        role::own_session();
        role::release_stdio();
        role::close_all_but(&mut []);
        role::be_patient();
        title::set(c"mcp-sweep");
        close_due(paths);
        0
    });
    // If no process could be started, the next command closes the sessions.
    drop(started);
}

/// Closes the sessions of dead processes as far as their secrets are known here. Most starts find none.
pub fn close_due(paths: &Paths) {
    if !is_due(paths) {
        return;
    }
    let keyring = Keyring {
        config: Config::load(paths).unwrap_or_default(),
        ..Keyring::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    if let Ok(runtime) = runtime {
        runtime.block_on(close::close_all(paths, &keyring, CloseMode::Due));
    }
}
