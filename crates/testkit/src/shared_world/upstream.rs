//! A server upstream with its clients: it gives names, loses them when it restarts, gives them again, answers late or not at all.
//! Clients leave at any point, use names of others and names that they made up.
//!
//! What is watched: no DELETE ends a session that is open in the front, each end that is owed is tried, and after the stop the
//! server has no session that the front counted, unless the server refused its end.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_http_core::headers::SESSION;
use mainstay_http_core::serve::front::Front;
use mainstay_http_core::serve::upstream::{EndAttempt, Headers, Pass, PassAnswer, PassKind};
use mainstay_protocol::clock::Moment;

use super::{FrontCounts, Held};
use crate::world::dice::Dice;

/// Accounts that clients have.
const ACCOUNTS: u64 = 2;

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The server has not seen it.
    Sent,
    /// The server has answered, and the front does not know yet.
    Answered(Answer),
    /// The client reads the answer.
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// The session that it is about: name and serial number.
    session: Option<(String, u64)>,
}

/// A request that the front passes on.
#[derive(Clone, Debug)]
struct Request {
    number: u64,
    kind: PassKind,
    name: Option<String>,
    account: u64,
    phase: Phase,
    /// Its client waits.
    awaited: bool,
}

/// A session that the server has.
#[derive(Clone, Copy, Debug)]
struct Has {
    serial: u64,
    account: u64,
}

/// An end that the server is to be told.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// The next try is not decided.
    Fresh,
    /// A DELETE is sent at this time.
    At(Moment),
}

/// The server and its clients.
#[derive(Debug)]
pub struct Upstream {
    path: u64,
    has: BTreeMap<String, Has>,
    next_name: u64,
    next_serial: u64,
    requests: Vec<Request>,
    /// Names that clients have learned, with their accounts.
    known: Vec<(String, u64)>,
    /// The server's sessions that the front counts, by the front's keys.
    counted: BTreeMap<u64, u64>,
    endings: BTreeMap<u64, Ending>,
    /// Every session that the front has counted.
    ever: BTreeSet<u64>,
    /// Those whose end the server has refused until it was given up.
    given_up: BTreeSet<u64>,
    /// The key of an end stands for this session of the server.
    ended: BTreeMap<u64, u64>,
}

