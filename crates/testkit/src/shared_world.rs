//! A simulated world around the HTTP front: clients, attackers and servers with a virtual clock, the same for the same seed.
//!
//! It drives the machine that ships (`mainstay_http_core::serve::front`) by its own verbs and has no model of it: `conn` is a
//! connection that can be cut after any byte, `server` a link whose server misbehaves, `client` what clients want, `upstream` a server upstream
//! with its clients, `watch` what clients may get. Here is what happens when, and how a world ends.

mod client;
mod conn;
mod server;
pub mod sweep;
mod upstream;
mod watch;

use std::cell::Cell;
use std::collections::BTreeMap;

use mainstay_http_core::serve::front::{Count, Front, Output, Read, Step};
use mainstay_http_core::serve::limits::ServeLimits;
use mainstay_protocol::clock::Moment;

use crate::world::dice::Dice;
use client::Client;
use conn::{Conn, Phase};
use server::{Kind, Server};
use upstream::Upstream;
use watch::Watch;

/// What happened in a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontCounts {
    /// Requests that were sent.
    pub requests: u32,
    /// Those that were answered by a server.
    pub answered: u32,
    /// Those that were answered by an error.
    pub failed: u32,
    /// Those that were refused before any server saw them.
    pub refused: u32,
    /// Those whose client left without a way back.
    pub abandoned: u32,
    /// Streams that were resumed.
    pub resumed: u32,
    /// Connections that were cut.
    pub cut: u32,
    /// Links that ended by themselves.
    pub died: u32,
    /// Sessions that began.
    pub sessions: u32,
    /// Messages that attackers sent.
    pub attacks: u32,
    /// Requests that were passed on to a server upstream.
    pub passed: u32,
    /// Sessions that a server upstream was told the end of.
    pub deleted: u32,
}

type Held<T = ()> = Result<T, String>;

thread_local! {
    static DRAWN: Cell<u128> = const { Cell::new(0) };
}

