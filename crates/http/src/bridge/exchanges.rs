//! The exchanges that are under way: futures that the bridge's one loop polls itself, so that nothing runs beside it.
//!
//! Each has a bell of its own: a turn of the loop polls those that rang, not all.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use mainstay_http_core::bridge::ExchangeId;

/// The set.
#[derive(Default)]
pub struct Exchanges(BTreeMap<ExchangeId, One>);

struct One {
    future: Pin<Box<dyn Future<Output = ()>>>,
    bell: Arc<Bell>,
}

struct Bell {
    rang: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outer) = &*outer {
            outer.wake_by_ref();
        }
    }
}

impl Exchanges {
    /// Takes one up; it is polled with the next turn.
    pub fn begin(&mut self, id: ExchangeId, future: impl Future<Output = ()> + 'static) {
        let bell = Arc::new(Bell {
            rang: AtomicBool::new(true),
            outer: Mutex::new(None),
        });
        let future = Box::pin(future);
        self.0.insert(id, One { future, bell });
    }

    /// Breaks one off.
    pub fn break_off(&mut self, id: ExchangeId) {
        self.0.remove(&id);
    }

    /// Polls those that were woken. True if there were any.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        self.0.retain(|_, one| {
            {
                let outer = &mut *one
                    .bell
                    .outer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if !outer
                    .as_ref()
                    .is_some_and(|outer| outer.will_wake(cx.waker()))
                {
                    *outer = Some(cx.waker().clone());
                }
            }
            if !one.bell.rang.swap(false, Ordering::AcqRel) {
                return true;
            }
            any = true;
            let waker = Waker::from(Arc::clone(&one.bell));
            one.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending
        });
        any
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn only_those_that_rang_are_polled() {
        let polls = Rc::new(Cell::new((0, 0)));
        let kept: Rc<Cell<Option<Waker>>> = Rc::default();
        let mut all = Exchanges::default();
        let (counted, waker) = (Rc::clone(&polls), Rc::clone(&kept));
        all.begin(
            1,
            poll_fn(move |cx| {
                let (first, second) = counted.get();
                counted.set((first + 1, second));
                waker.set(Some(cx.waker().clone()));
                if first > 0 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }),
        );
        let counted = Rc::clone(&polls);
        all.begin(
            2,
            poll_fn(move |_| {
                let (first, second) = counted.get();
                counted.set((first, second + 1));
                Poll::Pending
            }),
        );
        let mut cx = Context::from_waker(Waker::noop());
        assert!(all.poll(&mut cx));
        assert!(!all.poll(&mut cx));
        kept.take().unwrap().wake();
        assert!(all.poll(&mut cx));
        assert_eq!(polls.get(), (2, 1));
        assert_eq!(all.0.len(), 1, "the first is done");
        all.break_off(2);
        assert!(all.0.is_empty());
    }
}
