//! mainstay.
fn main() {}
