//! A lock between two kinds of unit tests: those that start a child, and those that must see a descriptor close. A
//! child holds copies of all our descriptors until it executes or exits. Only in tests.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CHILDREN: RwLock<()> = RwLock::new(());

/// While this guard lives, the test may have children.
pub fn with_children() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// While this guard lives, no test of this kind has a child.
pub fn without_children() -> RwLockWriteGuard<'static, ()> {
    CHILDREN.write().unwrap_or_else(PoisonError::into_inner)
}
