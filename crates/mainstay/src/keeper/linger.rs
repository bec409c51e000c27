//! Lingering: the client's pipes are let go, the server goes on, and a door is open for the client's next start.
//!
//! It lets nobody in who is not of our user, and takes in one. What becomes of the server is the link's affair.
//!
//! A hand-over cannot be torn: the record is written first, then the guard gets the new pipes, then the newcomer is told.
//! A keeper that is killed before the guard has them takes the newcomer's copies with it, and the newcomer, which sees its
//! channel closed, still has its own; after that the guard's next keeper goes on with them.

use std::os::fd::{AsFd, OwnedFd};

use mainstay_core::ids::Identity;
use mainstay_core::limits::{DOOR_PEERS, LINGER_MS};
use mainstay_core::link::Input;
use mainstay_core::message::frame::{Fed, Id, Scanner};
use mainstay_os::channel::{Channel, Word};
use mainstay_os::door::{Door, Said, Visit};
use mainstay_os::{census, identity, role};

use super::port::{Port, Way};
use super::watch::Watched;
use super::{Keeper, code};
use crate::profile::Owner;
use crate::registry::ask::same_user;
use crate::warm::{self, ANSWER_BYTES, Hello, PACKET_BYTES, Request};

/// An open door, and who stands in it.
pub struct Host {
    door: Watched<Door>,
    guests: Vec<Guest>,
}

struct Guest {
    visit: Watched<Visit>,
    /// What it has handed over, while the server is asked whether it is fit.
    waits: Option<(Vec<u8>, Vec<OwnedFd>)>,
}

/// What a guest wants.
enum Wish {
    Nothing,
    /// It has left, or makes no sense.
    Leave,
    Answer(Vec<u8>),
    /// It hands over what it has read and its pipes.
    Take(Vec<u8>, Vec<OwnedFd>),
}

