//! Every exit code of ours, in one table.
//!
//! `run` is transparent: it ends with the server's own code, and a death by signal is passed on as 128 + n. What
//! mainstay has to say for itself in `run` is 125, as with other programs that run programs. The other commands
//! use the low codes.

use std::process::ExitCode;

use mainstay_protocol::event::Status;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// `doctor` found a problem, processes are left after `stop` or `watch`, `restart` was refused, `lease open` found
    /// an open lease, a scene of `demo` failed, or `adopt` did not change all that it was asked to change.
    Unhealthy,
    /// No server has that name or id, no such lease is open, `why` knows no death, or a file of frames cannot be read.
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

    /// The worst of several exit codes: the largest one.
    pub fn worst(exits: impl Iterator<Item = Self>) -> Self {
        exits.max_by_key(|exit| exit.code()).unwrap_or(Self::Ok)
    }

    /// The same for `run`: an error of mainstay must not look like the server's own code.
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
pub struct ExitRow {
    /// The code, or a rule for it.
    pub code: &'static str,
    /// Which commands use it.
    pub commands: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// The reference table.
pub static TABLE: [ExitRow; 9] = [
    ExitRow {
        code: "0",
        commands: "all",
        meaning: "all is well; in `run`: the server ended with code 0",
    },
    ExitRow {
        code: "1",
        commands: "all but run",
        meaning: "the command ran and the result is bad: `doctor` found a problem; no server has that name, id or pid; the lease is not open or belongs to another process; no death is known; a recording cannot be read; processes are left; a server was not restarted; a session is still unclosed; a scene of the demo failed; a config file could not be changed, or you did not agree to the change; or a server could not be learned",
    },
    ExitRow {
        code: "2",
        commands: "all",
        meaning: "the arguments are wrong",
    },
    ExitRow {
        code: "73",
        commands: "all but run",
        meaning: "the state directory cannot be made or used",
    },
    ExitRow {
        code: "75",
        commands: "lease, restart, stop, tap",
        meaning: "a keeper does not answer",
    },
    ExitRow {
        code: "125",
        commands: "all",
        meaning: "mainstay itself failed; in `run` also for the state directory, the config file, a required tier, or a lease that is not open",
    },
    ExitRow {
        code: "126",
        commands: "run",
        meaning: "the server command is there but cannot be executed",
    },
    ExitRow {
        code: "127",
        commands: "run",
        meaning: "there is no such server command",
    },
    ExitRow {
        code: "128 + n",
        commands: "run",
        meaning: "the server was ended by signal n; any other code is the server's own",
    },
];

#[cfg(test)]
mod tests {
    //! guards: The exit status of a server is passed on as it was.

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
