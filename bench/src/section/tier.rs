//! The available tiers.

use std::io;

use crate::lane::Lane;
use crate::place::Place;
use crate::role;

/// The tiers that are measured, weakest first.
const WANTED: [&str; 3] = ["subreaper", "cgroup", "pidns"];

/// The tiers that can be used here, and a sentence about the others.
pub fn available(place: &Place<'_>) -> io::Result<(Vec<&'static str>, Option<String>)> {
    let mut there = Vec::new();
    let mut missing = Vec::new();
    for tier in WANTED {
        let server = place.ours([role::SERVE]);
        let mut lane = Lane::of(place, &place.kept(&["--tier", tier], server))?;
        // If a tier is not available, the answer to the opening says so, and the command fails.
        let opened = lane.talk.open();
        if opened.and_then(|()| lane.end()).is_ok() {
            there.push(tier);
        } else {
            missing.push(tier);
        }
    }
    place.wait_empty()?;
    let told = (!missing.is_empty())
        .then(|| format!("Not available on this machine: {}.", missing.join(", ")));
    Ok((there, told))
}
