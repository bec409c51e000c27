//! mainstay.
