//! What happens outside the messages: signals, deaths, the control socket, newcomers, the lease.

use std::os::fd::AsFd;

use mainstay_clients::behaviour::{self, Owner};
use mainstay_core::link::Input;
use mainstay_core::senders::Meaning;
use mainstay_os::sender::LOOK_BYTES;
use mainstay_os::signals::Received;
use mainstay_os::{notice, role};
use mainstay_protocol::event::{Cause, ClientMoved, Part, RestartReason, What};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{LINGER_MS, TAPS};
use mainstay_store::registry::control::Answer;

use super::{Keeper, STEPS};
use crate::card;
use crate::client::ClientPorts;
use crate::control::{self, ControlRequest};
use crate::lease::member::MemberInfo;
use crate::newcomers::{self, Handover, Offer, Wish};
use crate::sender::Around;
use crate::server::Running;
use crate::warm::Hello;
use crate::watched::{Death, Watched};

/// Signals and deaths.
impl Keeper<'_> {
    pub(super) fn poll_signals(&mut self) -> bool {
        let mut any = false;
        while let Some(received) = self.signals.next() {
            any = true;
            if received.number == libc::SIGCHLD {
                self.reap();
            } else if received.number == notice::SIGNAL {
                self.look_at_lease();
            } else {
                let mut seen = [0; LOOK_BYTES];
                let len = mainstay_os::sender::look(received.pid, &mut seen);
                let number = received.number;
                match self.judge_signal(Part::Keeper, received, &seen[..len]) {
                    Meaning::Ignore { .. } => {}
                    Meaning::MaybeEnd | Meaning::End => {
                        self.connection
                            .handle(Input::Stop(Cause::KeeperSignal { number }));
                    }
                }
            }
        }
        any
    }

    pub(super) fn poll_shim(&mut self) -> bool {
        let mut any = false;
        let mut seen = Vec::new();
        while let Some(received) = self.shim.next_signal(&mut seen) {
            any = true;
            self.shim_signalled(received, &seen);
        }
        any
    }

    /// The shim stays if a stranger signalled it. If it was the client, it stays until the keeper knows what the client wants.
    fn shim_signalled(&mut self, received: Received, seen: &[u8]) {
        let number = received.number;
        match self.judge_signal(Part::Shim, received, seen) {
            Meaning::Ignore { .. } => {
                self.shim.keep();
                self.connection.handle(Input::Check);
                return;
            }
            Meaning::MaybeEnd => self.set_linger(),
            Meaning::End => self.connection.relay().set_linger(0),
        }
        if self.shim.signalled() {
            self.look_for_eof();
        }
        self.connection
            .handle(Input::Stop(Cause::ShimSignal { number }));
    }

    /// Judges a signal by its sender, and writes it down with all that is known about the sender.
    fn judge_signal(&mut self, to: Part, received: Received, seen: &[u8]) -> Meaning {
        let around = Around {
            client: self.connection.client().who(),
            above: self.connection.client().ancestors(),
            ours: [self.me, self.shim.who(), self.guard.parent()],
        };
        let (meaning, mut signal) =
            self.signals
                .judge(self.connection.now(), to, received, seen, &around);
        signal.standing = Some(self.connection.standing().into());
        if signal.gone && signal.ignored.is_none() {
            let pid = match to {
                Part::Keeper => self.me.pid,
                Part::Shim | Part::Client | Part::Server => self.shim.who().pid,
            };
            self.connection.events().note_unexplained(to, pid);
        }
        self.connection.tell(What::Signal(signal));
        // The stop that follows begins after this event, even if the keeper had to wait for a processor since it read its clock: `why`
        // looks for the signal before the beginning of the stop.
        self.connection.read_clock();
        meaning
    }

    /// The server's end by its pidfd, even if its witness cannot tell of it.
    pub(super) fn poll_server(&mut self) -> bool {
        let ended = self.connection.server_mut().is_some_and(Running::poll_end);
        if ended {
            self.reap();
        }
        ended
    }

    /// A child of ours has ended: the server, a process that talks to a container engine, a side guard.
    fn reap(&mut self) {
        self.guard.look_at_side_guard();
        self.connection.reap();
    }

    /// The ends of shim, guard and client.
    pub(super) fn poll_deaths(&mut self) -> bool {
        let shim = self.shim.poll_death();
        let guard = self.guard.poll_death();
        let client = self.connection.client_mut().poll_death();
        if let Some(death) = shim {
            // Its last word may still be in the channel.
            self.poll_shim();
            if !self.shim.was_signalled() {
                self.connection
                    .tell_gone(Part::Shim, self.shim.who(), death);
                if client.is_none() {
                    let pid = self.shim.who().pid;
                    self.connection.events().note_unexplained(Part::Shim, pid);
                }
                self.set_linger();
            }
            self.look_for_eof();
            self.connection.handle(Input::Stop(Cause::ShimKilled));
            // The effect on the pipes of the client comes first, before other news of the client.
            self.perform();
        }
        if let Some((who, death)) = client
            && self.connection.client().who() == Some(who)
        {
            self.client_died(who, death);
        }
        shim.is_some() || guard || client.is_some()
    }

    /// From now on an EOF may be the consequence of the shim's end; one that is there already is the client's own act.
    fn look_for_eof(&mut self) {
        self.introduce_now();
        if self.connection.client().stdin().is_none() {
            return;
        }
        self.connection.client().look_again();
        for _ in 0..STEPS {
            let more = self.move_bytes();
            if !(self.perform() || more) {
                break;
            }
        }
    }

    /// The process that started us is gone. Another one may be the client.
    fn client_died(&mut self, from: Identity, death: Death) {
        if let Some(to) = self.connection.client().next_holder() {
            self.change_client(to.who);
            let (to, status) = (behaviour::called(to), death.status);
            self.connection
                .tell(What::ClientMoved(ClientMoved { from, to, status }));
            return;
        }
        self.connection.tell_gone(Part::Client, from, death);
        // Otherwise EOF came first.
        if self.connection.client().stdin().is_some() || self.connection.link().away() {
            self.connection.handle(Input::Stop(Cause::ClientGone));
        }
    }

    fn change_client(&mut self, who: Identity) {
        self.connection.client_mut().change(who);
        self.guard.name_client(Some(who));
    }

    /// The shim was killed or signalled: how long the server would be kept depends on the client. Decided here, once, because a
    /// client that ends from now on is seen to end, and its parent is not taken for it.
    fn set_linger(&mut self) {
        let Some(Owner { who, profile }) = self.connection.client().owner() else {
            // No client could come back.
            return self.connection.relay().set_linger(0);
        };
        let by_profile = profile.map_or(LINGER_MS, |profile| profile.linger_ms);
        let linger_ms = self.plan.linger.unwrap_or(by_profile);
        self.connection.relay().set_linger(linger_ms);
        // A launcher may end with the shim, and is not the process that would come back.
        if self.connection.client().who() != Some(who) {
            self.change_client(who);
        }
    }

    /// The guard is gone: a side guard takes its place.
    pub(super) fn replace_guard(&mut self) {
        let lost = self.guard.replace(
            self.plan,
            self.listing.entry(),
            self.shim.channel(),
            self.me,
            self.connection.now(),
        );
        if let Some(side_guard) = self.guard.side_guard() {
            if self.connection.client().stdout().is_none() {
                self.guard.release_client();
            }
            self.guard.name_client(self.connection.client().who());
            if let Some(server) = self.connection.server_mut() {
                server.exclude(side_guard);
            }
        }
        // A side guard does not inherit the tree, so the processes that it would have to end are written down now.
        self.note_members();
        self.connection.tell(What::GuardLost(lost));
        self.write_card();
    }
}

