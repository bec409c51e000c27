//! The whole link on any bytes from both sides, with anything that may happen between them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_testkit::world::raw;

fuzz_target!(|data: &[u8]| {
    if let Err(trace) = raw::run(data) {
        panic!("{trace}");
    }
});
