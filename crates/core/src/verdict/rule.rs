//! The rules, and what each rests on in plain words.

use core::fmt;

use serde::Serialize;

/// The rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The signal's sender is the client, by pid and start time.
    SignalByClient,
    /// The signal's sender is another process.
    SignalByProcess,
    /// The sender had ended before it could be seen.
    SignalByProcessGone,
    /// The sender wrote its pid itself.
    SignalByClaim,
    /// The kernel sent the signal for a terminal.
    SignalByTerminal,
    /// The sender has no pid here.
    SignalFromOutside,
    /// Stdin was closed, and the client was not seen to end.
    ClientClosed,
    /// The client process ended.
    ClientEnded,
    /// The client's end of our stdout was closed.
    ClientDeaf,
    /// An exit code or a fault, without a signal from another process.
    ServerByItself,
    /// The count of out-of-memory kills rose with the SIGKILL.
    OutOfMemory,
    /// A signal that we did not send.
    ServerKilled,
    /// The server closed one of its pipes and lived on, so we ended it.
    ServerClosed,
    /// Shim and client went within a second.
    ShimKilledWithClient,
    /// The shim was killed, and the client lived on.
    ShimKilled,
    /// A trace of signals shows who sent it.
    TracedSignal,
    /// A trace of signals shows that the kernel sent it by itself.
    TracedKernel,
    /// The keeper was killed.
    KeeperKilled,
    /// `mainstay stop`.
    Asked,
    /// The generation was replaced or put to rest.
    Renewed,
    /// The server could not go on with the session.
    Differs,
    /// The server could not be started.
    CannotStart,
    /// The lease of the server is over.
    LeaseEnded,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SignalByClient => {
                "the kernel names the client as sender of the signal, and pid and start time agree"
            }
            Self::SignalByProcess => {
                "the kernel names the pid that sent the signal (of several equal signals at once only the first); the program is what that pid ran when mainstay looked, a moment later"
            }
            Self::SignalByProcessGone => {
                "the kernel names a pid as sender, but that process had ended before it could be seen"
            }
            Self::SignalByClaim => "the signal was queued: its sender wrote that pid itself",
            Self::SignalByTerminal => "the signal came from the kernel, as it does for a terminal",
            Self::SignalFromOutside => "the sender of the signal has no pid in this container",
            Self::ClientClosed => "stdin came to its end, and the client was not seen to end with it",
            Self::ClientEnded => "the client process ended",
            Self::ClientDeaf => "the client's end of stdout was closed",
            Self::ServerByItself => {
                "the server exited or crashed, and mainstay had sent no signal; a signal of another process that a server obeys by exiting only root can see"
            }
            Self::OutOfMemory => {
                "SIGKILL that mainstay did not send, and the count of out-of-memory kills rose"
            }
            Self::ServerKilled => {
                "a signal that mainstay did not send; only root can see who sent it"
            }
            Self::ServerClosed => {
                "the server closed its stdin or stdout and lived on, so that it could serve no more"
            }
            Self::ShimKilledWithClient => {
                "shim and client ended within a second: the client crashed, or its whole tree was killed"
            }
            Self::ShimKilled => {
                "the shim was killed, and the client was not seen to end with it; only root can see who sends SIGKILL"
            }
            Self::TracedSignal => {
                "`mainstay trace-signals` saw the signal while it was sent, and the kernel names its sender"
            }
            Self::TracedKernel => {
                "`mainstay trace-signals` saw the kernel itself send the signal: memory had run out, or a container ended"
            }
            Self::KeeperKilled => "the keeper ended before its work was done",
            Self::Asked => "`mainstay stop` was called",
            Self::Renewed => "mainstay replaced the server or put it to rest, by its settings",
            Self::Differs => "the new server could not go on with the client's session",
            Self::CannotStart => "the start itself failed",
            Self::LeaseEnded => "the lease that the server was started in is over",
        })
    }
}
