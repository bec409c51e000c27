//! `run` without a keeper: a limit of processes, descriptors or memory leaves no room for our own processes.
//!
//! Without mainstay, the server would run under the same limit. So this process executes the server in its place, as if the
//! client had started it, and records that on stderr and in the ledger. In these cases the client gets errors instead: a
//! tier or a lease was requested, the start is refused anyway, or bytes of the client were already read.

use std::io;
use std::process::Command;

use mainstay_keeper::plan::Plan;
use mainstay_os::tier::Wish;
use mainstay_os::{child, role};
use mainstay_protocol::event::Status;
use mainstay_report::{Exit, Report, plain};
use rustix::process::{Resource, getrlimit};

use super::run_refused::{Refusal, record};

/// Processes that a link needs: guard, keeper, witness and server.
const OURS: usize = 4;
/// Threads and children that a typical server starts: they count towards the same limit.
const SERVER_TASKS: usize = 8;
/// Above this limit of processes, room is not tested before the first fork.
const SCARCE: u64 = 64;
/// Descriptors that a keeper needs to restart a server.
const DESCRIPTORS: u64 = 32;

/// Fails if the limits leave no room for our processes beside the server's, or for the keeper's descriptors.
pub fn check_limits() -> io::Result<()> {
    if getrlimit(Resource::Nofile)
        .current
        .is_some_and(|most| most < DESCRIPTORS)
    {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    let scarce = getrlimit(Resource::Nproc)
        .current
        .is_some_and(|most| most <= SCARCE);
    if scarce {
        role::room_for(OURS + SERVER_TASKS)
    } else {
        Ok(())
    }
}

/// Executes the server in place of this process, or answers the client with the reason why there is no server. `read` was
/// read from the client already.
#[inline(never)]
pub fn run_or_refuse(plan: &Plan, error: &io::Error, read: &[u8]) -> Report {
    let refusal = Refusal {
        paths: &plan.paths,
        name: &plan.name,
        argv: &plan.command.argv,
        read,
    };
    if let Some(refused) = &plan.refused {
        let exit = Exit::Server(Status::Code(i32::from(refused.code)));
        return refusal.answer_client(Report::new(exit, &refused.problem).hint(&refused.hint));
    }
    let must_contain = plan.wish != Wish::Strongest || plan.lease.is_some();
    if must_contain || !read.is_empty() {
        return refusal.answer_client(no_keeper("mainstay cannot start its own processes", error));
    }
    let report = no_keeper(
        "the server runs without mainstay, which cannot start its own processes",
        error,
    );
    report.warn();
    record(&refusal, &report);
    refusal.answer_client(replace_us(plan))
}

/// Executes the server in place of this process. Returns only if that fails.
fn replace_us(plan: &Plan) -> Report {
    let [program, arguments @ ..] = &plan.command.argv[..] else {
        return Report::new(Exit::NoSuchCommand, "there is no command");
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "it is not started but takes our place, where os::spawn has no room"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(plan.command.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &plan.command.cwd {
        command.current_dir(cwd);
    }
    let error = child::replace_us(command);
    let exit = if error.kind() == io::ErrorKind::NotFound {
        Exit::NoSuchCommand
    } else {
        Exit::NotExecutable
    };
    Report::new(exit, format!("cannot execute {}", program.display()))
        .because(plain(&error))
        .hint("run the command by hand to see what it needs")
}

fn no_keeper(what: &str, error: &io::Error) -> Report {
    let hint = match error.raw_os_error() {
        Some(libc::EMFILE) => "raise the limit of open files (`ulimit -n`, LimitNOFILE=)",
        Some(libc::EAGAIN) => {
            "raise the limit of processes (`ulimit -u`, LimitNPROC=, `pids.max` of a container), or end some"
        }
        Some(libc::ENOMEM) => "raise the limit of memory, or end a process that uses much",
        _ => "run `mainstay doctor` to find the reason",
    };
    Report::new(Exit::Failed, what)
        .because(plain(error))
        .hint(hint)
}
