//! The trees of a server: each is a column of the table.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    Plain,
    Grandchild,
    Launcher,
    Setsid,
    Daemon,
    BareDaemon,
    Stubborn,
    Comets,
    Stopped,
    Hundreds,
}

impl Tree {
    pub const ALL: [Self; 10] = [
        Self::Plain,
        Self::Grandchild,
        Self::Launcher,
        Self::Setsid,
        Self::Daemon,
        Self::BareDaemon,
        Self::Stubborn,
        Self::Comets,
        Self::Stopped,
        Self::Hundreds,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Grandchild => "grand-child",
            Self::Launcher => "npx-like",
            Self::Setsid => "setsid",
            Self::Daemon => "daemon",
            Self::BareDaemon => "`env -i` daemon",
            Self::Stubborn => "ignores all",
            Self::Comets => "fork-and-exit",
            Self::Stopped => "stopped",
            Self::Hundreds => "300",
        }
    }

    /// The options of the unruly server. No process of its tree ends by itself before the test would report a hang, except with
    /// `leftover`, where it may have to.
    pub fn habits(self, leftover: bool) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Grandchild => &["--grandchild"],
            Self::Launcher => &["--launcher", "2"],
            Self::Setsid => &["--setsid-child"],
            Self::Daemon => &["--daemon"],
            Self::BareDaemon => &["--daemon-clean-env"],
            Self::Stubborn => &["--ignore-eof", "--ignore-term"],
            Self::Comets if leftover => &["--comets", "2", "--comet-life", "15s"],
            // In the first generation only, so that a chain that still runs later belongs to the old tree.
            Self::Comets => &[
                "--generations",
                "generations",
                "--in",
                "1",
                "--comets 2 --comet-life 240s",
            ],
            Self::Stopped => &["--stopped-child"],
            Self::Hundreds => &["--tree", "300"],
        }
    }

    /// The least number of processes that the server has.
    pub fn size(self) -> usize {
        match self {
            // A fork-and-exit chain can be between two processes.
            Self::Plain | Self::Stubborn | Self::Comets => 1,
            Self::Grandchild | Self::Setsid | Self::Daemon | Self::BareDaemon | Self::Stopped => 2,
            Self::Launcher => 3,
            Self::Hundreds => 301,
        }
    }

    /// Whether a process of it lives on when none of ours does. The server process itself does not: the kernel ends it with the
    /// keeper. A process that obeys EOF ends by itself.
    pub fn outlives_us(self) -> bool {
        match self {
            Self::Plain | Self::Launcher | Self::Stubborn => false,
            Self::Grandchild
            | Self::Setsid
            | Self::Daemon
            | Self::BareDaemon
            | Self::Comets
            | Self::Stopped
            | Self::Hundreds => true,
        }
    }
}
