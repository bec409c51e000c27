//! The scanner against serde_json, on any bytes cut into any pieces. The first byte says how many of the following are
//! piece lengths; the rest is the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_core::message::oracle;

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, input) = rest.split_at(rest.len().min(usize::from(count % 8)));
    oracle::check(input, cuts);
});