impl Keeper<'_> {
    /// The client, if it can come back.
    fn owner(&self) -> Option<Owner> {
        let above: Vec<_> = self.client.iter().chain(&self.ancestors).copied().collect();
        Owner::among(&above, self.client_in.as_ref()?)
    }

    /// Something was done to the shim: how long the server would be kept depends on whose it is. Decided here, once: a client
    /// that ends from now on is seen to end, and its parent is not taken for it.
    pub(super) fn set_linger(&mut self) {
        let Some(Owner { who, profile }) = self.owner() else {
            // No client could come back.
            return self.relay.set_linger(0);
        };
        let by_profile = profile.map_or(LINGER_MS, |profile| profile.linger_ms);
        self.relay
            .set_linger(self.plan.linger.unwrap_or(by_profile));
        // A launcher may end with the shim, and is not what we wait for.
        if self.client != Some(who) {
            self.watch_client(who);
        }
    }

    /// Lets go of the client and opens the door.
    pub(super) fn linger(&mut self) {
        self.drop_client();
        self.to_shim.close();
        let Some(client) = self.client else { return };
        self.name_client();
        // Without a door nobody comes back: then the time passes, and the server ends.
        let door = warm::open(self.plan, client).and_then(Watched::new);
        self.host = door.ok().map(|door| Host {
            door,
            guests: Vec::new(),
        });
    }

    /// Closes the door; who stands in it is sent away.
    pub(super) fn linger_over(&mut self) {
        self.host = None;
        warm::close(&self.plan.paths, self.plan.id);
    }

    /// Looks who is at the door; whether there was anything.
    pub(super) fn poll_door(&mut self) -> bool {
        let Some(host) = &mut self.host else {
            return false;
        };
        let mut any = false;
        while host.door.poll_ready() {
            match host.door.get().admit() {
                Ok(Some(visit)) => {
                    any = true;
                    let hello = Hello {
                        link: self.plan.id,
                        modern: self.relay.link().modern(),
                    };
                    let record = self.region.file().filter(|_| same_user(&visit));
                    let welcome = host.guests.len() < DOOR_PEERS
                        && record
                            .is_some_and(|record| visit.say(&hello.packet(), &[record]).is_ok());
                    if let (true, Ok(visit)) = (welcome, Watched::new(visit)) {
                        host.guests.push(Guest { visit, waits: None });
                    }
                }
                Ok(None) | Err(_) => host.door.clear(),
            }
        }
        let mut index = 0;
        while let Some(guest) = self
            .host
            .as_mut()
            .and_then(|host| host.guests.get_mut(index))
        {
            let said = match wish(&mut guest.visit) {
                Wish::Nothing => match (self.relay.link().judged(), guest.waits.take()) {
                    (Some(fit), Some((read, lent))) => {
                        if self.take_in(index, &read, lent, fit).is_some() {
                            self.linger_over();
                            return true;
                        }
                        false
                    }
                    (_, waits) => {
                        guest.waits = waits;
                        index += 1;
                        continue;
                    }
                },
                Wish::Leave => false,
                Wish::Answer(line) => {
                    let answer = self.discovered(&line);
                    self.reply(index, &answer)
                }
                Wish::Take(read, lent) => {
                    guest.waits = Some((read, lent));
                    let changed = self.changed_code();
                    self.handle(Input::Newcomer { changed });
                    true
                }
            };
            any = true;
            if let (false, Some(host)) = (said, &mut self.host) {
                host.guests.remove(index);
            }
        }
        any
    }

    /// The answer to a probe, as a packet.
    fn discovered(&self, line: &[u8]) -> Vec<u8> {
        let mut scanner = Scanner::new();
        let answer = match (scanner.feed(line), scanner.frame().id) {
            (Fed::Line { .. }, Id::Token(id)) => self.relay.link().discovered(id),
            (Fed::Line { .. } | Fed::Partial, _) => None,
        };
        match answer.filter(|answer| answer.len() <= ANSWER_BYTES) {
            Some(answer) => warm::answer(&answer),
            None => warm::no_answer(),
        }
    }

    fn reply(&self, index: usize, packet: &[u8]) -> bool {
        let guest = self.host.as_ref().and_then(|host| host.guests.get(index));
        guest.is_some_and(|guest| guest.visit.get().say(packet, &[]).is_ok())
    }

    /// A file of the server's code that is not what the server was started from.
    fn changed_code(&self) -> Option<String> {
        let server = self.server.as_ref()?;
        let members = server.tree.members();
        let changed = code::changed(members.iter().map(|member| member.pid), server.started);
        changed.map(|path| path.display().to_string())
    }

    /// A newcomer hands its pipes over, for a server that is fit or for the next generation. None: it is not to be, and it still
    /// has them.
    fn take_in(&mut self, index: usize, read: &[u8], lent: Vec<OwnedFd>, fit: bool) -> Option<()> {
        let [stdin, stdout, stderr, channel] = <[OwnedFd; 4]>::try_from(lent).ok()?;
        let guest = self.host.as_ref()?.guests.get(index)?;
        let (pid, _) = guest.visit.get().peer().ok()?;
        let shim = identity::of(pid).ok()?;
        // A newcomer that has given up waiting has closed; and what a fit server has not read yet would mix with what comes.
        let waits = guest.visit.get().hear(&mut [0; 1], &mut Vec::new()) == Said::Nothing;
        let reads = self.relay.server_has_all();
        if !waits || (fit && !reads) || !self.relay.link().away() {
            return None;
        }
        let client_in = Port::of_client(stdin.as_fd(), Way::In).ok()?;
        let client_out = Port::of_client(stdout.as_fd(), Way::Out).ok()?;
        let client_err = Port::of_client(stderr.as_fd(), Way::Out).ok();
        let to_shim = Channel::of(channel);
        let for_guard = to_shim.try_clone().ok()?;
        let watched = Watched::new(to_shim).ok()?;
        role::take_stdio([stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]).ok()?;
        self.client_in = Some(client_in);
        self.client_out = Some(client_out);
        self.stderr.pass_to(client_err);
        self.with_relay(|relay, now, pipes| relay.reattach(now, read, pipes));
        self.shim = shim;
        self.ancestors = above(self.client);
        self.notes.reattach(shim, self.client);
        let pipes = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        self.to_guard.get().say_with(
            Word::Attach,
            &[pipes[0], pipes[1], pipes[2], for_guard.as_fd()],
        );
        self.to_shim = watched;
        self.watcher.watch_shim(shim);
        self.to_shim.get().say(Word::Here {
            guard: self.guard(),
            keeper: self.me,
        });
        self.write_card();
        Some(())
    }

    /// Who guards us now.
    pub(super) fn guard(&self) -> Identity {
        let beside = self.side_guard.as_ref();
        beside.map_or(self.watcher.guard(), |beside| beside.who)
    }
}

/// Who stands above somebody, nearest first.
pub(super) fn above(client: Option<Identity>) -> Vec<Identity> {
    let stat = client.and_then(|who| census::stat(who.pid).ok());
    stat.as_ref().map(census::ancestors).unwrap_or_default()
}

fn wish(guest: &mut Watched<Visit>) -> Wish {
    if !guest.poll_ready() {
        return Wish::Nothing;
    }
    // One byte more than there may be: what is longer than it may be is seen to be.
    let (mut packet, mut lent) = (vec![0; PACKET_BYTES + 1], Vec::new());
    match guest.get().hear(&mut packet, &mut lent) {
        Said::Nothing => {
            guest.clear();
            Wish::Nothing
        }
        Said::Gone => Wish::Leave,
        Said::Bytes(len) if len > PACKET_BYTES => Wish::Leave,
        Said::Bytes(len) => match Request::read(&packet[..len]) {
            Some(Request::Probe(line)) => Wish::Answer(line.to_vec()),
            Some(Request::Take(read)) => Wish::Take(read.to_vec(), lent),
            None => Wish::Leave,
        },
    }
}