/// Bits that differ each time, the same for the same seed.
fn draw() -> u128 {
    DRAWN.set(DRAWN.get().wrapping_add(1));
    DRAWN
        .get()
        .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

/// Tells the story of a seed, aloud if it is asked to: what happened, or which promise was broken.
pub fn run(seed: u64, aloud: bool) -> Result<FrontCounts, String> {
    DRAWN.set(u128::from(seed) << 64);
    let mut world = World::new(seed, aloud);
    world.live()?;
    Ok(world.watch.told)
}

/// How much longer the messages of a world of large ones are.
fn pad(fat: bool) -> usize {
    if fat { 1_500_000 } else { 0 }
}

struct World {
    dice: Dice,
    now: Moment,
    front: Front,
    paths: Vec<Path>,
    /// What the servers of all paths are, also of those that are retired.
    kinds: BTreeMap<u64, Kind>,
    links: BTreeMap<u64, Server>,
    clients: Vec<Client>,
    conns: BTreeMap<u64, Conn>,
    upstream: Upstream,
    watch: Watch,
    aloud: bool,
    /// No fault and no new request from now on.
    calm: bool,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    number: u64,
    kind: Kind,
}

impl World {
    fn new(seed: u64, aloud: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0x0073_6572_7665);
        let fat = dice.permille(15);
        let roomy = fat || dice.permille(500);
        let kept_bytes = if fat { 16 << 20 } else { 1 << 20 };
        let limits = ServeLimits {
            session_ttl_ms: dice.between(200, 20_000),
            session_cap: dice.between(2, 9),
            requests_max: dice.between(2, 24),
            streams_max: dice.between(2, 12),
            sse_keep_alive_ms: dice.between(50, 800),
            resume_events: if roomy { 1_000 } else { dice.below(6) },
            resume_bytes: if roomy { kept_bytes } else { dice.below(2_000) },
            stop_wait_ms: dice.below(3_000),
            ..ServeLimits::default()
        };
        let mut front = Front::new(limits.clone(), draw);
        let paths: Vec<Path> = (0..dice.between(1, 3))
            .map(|n| {
                let share = dice.permille(600);
                let number = front.add_path(format!("/{n}/mcp"), share);
                let kind = server::kind(&mut dice);
                Path { number, kind }
            })
            .collect();
        let kinds = paths.iter().map(|path| (path.number, path.kind)).collect();
        let upstream = Upstream::new(front.add_path("/upstream/mcp".into(), false));
        let clients = (0..dice.between(2, 5) as usize)
            .map(|n| Client::new(n, &mut dice, &paths, pad(fat)))
            .collect();
        Self {
            watch: Watch::new(roomy, fat, limits),
            dice,
            now: Moment::default().after_ms(1_000),
            front,
            paths,
            kinds,
            links: BTreeMap::new(),
            clients,
            conns: BTreeMap::new(),
            upstream,
            aloud,
            calm: false,
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.aloud {
            let ms = self.now.ms_since(Moment::default());
            sweep::say(&format!("{ms:>7} ms  {}", what()));
        }
    }

    fn live(&mut self) -> Held {
        let most = if self.watch.fat { 200 } else { 600 };
        for _ in 0..self.dice.between(40, most) {
            self.happen()?;
            self.settle()?;
        }
        self.calm = true;
        self.say(|| "calm".into());
        self.ghosts_leave()?;
        if !self.dice.permille(300) {
            self.come_to_rest()?;
        }
        self.stop()
    }

    /// Something happens.
    fn happen(&mut self) -> Held {
        match self.dice.below(100) {
            0..=15 => self.client_acts(),
            16..=35 => self.poll_one(),
            36..=52 => self.deliver_to_client(),
            53..=70 => self.server_reads_or_acts(),
            71..=85 => self.deliver_to_front(),
            86..=93 => self.time_passes(),
            94..=96 => self.cut_one(),
            97 if self.dice.permille(400) => self.link_dies(),
            98 => self.front_rereads_limits(),
            _ => self.upstream_acts(),
        }
    }

    /// Performs what came out, and checks what always holds.
    fn settle(&mut self) -> Held {
        while let Some(output) = self.front.next_output() {
            self.perform(output)?;
        }
        self.front.check();
        let begun = self.front.open_sessions() - self.upstream.openings();
        self.watch
            .sessions_add_up(begun, self.front.open_sessions())?;
        self.upstream.ends_add_up(self.front.unclosed())?;
        self.watch.queues_are_bounded(
            self.front.waiting_bytes(),
            self.conns.len(),
            self.front.links(),
        )
    }

    fn perform(&mut self, output: Output) -> Held {
        match output {
            Output::Start { link, path } => self.start(link, path)?,
            Output::Write(link) => {
                if let Some(server) = self.links.get_mut(&link) {
                    server.ring();
                }
            }
            Output::Wake(number) => {
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.woken = true;
                }
            }
            Output::Began { session, .. } => self.watch.began(session)?,
            Output::Over(ended) => {
                self.say(|| format!("session {} is over: {}", ended.session, ended.why));
                self.watch.over(ended.session)?;
            }
            Output::EndUpstream {
                session,
                must_close,
                ..
            } => {
                self.upstream.over(session, must_close)?;
            }
            Output::Count(Count::Dropped) if !self.watch.fat => {
                return Err("a small message was dropped".into());
            }
            Output::Count(_) => {}
            Output::CloseConnections => self.say(|| "connections are to close".into()),
        }
        Ok(())
    }

    fn start(&mut self, link: u64, path: u64) -> Held {
        let kind = *self
            .kinds
            .get(&path)
            .ok_or("a link is started for no path")?;
        if self.watch.stopped {
            return Err("a link is started after the stop".into());
        }
        if self.dice.permille(30) {
            self.say(|| format!("link {link} cannot be started"));
            self.front.start_failed(self.now, link, "no process");
            return Ok(());
        }
        self.say(|| format!("link {link} starts: {kind:?}"));
        self.links
            .insert(link, Server::new(kind, pad(self.watch.fat)));
        self.front.started(self.now, link);
        Ok(())
    }

    fn client_acts(&mut self) -> Held {
        let which = self.dice.below(self.clients.len() as u64) as usize;
        let (told, now) = (&mut self.watch.told, self.now);
        let wish = self.clients[which].acts(&mut self.dice, &self.paths, told, now);
        if let Some(wish) = wish {
            self.connect(which, wish)?;
        }
        Ok(())
    }

    fn connect(&mut self, client: usize, wish: client::Wish) -> Held {
        if let client::Wish::Delete(get) = &wish {
            self.say(|| format!("client {client} ends its session"));
            // An answer to DELETE has no body; whatever it says, the session's name is useless now.
            self.front.delete(self.now, get.as_get()).ok();
            self.clients[client].forget_session();
            return Ok(());
        }
        let number = self.front.open();
        self.say(|| format!("client {client}, exchange {number}: {wish:?}"));
        let conn = Conn::new(client, wish);
        if let Some(request) = conn.request {
            self.clients[client].is_on(request, number);
        }
        self.conns.insert(number, conn);
        self.settle()?;
        if self.dice.permille(900) {
            self.poll(number)?;
        }
        Ok(())
    }

    /// A task that was woken, or whose time has come, asks again.
    fn poll_one(&mut self) -> Held {
        let now = self.now;
        let ready = |conn: &Conn| conn.is_ready(now);
        let ready: Vec<u64> = self
            .conns
            .iter()
            .filter(|(_, conn)| ready(conn))
            .map(|(number, _)| *number)
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        let which = self.dice.below(ready.len() as u64) as usize;
        self.poll(ready[which])
    }

    fn poll(&mut self, number: u64) -> Held {
        let Some(conn) = self.conns.get_mut(&number) else {
            return Ok(());
        };
        conn.woken = false;
        match conn.phase {
            Phase::Asking => {
                let step = conn.ask(&mut self.front, self.now, number);
                self.stepped(number, step)
            }
            Phase::Reading => self.read(number),
            Phase::Ended => Ok(()),
        }
    }

    fn stepped(&mut self, number: u64, step: Step) -> Held {
        self.say(|| format!("exchange {number}: {step:?}"));
        let Some(conn) = self.conns.get_mut(&number) else {
            return Ok(());
        };
        let client = conn.client;
        if conn.ghost {
            match step {
                Step::Wait(until) => conn.until = until,
                Step::Events { .. } => conn.phase = Phase::Reading,
                Step::Refuse(_) | Step::Accepted | Step::Answer { .. } => drop(self.leave(number)),
            }
            return self.settle();
        }
        match step {
            Step::Wait(until) => conn.until = until,
            Step::Events { session } => {
                if let Some(name) = session {
                    self.clients[client].opened(name, self.now);
                }
                conn.phase = Phase::Reading;
                conn.woken = true;
            }
            Step::Refuse(refused) => {
                if let Some(conn) = self.leave(number) {
                    let clients = &mut self.clients;
                    self.watch.refused(clients, number, &conn, &refused)?;
                }
            }
            Step::Accepted => {
                self.leave(number);
            }
            Step::Answer {
                message, session, ..
            } => {
                let Some(conn) = self.leave(number) else {
                    return Ok(());
                };
                let lost = !self.calm && self.dice.permille(40);
                let head = !lost || self.dice.permille(500);
                let opens = session.is_some();
                let failed = message.starts_with(b"{\"error\"")
                    || message.windows(8).any(|piece| piece == b",\"error\"");
                if opens && failed {
                    return Err("an opening that failed has a session".into());
                }
                if let Some(name) = session.filter(|_| head) {
                    self.clients[client].opened(name, self.now);
                }
                if lost {
                    self.watch.told.cut += 1;
                    self.watch.lost(&mut self.clients, number, &conn, None);
                } else {
                    let clients = &mut self.clients;
                    self.watch.message(clients, number, &conn, None, &message)?;
                }
                if opens && !head {
                    self.say(|| format!("client {client} does not learn its session"));
                }
            }
        }
        self.settle()
    }

    /// The task of a connection reads a piece and puts it into the socket, if that has room.
    fn read(&mut self, number: u64) -> Held {
        let Some(conn) = self.conns.get_mut(&number) else {
            return Ok(());
        };
        if !conn.has_room() {
            // It is polled again when the client has read.
            return Ok(());
        }
        match self.front.read(self.now, number) {
            Read::Bytes(bytes) => {
                conn.send(&bytes);
                conn.woken = true;
            }
            Read::Wait(until) => conn.until = Some(until),
            Read::End => {
                conn.phase = Phase::Ended;
                if conn.is_read() {
                    self.ended(number)?;
                }
            }
        }
        self.settle()
    }

    /// Some bytes of a socket arrive.
    fn deliver_to_client(&mut self) -> Held {
        let waiting: Vec<u64> = self
            .conns
            .iter()
            .filter(|(_, conn)| !conn.is_read())
            .map(|(number, _)| *number)
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let number = waiting[self.dice.below(waiting.len() as u64) as usize];
        let most = match self.watch.fat {
            true => 1 << 21,
            false if self.dice.permille(500) => 7,
            false => 4_000,
        };
        let count = self.dice.between(1, most) as usize;
        self.arrive(number, count)
    }

    fn arrive(&mut self, number: u64, count: usize) -> Held {
        let Some(mut conn) = self.conns.remove(&number) else {
            return Ok(());
        };
        if conn.ghost {
            self.conns.insert(number, conn);
            return Ok(());
        }
        conn.until = None;
        conn.woken = true;
        let events = conn.arrive(count);
        for event in events {
            self.say(|| format!("exchange {number} gets {event:?}"));
            let clients = &mut self.clients;
            self.watch.event(clients, number, &mut conn, &event)?;
        }
        let over = conn.phase == Phase::Ended && conn.is_read();
        self.conns.insert(number, conn);
        if over {
            self.ended(number)?;
        }
        Ok(())
    }

    /// A stream has come to its end.
    fn ended(&mut self, number: u64) -> Held {
        if let Some(conn) = self.leave(number) {
            self.say(|| format!("exchange {number} has ended"));
            self.watch.ended(&mut self.clients, number, &conn)?;
        }
        Ok(())
    }

    fn leave(&mut self, number: u64) -> Option<Conn> {
        self.front.left(self.now, number);
        self.conns.remove(&number)
    }

    /// A connection is cut: what has not arrived never does.
    fn cut_one(&mut self) -> Held {
        // Mostly one that its client can come back for.
        let any = self.dice.permille(300);
        let cut = |conn: &Conn| any || (conn.last.is_some() && conn.request.is_some());
        let all: Vec<u64> = self
            .conns
            .iter()
            .filter(|(_, conn)| cut(conn))
            .map(|(number, _)| *number)
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let number = all[self.dice.below(all.len() as u64) as usize];
        if self.dice.permille(500) {
            let count = self.dice.below(60) as usize;
            self.arrive(number, count)?;
        }
        self.cut(number)
    }

    fn cut(&mut self, number: u64) -> Held {
        let Some(conn) = self.conns.get_mut(&number) else {
            return Ok(());
        };
        if !conn.ghost {
            self.watch.told.cut += 1;
            let last = conn.last;
            self.watch.lost(&mut self.clients, number, conn, last);
            conn.request = None;
            // The other machine may be gone without a word: the front learns it later, or never.
            // A request for a stream that was never read does not come later than the one that follows it.
            conn.ghost = self.dice.permille(400) && !conn.is_unasked_stream();
            if conn.ghost {
                self.say(|| format!("exchange {number} is a ghost"));
                return Ok(());
            }
        }
        self.say(|| format!("exchange {number} is cut"));
        self.leave(number);
        self.settle()
    }

    /// The kernel finds out which machines are gone.
    fn ghosts_leave(&mut self) -> Held {
        let ghosts = self.conns.iter().filter(|(_, conn)| conn.ghost);
        for number in ghosts.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.leave(number);
        }
        self.settle()
    }

    fn server_reads_or_acts(&mut self) -> Held {
        let all: Vec<u64> = self.links.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let link = all[self.dice.below(all.len() as u64) as usize];
        self.server_moves(link)
    }

    fn server_moves(&mut self, link: u64) -> Held {
        let Some(server) = self.links.get_mut(&link) else {
            return Ok(());
        };
        // A slow server in a world of large messages fills the queue to it.
        let reads = if self.watch.fat { 60 } else { 600 };
        if self.calm || self.dice.permille(reads) {
            server.read(&mut self.front, link, &mut self.dice)?;
        }
        server.act(&mut self.dice, self.calm);
        self.settle()
    }

    fn deliver_to_front(&mut self) -> Held {
        let all: Vec<u64> = self.links.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let link = all[self.dice.below(all.len() as u64) as usize];
        let most = match self.watch.fat {
            true => 1 << 21,
            false if self.dice.permille(300) => 9,
            false => 5_000,
        };
        let count = self.dice.between(1, most) as usize;
        self.pipe_moves(link, count)
    }

    fn pipe_moves(&mut self, link: u64, count: usize) -> Held {
        let Some(server) = self.links.get_mut(&link) else {
            return Ok(());
        };
        let bytes = server.take(count);
        if !bytes.is_empty() {
            self.say(|| format!("link {link} says {}", String::from_utf8_lossy(&bytes)));
            self.front.server_bytes(self.now, link, &bytes);
        } else if self.links.get(&link).is_some_and(Server::is_gone) {
            self.links.remove(&link);
            self.say(|| format!("link {link} has ended"));
            self.front.link_over(self.now, link, "exit status: 0");
        }
        self.settle()
    }

    /// A link ends by itself, with whatever part of its last bytes.
    fn link_dies(&mut self) -> Held {
        let all: Vec<u64> = self.links.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let link = all[self.dice.below(all.len() as u64) as usize];
        let count = self.dice.below(200) as usize;
        self.pipe_moves(link, count)?;
        if self.links.remove(&link).is_some() {
            self.say(|| format!("link {link} dies"));
            self.watch.told.died += 1;
            if self.dice.permille(500) {
                self.front.unwritable(link);
                self.settle()?;
            }
            self.front.link_over(self.now, link, "signal: 9");
        }
        self.settle()
    }

    fn time_passes(&mut self) -> Held {
        let ms = self.dice.delay_ms(1_500);
        self.now = self.now.after_ms(ms);
        self.tick()
    }

    fn tick(&mut self) -> Held {
        if self.front.wake_at().is_some_and(|due| due <= self.now) {
            self.front.tick(self.now);
        }
        if self.front.wake_at().is_some_and(|due| due <= self.now) {
            return Err("a tick leaves something that was due".into());
        }
        self.settle()
    }

    fn front_rereads_limits(&mut self) -> Held {
        if self.dice.permille(200) {
            let n = self.paths.len() as u64;
            let which = self.dice.below(n) as usize;
            self.say(|| format!("path {which} is retired"));
            self.front.retire(self.now, self.paths[which].number);
            let url = format!("/{which}/mcp");
            let number = self.front.add_path(url, self.dice.permille(500));
            self.paths[which].number = number;
            self.kinds.insert(number, self.paths[which].kind);
            self.settle()?;
        }
        Ok(())
    }

    /// Clients of a server upstream, that server, and the ends of its sessions.
    fn upstream_acts(&mut self) -> Held {
        for _ in 0..self.dice.between(1, 6) {
            let (dice, told) = (&mut self.dice, &mut self.watch.told);
            let what = self.upstream.act(&mut self.front, self.now, dice, told)?;
            self.say(|| format!("upstream: {what}"));
            self.settle()?;
        }
        Ok(())
    }

    /// Everything that can be answered is answered, and clients come back for what they missed.
    fn come_to_rest(&mut self) -> Held {
        // News are read no more: they would take the places of streams that clients come back for.
        for (number, conn) in &self.conns {
            if conn.request.is_none() {
                self.front.left(self.now, *number);
            }
        }
        self.conns.retain(|_, conn| conn.request.is_some());
        self.settle()?;
        for round in 0..400 {
            self.everything_moves()?;
            let open = self.clients.iter().any(Client::waits);
            if !open {
                return Ok(());
            }
            for which in 0..self.clients.len() {
                // One that is refused for the number of its streams tries again later.
                if let Some(wish) = self.clients[which].comes_back(&mut self.watch.told) {
                    self.connect(which, wish)?;
                    self.everything_moves()?;
                }
            }
            // Time for questions of ours, and for comments.
            let later = if round % 8 == 7 { 61_000 } else { 700 };
            self.now = self.now.after_ms(later);
            self.tick()?;
        }
        let waiting = self.clients.iter().find_map(Client::waiting);
        Err(format!("a request hangs: {}", waiting.unwrap_or_default()))
    }

    /// Bytes flow until nothing moves.
    fn everything_moves(&mut self) -> Held {
        for _ in 0..200 {
            let mut moved = false;
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                self.server_moves(link)?;
                let busy = self.links.get(&link).is_some_and(Server::has_bytes);
                let gone = self.links.get(&link).is_some_and(Server::is_gone);
                moved |= busy || gone;
                self.pipe_moves(link, 1 << 20)?;
            }
            for number in self.conns.keys().copied().collect::<Vec<_>>() {
                if let Some(conn) = self.conns.get(&number)
                    && conn.is_ready(self.now)
                {
                    moved = true;
                    self.poll(number)?;
                }
                // A large event arrives in several pieces.
                moved |= self.conns.get(&number).is_some_and(|conn| !conn.is_read());
                self.arrive(number, 1 << 20)?;
                if let Some(conn) = self.conns.get_mut(&number) {
                    let ready = conn.phase == Phase::Reading && conn.until.is_none();
                    conn.woken &= ready || conn.phase == Phase::Asking;
                }
            }
            if !moved {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The front stops: everything is answered, and nothing is left.
    fn stop(&mut self) -> Held {
        self.say(|| "stop".into());
        let delay_ms = if self.dice.permille(500) {
            self.dice.between(1, 3_000)
        } else {
            0
        };
        self.front.stop(self.now, delay_ms);
        self.settle()?;
        for _ in 0..100 {
            if self.front.is_closing() {
                break;
            }
            self.everything_moves()?;
            self.now = self.now.after_ms(100);
            self.tick()?;
        }
        if !self.front.is_closing() {
            return Err("the stop never comes to its end".into());
        }
        self.watch.stopped = true;
        self.everything_moves()?;
        for number in self.conns.keys().copied().collect::<Vec<_>>() {
            self.arrive(number, usize::MAX)?;
            let waits = |conn: &Conn| conn.phase == Phase::Asking && conn.is_ready(self.now);
            if self.conns.get(&number).is_some_and(waits) {
                self.poll(number)?;
            }
        }
        self.everything_moves()?;
        if let Some((number, conn)) = self.conns.iter().next() {
            return Err(format!(
                "exchange {number} is open after the stop: {conn:?}"
            ));
        }
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            let server = self.links.get_mut(&link).ok_or("a link is gone")?;
            server.read(&mut self.front, link, &mut self.dice)?;
            if !server.is_gone() {
                return Err(format!("link {link} is not told that serve stops"));
            }
            self.links.remove(&link);
            self.front.link_over(self.now, link, "exit status: 0");
            self.settle()?;
        }
        while self.upstream.finish(&mut self.front, self.now)? {
            self.settle()?;
            self.now = self.now.after_ms(500);
        }
        self.settle()?;
        self.upstream.all_ended()?;
        let left = self.front.links() + self.front.open_sessions() + self.front.waiting_bytes();
        if left > 0 {
            return Err(format!("{left} things are left after the stop"));
        }
        self.watch.all_answered(&self.clients)
    }
}
