//! Two sorts of unit tests that keep apart: those that start a process, and those that must see a descriptor close. A child holds
//! copies of everybody's descriptors until it executes or leaves. Only in tests.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CHILDREN: RwLock<()> = RwLock::new(());

/// While this lives there are children of ours.
pub fn starting() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// While this lives there are none.
pub fn childless() -> RwLockWriteGuard<'static, ()> {
    CHILDREN.write().unwrap_or_else(PoisonError::into_inner)
}
