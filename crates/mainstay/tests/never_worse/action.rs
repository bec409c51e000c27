//! The actions: what happens to a session.

/// One row of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    ClientExits,
    ClientKilled,
    TerminalClosed,
    ServerCrashes,
    ServerHangs,
    Reconnect,
    ReconnectAfterHang,
    EditAndReconnect,
    Disable,
    Pkill,
    ShimKilled,
    GuardKilled,
    KeeperKilled,
    AllKilled,
    Upgraded,
    Removed,
    FullDisk,
    HomeUnset,
    HomeIsNoDirectory,
    HomeUnwritable,
}

impl Action {
    /// In the order of the page.
    pub const ALL: [Self; 20] = [
        Self::ClientExits,
        Self::ClientKilled,
        Self::TerminalClosed,
        Self::ServerCrashes,
        Self::ServerHangs,
        Self::Reconnect,
        Self::ReconnectAfterHang,
        Self::EditAndReconnect,
        Self::Disable,
        Self::Pkill,
        Self::ShimKilled,
        Self::GuardKilled,
        Self::KeeperKilled,
        Self::AllKilled,
        Self::Upgraded,
        Self::Removed,
        Self::FullDisk,
        Self::HomeUnset,
        Self::HomeIsNoDirectory,
        Self::HomeUnwritable,
    ];

    /// The action as the page names it.
    pub fn words(self) -> &'static str {
        match self {
            Self::ClientExits => "the client exits",
            Self::ClientKilled => "the client gets SIGKILL",
            Self::TerminalClosed => "the terminal is closed (SIGHUP)",
            Self::ServerCrashes => "the server crashes in a call",
            Self::ServerHangs => "the server hangs (SIGSTOP), then the client exits",
            Self::Reconnect => "reconnect",
            Self::ReconnectAfterHang => "the server hangs, reconnect",
            Self::EditAndReconnect => "the server is edited, reconnect",
            Self::Disable => "disable (the client lives on)",
            Self::Pkill => "`pkill -f SERVERNAME`",
            Self::ShimKilled => "`kill -9` of the process that the client started, reconnect",
            Self::GuardKilled => "`kill -9` of mainstay's guard",
            Self::KeeperKilled => "`kill -9` of mainstay's keeper",
            Self::AllKilled => "`kill -9` of all of mainstay at once, then another server starts",
            Self::Upgraded => "mainstay is upgraded while the server runs",
            Self::Removed => "mainstay is removed while the server runs",
            Self::FullDisk => "the disk of HOME is full",
            Self::HomeUnset => "HOME is not set",
            Self::HomeIsNoDirectory => "HOME is /dev/null",
            Self::HomeUnwritable => "HOME is not writable",
        }
    }

    /// True if the client must start the server itself. The action kills that process, and the death of a launcher would not be
    /// the server's.
    pub fn without_launcher(self) -> bool {
        matches!(self, Self::ShimKilled | Self::AllKilled)
    }

    /// True if the action needs a mount.
    pub fn needs_root(self) -> bool {
        matches!(self, Self::FullDisk | Self::HomeUnset)
    }
}
