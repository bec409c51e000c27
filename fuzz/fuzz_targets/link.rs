//! The whole link: raw bytes from both sides, and whatever may happen between, through the keeper's model. The same
//! driver runs over random bytes in `crates/testkit/tests/simulation/link_worlds.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_testkit::world::raw;

fuzz_target!(|data: &[u8]| {
    if let Err(broken) = raw::run(data) {
        panic!("{broken}");
    }
});
