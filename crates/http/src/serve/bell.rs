//! Waiting inside one thread: a bell that wakes the tasks that wait, and a slot that is filled once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes the tasks that wait. A ring without a waiting task is not remembered; what changed is.
#[derive(Debug, Default)]
pub struct Bell {
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Waker>>,
}

impl Bell {
    /// Wakes all tasks that wait.
    pub fn ring(&self) {
        for waker in std::mem::take(&mut *self.waiting.borrow_mut()).into_values() {
            waker.wake();
        }
    }

    /// Waits until `look` finds something; it is asked at once and after each ring.
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let ear = Ear {
            bell: self,
            place: self.next.replace(self.next.get() + 1),
        };
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => ear.listen(cx),
        })
        .await
    }
}

/// A waiting task. Dropping it removes it from the list.
struct Ear<'b> {
    bell: &'b Bell,
    place: u64,
}

impl Ear<'_> {
    fn listen<T>(&self, cx: &Context<'_>) -> Poll<T> {
        let mut waiting = self.bell.waiting.borrow_mut();
        waiting.insert(self.place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        self.bell.waiting.borrow_mut().remove(&self.place);
    }
}

/// Filled once, read by all tasks that wait for it.
#[derive(Debug)]
pub struct Slot<T> {
    value: RefCell<Option<T>>,
    bell: Bell,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            value: RefCell::new(None),
            bell: Bell::default(),
        }
    }
}

impl<T: Clone> Slot<T> {
    /// Fills it; only the first time counts.
    pub fn fill(&self, value: T) {
        self.value.borrow_mut().get_or_insert(value);
        self.bell.ring();
    }

    /// What is in it, when something is.
    pub async fn filled(&self) -> T {
        self.bell.until(|| self.value.borrow().clone()).await
    }
}