impl Upstream {
    pub fn new(path: u64) -> Self {
        Self {
            path,
            has: BTreeMap::new(),
            next_name: 1,
            next_serial: 1,
            requests: Vec::new(),
            known: Vec::new(),
            counted: BTreeMap::new(),
            endings: BTreeMap::new(),
            ever: BTreeSet::new(),
            given_up: BTreeSet::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Openings that have a place in the front and no session yet.
    pub fn openings(&self) -> usize {
        let opening = |one: &&Request| opens(one) && one.phase != Phase::Read;
        self.requests.iter().filter(opening).count()
    }

    /// The front owes as many ends as are under way.
    pub fn ends_add_up(&self, owed: usize) -> Held {
        if owed == self.endings.len() {
            return Ok(());
        }
        let under_way = self.endings.len();
        Err(format!("{owed} ends are owed, {under_way} are under way"))
    }

    /// A session is over in the front.
    pub fn over(&mut self, key: u64, owed: bool) -> Held {
        let serial = self.counted.remove(&key);
        let serial = serial.ok_or("a session upstream is over that was not open")?;
        if owed {
            self.ended.insert(key, serial);
            let old = self.endings.insert(key, Ending::Fresh);
            if old.is_some() {
                return Err(format!("the end of session {key} is owed twice"));
            }
        }
        Ok(())
    }

    /// Something happens; what.
    pub fn act(
        &mut self,
        front: &mut Front,
        now: Moment,
        dice: &mut Dice,
        told: &mut FrontCounts,
    ) -> Held<String> {
        match dice.below(100) {
            0..=14 => Ok(self.ask(front, now, dice, told, PassKind::Open)),
            15..=29 => {
                let kinds = [
                    PassKind::Post,
                    PassKind::Get,
                    PassKind::Delete,
                    PassKind::Post,
                ];
                let kind = dice.pick(&kinds);
                Ok(self.ask(front, now, dice, told, kind))
            }
            30..=49 => Ok(self.serve(dice)),
            50..=69 => self.deliver(front, now, dice),
            70..=81 => Ok(self.leave(front, now, dice)),
            82..=84 => {
                self.restart();
                Ok("the server restarts".into())
            }
            _ => {
                let refuses = dice.permille(300);
                self.end_one(front, now, refuses, told)
            }
        }
    }

    /// Its sessions are gone, and it counts names from one. Answers to openings that are on their way are lost with their
    /// connections: of two sessions with one name, the front takes the one that it hears of last for the newer one.
    fn restart(&mut self) {
        self.has.clear();
        self.next_name = 1;
        for one in self.requests.iter_mut().filter(|one| opens(one)) {
            if let Phase::Answered(answer) = &mut one.phase {
                *answer = Answer {
                    status: 502,
                    session: None,
                };
            }
        }
    }

    fn ask(
        &mut self,
        front: &mut Front,
        now: Moment,
        dice: &mut Dice,
        told: &mut FrontCounts,
        kind: PassKind,
    ) -> String {
        let known = dice.below(self.known.len() as u64 + 1) as usize;
        let (name, mut account) = match self.known.get(known).cloned() {
            Some((name, account)) => (name, account),
            // The server may have given it, or may give it later.
            None => (dice.between(1, 6).to_string(), dice.below(ACCOUNTS)),
        };
        if dice.permille(100) {
            account = dice.below(ACCOUNTS);
        }
        let name = (kind != PassKind::Open).then_some(name);
        let pass = Pass {
            path: self.path,
            session: name.as_deref(),
            kind,
            headers: Headers::from([("authorization".into(), vec![account as u8])]),
        };
        let number = match front.pass(now, pass) {
            Ok(number) => number,
            Err(refused) => return format!("{kind:?} of {name:?} is refused: {refused:?}"),
        };
        told.passed += 1;
        let what = format!("pass {number}: {kind:?} of {name:?} by account {account}");
        self.requests.push(Request {
            number,
            kind,
            name,
            account,
            phase: Phase::Sent,
            awaited: true,
        });
        what
    }

    fn pick(&self, dice: &mut Dice, fits: impl Fn(&Request) -> bool) -> Option<usize> {
        let all = self.requests.iter().enumerate();
        let all: Vec<usize> = all.filter(|(_, one)| fits(one)).map(|(at, _)| at).collect();
        let which = dice.below(all.len() as u64) as usize;
        all.get(which).copied()
    }

    /// The server answers a request that it has seen.
    fn serve(&mut self, dice: &mut Dice) -> String {
        let Some(at) = self.pick(dice, |one| one.phase == Phase::Sent) else {
            return "the server waits".into();
        };
        let fails = dice.permille(120);
        self.answer(at, fails);
        let one = &self.requests[at];
        format!("pass {}: {:?}", one.number, one.phase)
    }

    fn answer(&mut self, at: usize, fails: bool) {
        let one = &self.requests[at];
        let (name, account) = (one.name.clone().unwrap_or_default(), one.account);
        let found = self.has.get(&name).filter(|has| has.account == account);
        let found = found.map(|has| (name.clone(), has.serial));
        let (status, session) = match (one.kind, found) {
            _ if fails => (500, None),
            (PassKind::Open, _) => {
                let name = self.next_name.to_string();
                let serial = self.next_serial;
                self.next_name += 1;
                self.next_serial += 1;
                self.has.insert(name.clone(), Has { serial, account });
                (200, Some((name, serial)))
            }
            (PassKind::Delete, Some(found)) => {
                self.has.remove(&name);
                (200, Some(found))
            }
            (PassKind::Post | PassKind::Get, Some(found)) => (200, Some(found)),
            (PassKind::Delete | PassKind::Post | PassKind::Get, None) => (404, None),
        };
        self.requests[at].phase = Phase::Answered(Answer { status, session });
    }

    /// An answer reaches the front, or is lost on its way.
    fn deliver(&mut self, front: &mut Front, now: Moment, dice: &mut Dice) -> Held<String> {
        let Some(at) = self.pick(dice, |one| matches!(one.phase, Phase::Answered(_))) else {
            return Ok("no answer is on its way".into());
        };
        let (lost, noted) = (dice.permille(60), dice.permille(930));
        self.arrive(front, now, at, lost, noted)
    }

    fn arrive(
        &mut self,
        front: &mut Front,
        now: Moment,
        at: usize,
        lost: bool,
        noted: bool,
    ) -> Held<String> {
        let one = self.requests[at].clone();
        let Phase::Answered(answer) = one.phase.clone() else {
            return Ok("no answer".into());
        };
        self.requests[at].phase = Phase::Read;
        if !one.awaited {
            self.requests.remove(at);
        }
        if lost {
            front.pass_failed(now, one.number);
            return Ok(format!("pass {} gets no answer", one.number));
        }
        let given = answer.session.as_ref().filter(|_| opens(&one));
        let given = given.map(|(name, _)| name.as_str());
        let what = format!("pass {} gets {answer:?}, noted: {noted}", one.number);
        let said = front.pass_answered(now, one.number, answer.status, given);
        if let PassAnswer::Note(key) = said {
            let Some((name, serial)) = answer.session.clone() else {
                return Err("a session began that the server does not have".into());
            };
            if front.upstream().name(key) != Some(&name) {
                return Err(format!("session {key} has another name than {name}"));
            }
            self.counted.insert(key, serial);
            self.ever.insert(serial);
            let passes = front.pass_noted(now, one.number, noted);
            if opens(&one) && passes != noted {
                return Err("a session that may be forgotten is shown to its client".into());
            }
            if opens(&one) && passes && one.awaited {
                self.known.push((name, one.account));
            }
        } else if given.is_some() {
            return Err("a session that was opened is not counted".into());
        }
        Ok(what)
    }

    /// A client leaves, or has read everything.
    fn leave(&mut self, front: &mut Front, now: Moment, dice: &mut Dice) -> String {
        let Some(at) = self.pick(dice, |one| one.awaited) else {
            return "no client is there".into();
        };
        self.leaves(front, now, at)
    }

    fn leaves(&mut self, front: &mut Front, now: Moment, at: usize) -> String {
        let one = &mut self.requests[at];
        let number = one.number;
        one.awaited = false;
        front.pass_left(now, number);
        // An opening goes on without its client; another request is dropped with its connection.
        if !opens(one) || one.phase == Phase::Read {
            self.requests.remove(at);
        }
        format!("pass {number} is left")
    }

    /// The next step of an end that is owed.
    fn end_one(
        &mut self,
        front: &mut Front,
        now: Moment,
        refuses: bool,
        told: &mut FrontCounts,
    ) -> Held<String> {
        let due = |ending: &Ending| match ending {
            Ending::Fresh => true,
            Ending::At(at) => *at <= now,
        };
        let next = self.endings.iter().find(|(_, ending)| due(ending));
        let Some((&key, &ending)) = next else {
            return Ok("no end is due".into());
        };
        if matches!(ending, Ending::Fresh) {
            match front.upstream().end_attempt(key) {
                EndAttempt::After(ms) => {
                    self.endings.insert(key, Ending::At(now.after_ms(ms)));
                }
                EndAttempt::GiveUp => {
                    self.given_up.extend(self.ended.get(&key));
                    self.told(front, key);
                }
            }
            return Ok(format!("the next try to end session {key}"));
        }
        let Some(headers) = front.upstream().delete_headers(key) else {
            self.told(front, key);
            return Ok(format!("session {key} has lost its name"));
        };
        told.deleted += 1;
        let name = headers.iter().find(|(name, _)| name == SESSION);
        let (_, name) = name.ok_or("a DELETE without a session")?;
        let name = String::from_utf8_lossy(name).into_owned();
        let account = headers.iter().find(|(name, _)| name == "authorization");
        let account = account.map(|(_, value)| u64::from(value[0]));
        let found = self.has.get(&name).copied();
        let found = found.filter(|has| Some(has.account) == account);
        if let Some(has) = found
            && self.counted.values().any(|open| *open == has.serial)
        {
            return Err(format!("a DELETE for session {key} ends another: {name}"));
        }
        if refuses {
            self.endings.insert(key, Ending::Fresh);
            return Ok(format!("the server refuses to end session {key}"));
        }
        if found.is_some() {
            self.has.remove(&name);
        }
        self.told(front, key);
        Ok(format!("session {key} is ended: {name}"))
    }

    fn told(&mut self, front: &mut Front, key: u64) {
        self.endings.remove(&key);
        self.ended.remove(&key);
        front.upstream().told(key);
    }

    /// After the stop everything is answered, left and ended, step by step; false if nothing is left to do.
    pub fn finish(&mut self, front: &mut Front, now: Moment) -> Held<bool> {
        if let Some(at) = self
            .requests
            .iter()
            .position(|one| one.phase == Phase::Sent)
        {
            self.answer(at, false);
            return Ok(true);
        }
        let answered = |one: &Request| matches!(one.phase, Phase::Answered(_));
        if let Some(at) = self.requests.iter().position(answered) {
            self.arrive(front, now, at, false, true)?;
            return Ok(true);
        }
        if !self.requests.is_empty() {
            self.leaves(front, now, 0);
            return Ok(true);
        }
        if self.endings.is_empty() {
            return Ok(false);
        }
        self.end_one(front, now, false, &mut FrontCounts::default())?;
        Ok(true)
    }

    /// The server has no session that the front counted, unless it refused its end.
    pub fn all_ended(&self) -> Held {
        if !self.counted.is_empty() {
            return Err(format!(
                "sessions upstream that never ended: {:?}",
                self.counted
            ));
        }
        for (name, has) in &self.has {
            if self.ever.contains(&has.serial) && !self.given_up.contains(&has.serial) {
                return Err(format!("the server still has session {name}: {has:?}"));
            }
        }
        Ok(())
    }
}

fn opens(one: &Request) -> bool {
    one.kind == PassKind::Open
}
