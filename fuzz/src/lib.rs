//! What the targets compare mainstay with: readers that share no code with it and are as simple as they can be.

pub mod json;
