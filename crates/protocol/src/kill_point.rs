//! Places where a keeper may be killed.
//!
//! A call stands before each store into memory that survives a killed keeper. It is nothing, but in tests of this crate and in a build
//! with the feature `kill-points`: there the test or the simulation counts the calls of its thread and ends the keeper at one of them by
//! unwinding with [`Killed`].

/// The keeper was killed here.
#[cfg(any(test, feature = "kill-points"))]
#[derive(Debug)]
pub struct Killed;

#[cfg(any(test, feature = "kill-points"))]
mod fuse {
    extern crate std;

    use alloc::boxed::Box;
    use core::cell::Cell;

    std::thread_local! {
        /// Calls until the keeper is killed; `None`: it lives on.
        static FUSE: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// From now on the keeper of this thread is killed after this many kill points; `None`: never.
    pub fn set_fuse(points: Option<u32>) {
        FUSE.set(points);
    }

    /// The keeper may be killed here.
    pub fn kill_point() {
        match FUSE.get() {
            None => {}
            Some(0) => {
                FUSE.set(None);
                std::panic::resume_unwind(Box::new(super::Killed));
            }
            Some(left) => FUSE.set(Some(left - 1)),
        }
    }
}

#[cfg(any(test, feature = "kill-points"))]
pub use fuse::{kill_point, set_fuse};

/// The keeper may be killed here.
#[cfg(not(any(test, feature = "kill-points")))]
#[inline(always)]
pub fn kill_point() {}
