//! Which descriptors are ready: one epoll instance for the one task of a keeper.
//!
//! A runtime of tasks and timers costs a small message more than all the rest that we do for it: locks, lists of wakers
//! and half a dozen looks at the clock. Here an event sets a flag, a look reads it, and whatever comes ends the wait.
//! Edge-triggered: a flag stays until whoever reads or writes finds that there is no more, and says so.
//!
//! Invariants: the instance belongs to one thread; whoever is registered owns its descriptor, and is taken out before
//! that is closed.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Descriptors that one look at the kernel's list may bring.
const EVENTS: usize = 32;

/// There may be something to read, or room to write.
const READY: u8 = 1;
/// Nobody is left at the other end.
const CLOSED: u8 = 2;

thread_local! {
    static EPOLL: RefCell<Option<Rc<Epoll>>> = const { RefCell::new(None) };
}

struct Epoll {
    fd: OwnedFd,
    /// The flags of whoever is registered, by number.
    flags: RefCell<Vec<Option<Rc<Cell<u8>>>>>,
    events: RefCell<Vec<Event>>,
}

/// Begins anew. In a forked process the descriptors of whoever was forked from are closed already, or not ours: they are
/// forgotten, not closed.
pub fn begin() -> io::Result<()> {
    let epoll = Rc::new(Epoll {
        fd: epoll::create(CreateFlags::CLOEXEC)?,
        flags: RefCell::new(Vec::new()),
        events: RefCell::new(Vec::with_capacity(EVENTS)),
    });
    std::mem::forget(EPOLL.replace(Some(epoll)));
    Ok(())
}

/// Waits until something is ready, or for so long.
pub fn wait(at_most: Option<Duration>) -> io::Result<()> {
    let epoll = current()?;
    let mut events = epoll.events.borrow_mut();
    events.clear();
    let at_most = at_most.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    match epoll::wait(&epoll.fd, spare_capacity(&mut events), at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let all = epoll.flags.borrow();
    for event in &*events {
        let number = event.data.u64() as usize;
        if let Some(Some(flags)) = all.get(number) {
            flags.set(flags.get() | told(event.flags));
        }
    }
    Ok(())
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
            // What is there already is told by the next wait.
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

    /// Whether nobody is left at the other end; what was written before that may still be there.
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

    /// A try was in vain: whatever was told is over.
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

    const NO_TIME: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_flag_stays_until_it_is_taken() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        let from = Ready::to_read(from).unwrap();
        wait(NO_TIME).unwrap();
        assert!(!from.is_ready());
        rustix::io::write(&to, b"x").unwrap();
        wait(None).unwrap();
        wait(NO_TIME).unwrap();
        assert!(from.is_ready() && !from.is_closed());
        from.taken();
        wait(NO_TIME).unwrap();
        assert!(!from.is_ready(), "the same byte is told once");
        rustix::io::write(&to, b"y").unwrap();
        drop(to);
        wait(None).unwrap();
        assert!(from.is_closed());
        from.taken();
        assert!(from.is_ready(), "an end is never taken");
        from.in_vain();
        assert!(!from.is_ready());
    }

    #[test]
    fn what_was_there_before_is_told() {
        begin().unwrap();
        let (from, to) = pipe().unwrap();
        rustix::io::write(&to, b"x").unwrap();
        let (from, to) = (Ready::to_read(from).unwrap(), Ready::to_write(to).unwrap());
        wait(None).unwrap();
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
        wait(NO_TIME).unwrap();
        assert!(!second.is_ready());
    }
}
