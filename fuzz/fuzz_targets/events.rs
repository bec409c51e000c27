//! Server-sent events against the slow reading, on any bytes cut into any pieces. The first byte says how many of the
//! following are piece lengths; the rest is the input.
#![no_main]

use mainstay_http_core::sse::{Decoder, slowly};

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, mut input) = rest.split_at(rest.len().min(usize::from(count % 8)));
    let expected = slowly(input);
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for &cut in cuts {
        let (piece, after) = input.split_at(input.len().min(usize::from(cut)));
        decoder
            .push(piece, |event| events.push(event))
            .expect("inputs are short");
        input = after;
    }
    decoder
        .push(input, |event| events.push(event))
        .expect("inputs are short");
    assert_eq!(events, expected);
});
