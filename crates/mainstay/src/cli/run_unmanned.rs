//! A link for which no keeper can be started: a limit of processes, descriptors or memory does not allow one.
//!
//! A client without mainstay would have its server under the same limit. So the server takes our place, as if the client had started
//! it, and stderr and the ledger say so. Where that is not what was asked for, the client is told: a required tier, a lease, a start
//! that is refused anyway, or a client of which something was read already.

use std::io;
use std::process::Command;

use mainstay_core::event::Status;
use mainstay_os::tier::Wish;
use mainstay_os::{child, role};
use rustix::process::{Resource, getrlimit};

use super::run_refused::{Refusal, note};
use crate::exit::Exit;
use crate::keeper::plan::Plan;
use crate::report::{Report, plain};

/// Guard, keeper, witness and server.
const OURS: usize = 4;
/// Threads and children that a server has: the limit counts them too, and without us it had them.
const SERVERS: usize = 8;
/// A higher limit of processes is not tried out before the first fork.
const SCARCE: u64 = 64;
/// What a keeper needs to start the next generation of a server.
const DESCRIPTORS: u64 = 32;

/// Whether the limits have room for our processes, beside the server's, and for a keeper's descriptors.
pub fn room() -> io::Result<()> {
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
        role::room_for(OURS + SERVERS)
    } else {
        Ok(())
    }
}

/// Serves without a keeper, or tells the client why there is no server. `read` was read from the client already.
#[inline(never)]
pub fn serve(plan: &Plan, error: &io::Error, read: &[u8]) -> Report {
    let refusal = Refusal {
        paths: &plan.paths,
        name: &plan.name,
        argv: &plan.argv,
        read,
    };
    if let Some(refused) = &plan.refused {
        let exit = Exit::Server(Status::Code(i32::from(refused.code)));
        return refusal.tell(Report::new(exit, &refused.problem).hint(&refused.hint));
    }
    let held = plan.wish != Wish::Strongest || plan.lease.is_some();
    if held || !read.is_empty() {
        return refusal.tell(no_keeper("mainstay cannot start its own processes", error));
    }
    let report = no_keeper(
        "the server runs without mainstay, which cannot start its own processes",
        error,
    );
    report.warn();
    note(&refusal, &report);
    refusal.tell(replace_us(plan))
}

/// Comes back only if the command cannot be executed.
fn replace_us(plan: &Plan) -> Report {
    let [program, arguments @ ..] = &plan.argv[..] else {
        return Report::new(Exit::NoSuchCommand, "there is no command");
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "it is not started but takes our place, where os::spawn has no room"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(plan.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &plan.cwd {
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
        _ => "mainstay doctor looks for the reason",
    };
    Report::new(Exit::Failed, what)
        .because(plain(error))
        .hint(hint)
}
