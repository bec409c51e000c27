//! Tiers: how a tree is held, one file each.
