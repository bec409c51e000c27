//! What a peer says to a control socket, and what a tap hides: any bytes, cut into any pieces. The first byte says how many
//! of the following are piece lengths; the rest is the input.
#![no_main]

use mainstay_protocol::redact;
use mainstay_store::registry::conversation::Conversation;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, input) = rest.split_at(rest.len().min(usize::from(count % 8)));
    let mut lengths = cuts.iter().cycle();
    Conversation::check(input, || lengths.next().map_or(7, |&len| usize::from(len)));
    let text = String::from_utf8_lossy(input);
    let hidden = redact::body(&text);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    assert!(!json(&text) || json(&hidden), "what is JSON stays JSON");
});
