//! The cost of a death, a hibernation and a replay: everything that a client could notice, but does not.

mod death;
mod replay;
mod rest;

use std::io;

use super::cradle::Cradle;
use super::{Part, tier};
use crate::args::Effort;
use crate::place::Place;

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let (tiers, missing) = tier::available(place)?;
    let mut cradle = Cradle::make(place)?;
    let mut part = Part::new(Vec::new(), Vec::new());
    for next in [
        death::measure(place, effort, &mut cradle, &tiers)?,
        replay::measure(place, effort, &mut cradle)?,
        rest::measure(place, effort)?,
    ] {
        part.blocks.extend(next.blocks);
        part.targets.extend(next.targets);
    }
    part.blocks.extend(missing.map(Into::into));
    Ok(part)
}
