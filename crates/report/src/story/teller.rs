//! The verdict as sentences: what happened to the server, what did it, and the state of the link.

use mainstay_core::verdict::{By, Rule, Sure, Verdict};
use mainstay_protocol::event::{
    Cause, Event, Exit, Lingering, Pipe, Relation, RestartReason, Seen, Standing, Status, Target,
    What, signal_name,
};

use super::TEXT_CHARS;
use super::scene::{in_flight, scene, since};
use crate::measure::{count, fine};
use crate::safe::one_line;

/// One death, its verdict and its events.
pub(super) struct Teller<'a> {
    pub(super) event: &'a Event,
    pub(super) verdict: &'a Verdict,
    pub(super) evidence: Vec<&'a Event>,
}

impl Teller<'_> {
    pub(super) fn told(&self, exit: Option<&Exit>) -> String {
        let server = one_line(&self.event.server, 64);
        let what = self.what();
        let Some(exit) = exit else {
            return format!("{server} {what}.");
        };
        let standing = self.standing();
        let after = since(standing, exit.uptime_ms);
        let asks = match self.verdict.rule {
            Rule::SignalByClient
            | Rule::SignalByProcess
            | Rule::SignalByProcessGone
            | Rule::SignalByClaim
            | Rule::SignalByTerminal
            | Rule::SignalFromOutside
            | Rule::ShimKilled
            | Rule::ServerKilled
            | Rule::OutOfMemory
            | Rule::TracedSignal
            | Rule::TracedKernel => true,
            Rule::ClientClosed
            | Rule::ClientEnded
            | Rule::ClientDeaf
            | Rule::ServerByItself
            | Rule::ServerClosed
            | Rule::ShimKilledWithClient
            | Rule::KeeperKilled
            | Rule::Asked
            | Rule::Renewed
            | Rule::Differs
            | Rule::CannotStart
            | Rule::LeaseEnded => false,
        };
        let kept = self.kept_before();
        let meanwhile = self.meanwhile(exit);
        let scene = scene(asks, standing, in_flight(exit, standing));
        format!("{server} {what} {after}. {scene}.{kept}{meanwhile}")
    }

    /// What happened and when, without the state of the link.
    pub(super) fn headline(&self, exit: Option<&Exit>, kept: Option<&Lingering>) -> String {
        let server = one_line(&self.event.server, 64);
        let what = self.what();
        let uptime_ms = exit
            .map(|exit| exit.uptime_ms)
            .or(kept.map(|kept| kept.uptime_ms));
        let Some(uptime_ms) = uptime_ms else {
            return format!("{server} {what}");
        };
        let what = match kept {
            Some(_) => what.replacen("was ended", "was to be ended", 1),
            None => what,
        };
        format!("{server} {what} {}", since(self.standing(), uptime_ms))
    }

    /// Says that mainstay was ending the server when another process did.
    fn meanwhile(&self, exit: &Exit) -> String {
        let others = matches!(
            self.verdict.rule,
            Rule::ServerKilled | Rule::OutOfMemory | Rule::TracedSignal | Rule::TracedKernel
        );
        match &exit.ending {
            Some(ending) if others && ending.cause != Cause::ServerExit => {
                let why = one_line(&ending.cause.to_string(), TEXT_CHARS);
                format!(" Mainstay was about to end it: {why}.")
            }
            Some(_) | None => String::new(),
        }
    }

    /// Why mainstay ended it.
    fn cause(&self) -> Option<&Cause> {
        if let What::Exit(Exit {
            ending: Some(ending),
            ..
        }) = &self.event.what
        {
            return Some(&ending.cause);
        }
        self.evidence.iter().find_map(|event| {
            if let What::Teardown(told) = &event.what {
                return Some(&told.cause);
            }
            None
        })
    }

    /// The state of the link when the first thing happened that led to the death.
    pub(super) fn standing(&self) -> Option<&Standing> {
        self.evidence.iter().find_map(|event| event.what.standing())
    }

    /// An attempt to end the shim that the server survived, and whether the client came back.
    pub(super) fn told_kept(&self, kept: &Lingering, client: &str, rest: &[Event]) -> String {
        let server = one_line(&self.event.server, 64);
        let what = self.what().replacen("was ended", "was to be ended", 1);
        let standing = self.standing();
        let after = since(standing, kept.uptime_ms);
        let flight = match kept.in_flight {
            0 => "nothing was in flight".into(),
            number => format!("{} in flight got no answer", count(number, "request")),
        };
        let scene = scene(true, standing, flight);
        let then = kept_warm(kept, client, rest);
        format!("{server} {what} {after}. {scene}. {then}")
    }

    /// Says that the server was kept before it was ended.
    fn kept_before(&self) -> String {
        let kept = self.evidence.iter().find_map(|event| {
            let What::LingerEnded(ended) = &event.what else {
                return None;
            };
            let after = fine(ended.after_ms);
            Some(format!(
                " It had been kept warm for {after}; {}.",
                ended.why
            ))
        });
        kept.unwrap_or_default()
    }

    /// What happened to the server, up to "so long after its start".
    fn what(&self) -> String {
        let sure = self.verdict.sure;
        let signal = self.verdict.signal.map_or("a signal".into(), signal_name);
        match self.verdict.rule {
            Rule::SignalByClient => {
                format!(
                    "was ended by {}",
                    self.client(&format!(", {signal}, {sure}"))
                )
            }
            Rule::SignalByProcess | Rule::SignalByProcessGone | Rule::SignalByClaim => {
                self.by_sender(&signal)
            }
            Rule::SignalByTerminal => format!("was ended by the terminal ({signal}, {sure})"),
            Rule::SignalFromOutside => {
                format!("was ended by a process outside this container ({signal}, {sure})")
            }
            Rule::ClientClosed => format!(
                "was ended because {} closed its stdin ({sure})",
                self.client("")
            ),
            Rule::ClientEnded => {
                let how = self.gone_status();
                let how = how.map_or_else(String::new, |status| format!(": {status}"));
                format!(
                    "was ended because {} had ended{how} ({sure})",
                    self.client("")
                )
            }
            Rule::ClientDeaf => format!(
                "was ended because {} stopped reading ({sure})",
                self.client("")
            ),
            Rule::ServerByItself => match self.status() {
                Some(Status::Code(code)) => format!("exited (exit code {code}, {sure})"),
                Some(status @ Status::Signal { .. }) => format!("crashed ({status}, {sure})"),
                None => format!("exited ({sure})"),
            },
            Rule::OutOfMemory => {
                format!("was killed by the kernel because memory had run out (SIGKILL, {sure})")
            }
            Rule::ServerKilled => {
                format!("was killed ({signal}, sender unknown)")
            }
            Rule::ServerClosed => {
                let end = self.closed();
                format!(
                    "was ended by mainstay because it had closed its {end} and lived on ({sure})"
                )
            }
            Rule::TracedSignal | Rule::TracedKernel => self.traced(&signal),
            Rule::ShimKilledWithClient => format!(
                "was ended because the shim was killed together with {} ({signal}, {sure})",
                self.client("")
            ),
            Rule::ShimKilled => format!(
                "was ended because the shim, the process that the client had started, was killed ({signal}, sender unknown)"
            ),
            Rule::KeeperKilled if sure == Sure::Certain => {
                "was ended because mainstay's keeper failed, which is a mistake of mainstay".into()
            }
            Rule::KeeperKilled => {
                format!("was ended because mainstay's keeper was killed ({signal}, sender unknown)")
            }
            Rule::Asked => format!("was ended by `mainstay stop` ({sure})"),
            Rule::LeaseEnded => format!("was ended because {} ({sure})", self.lease()),
            Rule::Renewed => self.renewed(),
            Rule::Differs => {
                format!(
                    "was ended by mainstay, because it could not go on with the session ({sure})"
                )
            }
            Rule::CannotStart => {
                let problem = self.problem();
                format!("could not be started ({sure}){problem}")
            }
        }
    }

    fn closed(&self) -> &'static str {
        let end = self.evidence.iter().find_map(|event| {
            if let What::PipeEnd(end) = &event.what {
                return Some(end.pipe);
            }
            None
        });
        match end {
            Some(Pipe::ServerStdin) => "stdin",
            Some(Pipe::ServerStdout) => "stdout",
            Some(Pipe::ClientStdin | Pipe::ClientStdout) | None => "stdin or stdout",
        }
    }

    fn problem(&self) -> String {
        if let What::StartFailed(failed) = &self.event.what {
            return format!(": {}", one_line(&failed.problem, TEXT_CHARS));
        }
        String::new()
    }

    /// `claude (pid 1480540, SIGTERM, certain)`.
    fn client(&self, more: &str) -> String {
        if let By::Client(Some(Seen { who, comm })) = &self.verdict.by {
            return format!("{} (pid {who}{more})", one_line(comm, 40));
        }
        match more.trim_start_matches(", ") {
            "" => "the client".into(),
            more => format!("the client ({more})"),
        }
    }

    fn by_sender(&self, signal: &str) -> String {
        let sure = self.verdict.sure;
        let By::Process {
            pid,
            comm,
            uid,
            relation,
        } = &self.verdict.by
        else {
            return format!(
                "was ended by {}",
                self.client(&format!(", {signal}, {sure}"))
            );
        };
        let relation = match relation {
            Some(Relation::Other) | None => String::new(),
            Some(other) => format!(", {other}"),
        };
        match (comm, self.verdict.rule) {
            (_, Rule::SignalByClaim) => {
                let name = comm
                    .as_ref()
                    .map_or(String::new(), |comm| format!(", {}", one_line(comm, 40)));
                format!(
                    "was ended by a process that claims to be pid {pid}{name} ({signal}, {sure})"
                )
            }
            // The kernel vouches for the pid. That process may have started another program since it sent the signal.
            (Some(comm), _) => format!(
                "was ended by pid {pid} ({signal}, {sure}; seen a moment later as {}{relation})",
                one_line(comm, 40)
            ),
            (None, _) => format!(
                "was ended by pid {pid} of uid {uid}, which had ended before it could be seen ({signal}, {sure})"
            ),
        }
    }

    /// A signal that was seen while it was sent: its sender, and the process of the link that got it.
    fn traced(&self, signal: &str) -> String {
        let sure = self.verdict.sure;
        let more = format!(", {signal}, {sure}");
        let by = match &self.verdict.by {
            By::Process { pid, comm, .. } => {
                let name = comm.as_ref().map_or_else(
                    || "a process that the kernel has no name for".into(),
                    |comm| one_line(comm, 40),
                );
                format!("{name} (pid {pid}{more})")
            }
            By::Kernel => format!("the kernel itself ({signal}, {sure})"),
            By::Client(_)
            | By::Terminal
            | By::Outside
            | By::Server
            | By::User
            | By::Mainstay
            | By::NoneKnown => self.client(&more),
        };
        let to = self.evidence.iter().find_map(|event| {
            if let What::SignalTraced(traced) = &event.what {
                return Some(traced.to);
            }
            None
        });
        let ended = self.status().map(|status| match status {
            Status::Signal { .. } => "killed",
            Status::Code(_) => "ended",
        });
        match to {
            Some(Target::Shim) => format!(
                "was ended because {by} killed the shim, the process that the client had started"
            ),
            Some(Target::Keeper) => format!("was ended because {by} killed mainstay's keeper"),
            Some(Target::Server | Target::Tree | Target::Guard | Target::Client) | None => {
                format!("was {} by {by}", ended.unwrap_or("ended"))
            }
        }
    }

    fn renewed(&self) -> String {
        let sure = self.verdict.sure;
        let why = self.cause().and_then(|cause| {
            if let Cause::Restart(why) = cause {
                return Some(why);
            }
            None
        });
        match why {
            Some(RestartReason::Idle { ms }) => {
                format!(
                    "was put to rest by mainstay: it had been idle for {} ({sure})",
                    fine(*ms)
                )
            }
            Some(RestartReason::Asked) => format!("was replaced by `mainstay restart` ({sure})"),
            Some(why) => format!(
                "was replaced by mainstay: {} ({sure})",
                one_line(&why.to_string(), TEXT_CHARS)
            ),
            None => format!("was replaced by mainstay ({sure})"),
        }
    }

    fn lease(&self) -> String {
        let ended = self.cause().and_then(|cause| {
            if let Cause::LeaseEnded(ended) = cause {
                return Some(one_line(&ended.to_string(), TEXT_CHARS));
            }
            None
        });
        ended.unwrap_or_else(|| "its lease is over".into())
    }

    /// How the client or the shim ended, if that is part of the evidence.
    pub(super) fn gone_status(&self) -> Option<Status> {
        self.evidence.iter().find_map(|event| {
            if let What::Gone(gone) = &event.what {
                return gone.status;
            }
            None
        })
    }

    fn status(&self) -> Option<Status> {
        if let What::Exit(exit) = &self.event.what {
            return Some(exit.status);
        }
        None
    }
}

/// What became of a server that was kept for a client that lives.
pub(super) fn kept_warm(kept: &Lingering, client: &str, rest: &[Event]) -> String {
    let ms = fine(kept.ms);
    let then = rest.iter().find_map(|event| {
        if let What::Reattached(back) = &event.what {
            let after = fine(back.after_ms);
            let client = one_line(client, 40);
            let went_on = match &back.replaced {
                Some(why) => format!("got a fresh server: {why}"),
                None => "went on with the same server".into(),
            };
            return Some(format!(
                "Kept warm for {ms}; {client} came back after {after} and {went_on}."
            ));
        }
        if let What::LingerEnded(ended) = &event.what {
            return Some(format!(
                "Kept warm for {}; {}.",
                fine(ended.after_ms),
                ended.why
            ));
        }
        None
    });
    then.unwrap_or_else(|| format!("It is kept warm for {ms}."))
}
