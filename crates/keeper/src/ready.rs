//! Which descriptors are ready: one epoll instance for the one task of a keeper.
//!
//! A runtime of tasks and timers costs a small message more than all the rest that we do for it: locks, lists of wakers
//! and half a dozen looks at the clock. Here an event sets a flag, a look reads it, and whatever comes ends the wait.
//! Edge-triggered: a flag stays until its reader or writer finds that there is no more, and says so.
//!
//! A wait with an end makes the kernel set up a timer and take it down again, for every message. So there is one alarm,
//! which is only ever set to an earlier time: if what it was set for has been put off meanwhile, it goes off for nothing,
//! once, and is set anew.
//!
//! Invariants: the instance belongs to one thread; what is registered owns its descriptor, and is taken out before
//! that is closed; a wait until a time has an alarm that goes off then or before.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use mainstay_protocol::clock::Moment;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// Descriptors that one look at the kernel's list may bring.
const EVENTS: usize = 32;

/// There may be something to read, or room to write.
const READY: u8 = 1;
/// No process is left at the other end.
const CLOSED: u8 = 2;

/// The alarm's number.
const ALARM: u64 = u64::MAX;
const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

thread_local! {
    static EPOLL: RefCell<Option<Rc<Epoll>>> = const { RefCell::new(None) };
}

struct Epoll {
    fd: OwnedFd,
    alarm: OwnedFd,
    /// When it fires, if it has not fired since it was set.
    set_for: Cell<Option<Moment>>,
    /// The flags of all that are registered, by number.
    flags: RefCell<Vec<Option<Rc<Cell<u8>>>>>,
    events: RefCell<Vec<Event>>,
}

/// Begins anew. In a forked process the descriptors of its parent are closed already, or not ours: they are
/// forgotten, not closed.
pub fn begin() -> io::Result<()> {
    let fd = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let alarm = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let wanted = EventFlags::IN | EventFlags::ET;
    epoll::add(&fd, &alarm, EventData::new_u64(ALARM), wanted)?;
    let epoll = Rc::new(Epoll {
        fd,
        alarm,
        set_for: Cell::new(None),
        flags: RefCell::new(Vec::new()),
        events: RefCell::new(Vec::with_capacity(EVENTS)),
    });
    std::mem::forget(EPOLL.replace(Some(epoll)));
    Ok(())
}

/// Waits until something is ready, or until then.
pub fn wait(now: Moment, until: Option<Moment>) -> io::Result<()> {
    let epoll = current()?;
    let over = until.is_some_and(|at| at <= now);
    if let Some(at) = until
        && !over
    {
        epoll.wake_by(at)?;
    }
    let mut events = epoll.events.borrow_mut();
    events.clear();
    let timeout = over.then_some(&NO_TIME);
    match epoll::wait(&epoll.fd, spare_capacity(&mut events), timeout) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let all = epoll.flags.borrow();
    for event in &*events {
        let number = event.data.u64();
        if let Some(Some(flags)) = all.get(number as usize) {
            flags.set(flags.get() | told(event.flags));
        } else if number == ALARM {
            epoll.set_for.set(None);
        }
    }
    Ok(())
}

impl Epoll {
    /// Has the alarm go off then, unless it does so before.
    fn wake_by(&self, at: Moment) -> io::Result<()> {
        if self.set_for.get().is_some_and(|set| set <= at) {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: NO_TIME,
            it_value: Timespec {
                tv_sec: (at.0 / 1_000_000_000) as i64,
                tv_nsec: (at.0 % 1_000_000_000) as i64,
            },
        };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &once)?;
        self.set_for.set(Some(at));
        Ok(())
    }
}

fn told(event: EventFlags) -> u8 {
    let hung_up = event.contains(EventFlags::HUP)
        || event.contains(EventFlags::IN | EventFlags::RDHUP)
        || event.contains(EventFlags::OUT | EventFlags::ERR);
    if hung_up { READY | CLOSED } else { READY }
}