/// Requests from outside: the control socket, newcomers, the lease.
impl Keeper<'_> {
    pub(super) fn poll_control(&mut self) -> bool {
        match self.listing.control().poll(self.connection.now()) {
            ControlRequest::Nothing => return false,
            ControlRequest::Busy => {}
            ControlRequest::Status(who) => {
                let mut card = self.card();
                card.traffic = Some(self.connection.link().traffic().clone());
                let answer = Answer::Status(Box::new(card));
                self.listing.control().answer(who, &answer);
            }
            ControlRequest::Stop => self.connection.handle(Input::Stop(Cause::Asked)),
            ControlRequest::Restart => {
                let generation = self.connection.link().generation();
                self.listing.control().expect_replacement(generation);
                self.connection.handle(Input::Renew(RestartReason::Asked));
            }
            ControlRequest::Tap { who, body_bytes } => {
                if let Some(stream) = self.listing.control().release(who)
                    && let Err(stream) = self.connection.attach_tap(stream, body_bytes)
                {
                    let error = format!("{TAPS} taps are open already");
                    control::send(stream.get(), &Answer::Refused { error });
                }
            }
        }
        true
    }

    pub(super) fn poll_newcomers(&mut self) -> bool {
        if !self.newcomers.is_open() {
            return false;
        }
        let hello = Hello {
            link: self.plan.id,
            modern: self.connection.link().modern(),
        };
        let mut any = self.newcomers.admit(hello, self.guard.record());
        let mut index = 0;
        loop {
            let fit = self.connection.link().judged();
            let Some(wish) = self.newcomers.next_wish(&mut index, fit) else {
                return any;
            };
            any = true;
            let stays = match wish {
                Wish::Leave => false,
                Wish::Probe(line) => {
                    let answer = newcomers::probed(self.connection.link(), &line);
                    self.newcomers.reply(index, &answer)
                }
                Wish::Test => {
                    let changed = self.connection.server().and_then(Running::changed_code);
                    self.connection.handle(Input::Newcomer { changed });
                    true
                }
                Wish::Join { offer, fit } => {
                    if self.reattach(index, offer, fit).is_some() {
                        self.newcomers.close(self.plan);
                        return true;
                    }
                    false
                }
            };
            if !stays {
                self.newcomers.dismiss(index);
            }
        }
    }

    /// Takes over a newcomer's pipes, for a server that is fit or for the next one. None: not possible, and the newcomer still has
    /// them.
    fn reattach(&mut self, index: usize, offer: Offer, fit: bool) -> Option<()> {
        let Handover {
            shim,
            read,
            channel,
            pipes,
        } = self.newcomers.accept(index, offer)?;
        // What a fit server has not read yet would mix with the newcomer's lines.
        if (fit && !self.connection.relay().server_has_all()) || !self.connection.link().away() {
            return None;
        }
        let pipes = pipes.each_ref().map(AsFd::as_fd);
        let ports = ClientPorts::open(pipes).ok()?;
        let for_guard = channel.try_clone().ok()?;
        let channel = Watched::new(channel).ok()?;
        role::take_stdio(pipes).ok()?;
        self.connection.reattach(ports, &read);
        let [stdin, stdout, stderr] = pipes;
        let lent = [stdin, stdout, stderr, for_guard.as_fd()];
        self.guard
            .attach_client(shim, self.connection.client().who(), &lent);
        self.shim.replace(shim, channel);
        self.shim.welcome(self.guard.who(), self.me);
        self.write_card();
        Some(())
    }

    /// Enters the lease of the plan.
    pub(super) fn enter_lease(&mut self) {
        let Some(name) = &self.plan.lease else {
            return;
        };
        let info = MemberInfo {
            id: self.plan.id,
            server: self.plan.name.clone(),
            keeper: self.me,
            guard: self.guard.parent(),
            shim: self.plan.origin.shim,
            ladder_ms: card::ladder_ms(self.plan, self.connection.server()),
            outcome: None,
        };
        let generation = self.connection.link().generation();
        let (paths, now) = (&self.plan.paths, self.connection.now());
        if let Some(input) = self.lease.enter(paths, name, info, generation, now) {
            self.connection.handle(input);
        }
    }

    /// Something in the lease's directory has changed.
    pub(super) fn look_at_lease(&mut self) {
        let server = self.connection.live_server();
        if let Some(input) = self.lease.look_at_directory(server) {
            self.connection.handle(input);
        }
    }

    /// Looks at the lease's owner and time; true if the lease is over.
    pub(super) fn poll_lease(&mut self) -> bool {
        let (now, server) = (self.connection.now(), self.connection.live_server());
        let over = self.lease.poll(&self.plan.paths, now, server);
        over.map(|input| self.connection.handle(input)).is_some()
    }
}
