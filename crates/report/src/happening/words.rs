//! The kinds of events in the words of users. Their names in files and in `--json` are other ones.

use mainstay_protocol::event::{Cause, Exit, Part, What};

/// What happened, in one or two words.
pub fn of(what: &What) -> &'static str {
    match what {
        What::Start(_) => "started",
        What::StartFailed(_) => "not started",
        What::ConfigMistake(_) => "config mistake",
        What::Exit(exit) if exit.status.success() || was_being_ended(exit) => "ended",
        What::Exit(_) => "died",
        What::Teardown(_) | What::LeftoversEnded(_) => "cleaned up",
        What::Signal(_) | What::SignalTraced(_) => "signal",
        What::Gone(gone) => match gone.part {
            Part::Client => "client gone",
            Part::Shim => "shim killed",
            Part::Keeper | Part::Server => "gone",
        },
        What::GuardLost(_) => "guard killed",
        What::KeeperLost(_) => "keeper killed",
        What::ClientMoved(_) => "client moved",
        What::Junk(_) => "bad output",
        What::StderrDropped(_) => "stderr unread",
        What::OpeningSilent(_) => "no answer",
        What::Restarting(_) => "restarting",
        What::Ready(_) => "ready",
        What::ServerChanged(_) => "changed",
        What::Abandoned(_) => "given up",
        What::ListChanged(_) => "list changed",
        What::FromCache(_) => "from cache",
        What::ProbesUnanswered(_) => "no pings",
        What::CallDeadline(_) => "timed out",
        What::LeaseOpened(_) => "lease opened",
        What::LeaseEnded(_) => "lease ended",
        What::Suspects(_) => "suspects",
        What::PipeEnd(_) => "pipe closed",
        What::RecordingIncomplete(_) => "not recorded",
        What::ServeStarted(_) => "serving",
        What::ServeStopped(_) => "serve ended",
        What::ClientSessionOpened(_) | What::SessionOpened(_) => "HTTP opened",
        What::ClientSessionClosed(_) | What::SessionClosed(_) | What::SessionClosedLate(_) => {
            "HTTP closed"
        }
        What::SessionGivenUp(_) => "HTTP left open",
        What::Lingering(_) => "kept",
        What::Reattached(_) => "client back",
        What::LingerEnded(_) => "kept no more",
    }
}

/// Whether mainstay was ending the server, for another reason than its own end.
fn was_being_ended(exit: &Exit) -> bool {
    let ending = exit.ending.as_ref();
    ending.is_some_and(|ending| ending.cause != Cause::ServerExit)
}