fn current() -> io::Result<Rc<Epoll>> {
    EPOLL
        .with_borrow(Clone::clone)
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// A descriptor of which is known whether it is ready.
pub struct Ready<T: AsFd> {
    inner: T,
    flags: Rc<Cell<u8>>,
    number: usize,
    epoll: Rc<Epoll>,
}

impl<T: AsFd> Ready<T> {
    /// Watches for something to read.
    pub fn to_read(inner: T) -> io::Result<Self> {
        Self::registered(inner, EventFlags::IN | EventFlags::RDHUP)
    }

    /// Watches for room to write.
    pub fn to_write(inner: T) -> io::Result<Self> {
        Self::registered(inner, EventFlags::OUT)
    }

    /// Watches for the loss of the last reader, and for nothing else: neither reads nor writes wake us.
    pub fn to_lose(inner: T) -> io::Result<Self> {
        Self::registered(inner, EventFlags::empty())
    }

    fn registered(inner: T, wanted: EventFlags) -> io::Result<Self> {
        let epoll = current()?;
        let flags = Rc::new(Cell::new(0));
        let number = {
            let mut all = epoll.flags.borrow_mut();
            let free = all.iter().position(Option::is_none);
            let number = free.unwrap_or_else(|| {
                all.push(None);
                all.len() - 1
            });
            let data = EventData::new_u64(number as u64);
            // The next wait reports what is ready already.
            epoll::add(&epoll.fd, &inner, data, wanted | EventFlags::ET)?;
            all[number] = Some(flags.clone());
            number
        };
        Ok(Self {
            inner,
            flags,
            number,
            epoll,
        })
    }

    /// The thing itself.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// The thing itself, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Whether it is worth a try.
    pub fn is_ready(&self) -> bool {
        self.flags.get() != 0
    }

    /// Whether no process is left at the other end; bytes that were written before that may still be there.
    pub fn is_closed(&self) -> bool {
        self.flags.get() & CLOSED != 0
    }

    /// It is worth a try, whether an event has told of it yet or not.
    pub fn look_again(&self) {
        self.flags.set(self.flags.get() | READY);
    }

    /// A try has taken all that there was, or all the room: what comes next brings a new event. An end stays.
    pub fn taken(&self) {
        self.flags.set(self.flags.get() & !READY);
    }

    /// A read or write found nothing to do, so the descriptor is no longer ready.
    pub fn in_vain(&self) {
        self.flags.set(0);
    }
}

impl<T: AsFd> Drop for Ready<T> {
    fn drop(&mut self) {
        // Refused only for what is not in the list, which is what we want.
        epoll::delete(&self.epoll.fd, &self.inner).ok();
        self.epoll.flags.borrow_mut()[self.number] = None;
    }
}

impl<T: AsFd + std::fmt::Debug> std::fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ready").field(&self.inner).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    /// Everything that is ready now.
    fn look() {
        wait(Moment(0), Some(Moment(0))).unwrap();
    }

    /// Until something is ready.
    fn rest() {
        wait(Moment(0), None).unwrap();
    }

    #[test]
    fn a_flag_stays_until_it_is_taken() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        let from = Ready::to_read(from).unwrap();
        look();
        assert!(!from.is_ready());
        rustix::io::write(&to, b"x").unwrap();
        rest();
        look();
        assert!(from.is_ready() && !from.is_closed());
        from.taken();
        look();
        assert!(!from.is_ready(), "the same byte is told once");
        rustix::io::write(&to, b"y").unwrap();
        drop(to);
        rest();
        assert!(from.is_closed());
        from.taken();
        assert!(from.is_ready(), "an end is never taken");
        from.in_vain();
        assert!(!from.is_ready());
    }

    #[test]
    fn a_lost_reader_is_told_and_nothing_else() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        let watched = Ready::to_lose(to.try_clone().unwrap()).unwrap();
        rustix::io::write(&to, b"xy").unwrap();
        rustix::io::read(&from, &mut [0; 1]).unwrap();
        look();
        assert!(!watched.is_ready());
        drop(from);
        rest();
        assert!(watched.is_ready());
    }

    #[test]
    fn what_was_there_before_is_told() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        rustix::io::write(&to, b"x").unwrap();
        let (from, to) = (Ready::to_read(from).unwrap(), Ready::to_write(to).unwrap());
        rest();
        assert!(from.is_ready() && to.is_ready());
    }

    #[test]
    fn a_number_is_used_again_and_its_last_owner_forgotten() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        let first = Ready::to_read(from.try_clone().unwrap()).unwrap();
        rustix::io::write(&to, b"x").unwrap();
        drop(first);
        let (quiet, _held) = pipe().unwrap();
        let second = Ready::to_read(quiet).unwrap();
        look();
        assert!(!second.is_ready());
    }

    #[test]
    fn a_wait_with_a_deadline_ends_by_then() {
        begin().unwrap();
        let now = mainstay_os::clock::now();
        let (soon, later) = (now.after_ms(20), now.after_ms(3_600_000));
        // Put off, then wanted earlier, then put off again.
        for until in [later, soon, later] {
            current().unwrap().wake_by(until).unwrap();
        }
        wait(now, Some(later)).unwrap();
        let woken = mainstay_os::clock::now();
        assert!(woken >= soon && woken < later);
        // It is set anew for what is wanted then.
        let soon = woken.after_ms(20);
        wait(woken, Some(soon)).unwrap();
        assert!(mainstay_os::clock::now() >= soon);
    }
}
