//! How the link stands at a moment that will be asked about, and who was there.

use mainstay_core::event::{
    Part, Seen, Standing, Suspect, Suspects, Suspicion, Waiting, What, speaks_of_ending,
};
use mainstay_core::ids::Identity;
use mainstay_core::limits::{SUSPECT_YOUNG_MS, SUSPECTS_MS, SUSPECTS_NAMED, WAITING_NAMED};
use mainstay_core::redact;
use mainstay_os::census::{self, Stat};
use mainstay_os::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Keeper;
use super::attribute::short;
use super::port::Port;

impl Keeper<'_> {
    /// How it stands now.
    pub(super) fn standing(&self) -> Standing {
        // Read together, so that what is told of both clocks belongs together.
        let (now, wall_ms) = (clock::now(), clock::wall_ms());
        let waiting = self.relay.link().waiting().take(WAITING_NAMED);
        Standing {
            wall_ms,
            since_handshake_ms: self
                .frames
                .since_handshake_ms(now, self.relay.link().generation()),
            stdin_open: !self.relay.client_ended() && self.client_in.as_ref().is_some_and(open),
            last_answer_ms: self
                .frames
                .recent()
                .last_answer()
                .map(|at| now.ms_since(at)),
            in_flight: self.relay.link().in_flight(),
            waiting: waiting
                .map(|(id, sort, at)| Waiting {
                    request: sort.word().into(),
                    id: String::from_utf8_lossy(id).into_owned(),
                    ms: now.ms_since(at),
                })
                .collect(),
            frames: self.frames.recent().briefs(now),
        }
    }

    /// Somebody was ended and nobody saw by whom: who is there is written down, once what is urgent is done.
    pub(super) fn unexplained(&mut self, part: Part, pid: i32) {
        self.suspects_of = Some((part, pid));
    }

    pub(super) fn tell_suspects(&mut self) {
        let Some((part, pid)) = self.suspects_of.take() else {
            return;
        };
        let (who, looked_at, all) = self.suspects();
        self.tell(What::Suspects(Suspects {
            part,
            pid,
            who,
            looked_at,
            all,
        }));
    }

    /// Bounded in time: what is young comes first, because whoever ends others is often started for that.
    fn suspects(&self) -> (Vec<Suspect>, u32, bool) {
        let until = clock::now().after_ms(SUSPECTS_MS);
        let uid = rustix::process::geteuid().as_raw();
        // Helpers of the server's own are not suspected: they are alive as long as their tree is held here.
        let tree = self.server.as_ref().map(|server| server.tree.members());
        let spared: Vec<i32> = tree.into_iter().flatten().map(|stat| stat.pid).collect();
        let mut pids = census::pids().unwrap_or_default();
        pids.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(client) = self.client {
            pids.insert(0, client.pid);
        }
        let mut found: Vec<Suspect> = Vec::new();
        let mut looked_at = 0;
        let mut all = true;
        for pid in pids {
            // The client, which comes first, is looked at in any case.
            if looked_at > 0 && (clock::now() >= until || found.len() >= SUSPECTS_NAMED) {
                all = false;
                break;
            }
            looked_at += 1;
            let known = found.iter().any(|suspect| suspect.seen.who.pid == pid);
            if known || spared.contains(&pid) || census::uid(pid) != Some(uid) {
                continue;
            }
            found.extend(suspect(pid, self.client));
        }
        found.sort_by_key(|suspect| suspect.why);
        (found, looked_at, all)
    }
}

fn suspect(pid: i32, client: Option<Identity>) -> Option<Suspect> {
    let stat = census::stat(pid).ok().filter(|stat| !stat.dead())?;
    let cmdline = census::cmdline(pid);
    let why = if Some(stat.who()) == client {
        Suspicion::Client
    } else if matches!(stat.comm.as_str(), "mainstay" | "mainstay-serve") {
        // They end nothing but their own trees, and what a dead one of them left.
        return None;
    } else if speaks_of_ending(&stat.comm, &cmdline) {
        Suspicion::Name
    } else if client.is_some_and(|client| young(&stat) && below(&stat, client)) {
        Suspicion::BelowClient
    } else {
        return None;
    };
    let words = redact::words(&cmdline);
    Some(Suspect {
        cmdline: words.iter().take(8).map(|word| short(word)).collect(),
        seen: Seen {
            who: stat.who(),
            comm: stat.comm,
        },
        why,
    })
}

fn young(stat: &Stat) -> bool {
    let age = clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start));
    age < SUSPECT_YOUNG_MS
}

fn below(stat: &Stat, client: Identity) -> bool {
    census::ancestors(stat).contains(&client)
}

/// Whether somebody still holds the other end, be it that there is something to read.
fn open(port: &Port) -> bool {
    let mut fds = [PollFd::new(port, PollFlags::IN | PollFlags::RDHUP)];
    let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => !fds[0].revents().intersects(ended),
        Err(_) => true,
    }
}
