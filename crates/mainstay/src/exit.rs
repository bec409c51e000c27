//! Every exit code of ours, in one table.
//!
//! `run` is transparent: it ends with the server's own code, and a death by signal is passed on as 128 + n. What
//! mainstay has to say for itself in `run` is 125, as with other programs that run programs. The other commands
//! use the low codes.

use std::process::ExitCode;

use mainstay_core::event::Status;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// `doctor` found a problem, `stop` left somebody, `watch` saw somebody left, `restart` was refused, `lease open` found an
    /// open one, or a scene of `demo` did not hold.
    Unhealthy,
    /// Nobody has that name or id, no such lease is open, no death is known to `why`, or a file of frames cannot be read.
    NotFound,
    /// The arguments are wrong.
    Usage,
    /// The state directory cannot be made or used.
    State,
    /// A keeper does not answer.
    Stuck,
    /// Mainstay itself failed, or its config file is wrong.
    Failed,
    /// `run`: the server command is there but cannot be executed.
    NotExecutable,
    /// `run`: there is no such server command.
    NoSuchCommand,
    /// `run`: the server's own end.
    Server(Status),
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Unhealthy | Self::NotFound => 1,
            Self::Usage => 2,
            Self::State => 73,
            Self::Stuck => 75,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NoSuchCommand => 127,
            Self::Server(status) => status.exit_code(),
        }
    }

    /// The worst of several ends, by its number.
    pub fn worst(exits: impl Iterator<Item = Self>) -> Self {
        exits.max_by_key(|exit| exit.code()).unwrap_or(Self::Ok)
    }

    /// The same end as `run` tells it: a trouble of ours must not look like the server's own code.
    #[must_use]
    pub fn in_run(self) -> Self {
        match self {
            Self::Unhealthy | Self::NotFound | Self::State | Self::Stuck => Self::Failed,
            Self::Ok
            | Self::Usage
            | Self::Failed
            | Self::NotExecutable
            | Self::NoSuchCommand
            | Self::Server(_) => self,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// One row of the reference page.
pub struct Row {
    /// The code, or a rule for it.
    pub code: &'static str,
    /// Which commands use it.
    pub commands: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// The reference table.
pub static TABLE: [Row; 9] = [
    Row {
        code: "0",
        commands: "all",
        meaning: "all is well; in `run`: the server ended with code 0",
    },
    Row {
        code: "1",
        commands: "debts, demo, doctor, events, forget, lease, restart, serve, stop, tap, watch, why",
        meaning: "a problem was found, nobody has that name, id or pid, a lease is not open or is another's, no death is known, a file of frames cannot be read, somebody was left, a server was not restarted, a session is still owed, or a scene did not hold",
    },
    Row {
        code: "2",
        commands: "all",
        meaning: "the arguments are wrong",
    },
    Row {
        code: "73",
        commands: "all but run",
        meaning: "the state directory cannot be made or used",
    },
    Row {
        code: "75",
        commands: "lease, restart, stop, tap",
        meaning: "a keeper does not answer",
    },
    Row {
        code: "125",
        commands: "all",
        meaning: "mainstay itself failed; in `run` also for the state directory, the config file, a required tier, or a lease that is not open",
    },
    Row {
        code: "126",
        commands: "run",
        meaning: "the server command is there but cannot be executed",
    },
    Row {
        code: "127",
        commands: "run",
        meaning: "there is no such server command",
    },
    Row {
        code: "128 + n",
        commands: "run",
        meaning: "the server was ended by signal n; any other code is the server's own",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_ours_is_in_the_table() {
        for exit in [
            Exit::Ok,
            Exit::Unhealthy,
            Exit::NotFound,
            Exit::Usage,
            Exit::State,
            Exit::Stuck,
            Exit::Failed,
            Exit::NotExecutable,
            Exit::NoSuchCommand,
        ] {
            let code = exit.code().to_string();
            assert!(TABLE.iter().any(|row| row.code == code), "{exit:?}");
        }
    }

    #[test]
    fn a_server_is_passed_on_truthfully() {
        assert_eq!(Exit::Server(Status::Code(3)).code(), 3);
        let killed = Status::Signal {
            number: 9,
            core: false,
        };
        assert_eq!(Exit::Server(killed).in_run().code(), 137);
        assert_eq!(Exit::State.in_run().code(), 125);
        assert_eq!(Exit::Usage.in_run().code(), 2);
    }
}
