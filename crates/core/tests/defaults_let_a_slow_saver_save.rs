//! With the default limits, a server that needs 1.5 s to save its state after EOF has that time, however the stop
//! begins: no signal comes before. After SIGTERM it has as long until SIGKILL.
//! guards: With the default limits, a server has 1.5 s to save its state before the first signal.

use mainstay_core::server::stop::{Ladder, Standing, Step};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Cause;
use mainstay_protocol::limits::Limits;

const SAVES_MS: u64 = 1_500;

/// The steps, with their times, of a stop in which no process ends and every owed answer comes at once.
fn descent(standing: Standing) -> Vec<(u64, Step)> {
    let at = |ms| Moment(0).after_ms(ms);
    let limits = Limits::default();
    let (mut ladder, first) = Ladder::begin(Cause::ClientEof, standing, &limits, at(0));
    let mut steps: Vec<(u64, Step)> = first.map(|step| (0, step)).into_iter().collect();
    steps.extend(ladder.drained(at(0)).map(|step| (0, step)));
    while let Some(next) = ladder.wake_at() {
        let ms = next.ms_since(at(0));
        steps.extend(ladder.tick(next).map(|step| (ms, step)));
    }
    steps
}

#[test]
fn for_every_standing() {
    for (standing, rungs) in [
        (
            Standing::Owing,
            &[Step::CloseStdin, Step::Terminate, Step::Kill][..],
        ),
        (
            Standing::Up,
            &[Step::CloseStdin, Step::Terminate, Step::Kill],
        ),
        (Standing::Left, &[Step::Terminate, Step::Kill]),
    ] {
        let steps = descent(standing);
        let met: Vec<Step> = steps.iter().map(|(_, step)| *step).collect();
        assert_eq!(met, rungs, "{standing:?}");
        for pair in steps.windows(2) {
            let ms = pair[1].0 - pair[0].0;
            assert!(ms > SAVES_MS, "{standing:?}: {ms} ms for {:?}", pair[0].1);
        }
    }
}
