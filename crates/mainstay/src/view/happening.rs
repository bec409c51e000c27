//! An event as one readable line.
