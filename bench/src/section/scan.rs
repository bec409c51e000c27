//! Reading the whole process table, as `ps`, `reap` and every sweep do.

use std::ffi::OsString;
use std::io;

use mainstay_os::census;

use super::{Part, Target};
use crate::args::Effort;
use crate::footprint::cpu_ns;
use crate::lane::Lane;
use crate::place::Place;
use crate::role;
use crate::stats::{Series, ms};
use crate::table::Table;

/// The size that the target speaks of.
const PROCESSES: u64 = 5_000;

/// Measures.
pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let crowd = effort.pick(1_000, 100).to_string();
    let argv = [role::GROW, "--mark", place.mark(), "--tree", &crowd].map(OsString::from);
    // The testkit's server makes them all before it answers.
    let mut lane = Lane::of(place, &place.ours(argv))?;
    lane.talk.open()?;
    let me = [std::process::id() as i32];
    let mut times = Series::default();
    let mut found = 0;
    for _ in 0..effort.pick(30, 3) {
        let before = cpu_ns(&me)?;
        found = census::all()?.len() as u64;
        times.push(cpu_ns(&me)? - before);
    }
    // Its members outlive it: that is what they are for.
    place.end_all();
    lane.end().ok();
    let scaled = times.p50() * PROCESSES / found.max(1);
    let mut table = Table::new(
        1,
        &[
            "processes",
            "CPU min, ms",
            "p50",
            "p99",
            "scaled to 5,000, p50",
            "n",
        ],
    );
    table.row([
        found.to_string(),
        ms(times.min()),
        ms(times.p50()),
        ms(times.quantile(0.99)),
        ms(scaled),
        times.count().to_string(),
    ]);
    let blocks = vec![
        "One `census::all()`: every process with parent, session, start time and memory. Measured with a bounded crowd and scaled."
            .into(),
        table.into(),
    ];
    let target = Target {
        what: "scan of 5,000 processes, CPU (scaled)",
        aim: "≤ 100 ms",
        measured: format!("{} ms", ms(scaled)),
        met: scaled <= 100_000_000,
    };
    Ok(Part::new(blocks, vec![target]))
}
