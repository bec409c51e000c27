//! Never shipped.
