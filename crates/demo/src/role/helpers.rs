//! Helper processes of a server, of the kinds that escape an ordinary clean-up.

use mainstay_os::role;
use mainstay_protocol::clock::Moment;

use super::{Role, announcements, commands, linger, start};
use crate::waiter::DemoError;

/// The number of processes of a server, helpers included.
pub const TREE_SIZE: usize = 5;

/// Starts all helpers of a server.
pub fn start_all(group: &str) -> std::io::Result<()> {
    for role in [Role::Child, Role::Daemon, Role::Forker] {
        start(role, group)?;
    }
    Ok(())
}

/// Runs one helper.
pub fn run(role: Role, group: &str, end: Moment) -> Result<(), DemoError> {
    match role {
        Role::Child => start(Role::Grandchild, group)?,
        Role::Daemon => role::own_session(),
        Role::Forker => {
            role::own_session();
            commands::command(&commands::role_args(Role::Orphan, group)?)
                .env_clear()
                .spawn()?;
            return Ok(());
        }
        Role::Grandchild
        | Role::Orphan
        | Role::HttpServer
        | Role::BareClient
        | Role::MainstayClient
        | Role::Server
        | Role::DeafServer
        | Role::LoneServer
        | Role::BrokenServer => {}
    }
    announcements::announce(group, role.word())?;
    linger(end)
}
